# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that the fork does not list as its own is upstream's file, byte for byte as released."""

import base64
import hashlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from verl.crosscheck.installation import Role, read_installation

RESOLVE = """
import json, sys, types
from pathlib import Path
from _verl_overlay import Finder

def resolve(name):
    spec = Finder.find_spec(name)
    if spec is None:
        return
    yield name, spec.origin
    folders = spec.submodule_search_locations
    if folders is None:
        return
    # Stands in for the package, whose code is not run: some of upstream needs what is not installed here.
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = list(folders)
    inner = {file.stem for folder in folders for file in Path(folder).glob("*.py")} - {"__init__"}
    inner |= {file.parent.name for folder in folders for file in Path(folder).glob("*/*.py")}
    for each in sorted(inner):
        yield from resolve(f"{name}.{each}")

print(json.dumps(dict(resolve("verl"))))
"""
"""Prints the file of every module of `verl` as the import system finds it."""


@pytest.fixture(scope="module")
def origins():
    run = subprocess.run([sys.executable, "-c", RESOLVE], cwd="/", capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def recorded():
    """Hash by file, as upstream's distribution recorded it."""
    files = metadata.distribution("verl").files or []
    found = {Path(file.locate()).resolve(): file.hash.value for file in files if file.hash and file.parts[0] == "verl"}
    if not any(file.suffix == ".py" for file in found):
        pytest.skip("upstream is an editable install, which records no hashes")
    return found


def hash_of(file):
    """As RECORD writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()


def test_upstreams_files_are_as_released(recorded):
    changed = [str(file) for file, value in recorded.items() if not file.is_file() or hash_of(file) != value]
    assert not changed
    assert len(recorded) > 300


def test_nothing_was_added_to_upstreams_folder(recorded):
    folder = read_installation().upstream_folder
    added = {file.resolve() for suffix in ("*.py", "*.yaml") for file in folder.rglob(suffix)} - set(recorded)
    assert not added


def test_every_module_that_is_not_listed_is_upstreams(origins, recorded):
    ours = {file.name for file in read_installation().files if file.path.endswith(".py")}
    theirs = {name: Path(origin).resolve() for name, origin in origins.items() if origin and name not in ours}
    assert not {name for name, file in theirs.items() if file not in recorded}
    assert len(theirs) > 300


def test_every_listed_module_is_the_forks(origins):
    installation = read_installation()
    wrong = {
        file.name: origins.get(file.name)
        for file in installation.files
        if file.path.endswith(".py") and origins.get(file.name) != str(installation.overlay_folder / file.path)
    }
    assert not wrong
    assert any(file.role is Role.SHADOWS for file in installation.files)
