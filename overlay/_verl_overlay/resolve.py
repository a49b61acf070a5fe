# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Find where a module of `verl` comes from: the fork, upstream, or both. Loaded at the first import of `verl`."""

import os
import sys

from _verl_overlay import NAME, Finder

TYPE_CHECKING = False  # true for a type checker; spares this module the imports
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

SUFFIX = "__upstream"


def _find_root() -> str:
    """Return the fork's folder of modules: in this package in a regular install, `<clone>/verl` in an editable one."""
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), NAME)
    if os.path.isdir(inside):
        return inside
    here = os.path.realpath(__file__)  # a strict editable install is made of links into the clone
    return os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(here))), NAME)


ROOT = _find_root()


def is_upstream_location(entry: object) -> bool:
    """Return whether this entry of `sys.path` holds upstream."""
    # Only upstream has version/version. The entry "" is the working directory, also one that was deleted.
    return isinstance(entry, str) and os.path.isfile(os.path.join(entry, NAME, "version", "version"))


def _upstream_package() -> "ModuleSpec | None":
    """Return the spec of upstream's top-level package, from whichever finder knows it (wheel or editable install)."""
    from importlib.machinery import PathFinder

    for finder in sys.meta_path:
        if finder is Finder or not hasattr(finder, "find_spec"):
            continue
        path = [entry for entry in sys.path if is_upstream_location(entry)] if finder is PathFinder else None
        spec = finder.find_spec(NAME, path)
        if spec is not None and spec.origin:  # a namespace package has no origin, upstream has
            return spec
    return None


def upstream(name: str) -> "ModuleSpec | None":
    """Return the spec of upstream's module `name`, as without this overlay; None if upstream has no such module."""
    from importlib.machinery import PathFinder

    if name == NAME:
        return _upstream_package()
    parent_name = name.rpartition(".")[0]
    parent = sys.modules.get(parent_name) or __import__(parent_name, fromlist=["_"])
    inside = os.path.join(ROOT, "")
    return PathFinder.find_spec(name, [p for p in parent.__path__ if not os.path.join(p, "").startswith(inside)])


def _private_spec(fullname: str) -> "ModuleSpec | None":
    """Return the spec of `verl.a.b__upstream`: upstream's own verl/a/b.py under a second name; None if it has none."""
    from importlib.machinery import ModuleSpec, SourceFileLoader

    real = fullname[: -len(SUFFIX)]
    found = upstream(real)
    if found is None or found.origin is None:  # a namespace package has no file
        return None
    package = real if found.submodule_search_locations else real.rpartition(".")[0]

    class Spec(ModuleSpec):
        @property
        def parent(self) -> str:
            """Return the package the module was written for, where its relative imports start."""
            return package

    spec = Spec(fullname, SourceFileLoader(fullname, found.origin), origin=found.origin)
    spec.has_location, spec.cached = True, found.cached
    return spec


def find_spec(fullname: str) -> "ModuleSpec | None":
    """Return the spec of `verl` or a module below it: the fork's, else upstream's; None if neither has the module."""
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
