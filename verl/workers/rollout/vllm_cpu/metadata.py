# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream asks for the version of a distribution called `vllm`; the package index's CPU build has another name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from unittest import mock

from _verl_overlay.vllm_plugin import installed_build
from verl.utils.device import is_cpu_backend

_version = metadata.version


def version(distribution_name: str) -> str:
    """`importlib.metadata.version`, which for `vllm` answers with the version of the CPU build."""
    build = installed_build() if distribution_name == "vllm" else None
    return _version(distribution_name if build is None else build.name)


@contextmanager
def vllm_by_its_usual_name() -> Iterator[None]:
    """Modules executed inside import `version` from above in place of the standard library's; on a CPU alone."""
    if not is_cpu_backend:
        yield
        return
    with mock.patch.object(metadata, "version", version):
        yield
