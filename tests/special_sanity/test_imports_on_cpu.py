# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The layout of the code, read from its source: importing any part of verl would pull in torch and ray.

Packages of `verl/crosscheck` stand in one order and import downwards only, wherever in a module an import stands. The
order, with a sentence for each package, is in docs/architecture.md.
"""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FEATURE = ROOT / "verl" / "crosscheck"

ORDER = (
    "cli",
    "pair",
    "inspection",
    "run",
    "report",
    "diagnosis",
    "agreement",
    "weights",
    "evidence",
    "exchange",
    "ground",
)
"""Packages of `verl.crosscheck`, the highest first. `ground` stands for the modules directly in it."""

RUN = ("ray", "hydra", "verl.protocol")
"""What belongs to a run, and not to files."""
FORBIDDEN = {
    "verl.crosscheck": ("verl.trainer",),
    "verl.crosscheck.pair": (*RUN, "torch", "click", "rich"),
    "verl.crosscheck.inspection": (*RUN, "torch", "click", "rich"),
    "verl.crosscheck.run": ("click", "rich"),
    "verl.crosscheck.diagnosis": (*RUN, "click", "rich"),
    "verl.crosscheck.evidence": ("click", "rich"),
    "verl.crosscheck.exchange": (*RUN, "click", "rich"),
}
"""By package, what no module of it imports. What it reaches stands below it and is held to the same."""

REGISTRATIONS = {
    (
        "_verl_overlay",
        "_verl_overlay.resolve",
    ): "The import hook starts with each interpreter; the rest loads on demand.",
    ("_verl_overlay", "_verl_overlay.modules"): "The same; named for type checkers, imported by `__getattr__`.",
    ("verl.utils.cpu_device", "verl.workers.rollout.vllm_cpu.startup"): "On a CPU the device answers for vLLM too.",
    (
        "verl.workers.engine.base",
        "verl.workers.engine.fsdp.cpu_impl",
    ): "Upstream's registry of engines gains the CPU's.",
    ("verl.workers.rollout.replica", "verl.workers.rollout.hf_server.replica"): "Its registry of rollouts gains hf.",
}
"""Imports that close a cycle, each inside a function: a registry that learns of an implementation built upon it."""

MODULES_IN_FEATURE = 12
SMALL_LINES = 80
SMALL_MODULES = 20


def module_name(file, base):
    parts = file.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_files():
    """File by dotted name of every module of the fork: `verl` and what makes it an overlay."""
    found = {module_name(file, ROOT): file for file in (ROOT / "verl").rglob("*.py")}
    return found | {module_name(file, ROOT / "overlay"): file for file in (ROOT / "overlay").rglob("*.py")}


def feature_files():
    return {name: file for name, file in module_files().items() if within(name, "verl.crosscheck")}


@cache
def imported(name, file):
    """Dotted names that a module imports anywhere, `from a import b` as both `a` and `a.b`."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)


def within(name, package):
    return name == package or name.startswith(package + ".")


def package_of(name):
    """The package of the order that a module of the feature belongs to."""
    parts = name.split(".")
    if (FEATURE / Path(*parts[2:3])).is_dir() and len(parts) > 2:
        return parts[2]
    return "ground"


def upwards(files):
    """`importer imports imported` for each import from a package to one above it."""
    for name, file in files.items():
        for target in set(imported(name, file)) & set(files):
            if ORDER.index(package_of(target)) < ORDER.index(package_of(name)):
                yield f"{name} imports {target}"


def cycles(graph):
    """Groups of modules that import each other, by Kahn's peeling: what neither starts nor ends a chain is in one."""
    alive = set(graph)
    while True:
        ends = {name for name in alive if not graph[name] & alive}
        starts = {name for name in alive if not any(name in graph[each] for each in alive)}
        if not ends | starts:
            break
        alive -= ends | starts

    def below(name):
        seen, todo = set(), [name]
        while todo:
            new = graph[todo.pop()] & alive - seen
            seen |= new
            todo += new
        return seen

    reach = {name: below(name) for name in alive}
    return {
        tuple(sorted(other for other in reach[name] if name in reach[other])) for name in alive if name in reach[name]
    }


def import_graph(without=()):
    files = module_files()
    return {
        name: {
            target
            for target in imported(name, file)
            if target in files and target != name and (name, target) not in without
        }
        for name, file in files.items()
    }


# ---------------------------------------------------------------- the order


def test_every_package_has_its_place_in_the_order():
    folders = {folder.name for folder in FEATURE.iterdir() if folder.is_dir() and any(folder.glob("*.py"))}
    assert folders == set(ORDER) - {"ground"}


def test_no_import_points_upwards():
    assert not set(upwards(feature_files()))


def test_packages_do_not_import_what_they_must_not_know():
    wrong = {
        f"{module} imports {each}"
        for module, file in feature_files().items()
        for package, forbidden in FORBIDDEN.items()
        if within(module, package)
        for name in imported(module, file)
        for each in forbidden
        if within(name, each)
    }
    assert not wrong


def test_no_files_import_each_other():
    assert not cycles(import_graph(without=REGISTRATIONS))


@pytest.mark.parametrize("registration", REGISTRATIONS)
def test_a_named_registration_closes_a_cycle(registration):
    importer, target = registration
    found = cycles(import_graph(without=set(REGISTRATIONS) - {registration}))
    assert any(importer in cycle and target in cycle for cycle in found)


def test_imports_are_seen_wherever_they_stand(tmp_path):
    file = tmp_path / "__init__.py"
    file.write_text(
        "import ray.util\nfrom . import a\nfrom ..x import b\ndef f():\n    from hydra import compose\n"
        "if TYPE_CHECKING:\n    from verl import trainer\n"
    )
    found = set(imported("verl.crosscheck.exchange", file))
    assert found >= {"ray.util", "verl.crosscheck.exchange.a", "verl.crosscheck.x.b", "hydra", "hydra.compose"}
    assert "verl.trainer" in found


def test_cycles_are_found_and_chains_are_none():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"e"}, "e": {"f"}, "f": {"d", "g"}, "g": set()}
    assert cycles(graph) == {("b", "c"), ("d", "e", "f")}


# ---------------------------------------------------------------- names and sizes


def test_a_class_name_means_one_thing():
    places = defaultdict(set)
    for folder in ("verl", "recipe", "overlay", "tests/torture"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].add(f"{file.relative_to(ROOT).as_posix()}:{node.lineno}")
    assert not {name: sorted(where) for name, where in places.items() if len(where) > 1}


def test_the_feature_itself_has_few_modules():
    assert len(list(FEATURE.glob("*.py"))) <= MODULES_IN_FEATURE


def test_few_modules_are_small():
    small = {
        file.relative_to(FEATURE).as_posix()
        for file in FEATURE.rglob("*.py")
        if file.name != "__init__.py" and len(file.read_text().splitlines()) < SMALL_LINES
    }
    assert len(small) <= SMALL_MODULES, sorted(small)


def test_only_the_command_lines_and_the_grepped_log_lines_print():
    prints = {
        file.relative_to(FEATURE).as_posix()
        for file in FEATURE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert prints <= {"__main__.py", "console.py"}
