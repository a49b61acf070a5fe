# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The fork in environments of its own: every way to install upstream and the fork, every kind of process.

An environment here is a bare one that sees this one's packages, through links, except verl and the fork. So nothing is
downloaded, and nothing that is tested comes from here by accident.
"""

import base64
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CLONE = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NOT_SHARED = ("verl", "_verl_overlay", "__editable__", "tests", "scripts", "hydra_plugins", "__pycache__")
"""What starts so, or is a `.pth` file, stays out of the environments."""
IGNORE = shutil.ignore_patterns("__pycache__", ".venv", ".git", "build", "*.egg-info", "outputs")
UPSTREAM_KINDS = ("wheel", "path", "finder")
"""A regular install; editable by an entry of `sys.path`; editable by an import hook of its own."""
FORK_KINDS = ("wheel", "editable")
SHORT = (("wheel", "wheel"), ("finder", "editable"))
"""The plainest and the oddest."""


def call(command, **options):
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False, timeout=240, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_environ():
    """Of a shell in which nothing was set up."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RAY_", "VIRTUAL_ENV"))}
    return {**kept, "RAY_USAGE_STATS_ENABLED": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class Environment:
    """A virtual environment with this one's packages less verl's."""

    def __init__(self, folder, packages):
        self.folder = folder
        call([sys.executable, "-m", "venv", "--without-pip", folder])
        self.python = folder / "bin" / "python"
        self.site = next(folder.glob("lib/python*/site-packages"))
        (self.site / "packages.pth").write_text(f"{packages}\n")

    def install(self, tool, *arguments):
        options = ["--no-deps", "--no-build-isolation", *(["--offline"] if tool == "uv" else [])]
        self._call(tool, "install", *options, *arguments)

    def uninstall(self, tool):
        self._call(tool, "uninstall", *(["-y"] if tool == "pip" else []), "verl-crosscheck")

    def _call(self, tool, action, *arguments):
        for_tool = {
            "pip": ["pip", "--python", self.python, action],
            "uv": ["uv", "pip", action, "--python", self.python],
        }[tool]
        call([sys.executable, "-m", *for_tool, "-q", *arguments], env=clean_environ(), cwd="/")

    def run(self, *arguments, cwd="/"):
        return call([self.python, *arguments], cwd=cwd, env=clean_environ())

    def script(self, *arguments, cwd="/"):
        """Runs the console script."""
        return call([self.folder / "bin" / "verl-crosscheck", *arguments], cwd=cwd, env=clean_environ())

    def files(self):
        return {
            file.relative_to(self.site).as_posix() for file in self.site.rglob("*") if "__pycache__" not in file.parts
        }


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder of links to the installed packages."""
    folder = tmp_path_factory.mktemp("packages")
    for entry in Path(metadata.distribution("ray").locate_file("")).iterdir():
        if not entry.name.startswith(NOT_SHARED) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """`clone`: a copy of this repository; `upstream/*`: upstream's package as a project to install; `decoy`."""
    base = tmp_path_factory.mktemp("sources")
    shutil.copytree(CLONE, base / "clone", ignore=IGNORE)
    (base / "clone" / "README.md").touch()
    released = Path(metadata.distribution("verl").locate_file("verl"))
    for kind, folder in (("wheel", "verl"), ("path", "verl"), ("finder", "another_name")):
        project = base / "upstream" / kind
        shutil.copytree(released, project / folder, ignore=IGNORE)
        (project / "setup.py").write_text(
            "from setuptools import find_packages, setup\n"
            f"packages = ['verl', *('verl.' + name for name in find_packages({folder!r}))]\n"
            f"setup(name='verl', version='0.7.1', packages=packages, package_dir={{'verl': {folder!r}}},\n"
            "      package_data={'verl': ['**/*']})\n"
        )
    (base / "decoy" / "verl" / "trainer").mkdir(parents=True)
    (base / "decoy" / "verl" / "__init__.py").write_text("raise ImportError('a folder called verl')\n")
    return base


@pytest.fixture
def make(tmp_path, packages, sources):
    """Makes an environment with both installed."""

    def make(upstream, fork, tool):
        environment = Environment(tmp_path / "venv", packages)
        project = sources / "upstream" / upstream
        environment.install("pip", "--no-compile" if upstream == "wheel" else "-e", project)
        before = environment.files()
        environment.install(tool, *([] if fork == "wheel" else ["-e"]), sources / "clone")
        return environment, before

    return make


def folder_of_fork(environment, sources, fork):
    return sources / "clone" / "verl" if fork == "editable" else environment.site / "_verl_overlay" / "verl"


def folder_of_upstream(environment, sources, upstream):
    return {
        "wheel": environment.site / "verl",
        "path": sources / "upstream" / "path" / "verl",
        "finder": sources / "upstream" / "finder" / "another_name",
    }[upstream]


def changed_files(environment):
    """Upstream's files that are not as its RECORD has them."""
    record = next(environment.site.glob("verl-*.dist-info")) / "RECORD"
    for name, value, _ in csv.reader(record.read_text().splitlines()):
        if value and name.startswith("verl/"):
            digest = hashlib.sha256((environment.site / name).read_bytes()).digest()
            if value != "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode():
                yield name


def check_in_force(environment, place, processes, folders):
    """`folders`: the fork's and upstream's."""
    found = json.loads(environment.run(HERE / "probe.py", *processes, cwd=place).splitlines()[-1])
    expected = [each for process in processes for each in (("task", "actor") if process == "ray" else (process,))]
    assert list(found) == ["config", "path", *expected]
    assert found["config"] == ["ckpt", True]
    assert found["path"] == [str(folder) for folder in folders]
    for process in expected:
        assert found[process] == {
            "fork": [str(folders[0] / path) for path in ("crosscheck/__init__.py", "utils/rollout_skip.py")],
            "upstream": str(folders[1] / "protocol.py"),
            "problems": [],
        }


def check_script(environment, place):
    """The console script is there, speaks from any folder, and reaches the whole fork as well."""
    assert "status" in environment.script("--help", cwd=place)
    assert "No run has taken part here yet." in environment.script("status", environment.folder, cwd=place)
    if place == Path("/"):
        assert "The fork is active." in environment.script("installation", cwd=place)


def check_gone(environment, before, upstream_folder):
    """Nothing is left of the fork, and upstream is as it was."""
    assert not (environment.folder / "bin" / "verl-crosscheck").exists()
    assert environment.files() == before
    statement = "import sys, verl.utils.rollout_skip as r; print(r.__file__, '_verl_overlay' in sys.modules)"
    assert environment.run("-c", statement).split() == [str(upstream_folder / "utils" / "rollout_skip.py"), "False"]
    if upstream_folder.is_relative_to(environment.site):
        assert not list(changed_files(environment))


@pytest.mark.parametrize(
    ("upstream", "fork"),
    [
        pytest.param(upstream, fork, marks=[] if (upstream, fork) in SHORT else pytest.mark.extended)
        for upstream in UPSTREAM_KINDS
        for fork in FORK_KINDS
    ],
)
def test_every_process_gets_the_fork_by_pip(make, sources, upstream, fork):
    environment, before = make(upstream, fork, "pip")
    folders = (folder_of_fork(environment, sources, fork), folder_of_upstream(environment, sources, upstream))
    places = {"wheel": Path("/"), "path": sources / "clone", "finder": sources / "decoy"}
    for kind, place in places.items():
        # Ray and spawned processes stand where the driver stands: each place once with each install of the fork.
        check_in_force(environment, place, ["main", "spawn", "ray"] if kind == upstream else [], folders)
        check_script(environment, place)
    environment.uninstall("pip")
    check_gone(environment, before, folders[1])


@pytest.mark.parametrize("fork", [pytest.param("wheel", marks=pytest.mark.extended), "editable"])
def test_uv_installs_the_same(make, sources, fork):
    environment, before = make("wheel", fork, "uv")
    folders = (folder_of_fork(environment, sources, fork), folder_of_upstream(environment, sources, "wheel"))
    check_in_force(environment, sources / "clone", ["main"], folders)
    check_script(environment, sources / "clone")
    environment.uninstall("uv")
    check_gone(environment, before, folders[1])
