# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The console script `verl-crosscheck`, which starts without importing upstream.

`import verl` runs upstream's `verl/__init__.py`, which imports torch, Ray and tensordict: seconds. In the process of
this script, and in no other, `verl` is an empty package that holds the fork's own modules alone.
"""

import sys
from importlib.machinery import ModuleSpec

from _verl_overlay import NAME
from _verl_overlay.resolve import ROOT


def _put_light_package_in_place() -> None:
    spec = ModuleSpec(NAME, None, is_package=True)
    spec.submodule_search_locations = [ROOT]
    package = type(sys)(NAME, "The fork's modules alone, for its command line.")
    package.__spec__, package.__path__ = spec, spec.submodule_search_locations
    sys.modules[NAME] = package


def main() -> None:
    """Run the command line of this process, and end the process."""
    if NAME not in sys.modules:
        _put_light_package_in_place()
    for stream in (sys.stdout, sys.stderr):  # a file name may have letters that the terminal's encoding has not
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    from verl.crosscheck.cli import main as run

    run(prog_name="verl-crosscheck")
