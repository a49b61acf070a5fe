# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What is taken for a training command, what is refused, and what a shell makes of it with overrides at its end."""

import os
import subprocess
import sys

import pytest

from verl.crosscheck.errors import SettingsError
from verl.crosscheck.pair.commands import doubts, parse, require_found

TRAIN = "python -m verl.trainer.main_ppo"
ODD = ["a='it''s $HOME \"x\" \\'", "b=\ttab", "c=*", "d=ü;|&", ""]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{TRAIN} data.train_files='my data/x.parquet'", [*TRAIN.split(), "data.train_files=my data/x.parquet"]),
        (f"A=1 B='x y' {TRAIN} e=$HOME/q f=[1,2]", [*TRAIN.split(), "e=$HOME/q", "f=[1,2]"]),
        (f'cd /x && source env.sh > /dev/null; {TRAIN} "a=b|c"', [*TRAIN.split(), "a=b|c"]),
        (f"{TRAIN} \\\n  a=1 \\\n  b=2\n", [*TRAIN.split(), "a=1", "b=2"]),
        ("  bash 'my scripts/run.sh' 7b  ", ["bash", "my scripts/run.sh", "7b"]),
    ],
)
def test_the_words_of_the_training(text, words):
    assert list(parse(text, "--a").words) == words


def test_variables_in_front_are_no_words():
    command = parse(f"A=1 B='x y' {TRAIN}", "--a")
    assert command.assignments == {"A": "1", "B": "x y"}
    assert command.simple
    assert not parse(f"cd x && {TRAIN}", "--a").simple


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  ", "--a is empty"),
        (f"{TRAIN} 'x", "No closing quotation"),
        (f"{TRAIN} \\", "No escaped character"),
        (f"{TRAIN} | tee log", "would not reach the training there"),
        (f"{TRAIN} 2>&1 | tee log", "no `| tee`"),
        (f"{TRAIN} &", "would not reach"),
        (f"{TRAIN};", "would not reach"),
        (f"({TRAIN})", "would not reach"),
        (f"{TRAIN} && echo done", "would not reach"),
        (f"{TRAIN} > log 2>&1", "leave the redirection (>&) out"),
        (f"{TRAIN} # nightly", "the comment '#' would swallow"),
        (f"{TRAIN}\n a=1", "needs a backslash at its end"),
        ("A=1", "ends with 'A=1', which runs nothing"),
        (f"{TRAIN} trainer.share_data=ckpt", "already says trainer.share_data=ckpt"),
        (f"{TRAIN} ++trainer.share_data_dir='/tmp/x y'", "already says ++trainer.share_data_dir=/tmp/x y"),
        (f"{TRAIN} ~trainer.share_data", "already says"),
        (f"{TRAIN} trainer.share_data_replay=True", "already says"),
    ],
)
def test_refused_with_words(text, said):
    with pytest.raises(SettingsError) as e:
        parse(text, "--a")
    assert said in str(e.value)
    assert str(e.value).startswith("--a")


def test_other_settings_of_the_exchange_are_the_users():
    assert parse(f"{TRAIN} trainer.share_data_timeout_s=60 trainer.share_data_evidence=off", "--a").names_program


@pytest.mark.parametrize("prefix", ["", "A=1 ", "cd / && "])
def test_a_shell_hands_on_overrides_as_they_are(prefix):
    show = f"{sys.executable} -c 'import sys; print(ascii(sys.argv[1:]))' own"
    command = parse(prefix + show, "--a")
    told = subprocess.run(command.argv(ODD), capture_output=True, text=True, check=True).stdout
    assert told.strip() == ascii(["own", *ODD])
    typed = subprocess.run(command.line(ODD), shell=True, capture_output=True, text=True, check=True).stdout
    assert typed == told


def test_not_found(tmp_path, monkeypatch):
    path = os.environ["PATH"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="command not found: pyhton"):
        require_found(parse("pyhton -m verl.trainer.main_ppo", "--b"), path)
    with pytest.raises(SettingsError, match=r"--b: there is no script run\.sh"):
        require_found(parse("bash run.sh", "--b"), path)
    for later in ("$PYTHON -m verl.trainer.main_ppo", "cd x && bash run.sh", "bash $HOME/run.sh", "bash -x ~/run.sh"):
        require_found(parse(later, "--b"), path)  # only a shell can tell
    (tmp_path / "run.sh").touch()
    require_found(parse("bash -e run.sh 7b", "--b"), path)
    with pytest.raises(SettingsError, match=r"command not found: \./run\.sh"):
        require_found(parse("./run.sh", "--b"), path)  # not executable


def test_doubts_whether_overrides_arrive(tmp_path):
    deaf, good = tmp_path / "deaf.sh", tmp_path / "good.sh"
    deaf.write_text(f"{TRAIN} trainer.nnodes=1\n")
    good.write_text(f'{TRAIN} trainer.nnodes=1 "$@"\n')
    assert doubts(parse(TRAIN, "--a")) == []
    assert doubts(parse(f"bash {good}", "--a")) == []
    assert doubts(parse(f"bash {tmp_path / 'gone.sh'}", "--a")) == []
    assert 'does not contain "$@"' in doubts(parse(f"bash {deaf}", "--a"))[0]
    assert 'does not contain "$@"' in doubts(parse(str(deaf), "--a"))[0]
    assert "names neither verl.trainer.main_ppo nor a shell script" in doubts(parse("make train", "--a"))[0]


def test_the_step_of_a_checkpoint_that_is_resumed_from():
    text = f"{TRAIN} trainer.resume_mode=resume_path trainer.resume_from_path='/c k/global_step_120/'"
    assert parse(text, "--a").first_step == 120
    assert parse(f"{TRAIN} trainer.resume_from_path=null", "--a").first_step == 0


def test_ports():
    text = f"MASTER_PORT=29500 {TRAIN} a.server_port=8000 b.port=0 c.report=5 ++ray_kwargs.ray_init.dashboard_port=8266"
    assert parse(text, "--a").ports({"X_PORT": "81", "PORTS": "9", "MASTER_PORT": "1"}) == {
        81: "X_PORT",
        29500: "MASTER_PORT",
        8000: "a.server_port",
        8266: "ray_kwargs.ray_init.dashboard_port",
    }
