# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a module of the fork calls to stand in the place of upstream's module of the same name."""

import sys

from _verl_overlay.resolve import upstream


def extend(name, base):  # noqa: C901  a small class and its closure
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

        def __reduce__(self):  # as Ray pickles modules that a function refers to: by name
            from importlib import import_module

            return import_module, (name,)

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
