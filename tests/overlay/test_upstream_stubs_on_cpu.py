# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the `x__upstream.pyi` files declare for mypy is what the installed upstream has."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUBS = sorted((ROOT / "verl").rglob("*__upstream.pyi"))
ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def definitions(body):
    """Name and syntax of each function, class and variable that is declared; imports and private types are none."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id, node


def missing_parameters(node, found):
    """Parameters that only one side knows, but for those that upstream has a default for."""
    arguments = node.args
    declared = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    parameters = inspect.signature(found).parameters
    named = {name for name, each in parameters.items() if each.kind not in ANY_NUMBER}
    needed = {name for name in named if parameters[name].default is inspect.Parameter.empty}
    takes_more = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    left_out = set() if arguments.kwarg or arguments.vararg else needed - declared
    return left_out | (set() if takes_more else declared - named)


def differences(name, node, owner):
    """What is declared and not there, or takes other arguments, each as one line."""
    if isinstance(node, ast.AnnAssign):
        fields = {**getattr(owner, "__dataclass_fields__", {}), **getattr(owner, "model_fields", {})}
        # A class's other attributes are set by its methods: nothing to look up without an instance.
        return [] if (inspect.isclass(owner) and not fields) or name in fields or hasattr(owner, name) else [name]
    if not hasattr(owner, name):
        return [name]
    found = inspect.getattr_static(owner, name)
    if isinstance(node, ast.ClassDef):
        return [f"{name}.{each}" for part, child in definitions(node.body) for each in differences(part, child, found)]
    function = getattr(found, "__func__", getattr(found, "fget", found))
    declared_kind = {each.id for each in node.decorator_list if isinstance(each, ast.Name)} - {"abstractmethod"}
    kind = {type(found).__name__} & {"property", "classmethod", "staticmethod"}
    if declared_kind != kind:
        return [f"{name}: {declared_kind} declared, {kind} found"]
    return [f"{name}({each})" for each in sorted(missing_parameters(node, function))]


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_upstream_has_what_is_declared(stub):
    module = importlib.import_module(".".join(stub.relative_to(ROOT).with_suffix("").parts))
    body = ast.parse(stub.read_text()).body
    assert [each for name, node in definitions(body) for each in differences(name, node, module)] == []


def test_each_overlay_module_that_names_upstreams_has_its_declarations():
    naming = {
        path.with_name(f"{path.stem}__upstream.pyi")
        for path in (ROOT / "verl").rglob("*.py")
        if f"import {path.stem}__upstream" in path.read_text()
    }
    assert naming == set(STUBS)


def test_what_only_one_side_knows_is_found():
    stub = (
        "class Path:\n    gone: int\n    def exists(self, there: bool) -> bool: ...\n    def lost(self) -> None: ...\n"
    )
    [(name, node)] = definitions(ast.parse(stub).body)
    import pathlib

    assert [each for each in differences(name, node, pathlib) if "follow" not in each] == [
        "Path.exists(there)",
        "Path.lost",
    ]
