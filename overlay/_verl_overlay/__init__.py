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
this module is short, imports nothing but `sys`, and answers for the name `verl` alone. What it takes to answer is in
`resolve.py`, what overlay modules call in `modules.py`; both are loaded when they are needed.
"""

import sys

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
    def find_spec(fullname, path=None, target=None):
        if fullname != NAME and not fullname.startswith(NAME + "."):
            return None
        from _verl_overlay.resolve import find_spec

        return find_spec(fullname)


def install():
    """Put the overlay in force in this process; twice is once."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


def __getattr__(name):
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_ELSEWHERE[name]}"
    __import__(module)
    return getattr(sys.modules[module], name)
