# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Files, modules and names that a page, a docstring or a comment mentions exist."""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

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


def test_files_and_modules_that_are_named_exist():
    gone = set()
    for path in TEXTS:
        text = said(path)
        for name in {*PATH.findall(text), *MODULE.findall(text)} - ELSEWHERE:
            there = (ROOT / name).exists() or (UPSTREAM.parent / name).exists() if "/" in name else resolves(name)
            if not there:
                gone.add(f"{relative(path)}: {name}")
    assert not gone


def test_what_is_not_there_is_noticed():
    assert PATH.findall("see verl/crosscheck/gone.py and [x](docs/x.md).") == ["verl/crosscheck/gone.py", "docs/x.md"]
    assert resolves("verl.crosscheck.errors.CrossCheckError")
    assert not resolves("verl.crosscheck.errors.NoSuchError")
    assert not resolves("verl.crosscheck.no_such_module")


def test_links_lead_somewhere():
    gone = []
    for page in (*PAGES, CHANGELOG):
        targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        for file, _, anchor in (target.partition("#") for target in targets if not target.startswith("http")):
            there = (page.parent / file).resolve() if file else page
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if not there.exists() or (anchor and anchor not in anchors):
                gone.append(f"{relative(page)}: {file}#{anchor}")
    assert not gone


def test_the_first_pages_link_all_the_others():
    linked = set()
    for index in ("README.md", "README.zh-CN.md", "docs/en/README.md", "docs/zh/README.md"):
        file = ROOT / index
        targets = re.findall(r"\]\(([^)#\s]+)", file.read_text(encoding="utf-8"))
        linked |= {(file.parent / target).resolve() for target in targets if not target.startswith("http")}
    assert not {relative(page) for page in {*PAGES, CHANGELOG} - linked if "tests" not in page.parts}


# ---------------------------------------------------------------- names in backquotes

OWN_PAGES = [
    page
    for page in PAGES
    if relative(page) != "docs/glossary.md" and page.name not in ("collect_next.md", "upstream_faults.md")
]
# What a dotted name in a docstring may begin with, besides a module of the package and a name of the file.
ROOTS = {"trainer", "actor_rollout_ref", "actor", "fsdp_config", "data", "algorithm", "critic", "torch", "numpy", "ray"}
SUFFIXES = {"py", "json", "jsonl", "svg", "html", "yaml", "log", "sh", "pt", "md", "pth", "safetensors"}
STILL_WRONG: set[str] = set()
# Upstream's or a tool's, or made from a name and a suffix.
FOREIGN = {
    "set_env.sh",
    "x__upstream",
    "wait_rollout_validation",
    "ServerAdapter",
    "session_0_1_0",
}


@cache
def all_words():
    """Every word of the fork's sources and of upstream's: whatever is none of these is no name."""
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *UPSTREAM.rglob("*.py"), *(ROOT / "verl").rglob("*.yaml")]
    return {word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}


@cache
def modules():
    """Texts of the package's modules by their last name."""
    found = {}
    for file in [*(ROOT / "verl" / "crosscheck").rglob("*.py"), *(ROOT / "recipe").rglob("*.py")]:
        name = file.parent.name if file.stem == "__init__" else file.stem
        found[name] = found.get(name, "") + file.read_text(encoding="utf-8")
        found[file.parent.name] = found.get(file.parent.name, "") + f" {file.stem} "
    found["_verl_overlay"] = " ".join(file.stem for file in (ROOT / "overlay").rglob("*.py"))
    return found


def test_names_on_a_page_are_names_in_the_code():
    gone = set()
    for page in OWN_PAGES:
        text = page.read_text(encoding="utf-8")
        names = set(re.findall(r"`((?:[A-Z]\w*[a-z]\w*|[a-z]+_\w+)(?:\.\w+)*)(?:\(\))?`", text)) - FOREIGN
        unknown = (name for name in names if not all(part in all_words() for part in name.split(".")))
        gone |= {f"{relative(page)}: {name}" for name in unknown}
    assert not gone


def names_of(tree):
    """Every name that the code of a module uses or gives."""
    for node in ast.walk(tree):
        yield from (getattr(node, key, None) for key in ("id", "attr", "arg", "name"))
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[-1] for alias in node.names)


def test_a_dotted_name_in_a_docstring_exists():
    gone = set()
    for path in SOURCES:
        if path.suffix != ".py" or "crosscheck" not in path.parts:
            continue
        own = set(names_of(ast.parse(path.read_text(encoding="utf-8")))) | ROOTS
        for first, rest in re.findall(r"`([a-z_]\w*)\.(\w+)(?:\(\))?`", said(path)):
            if rest not in SUFFIXES and first not in own and not re.search(rf"\b{rest}\b", modules().get(first, "")):
                gone.add(f"{relative(path)}: {first}.{rest}")
    assert gone <= STILL_WRONG
