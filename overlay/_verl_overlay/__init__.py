# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Import hook that lays this fork's `verl/` over the installed upstream `verl`, one module at a time.

A file `verl/<path>.py` of the fork takes the place of upstream's module of that name; everything else comes from
upstream. The shadowing module reaches the one it shadows under a private name, and stands for it in everything else:

    from _verl_overlay import extend
    from verl.trainer.ppo import ray_trainer__upstream as _upstream

    class RayPPOTrainer(_upstream.RayPPOTrainer): ...

    extend(__name__, _upstream)

A `.pth` file calls `install` when any interpreter of the environment starts (Ray workers and spawned processes too), so
this module is short, imports nothing but `sys`, and answers for the name `verl` alone. `resolve.py` finds the module of
a name, and `modules.py` has what overlay modules call; both are loaded when they are needed.
"""

import sys

TYPE_CHECKING = False  # true for a type checker; importing `typing` would slow every start of the interpreter
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from _verl_overlay.modules import extend, inherit  # noqa: F401  see `__getattr__`
    from _verl_overlay.resolve import ROOT, is_upstream_location, upstream  # noqa: F401

NAME = "verl"
_ELSEWHERE = {
    "ROOT": "resolve",
    "is_upstream_location": "resolve",
    "upstream": "resolve",
    "extend": "modules",
    "inherit": "modules",
}


class Finder:
    """Meta path finder for `verl` and what is below it."""

    @staticmethod
    def find_spec(
        fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return the spec of a module of `verl`; None for every other name, or if neither side has the module."""
        if fullname != NAME and not fullname.startswith(NAME + "."):
            return None
        from _verl_overlay.resolve import find_spec

        return find_spec(fullname)


def install() -> None:
    """Activate the overlay in this process, unless it is active already."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


def __getattr__(name: str) -> object:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_ELSEWHERE[name]}"
    __import__(module)
    found: object = getattr(sys.modules[module], name)
    return found
