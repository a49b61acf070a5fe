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
this module imports nothing but `os` and `sys` itself and answers for the name `verl` alone.
"""

import os
import sys

NAME = "verl"
SUFFIX = "__upstream"


def _find_root():
    """Folder of the fork's modules: inside this package in a regular install, `<clone>/verl` in an editable one."""
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), NAME)
    if os.path.isdir(inside):
        return inside
    here = os.path.realpath(__file__)  # a strict editable install is made of links into the clone
    return os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(here))), NAME)


ROOT = _find_root()


def is_upstream_location(entry):
    """Does this entry of `sys.path` hold upstream? Others may hold a clone of this fork, or any folder called verl."""
    # Only upstream has version/version. The entry "" is the working directory, also one that was deleted.
    return isinstance(entry, str) and os.path.isfile(os.path.join(entry, NAME, "version", "version"))


def _upstream_package():
    """The spec of upstream's top-level package, whichever finder knows it (wheel or any kind of editable install)."""
    from importlib.machinery import PathFinder

    for finder in sys.meta_path:
        if finder is Finder or not hasattr(finder, "find_spec"):
            continue
        path = [entry for entry in sys.path if is_upstream_location(entry)] if finder is PathFinder else None
        spec = finder.find_spec(NAME, path)
        if spec is not None and spec.origin:  # a namespace package has no origin, upstream has
            return spec
    return None


def upstream(name):
    """The spec of upstream's module `name`, as if this overlay were not there; None if upstream has no such module."""
    from importlib.machinery import PathFinder

    if name == NAME:
        return _upstream_package()
    parent_name = name.rpartition(".")[0]
    parent = sys.modules.get(parent_name) or __import__(parent_name, fromlist=["_"])
    inside = os.path.join(ROOT, "")
    return PathFinder.find_spec(name, [p for p in parent.__path__ if not os.path.join(p, "").startswith(inside)])


def _private_spec(fullname):
    """The spec of `verl.a.b__upstream`: upstream's own verl/a/b.py under a second name."""
    from importlib.machinery import ModuleSpec, SourceFileLoader

    real = fullname[: -len(SUFFIX)]
    found = upstream(real)
    if found is None:
        return None

    class Spec(ModuleSpec):
        # Relative imports inside the module must start from the package it was written for.
        parent = real if found.submodule_search_locations else real.rpartition(".")[0]

    spec = Spec(fullname, SourceFileLoader(fullname, found.origin), origin=found.origin)
    spec.has_location, spec.cached = True, found.cached
    return spec


class Finder:
    """Meta path finder for `verl` and what is below it."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname != NAME and not fullname.startswith(NAME + "."):
            return None
        from importlib.machinery import PathFinder

        if fullname.endswith(SUFFIX):
            return _private_spec(fullname)
        folder = os.path.join(ROOT, *fullname.split(".")[1:])
        # The fork's own verl/__init__.py only speaks to people whose clone was never installed: never load it here.
        mine = PathFinder.find_spec(fullname, [os.path.dirname(folder)]) if fullname != NAME else None
        if mine is not None and mine.submodule_search_locations is None:
            return mine
        base = upstream(fullname)
        if base is None:
            return mine
        if not os.path.isdir(folder) or base.submodule_search_locations is None:
            return base
        spec = mine if mine is not None and mine.origin else base
        spec.submodule_search_locations = [folder, *base.submodule_search_locations]
        return spec


def extend(name, base):
    """Let the module `name` stand for `base`, upstream's under its private name, in what it does not define itself.

    Last statement of an overlay module. Reading a name gives upstream's, as it is at that moment; setting one, as
    people do to put a function of their own in upstream's place, sets it where upstream's own functions look for it; a
    star import gives what it gives from upstream.
    """
    module_type = type(sys)
    module = sys.modules[name]
    upstream_names = frozenset(vars(base))
    if "__all__" not in vars(module):
        module.__all__ = getattr(base, "__all__", sorted(n for n in upstream_names if not n.startswith("_")))
    own = frozenset(vars(module))

    def is_shared(attribute):  # upstream's, or imported by both
        return attribute in upstream_names and (
            attribute not in own or vars(module).get(attribute) is vars(base).get(attribute)
        )

    class Overlaid(module_type):
        def __getattr__(self, attribute):
            return getattr(base, attribute)

        def __setattr__(self, attribute, value):
            shared = is_shared(attribute)
            if not shared or attribute in own:
                module_type.__setattr__(self, attribute, value)
            if shared:
                setattr(base, attribute, value)

        def __delattr__(self, attribute):
            if attribute in vars(self):
                module_type.__delattr__(self, attribute)
            else:
                delattr(base, attribute)

        def __dir__(self):
            return sorted({*vars(self), *dir(base)})

    module.__class__ = Overlaid


def inherit(namespace):
    """Run upstream's file of the calling module's name in `namespace`, the calling module's `globals()`.

    First statement of an overlay module whose upstream functions must themselves see what the overlay redefines.
    Where nothing of the kind is needed, `extend` instead.
    """
    spec = namespace["__spec__"]
    base = upstream(spec.name)
    kept = {key: namespace[key] for key in ("__name__", "__file__", "__doc__")}
    namespace.update(__name__=spec.name, __file__=base.origin)
    try:
        exec(base.loader.get_code(base.name), namespace)  # noqa: S102  the pinned release's own file
    finally:
        namespace.update(kept)


def install():
    """Put the overlay in force in this process; twice is once."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
