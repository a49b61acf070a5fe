# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Files, modules and names that a page, a docstring or a comment mentions exist."""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"
UPSTREAM = Path(find_spec("omegaconf").origin).parents[1] / "verl"
# The changelog names things that are gone, too.
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")} - {CHANGELOG})
SOURCES = sorted(
    file
    for folder in ("verl", "recipe", "overlay", "tests/torture", "scripts", "examples")
    for file in (ROOT / folder).rglob("*")
    if file.is_file() and "__pycache__" not in file.parts and file.suffix in ("", ".py", ".sh", ".yaml")
)
TEXTS = [*PAGES, *SOURCES]
PATH = re.compile(r"(?<![\w/.$~-])(?:verl|recipe|overlay|tests|scripts|docs|examples)/[\w./-]*\w")
MODULE = re.compile(r"(?<![\w/.])(?:verl\.(?:crosscheck|utils|trainer|workers)|recipe)(?:\.\w+)+")
# Of another version of upstream's repository, or an example.
ELSEWHERE = {"docs/perf/precision_debugger.md", "verl/a/b.py"}


def relative(path):
    return path.relative_to(ROOT).as_posix()


def said(path):
    """What a file says to people: a page in full; of a source, docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    comments = re.findall(r"(?<!\S)#(?!!) (.*)", text)
    if path.suffix != ".py":
        return "\n".join(comments)
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    return "\n".join([*comments, *(str(each.value) for each in strings if isinstance(each, ast.Constant))])


@cache
def file_of(dotted):
    """The file of a module, of the fork or of upstream, or None."""
    parts = Path(*dotted.split("."))
    for top in (ROOT, UPSTREAM.parent):
        for file in (top / parts / "__init__.py", top / parts.with_suffix(".py")):
            if file.is_file():
                return file
        if (top / parts).is_dir():
            return top / parts
    return None


def resolves(dotted):
    """Whether the longest part of a dotted name that is a module has the rest in it, as a name."""
    parts = dotted.removesuffix("__upstream").split(".")
    for count in range(len(parts), 1, -1):
        file = file_of(".".join(parts[:count]))
        if file is not None:
            rest = parts[count:]
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            return all(re.search(rf"\b{re.escape(name)}\b", text) for name in rest)
    return False


@pytest.mark.parametrize("path", TEXTS, ids=relative)
def test_files_and_modules_that_are_named_exist(path):
    text = said(path)
    missing = [
        name
        for name in PATH.findall(text)
        if name not in ELSEWHERE and not (ROOT / name).exists() and not (UPSTREAM.parent / name).exists()
    ]
    missing += [name for name in MODULE.findall(text) if name not in ELSEWHERE and not resolves(name)]
    assert not missing, f"{relative(path)} names what is not there: {sorted(set(missing))}"


def test_what_is_not_there_is_noticed():
    assert PATH.findall("see verl/crosscheck/gone.py and [x](docs/x.md).") == ["verl/crosscheck/gone.py", "docs/x.md"]
    assert resolves("verl.crosscheck.errors.CrossCheckError")
    assert not resolves("verl.crosscheck.errors.NoSuchError")
    assert not resolves("verl.crosscheck.no_such_module")


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG], ids=relative)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    gone = []
    for file, _, anchor in (target.partition("#") for target in targets if not target.startswith("http")):
        there = (page.parent / file).resolve() if file else page
        headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        if not there.exists() or (anchor and anchor not in anchors):
            gone.append(f"{file}#{anchor}")
    assert not gone


def test_the_first_pages_link_all_the_others():
    linked = set()
    for index in ("README.md", "README.zh-CN.md", "docs/en/README.md", "docs/zh/README.md"):
        file = ROOT / index
        targets = re.findall(r"\]\(([^)#\s]+)", file.read_text(encoding="utf-8"))
        linked |= {(file.parent / target).resolve() for target in targets if not target.startswith("http")}
    assert not {relative(page) for page in {*PAGES, CHANGELOG} - linked if "tests" not in page.parts}
