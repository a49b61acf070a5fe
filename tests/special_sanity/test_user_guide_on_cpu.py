# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The user guide says what the code says, in both languages: names, defaults, limits, messages, commands."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from verl.crosscheck.cli.app import main
from verl.crosscheck.diagnosis import thresholds
from verl.crosscheck.diagnosis.findings import Aspect, Phase, State
from verl.crosscheck.report.as_json import EXIT_STATUS
from verl.crosscheck.settings import ChangeDetail, Detail
from verl.trainer.config import TrainerConfig

ROOT = Path(__file__).parents[2]
LANGUAGES = ("en", "zh")
PAGES = sorted(page.name for page in (ROOT / "docs" / "en").glob("*.md"))
SOURCES = [
    file for folder in ("verl", "recipe") for file in (ROOT / folder).rglob("*.py") if "__pycache__" not in file.parts
]
CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`]+)`")

each_page = pytest.mark.parametrize("page", PAGES)
each_language = pytest.mark.parametrize("language", LANGUAGES)


def text_of(language, page):
    return (ROOT / "docs" / language / page).read_text(encoding="utf-8")


def prose_of(language, page):
    return CODE_BLOCK.sub("", text_of(language, page))


def blocks_of(language, page):
    """Language and lines of each code block, without what is said for people in it."""
    return [(kind, [*_spoken_lines(kind, body)]) for kind, body in CODE_BLOCK.findall(text_of(language, page))]


def _spoken_lines(kind, body):
    for line in body.splitlines():
        spoken = re.sub(r"(^|\s)#.*" if kind else r" {3,}.*", "", line).rstrip()
        if spoken:
            yield spoken


def tables_of(language, page):
    """Cells of each table's rows, the first row being its head."""
    found, rows = [], []
    for line in [*prose_of(language, page).splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            found.append([rows[0], *rows[2:]])
            rows = []
    return found


def table(language, page, holding):
    """The rows, without the head, of the table that has `holding` in the first column."""
    for rows in tables_of(language, page):
        if any(holding in row[0] for row in rows):
            return rows[1:]
    raise AssertionError(f"docs/{language}/{page} has no table with {holding} in its first column")


def span(cell):
    """What stands in backquotes in a cell."""
    found = CODE_SPAN.findall(cell)
    assert found, f"no `code` in {cell!r}"
    return found[0]


# ---------------------------------------------------------------- two languages, one guide


def test_both_languages_have_the_same_pages():
    assert {page.name for page in (ROOT / "docs" / "zh").glob("*.md")} == {*PAGES, "architecture.md"}
    assert len(PAGES) >= 10


def test_the_page_about_the_code_is_one_in_both_languages():
    pages = [(ROOT / "docs" / folder / "architecture.md").read_text(encoding="utf-8") for folder in ("", "zh")]
    for pattern in (r"^#+ ", r"^\d\. ", r"^\|"):
        assert len({len(re.findall(pattern, page, re.MULTILINE)) for page in pages}) == 1, pattern


@each_page
def test_pages_are_short(page):
    assert max(len(text_of(language, page).splitlines()) for language in LANGUAGES) < 300


@each_page
def test_the_same_headings(page):
    en, zh = ([len(mark) for mark in re.findall(r"^(#+) ", prose_of(each, page), re.MULTILINE)] for each in LANGUAGES)
    assert en == zh


@each_page
def test_the_same_code(page):
    assert blocks_of("en", page) == blocks_of("zh", page)


@each_page
def test_the_same_tables(page):
    en, zh = (tables_of(language, page) for language in LANGUAGES)
    assert [(len(rows), len(rows[0])) for rows in en] == [(len(rows), len(rows[0])) for rows in zh]
    for ours, theirs in zip(en, zh, strict=True):
        assert {len(row) for row in (*ours, *theirs)} == {len(ours[0])}, ours[0]
        for row, other in zip(ours[1:], theirs[1:], strict=True):
            spans, others = (Counter(CODE_SPAN.findall(" ".join(each))) for each in (row, other))
            assert spans == others, f"{row} and {other}"


@each_language
@each_page
def test_links_lead_somewhere(language, page):
    for target in re.findall(r"\]\(([^)#]+)", prose_of(language, page)):
        if not target.startswith("http"):
            assert (ROOT / "docs" / language / target).resolve().exists(), target


# ---------------------------------------------------------------- parameters and words


@each_language
def test_every_parameter_with_its_default(language):
    documented = {span(row[0]): span(row[1]) for row in table(language, "parameters.md", "`trainer.share_data`")}
    composed = compose_with("ppo_trainer").trainer
    fork = {f"trainer.{each.name}": composed[each.name] for each in fields(TrainerConfig) if is_ours(each.name)}
    assert documented == {key: as_typed(value) for key, value in fork.items()}


def is_ours(name):
    return name.startswith("share_data")


def as_typed(value):
    return "null" if value is None else str(value)


@each_language
def test_the_allowed_words(language):
    rows = {span(row[0]): row[2] for row in table(language, "parameters.md", "`trainer.share_data`")}
    for key, words in (("trainer.share_data_evidence", Detail), ("trainer.share_data_weight_change", ChangeDetail)):
        assert CODE_SPAN.findall(rows[key]) == [word.value for word in words]
    assert {span(row[0]) for row in table(language, "parameters.md", "`norm`")} == {word.value for word in ChangeDetail}
    assert {span(row[0]) for row in table(language, "parameters.md", "`summary`")} == {word.value for word in Detail}


@each_language
def test_upstreams_parameters_with_their_defaults(language):
    config = compose_with("ppo_trainer")
    for row in table(language, "parameters.md", "calculate_log_probs"):
        value = OmegaConf.select(config, span(row[0]), throw_on_missing=True)
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        written = span(row[1])
        same = written == as_typed(plain) or written.replace('"', "'") == str(plain)
        assert same or (isinstance(plain, int | float) and float(written) == plain), (row[0], plain)


@each_language
def test_every_verdict_aspect_and_state(language):
    verdicts = next(rows[1:] for rows in tables_of(language, "report.md") if "`phase`" in rows[0][1])
    assert {span(row[1]): int(row[2]) for row in verdicts} == {each.value: EXIT_STATUS[each] for each in Phase}
    assert [span(row[0]) for row in table(language, "report.md", "`inputs`")] == [aspect.value for aspect in Aspect]
    assert [span(row[0]) for row in table(language, "report.md", "`agree`")] == [state.value for state in State]


@each_language
def test_every_metric_of_time(language):
    source = "\n".join(file.read_text(encoding="utf-8") for file in SOURCES)
    measured = set(re.findall(r'times\.(?:spent|add)\(\s*"(\w+)"', source))
    prefix = "timing_s/share_data/"
    assert {span(row[0]).removeprefix(prefix) for row in table(language, "log_lines.md", prefix)} == measured


# ---------------------------------------------------------------- limits


def number(value):
    return f"{value:g}"


@each_language
def test_the_limits_of_every_profile(language):
    rows = table(language, "limits.md", "`k3`")
    head = next(rows[0] for rows in tables_of(language, "limits.md") if any("`k3`" in row[0] for row in rows))
    assert [span(cell) for cell in head[1:]] == list(thresholds.PROFILES)
    values = {
        name: [getattr(thresholds.profile(each), name) for each in thresholds.PROFILES]
        for name in thresholds.LIMIT_NAMES
    }
    expected = [f"| `{name}` | {' | '.join(map(number, each))} |" for name, each in values.items() if not_fixed(name)]
    assert [f"| {' | '.join(row)} |" for row in rows] == expected, "write into docs/*/limits.md:\n" + "\n".join(
        expected
    )
    fixed = [[f"`{name}`", number(each[0])] for name, each in values.items() if not not_fixed(name)]
    assert table(language, "limits.md", "`unfinished_share`") == fixed


def not_fixed(name):
    """Whether a limit depends on the profile: then it has no default."""
    return name in thresholds._BF16


@each_language
def test_reasons_and_sources(language):
    about = {each.name: each.metadata for each in fields(thresholds.Thresholds) if each.name in thresholds.LIMIT_NAMES}
    (rows,) = [rows[1:] for rows in tables_of(language, "limits.md") if len(rows[0]) == 3 and "`k3`" in rows[4][0]]
    assert [span(row[0]) for row in rows] == list(thresholds.LIMIT_NAMES)
    for name, reason, source in rows:
        told = about[span(name)]
        assert source == told["source"]
        assert reason == told["reason"] if language == "en" else reason


@each_language
def test_the_other_numbers_of_the_diagnosis(language):
    predicted = table(language, "limits.md", "`PREDICTED_FACTOR`")
    rows = [
        *predicted,
        *table(language, "limits.md", "`CONTROL_FACTOR`"),
        *table(language, "limits.md", "`MIN_TOKENS`"),
    ]
    assert {span(row[0]): row[1] for row in rows} == {
        span(row[0]): number(getattr(thresholds, span(row[0]))) for row in rows
    }


@each_language
def test_the_file_of_limits_in_the_guide_is_one(language, tmp_path):
    (body,) = [body for kind, body in CODE_BLOCK.findall(text_of(language, "limits.md")) if kind == "yaml"]
    file = tmp_path / "limits.yaml"
    file.write_text(body, encoding="utf-8")
    read = thresholds.read_limits(file)
    assert (read.k3, read.of(Aspect.FORWARD, "logprob_abs_diff_mean")) == (0.002, 0.02)


# ---------------------------------------------------------------- messages


def rendered_texts():
    """Every text in the sources; what an f-string fills in is a NUL."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (each.value if isinstance(each, ast.Constant) else "\0" for each in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


TEXTS = "\n\n".join(rendered_texts())


def occurs(message):
    """Whether the sources can say it. `{name}` in it stands for anything."""
    parts = [part for part in re.split(r"\{\w+\}", message) if part]
    return re.search(r"[^\n]*?".join(map(re.escape, parts)), TEXTS) is not None


def quoted_messages(page):
    """Messages of a page: what is quoted in the first column of its tables, and is more than a name."""
    first = (row[0] for rows in tables_of("en", page) for row in rows[1:])
    return [message for cell in first for message in CODE_SPAN.findall(cell) if " " in message]


@pytest.mark.parametrize("message", [*quoted_messages("troubleshooting.md"), *quoted_messages("log_lines.md")])
def test_a_quoted_message_is_one_that_is_said(message):
    if message == "still waiting for rollout_0":
        message = "still waiting for {name}"
    assert occurs(message)


def test_a_message_that_nobody_says_is_noticed():
    assert not occurs("this run has gone fishing with {identity}")


# ---------------------------------------------------------------- commands


@pytest.fixture(autouse=True)
def fresh_hydra():
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@cache
def compose_with(name, *overrides):
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(name, overrides=list(overrides))


def commands(start):
    """Shell commands of the guide that have `start` in them, without comments. Of those that only differ in mode and
    directory, one."""
    found = {}
    for page in PAGES:
        for kind, lines in blocks_of("en", page):
            joined = "\n".join(lines).replace("\\\n", " ")
            for line in joined.splitlines():
                if kind == "bash" and start in line:
                    command = " ".join(line.split())
                    found[re.sub(r"MODE=\w+|/mnt/shared/\S+", "", command)] = pytest.param(
                        command, id=f"{page}-{len(found)}"
                    )
    return list(found.values())


@pytest.mark.parametrize("command", commands("examples/"))
def test_a_launch_command_composes(command, tmp_path):
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > {tmp_path}/arguments\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/me"}
    bash = shutil.which("bash")
    subprocess.run([bash, "-c", command], cwd=ROOT, env=environment, check=True, timeout=60)
    overrides = (tmp_path / "arguments").read_text().split("\0")[2:-1]
    name = "ppo_trainer"
    if overrides[0].startswith("--config-name="):
        name = overrides.pop(0).removeprefix("--config-name=")
    config = compose_with(name, *overrides)
    assert config.trainer.share_data_dir.startswith("/mnt/shared/check-")
    assert TrainerConfig.from_section(OmegaConf.to_container(config.trainer, resolve=True)).share_data


@pytest.mark.parametrize("command", commands("verl.trainer.main_ppo"))
def test_a_training_command_composes(command):
    words = shlex.split(command.replace("<your overrides>", ""))
    assert words[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    compose_with("ppo_trainer", *words[3:])


@pytest.mark.parametrize("command", commands("verl-crosscheck "))
def test_a_command_has_these_options(command):
    name, *words = shlex.split(command.split("||")[0].split(">")[0])[1:]
    known = {option for parameter in main.commands[name].params for option in parameter.opts}
    assert {word.split("=")[0] for word in words if word.startswith("-")} <= known


@each_language
@pytest.mark.parametrize(("name", "holding"), [("report", "`--tokenizer PATH`"), ("run", "`--steps N`")])
def test_every_option_of_a_command(language, name, holding):
    rows = table(language, "parameters.md", holding)
    documented = {option.split()[0] for row in rows for option in CODE_SPAN.findall(row[0]) if option.startswith("-")}
    options = {option for parameter in main.commands[name].params for option in parameter.opts if option[0] == "-"}
    assert documented == options


@each_language
def test_the_configuration_of_msprobe_is_json(language):
    (body,) = [body for kind, body in CODE_BLOCK.findall(text_of(language, "collect_next.md")) if kind == "json"]
    assert json.loads(body)["task"] in json.loads(body)
