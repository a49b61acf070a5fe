# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Let Hydra read the configuration folders of `verl` through the overlay.

`verl/**/<name>.yaml` of the fork is merged over upstream's file of that path, and its defaults list is added behind
upstream's, so that several files can take the same keys from one. Folders outside `verl` are read as without the fork.

These classes take the place of Hydra's two folder sources, whatever brings a folder in (`hydra.main`, `compose`,
`--config-dir`, `hydra.searchpath`): Hydra keeps the first class of a name registered for a scheme, and imports plugins
before it registers its own. The public plugin interface does not see `hydra.searchpath`, which six of upstream's
configurations use, hence `hydra._internal` and the pin on Hydra's minor release.
"""

# mypy: disable-error-code="safe-super"
# `_Overlaid` is a mixin: a concrete source of Hydra follows it among the bases of each class.

import builtins
import functools
import importlib.util
import logging
import os
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins import importlib_resources_config_source
from hydra._internal.core_plugins.file_config_source import FileConfigSource as _FileSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

from _verl_overlay import NAME, ROOT, is_upstream_location


def _roots() -> list[str]:
    """Return the folders that make up the package `verl`, the fork's first."""
    spec = importlib.util.find_spec(NAME)  # does not import it
    return [os.path.realpath(folder) for folder in spec.submodule_search_locations or []] if spec else []


def _below(path: str, folder: str) -> str | None:
    """Return `path` relative to `folder`, or None if it is not inside."""
    return os.path.relpath(path, folder) if os.path.join(path, "").startswith(os.path.join(folder, "")) else None


def _below_other_clone(real: str) -> str | None:
    """Return `real` relative to the `verl/` of a clone of this fork that contains it, or None."""
    folder = real
    while folder != os.path.dirname(folder):
        parent = os.path.dirname(folder)
        if os.path.basename(folder) == NAME and os.path.isfile(os.path.join(folder, "crosscheck", "__init__.py")):
            return None if is_upstream_location(parent) else os.path.relpath(real, folder)
        folder = parent
    return None


@functools.cache  # once for each folder, not once for each of Hydra's passes
def _warn_of_clone(real: str, inner: str) -> None:
    logging.getLogger(__name__).warning(
        "%s belongs to a clone of verl-crosscheck that is not the one installed, and holds only what the fork changes. "
        "Reading the installed %s and upstream's instead. To use the clone's, type `pip install -e .` in it.",
        real,
        os.path.join(ROOT, inner),
    )


def _path_inside_package(path: str, roots: Sequence[str]) -> str | None:
    """Return where `path`, a file system path or a dotted package name, lies inside `verl`; None if outside."""
    if path == NAME or (path.startswith(NAME + ".") and "/" not in path):
        return os.path.join(*path.split(".")[1:], "")
    real = os.path.realpath(path)
    for root in roots:
        inner = _below(real, root)
        if inner is not None:
            return inner
    inner = _below_other_clone(real)
    if inner is not None:
        _warn_of_clone(real, inner)
        return inner
    # Six of upstream's configurations name verl/trainer/config relative to a checkout: elsewhere, the installed one.
    if not os.path.isabs(path) and not os.path.exists(path):
        return _below(os.path.normpath(path), NAME)
    return None


def _overlay_layers(provider: str, path: str) -> list[_FileSource]:
    """Return the folder sources that make up `path`, the fork's first; empty if `path` is not inside `verl`."""
    roots = _roots()
    inner = _path_inside_package(path, roots)
    return [] if inner is None else [_FileSource(provider, os.path.join(root, inner)) for root in roots]


def _defaults(config: Any) -> list[Any]:
    """Return the defaults list of a configuration as it stands in the file, interpolations unresolved."""
    if "defaults" not in config:
        return []
    defaults: list[Any] = OmegaConf.to_container(config.defaults, resolve=False)
    return defaults


class _Overlaid(ConfigSource):
    """Mixin over a Hydra folder source: reads the fork's folder and upstream's together.

    Hydra's own source of a package would import it, with torch; the layers only look at files.
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self._layers = _overlay_layers(provider, self.path)

    def load_config(self, config_path: str) -> ConfigResult:
        """Return the configuration of that path, the fork's merged over upstream's."""
        found = [layer.load_config(config_path) for layer in self._layers if layer.is_config(config_path)]
        if not found:
            return super().load_config(config_path)
        result = found.pop()
        result.path = self.full_path()
        for over in reversed(found):
            defaults = _defaults(result.config) + _defaults(over.config)
            result.config = OmegaConf.merge(result.config, over.config)
            if defaults:
                result.config.defaults = defaults
            result.header.update({key: value for key, value in over.header.items() if value is not None})
        return result

    def is_group(self, config_path: str) -> bool:
        """Return whether either side has a folder of that path."""
        return (
            any(layer.is_group(config_path) for layer in self._layers)
            if self._layers
            else super().is_group(config_path)
        )

    def is_config(self, config_path: str) -> bool:
        """Return whether either side has a file of that path."""
        return (
            any(layer.is_config(config_path) for layer in self._layers)
            if self._layers
            else super().is_config(config_path)
        )

    def available(self) -> bool:
        """Return whether either side has this folder."""
        return any(layer.available() for layer in self._layers) if self._layers else super().available()

    def list(self, config_path: str, results_filter: ObjectType | None) -> builtins.list[str]:
        """Return the sorted names in that folder, of both sides."""
        layers = [layer for layer in self._layers if layer.is_group(config_path)]
        if not layers:
            return super().list(config_path, results_filter)
        return sorted({name for layer in layers for name in layer.list(config_path, results_filter)})


class FileConfigSource(_Overlaid, _FileSource):
    """Hydra's source of a folder in the file system."""


class ImportlibResourcesConfigSource(_Overlaid, importlib_resources_config_source.ImportlibResourcesConfigSource):
    """Hydra's source of a folder in a package."""


for _source in (FileConfigSource, ImportlibResourcesConfigSource):
    SourcesRegistry.instance().register(_source)
