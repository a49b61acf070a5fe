# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What `python -m verl.crosscheck` and `require_active` say."""

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import _verl_overlay
from verl.crosscheck import installation as subject
from verl.crosscheck.__main__ import main, markdown, report
from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.installation import Installation, OverlayFile, Role, overlay_files, read_installation

CLONE = Path(__file__).resolve().parents[2]


@pytest.fixture
def installation():
    return Installation(
        fork_version="0.1.0",
        upstream_version="0.7.1",
        upstream_folder=Path("/site/verl"),
        overlay_folder=Path("/clone/verl"),
        files=(
            OverlayFile("a/b.py", Role.SHADOWS, "One | two."),
            OverlayFile("c.yaml", Role.MERGED, "Three."),
            OverlayFile("new/__init__.py", Role.NEW, ""),
        ),
        companions={"torch": "2.13.0"},
        problems=(),
    )


def test_this_environment_is_active():
    found = subject.require_active()
    assert found.active
    assert found.upstream_version == "0.7.1"
    assert "verl.crosscheck" in {file.name for file in found.files}
    assert found.companions.keys() >= {"torch", "ray", "numpy"}


def test_roles_and_purposes_of_files(tmp_path):
    fork, upstream = tmp_path / "fork", tmp_path / "upstream"
    texts = {
        "__init__.py": "raise ImportError\n",
        "a.py": '# Copyright\n"""First line.\n\nMore.\n"""\n',
        "p/__init__.py": "",
        "p/c.yaml": "# Copyright 2026 X\n# SPDX-License-Identifier: X\n# @package _global_\n\n# Purpose\na: 1  # no\n",
        "p/d.yaml": "a: 1\n",
        "p/notes.txt": "",
    }
    for path, text in texts.items():
        (fork / path).parent.mkdir(parents=True, exist_ok=True)
        (fork / path).write_text(text)
    (upstream / "p").mkdir(parents=True)
    for path in ("a.py", "p/c.yaml"):
        (upstream / path).write_text("")
    found = list(overlay_files(fork, upstream))
    assert [(file.name, file.role, file.purpose) for file in found] == [
        ("verl.a", Role.SHADOWS, "First line."),
        ("verl.p", Role.NEW, ""),
        ("verl/p/c.yaml", Role.MERGED, "Purpose"),
        ("verl/p/d.yaml", Role.NEW, ""),
    ]
    assert {file.role for file in overlay_files(fork, None)} == {Role.NEW}


def test_every_file_of_the_fork_says_what_it_is_for():
    assert not [file.path for file in read_installation().files if not file.purpose]


def another_release(tmp_path, version):
    (tmp_path / "verl" / "version").mkdir(parents=True)
    (tmp_path / "verl" / "version" / "version").write_text(f"{version}\n")
    file = tmp_path / "verl" / "__init__.py"
    return SimpleNamespace(__file__=str(file), __path__=[_verl_overlay.ROOT, str(file.parent)])


def test_another_release_of_upstream_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "verl", another_release(tmp_path, "0.8.0"))
    with pytest.raises(CrossCheckError, match=r"made for verl 0\.7\.1 and found 0\.8\.0 in .*first on the import path"):
        subject.require_active()


def test_another_release_that_pip_installed_is_refused_with_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "verl", another_release(tmp_path, "0.8.0"))
    monkeypatch.setattr(subject, "_version", lambda name: "0.8.0")
    with pytest.raises(CrossCheckError, match=r"pip install verl==0\.7\.1"):
        subject.require_active()


def test_a_hook_that_is_not_in_place_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [each for each in sys.meta_path if each is not _verl_overlay.Finder])
    problems = read_installation().problems
    assert len(problems) == 1
    assert "import hook is not in place" in problems[0]


def test_upstream_imported_before_the_hook_is_reported(monkeypatch):
    verl = sys.modules["verl"]
    plain = SimpleNamespace(__file__=verl.__file__, __path__=[str(Path(verl.__file__).parent)])
    monkeypatch.setitem(sys.modules, "verl", plain)
    assert any("before the import hook" in problem for problem in read_installation().problems)


def test_a_module_loaded_from_elsewhere_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl.utils.rollout_skip", SimpleNamespace(__file__="/elsewhere/rollout_skip.py"))
    assert any("/elsewhere/rollout_skip.py" in problem for problem in read_installation().problems)


def test_a_fork_that_is_not_installed_is_reported(monkeypatch):
    monkeypatch.setattr(subject, "_version", lambda name: None if name == "verl-crosscheck" else "0.7.1")
    assert any("pip install -e ." in problem for problem in read_installation().problems)


def test_report_for_a_person(installation):
    lines = list(report(installation))
    assert lines[0] == "verl-crosscheck  0.1.0"
    assert "upstream in      /site/verl" in lines
    assert "  verl.a.b  One | two." in lines
    assert "  verl/c.yaml  Three." in lines
    assert "  verl.new" in lines
    assert lines[-1] == "The fork is active."


def test_report_of_a_problem(installation):
    lines = list(report(replace(installation, upstream_version=None, problems=("Type this.",))))
    assert "verl (upstream)  not found" in lines
    assert lines[-2:] == ["Type this.", "The fork is NOT ACTIVE."]


def test_table_of_the_readme(installation):
    assert list(markdown(installation))[2:] == [
        "| `a/b.py` | upstream's module, overlaid | One \\| two. |",
        "| `c.yaml` | upstream's configuration, merged over | Three. |",
        "| `new/__init__.py` | new |  |",
    ]


def test_summary_is_one_line(installation):
    assert installation.summary() == (
        "verl-crosscheck 0.1.0 active, over verl 0.7.1 in /site/verl: "
        "1 modules shadowed, 1 configurations merged, 1 new"
    )
    assert "NOT ACTIVE" in replace(installation, problems=("x",)).summary()


def test_exit_status(monkeypatch):
    assert CliRunner().invoke(main, []).exit_code == 0
    assert CliRunner().invoke(main, ["--markdown"]).exit_code == 0
    monkeypatch.setattr(sys, "meta_path", [each for each in sys.meta_path if each is not _verl_overlay.Finder])
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 1
    assert done.output.endswith("The fork is NOT ACTIVE.\n")


def test_a_closed_pipe_ends_it_without_a_traceback():
    command = f"{shlex.quote(sys.executable)} -m verl.crosscheck | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.startswith("verl-crosscheck") and done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("module", ["verl", "verl.crosscheck"])
def test_a_clone_that_is_not_installed_says_so(module):
    """-S: no `.pth` file is read, so nothing of this environment is installed for that interpreter."""
    run = subprocess.run([sys.executable, "-S", "-m", module], cwd=CLONE, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "clone of verl-crosscheck that is not installed" in run.stderr
    assert "pip install -e ." in run.stderr


def test_a_clone_without_upstream_says_so():
    statement = f"import sys; sys.path.insert(0, {str(CLONE / 'overlay')!r}); import _verl_overlay as o; o.install()"
    run = subprocess.run(
        [sys.executable, "-S", "-c", f"{statement}; import verl"],
        cwd=CLONE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Type `pip install verl==0.7.1`" in run.stderr
