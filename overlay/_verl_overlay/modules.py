# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The two functions by which a module of the fork takes the place of upstream's module of the same name."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from _verl_overlay.resolve import upstream


def extend(name: str, base: ModuleType) -> None:  # noqa: C901  a small class and its closure
    """Let the module `name` give what it lacks from `base`, upstream's module under its private name.

    Last statement of an overlay module. Reading a name gives upstream's value of that moment. Setting a name, as people
    do to replace a function of upstream, sets it where upstream's own functions look for it. A star import gives what
    it gives from upstream.
    """
    module: Any = sys.modules[name]  # its names are those that its file defines
    upstream_names = frozenset(vars(base))
    if "__all__" not in vars(module):
        module.__all__ = getattr(base, "__all__", sorted(n for n in upstream_names if not n.startswith("_")))
    own = frozenset(vars(module))

    def is_shared(attribute: str) -> bool:  # upstream's, or imported by both
        return attribute in upstream_names and (
            attribute not in own or vars(module).get(attribute) is vars(base).get(attribute)
        )

    class Overlaid(ModuleType):
        def __getattr__(self, attribute: str) -> Any:
            return getattr(base, attribute)

        def __setattr__(self, attribute: str, value: object) -> None:
            shared = is_shared(attribute)
            if not shared or attribute in own:
                ModuleType.__setattr__(self, attribute, value)
            if shared:
                setattr(base, attribute, value)

        def __delattr__(self, attribute: str) -> None:
            if attribute in vars(self):
                ModuleType.__delattr__(self, attribute)
            else:
                delattr(base, attribute)

        def __reduce__(
            self,
        ) -> tuple[
            Callable[[str], ModuleType], tuple[str]
        ]:  # as Ray pickles modules that a function refers to: by name
            from importlib import import_module

            return import_module, (name,)

        def __dir__(self) -> list[str]:
            return sorted({*vars(self), *dir(base)})

    module.__class__ = Overlaid


def inherit(namespace: dict[str, Any]) -> None:
    """Run upstream's file of the calling module's name in `namespace`, the calling module's `globals()`.

    First statement of an overlay module whose upstream functions must themselves see what the overlay redefines.
    Otherwise use `extend`.

    Raises:
        ImportError: Upstream has no file of that name.
    """
    spec = namespace["__spec__"]
    base = upstream(spec.name)
    if base is None or base.loader is None:
        raise ImportError(f"the fork's {namespace['__file__']} extends upstream's {spec.name}, which is not installed")
    loader: Any = base.loader  # of a file: it gives code, which `Loader` does not promise
    kept = {key: namespace[key] for key in ("__name__", "__file__", "__doc__")}
    namespace.update(__name__=spec.name, __file__=base.origin)
    try:
        exec(loader.get_code(base.name), namespace)  # noqa: S102  the pinned release's own file
    finally:
        namespace.update(kept)
