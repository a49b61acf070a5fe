# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Hydra reads the configuration folders of `verl` through the overlay.

`verl/**/<name>.yaml` of the fork is merged over upstream's file of that path; folders outside `verl` are read as ever.
These classes take the place of Hydra's two folder sources, whatever brings a folder in (`hydra.main`, `compose`,
`--config-dir`, `hydra.searchpath`): Hydra keeps the first class of a name registered for a scheme, and imports plugins
before it registers its own. The public plugin interface does not see `hydra.searchpath`, which six of upstream's
configurations use, hence `hydra._internal` and the pin on Hydra's minor release.
"""

import importlib.util
import os

from hydra._internal.core_plugins import file_config_source, importlib_resources_config_source
from hydra._internal.sources_registry import SourcesRegistry
from omegaconf import OmegaConf

_FileSource = file_config_source.FileConfigSource


def _overlay_layers(provider, path):
    """Folder sources that make up `path`, the fork's first; empty if `path` is not inside `verl`.

    `path` is a file system path or a dotted package name.
    """
    verl = importlib.util.find_spec("verl")  # does not import it
    roots = [os.path.realpath(p) for p in verl.submodule_search_locations or []] if verl else []
    if path == "verl" or (path.startswith("verl.") and "/" not in path):
        inner = os.path.join(*path.split(".")[1:], "")
        return [_FileSource(provider, os.path.join(root, inner)) for root in roots]
    real = os.path.realpath(path)
    for root in roots:
        if os.path.join(real, "").startswith(os.path.join(root, "")):
            inner = os.path.relpath(real, root)
            return [_FileSource(provider, os.path.join(each, inner)) for each in roots]
    return []


class _Overlaid:
    """Mixin over a Hydra folder source: answers from the fork's folder and upstream's together."""

    def __init__(self, provider, path):
        super().__init__(provider, path)
        self._layers = _overlay_layers(provider, self.path)

    def load_config(self, config_path):
        found = [layer.load_config(config_path) for layer in self._layers if layer.is_config(config_path)]
        if not found:
            return super().load_config(config_path)
        result = found.pop()
        result.path = self.full_path()
        for over in reversed(found):
            result.config = OmegaConf.merge(result.config, over.config)
            result.header.update({key: value for key, value in over.header.items() if value is not None})
        return result

    def is_group(self, config_path):
        return super().is_group(config_path) or any(layer.is_group(config_path) for layer in self._layers)

    def is_config(self, config_path):
        return super().is_config(config_path) or any(layer.is_config(config_path) for layer in self._layers)

    def available(self):
        return super().available() or any(layer.available() for layer in self._layers)

    def list(self, config_path, results_filter):
        layers = [layer for layer in self._layers if layer.is_group(config_path)]
        if not layers:
            return super().list(config_path, results_filter)
        return sorted({name for layer in layers for name in layer.list(config_path, results_filter)})


class FileConfigSource(_Overlaid, _FileSource):
    pass


class ImportlibResourcesConfigSource(_Overlaid, importlib_resources_config_source.ImportlibResourcesConfigSource):
    pass


for _source in (FileConfigSource, ImportlibResourcesConfigSource):
    SourcesRegistry.instance().register(_source)
