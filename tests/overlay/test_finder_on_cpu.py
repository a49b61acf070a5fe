# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The import hook on a small upstream of its own, in bare interpreters of every Python that is here."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OVERLAY = Path(__file__).resolve().parents[2] / "overlay"


def starts(python):
    """pyenv puts launchers on the path that start nothing."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def interpreters():
    """This Python, and one of each other version that is here."""
    yield sys.executable
    for minor in {10, 11, 12, 13} - {sys.version_info.minor}:
        installed = [str(each) for each in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
        candidates = filter(None, [*installed, shutil.which(f"python3.{minor}")])
        yield from itertools.islice(filter(starts, candidates), 1)


INTERPRETERS = list(interpreters())


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """`site`: a released upstream; `clone`: the fork, with this repository's finder; `decoy`: another `verl`."""
    base = tmp_path_factory.mktemp("world")
    write(
        base / "site" / "verl",
        {
            "version/version": "0.7.1",
            "__init__.py": "from .a import VALUE\n",
            "a.py": "VALUE = 'upstream'\nclass Thing:\n    pass\ndef value():\n    return VALUE\n",
            "b.py": "from verl.a import Thing, VALUE\n",
            "pkg/__init__.py": "KIND = 'upstream'\n",
            "pkg/c.py": "from . import KIND\nfrom ..a import VALUE\n",
            "pkg/d.py": "NAME = 'd'\n",
            "helped.py": "def inner():\n    return 1\ndef outer():\n    return inner()\n",
        },
    )
    write(
        base / "clone" / "verl",
        {
            "__init__.py": "raise ImportError('a clone that is not installed')\n",
            "a.py": "from verl.a__upstream import *\nfrom verl import a__upstream\n"
            "VALUE = 'fork'\nclass Thing(a__upstream.Thing):\n    pass\n",
            "pkg/c.py": "from verl.pkg import c__upstream\nfrom verl.pkg.c__upstream import VALUE\n",
            "pkg/new.py": "WHERE = 'fork'\n",
            "added/__init__.py": "",
            "added/e.py": "from . import f\n",
            "added/f.py": "",
            "helped.py": "import _verl_overlay\n_verl_overlay.inherit(globals())\ndef inner():\n    return 2\n",
        },
    )
    write(base / "decoy" / "verl", {"__init__.py": "raise ImportError('decoy')\n", "a.py": "VALUE = 'decoy'\n"})
    shutil.copytree(OVERLAY / "_verl_overlay", base / "clone" / "overlay" / "_verl_overlay")
    return base


@pytest.fixture(params=INTERPRETERS)
def run(request, world):
    """Runs statements with the overlay installed, and returns what they assign to `out`."""

    def run(statements, cwd="/", path=(), install=True):
        lines = [
            "import sys, json",
            f"sys.path[:] = [e for e in sys.path if 'site-packages' not in e] + {[str(world / 'site')]!r}",
            f"sys.path[:0] = {[*path, str(world / 'clone' / 'overlay')]!r}",
            "import _verl_overlay",
            "_verl_overlay.install()" if install else "",
            statements,
            "print(json.dumps(out))",
        ]
        done = subprocess.run(
            [request.param, "-S", "-c", "\n".join(lines)], cwd=cwd, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_shadow_takes_the_place_for_upstreams_importers_too(run):
    assert run("import verl, verl.b; out = [verl.VALUE, verl.b.VALUE, verl.b.Thing.__module__]") == [
        "fork",
        "fork",
        "verl.a",
    ]


def test_importing_the_hook_alone_changes_nothing(run):
    assert run("import verl; out = verl.VALUE", install=False) == "upstream"


def test_install_twice_is_once(run):
    assert run("_verl_overlay.install(); out = sys.meta_path.count(_verl_overlay.Finder)") == 1


def test_upstream_is_reached_by_its_private_name_and_its_classes_travel(run):
    out = run(
        "import pickle, inspect\nfrom verl import a__upstream as up\nimport verl.a as a\n"
        "out = [up.VALUE, issubclass(a.Thing, up.Thing), pickle.loads(pickle.dumps(up.Thing)) is up.Thing,"
        " pickle.loads(pickle.dumps(a.Thing)) is a.Thing, inspect.getsource(up.value).startswith('def value')]"
    )
    assert out == ["upstream", True, True, True, True]


def test_relative_imports_of_a_private_module_start_from_its_package(run):
    assert run("from verl.pkg import c__upstream as c; out = [c.KIND, c.VALUE, c.__package__]") == [
        "upstream",
        "fork",
        "verl.pkg",
    ]


def test_a_package_of_upstream_gains_modules_and_keeps_its_own(run, world):
    out = run("import verl.pkg.new as n, verl.pkg.d as d, verl.pkg as p; out = [n.WHERE, d.__file__, p.KIND]")
    assert out == ["fork", str(world / "site/verl/pkg/d.py"), "upstream"]


def test_a_package_of_the_fork_alone(run):
    assert run("import verl.added.e as e; out = e.f.__name__") == "verl.added.f"


def test_private_name_of_what_upstream_has_not(run):
    assert (
        run("import importlib.util as u; out = [u.find_spec('verl.added.e__upstream'), u.find_spec('verl.no')]")
        == [None] * 2
    )


def test_inherit_lets_upstreams_functions_see_the_forks(run):
    assert run("import verl.helped as h; out = [h.outer(), h.__name__]") == [2, "verl.helped"]


def test_modules_are_listed_once(run):
    out = run("import pkgutil, verl; out = sorted(m.name for m in pkgutil.iter_modules(verl.__path__))")
    assert out == ["a", "added", "b", "helped", "pkg"]


@pytest.mark.parametrize("place", ["clone", "decoy", "site"])
@pytest.mark.parametrize("entry", ["", "absolute"])
def test_other_folders_called_verl_do_not_matter(run, world, place, entry):
    path = [str(world / place)] if entry else [""]
    out = run("import verl, verl.a; out = [verl.VALUE, verl.a.__file__]", cwd=world / place, path=path)
    assert out == ["fork", str(world / "clone/verl/a.py")]


def test_a_working_directory_that_was_deleted(run, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    out = run(f"import os; os.rmdir({str(gone)!r}); import verl; out = verl.VALUE", cwd=gone, path=[""])
    assert out == "fork"


def test_entries_of_the_path_that_are_no_strings(run):
    # `os` is there in any interpreter that processed a .pth; Python 3.10 itself fails on bytes without it.
    assert run("import os; sys.path[:0] = [b'x', None]; import verl; out = verl.VALUE") == "fork"


def test_another_finder_may_know_upstream(run, world):
    """As in an editable install whose package folder has another name."""
    out = run(
        "import importlib.util as u\n"
        f"where = {str(world / 'site/verl/__init__.py')!r}; sys.path.remove({str(world / 'site')!r})\n"
        "class Editable:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
        "        return u.spec_from_file_location(name, where) if name == 'verl' else None\n"
        "sys.meta_path.append(Editable)\n"
        "import verl, verl.b; out = [verl.VALUE, verl.b.__file__]"
    )
    assert out == ["fork", str(world / "site/verl/b.py")]


def test_without_upstream_there_is_no_verl(run, world):
    out = run(
        f"import importlib.util as u; sys.path.remove({str(world / 'site')!r}); out = u.find_spec('verl')",
    )
    assert out is None


def test_other_names_are_none_of_its_business(run):
    assert run("f = _verl_overlay.Finder.find_spec; out = [f('verlag'), f('json'), f('ver')]") == [None] * 3


def test_interpreter_start_costs_at_most_two_milliseconds(run):
    """What the .pth does, by the fastest of twenty tries."""
    seconds = run(
        "import time\ndef once():\n    for name in [n for n in sys.modules if n == '_verl_overlay']:\n"
        "        del sys.modules[name]\n    sys.meta_path[:] = [f for f in sys.meta_path if f.__class__ is not type"
        " or f.__module__ != '_verl_overlay']\n    start = time.perf_counter()\n"
        "    exec('import _verl_overlay; _verl_overlay.install()')\n    return time.perf_counter() - start\n"
        "out = min(once() for _ in range(20))"
    )
    assert seconds < 0.002


def test_the_hook_loads_nothing_at_start(run):
    known = "before = set(sys.modules)\ndel sys.modules['_verl_overlay']\nimport _verl_overlay\n"
    assert run(known + "out = sorted(set(sys.modules) - before)") == []
