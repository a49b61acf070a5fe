# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which way imports point, read from the source: importing any part of verl would pull in torch and ray."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FEATURE = ROOT / "verl" / "crosscheck"
RUN = ("ray", "hydra", "verl.trainer", "verl.protocol")
"""What belongs to a run, and not to files."""
FORBIDDEN = {
    "verl.crosscheck.exchange": (*RUN, "verl.crosscheck.evidence", "verl.crosscheck.diagnosis"),
    "verl.crosscheck.diagnosis": RUN,
    "verl.crosscheck.evidence": ("verl.trainer", "verl.crosscheck.diagnosis"),
}


def module_files():
    """File by dotted name of every module of the feature."""
    files = {}
    for file in FEATURE.rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


def imported(name, file):
    """Dotted names that a module imports anywhere, `from a import b` as both `a` and `a.b`."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name, package):
    return name == package or name.startswith(package + ".")


def reached(package, files):
    """(importing module, imported name) for all that `package` imports, also by way of the feature's other modules."""
    todo = [name for name in files if within(name, package)]
    seen = set(todo)
    while todo:
        module = todo.pop()
        for name in imported(module, files[module]):
            yield module, name
            if name in files and name not in seen:
                seen.add(name)
                todo.append(name)


@pytest.mark.parametrize("package", FORBIDDEN)
def test_package_does_not_reach_what_it_must_not_know(package):
    files = module_files()
    wrong = {
        f"{module} imports {name}"
        for module, name in reached(package, files)
        if any(within(name, each) for each in FORBIDDEN[package])
    }
    assert not wrong


def test_imports_are_seen_wherever_they_stand(tmp_path):
    file = tmp_path / "__init__.py"
    file.write_text("import ray.util\nfrom . import a\nfrom ..x import b\ndef f():\n    from hydra import compose\n")
    found = set(imported("verl.crosscheck.exchange", file))
    assert found >= {"ray.util", "verl.crosscheck.exchange.a", "verl.crosscheck.x.b", "hydra", "hydra.compose"}


def test_only_the_command_lines_and_the_grepped_log_lines_print():
    prints = {
        file.relative_to(FEATURE).as_posix()
        for file in FEATURE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    speaks = {path for path in prints if Path(path).name in ("cli.py", "__main__.py")}
    assert prints - speaks <= {"console.py"}
