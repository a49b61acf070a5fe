# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Texts for people keep to one word for each thing, in both languages; docs/glossary.md is the list.

Read are the READMEs, the pages of docs/, and what the sources show to a person: string literals with a space in them,
docstrings of commands (click prints them), the report's templates, comments of scripts and of the trainer's YAML files.
Not read are code in backquotes, fenced code of a named language, and docstrings and comments of modules.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "verl" / "crosscheck"
HAN = r"[\u3400-\u9fff]"

# By a short name: what is not written, as a regular expression, and what is written in its place.
ENGLISH = {
    "half": (r"\b(generation|other|which|each|either|both) (half|halves)\b", "phase, rollout or training"),
    "accuse": (r"\baccus\w+", "at fault, reported"),
    "the other one": (r"\bthe (healthy|other) one\b", "reference run B, the other run"),
    "healthy B": (r"\bhealthy (run B|system|side|machine|training)", "reference run B, reference system"),
    "no fault seen": (r"\bno fault (was )?seen\b", "no fault found"),
    "sureness": (r"\bsureness\b|\bhow sure\b", "confidence"),
    "fair": (r"\bfair\b", "medium (confidence)"),
    "limit": (r"\blimits?\b", "threshold"),
    "apart": (r"\b(is|are) (far )?apart\b|\bdiffers? beyond\b", "exceeds the threshold, differs"),
    "tells": (r"\btells?\b|\btold\b", "reports, says, shows"),
    "localised at": (r"\blocalised at\b", "found in"),
    "surprise gap": (r"\bsurprise gaps?\b", "NLL minus entropy, per token"),
    "claim refuted": (r"\bclaims? (is |was )?refuted\b", "log-prob gain of training"),
    "riddle": (r"\bnone the worse\b|\bwho comes\b|\bnobody the worse\b", "a plain sentence"),
}
CHINESE = {
    "交叉校验": ("互相校验|交叉校验", "交叉验证"),
    "指控": ("指控", "存在问题"),
    "可疑": ("可疑|待查", "调试侧"),
    "正常任务": ("正常任务", "标杆侧"),
    "未见故障": ("未见故障|未发现故障", "未发现问题"),
    "无法判定": ("无法判定", "无法定界"),
    "嫌疑": ("嫌疑", "存在问题"),
    "把握": ("把握", "置信度"),
    "界限": ("界限|限值", "阈值"),
    "回答": ("回答|应答", "回复"),
    "比较": ("比较", "比对"),
    "惊异度": ("惊异度|反驳", "负对数似然与熵之差, 训练侧对数概率增益"),
    "噪声底": ("噪声底", "噪声基线"),
    "重放": ("重放", "回放"),
}
WORDS = ENGLISH | CHINESE

# What stays: the end of a length or of a time is a limit in every book, and these are its names.
PHRASES = re.compile(
    r"(CI|length|time|stall|rate|size|depth|upper|no) limits?\b|\blimits? (of|on) (the )?(length|time|size|depth)"
    r"|\bfinish(es)? at the limit\b|\btell(s|ing)? \w+ (apart|from)\b",
    re.IGNORECASE,
)
FULL_WIDTH = re.compile(rf"{HAN}[,;:!?()]{HAN}")

# By package of verl/crosscheck, what is still to be replaced there. The list only shrinks: a word that is gone from a
# package has to be taken off.
KNOWN: set[tuple[str, str]] = set()


def documents(*languages):
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    pages += (ROOT / "docs" / "en").glob("*.md")
    chinese = [ROOT / "README.zh-CN.md", *(ROOT / "docs" / "zh").glob("*.md")]
    chosen = [*(pages if "en" in languages else ()), *(chinese if "zh" in languages else ())]
    return sorted(page for page in chosen if page.is_file() and page.name != "glossary.md")


def prose(text):
    """Without code: blocks of a named language, spans in backquotes, addresses of links."""
    text = re.sub(r"^```\w+\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`|--[a-z-]+", "`", text)
    return re.sub(r"\]\([^)\s]*\)", "]", text)


def docstrings(tree):
    """What stands as a statement of its own: docstrings, of attributes too, but not those of commands of click."""
    shown = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if any("command(" in each or "group(" in each for each in decorators):
                shown.add(id(node.body[0]))
    return [each for each in ast.walk(tree) if isinstance(each, ast.Expr) and id(each) not in shown]


@cache
def shown_texts(path):
    """Every text of more than one word that is no docstring; what is filled into it later is an ellipsis."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in ("", ".sh", ".yaml"):
        return [prose(comment) for comment in re.findall(r"(?<!\S)# (.*)", text)]
    if path.suffix != ".py":
        return [re.sub(r"<style.*?</style>|<[^>]*>|\{[{%#].*?[}%#]\}", " ", text, flags=re.DOTALL)]
    tree = ast.parse(text)
    left_out = {id(each.value) for each in docstrings(tree)}
    texts = []
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(each) for each in node.values}
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"\{\w+\}", "…", node.value)
        else:
            continue
        if " " in text.strip() or re.search(HAN, text):
            texts.append(prose(text))
    return texts


def sources():
    """Files with texts for people, by the package of verl/crosscheck or the folder that they belong to."""
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html"), *PACKAGE.rglob("*.j2")]):
        if path.name == "old_reasons.py":  # sentences as 0.1.0 wrote them, to be recognised
            continue
        parts = path.relative_to(PACKAGE).parts
        yield (parts[0] if len(parts) > 1 else "ground"), path
    for folder in ("recipe", "overlay", "tests/torture", "verl/trainer", "verl/utils", "verl/workers"):
        yield from ((folder, path) for path in sorted((ROOT / folder).rglob("*.py")))
    for folder in ("scripts", "examples", "verl/trainer"):
        files = (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in ("", ".sh", ".yaml"))
        yield from ((folder, path) for path in files if path.is_file())


def found_in(text, words):
    plain = PHRASES.sub(" ", text)
    found = {name: re.search(pattern, plain, re.IGNORECASE) for name, (pattern, _) in words.items()}
    return {name: match[0] for name, match in found.items() if match}


@pytest.mark.parametrize(("language", "words"), [("en", ENGLISH), ("zh", CHINESE)])
def test_pages_keep_to_the_glossary(language, words):
    wrong = []
    for page in documents(language):
        for number, line in enumerate(prose(page.read_text(encoding="utf-8")).splitlines(), 1):
            for name, word in found_in(line, words).items():
                say = f"say: {words[name][1]}"
                wrong.append(
                    f"{page.relative_to(ROOT)}: {word!r} in {line.strip()[:90]!r} ({say}), prose line {number}"
                )
    assert not wrong, "\n".join(wrong)


def test_programs_keep_to_the_glossary():
    found, lines = set(), []
    for package, path in sources():
        for text in shown_texts(path):
            for name, word in found_in(text, WORDS).items():
                found.add((package, name))
                if (package, name) not in KNOWN:
                    say = f"say: {WORDS[name][1]}"
                    lines.append(f"{path.relative_to(ROOT)}: {word!r} in {text.strip()[:120]!r} ({say})")
    assert not lines, "\n".join(lines)
    assert not KNOWN - found, f"replaced by now: take them off KNOWN: {sorted(KNOWN - found)}"


def test_punctuation_between_chinese_characters_is_full_width():
    pages = [(page, prose(page.read_text(encoding="utf-8"))) for page in documents("zh")]
    texts = [(path, text) for _, path in sources() if path.suffix == ".py" for text in shown_texts(path)]
    wrong = [
        f"{path.relative_to(ROOT)}: {text[max(0, match.start() - 15) : match.end() + 15]!r}"
        for path, text in [*pages, *texts]
        for match in FULL_WIDTH.finditer(text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A is not accused.", True),
        ("A fault was found in rollout; the value exceeds the threshold.", False),
        ("responses end at the length limit", False),
        ("beyond its limit", True),
        ("与对方比较", True),
        ("与对方比对", False),
    ],
)
def test_a_wrong_word_is_noticed(text, found):
    assert bool(found_in(text, WORDS)) == found


def test_the_page_lists_the_words():
    rows = [line.split(" | ") for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()]
    words = [word for row in rows if len(row) == 4 for word in re.split("[;,、]", row[3].strip(" |"))]
    words = [word.strip() for word in words if word.strip(" -")][2:]
    assert len(words) > 25
    assert not [word for word in words if not found_in(word, WORDS)]


def test_code_is_not_read():
    assert not found_in(prose("take `--limits FILE` with\n```bash\nrun --limit 3\n```\n"), ENGLISH)
    assert FULL_WIDTH.search("中文,中文")
    assert not FULL_WIDTH.search("中文\uff0c中文")
