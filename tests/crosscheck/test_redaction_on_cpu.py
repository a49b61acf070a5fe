# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""No secret leaves with a configuration, and nothing that two runs should compare is lost on the way."""

import enum
import json
import math
import string
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from verl.crosscheck.redaction import LEFT_OUT, is_left_out, without_secrets


class Colour(str, enum.Enum):
    RED = "red"


def left(config, environ=None):
    return without_secrets(config, environ or {})


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "hf_token",
        "HF_TOKEN",
        "hfToken",
        "wandb-api-key",
        "apiKey",
        "api_keys",
        "APIKEY",
        "access_key",
        "AWS_SECRET_ACCESS_KEY",
        "aws_access_key_id",
        "private_key",
        "client_secret",
        "secrets",
        "password",
        "db_passwd",
        "pwd",
        "pass",
        "credential",
        "gcp_credentials",
        "auth",
        "http_authorization",
        "session_cookie",
        "access_tokens",
        "openai_key_secret",
    ],
)
def test_names_that_say_secret(key):
    for value in ("abc", 12345, ["abc", {"x": "abc", "y": 1}], {"user": "abc", "nested": {"n": 1.5}}):
        kept = left({"section": {key: value}})
        assert "abc" not in json.dumps(kept)
        assert not any(digit in json.dumps(kept["section"][key]) for digit in "0123456789")
        assert is_left_out(kept)
    assert left({key: None, "x": {key: True}}) == {key: None, "x": {key: True}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ppo_max_token_len_per_gpu", 16384),
        ("max_num_batched_tokens", 8192),
        ("pad_token_id", 0),
        ("eos_token", "<|im_end|>"),
        ("stop_tokens", ["</s>"]),
        ("extra_special_tokens", ["<a>"]),
        ("max_tokens", 5),
        ("tokens", ["a", "b"]),
        ("tokenizer", "/models/x"),
        ("tokenizer_path", None),
        ("token2text", False),
        ("loss_agg_mode", "token-mean"),
        ("prompt_key", "prompt"),
        ("reward_fn_key", "data_source"),
        ("author", "somebody"),
        ("pass_k", 8),
        ("commit", "0123456789abcdef0123456789abcdef01234567"),
        ("path", "/home/someone@site/x"),
        ("env", {"env_name": "alfworld", "seed": 1}),
        ("environment", "alfworld"),
        ("url", "http://host:8000/v1"),
        ("text", "risk-assessment of task-force-alpha-bravo-charlie"),
        ("text", "the token is a word"),
        ("text", "hf_transformers"),
        ("text", "a: b, seed=1"),
        ("n", 10**30),
        ("lr", 1e-6),
    ],
)
def test_what_only_looks_like_it(key, value):
    assert left({"a": {key: value}}) == {"a": {key: value}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", LEFT_OUT),
        ("use hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567 now", f"use {LEFT_OUT} now"),
        ("sk-proj-abcdefghijklmnop1234", LEFT_OUT),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", LEFT_OUT),
        ("github_pat_11ABCDEFG0_abcdefghijklmnop", LEFT_OUT),
        ("glpat-abcdefghijklmnopqrst", LEFT_OUT),
        ("AKIAIOSFODNN7EXAMPLE", LEFT_OUT),
        ("xoxb-123456789012-abcdef", LEFT_OUT),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijk", LEFT_OUT),
        ("Authorization: Bearer abc.def", f"Authorization: {LEFT_OUT} {LEFT_OUT}"),
        ("https://me:pw@host/x", f"https://{LEFT_OUT}@host/x"),
        ("https://me:p@w@host/x", f"https://{LEFT_OUT}@host/x"),
        ("https://me:p/w@host/x", f"https://{LEFT_OUT}@host/x"),
        ("s3://key@bucket", f"s3://{LEFT_OUT}@bucket"),
        ("http://h/?a=1&api_key=xyz&b=2", f"http://h/?a=1&api_key={LEFT_OUT}&b=2"),
        ("run --password hunter2 --lr 1", f"run --password {LEFT_OUT} --lr 1"),
        ("export HF_TOKEN=abc", f"export HF_TOKEN={LEFT_OUT}"),
        ("url=http://h/?token=abc", f"url=http://h/?token={LEFT_OUT}"),
        ("HF_TOKEN=abc python x.py", f"HF_TOKEN={LEFT_OUT} python x.py"),
        ('{"password": "abc"}', f'{{"password": "{LEFT_OUT}"}}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n", f"{LEFT_OUT}\n"),
        ("-----BEGIN PRIVATE KEY-----\nabc", LEFT_OUT),
    ],
)
def test_secrets_by_their_shape_wherever_they_stand(value, expected):
    kept = left({"x": value, "y": [[value]], "z": {"deep": (value, {"w": value})}, value: None})
    assert kept == {"x": expected, "y": [[expected]], "z": {"deep": [expected, {"w": expected}]}, expected: None}


def test_keys_of_wandb_need_a_name():
    key = "0123456789abcdef" * 2 + "01234567"
    assert left({"wandb": key, "key": f"x {key}", "revision": key}) == {
        "wandb": LEFT_OUT,
        "key": f"x {LEFT_OUT}",
        "revision": key,
    }


@pytest.mark.parametrize("name", ["env_vars", "ENV_VARS", "environment_variables", "worker_env_vars"])
def test_environment_variables_are_left_out_whole(name):
    config = {"ray_kwargs": {"ray_init": {"runtime_env": {name: {"ANYTHING": "x"}, "pip": ["a"]}}}}
    assert left(config) == {"ray_kwargs": {"ray_init": {"runtime_env": {name: LEFT_OUT, "pip": ["a"]}}}}


@pytest.mark.parametrize("value", [{"A": "x", "B_2": "y"}, ["A=x"], ("A=x", "B=y"), "A=x"])
def test_an_env_that_holds_variables(value):
    assert left({"env": value, "docker_env": value}) == {"env": LEFT_OUT, "docker_env": LEFT_OUT}


def test_pairs_of_name_and_value():
    pairs = [{"name": "HF_TOKEN", "value": "abc"}, {"name": "lr", "value": "abc"}]
    assert left({"vars": pairs}) == {"vars": [{"name": "HF_TOKEN", "value": LEFT_OUT}, {"name": "lr", "value": "abc"}]}


def test_content_of_secret_variables():
    environ = {"HF_TOKEN": "12345678", "MY_PASSWORD": "5678abcd", "SHORT_TOKEN": "abc", "HOME": "/home/me"}
    config = {
        "a": "x12345678y",
        "b": 12345678,
        "c": "1234567",
        "d": "12345678abcd",
        "e": "abc",
        "f": "/home/me",
        "g": 0.12345678,
        "12345678": "key",
        "h": [{"i": "12345678"}],
    }
    assert left(config, environ) == {
        "a": f"x{LEFT_OUT}y",
        "b": LEFT_OUT,
        "c": "1234567",
        "d": LEFT_OUT,
        "e": "abc",
        "f": "/home/me",
        "g": LEFT_OUT,
        LEFT_OUT: "key",
        "h": [{"i": LEFT_OUT}],
    }


def test_everything_becomes_plain_json():
    config = {
        1: math.nan,
        "inf": [math.inf, -math.inf],
        "path": Path("/x"),
        "enum": Colour.RED,
        "set": {3, 1, 2},
        "tuple": (1, None, True),
        "bytes": b"x",
        "config": OmegaConf.create({"a": [1, "${b}"], "b": 2}).a,
    }
    kept = left(config)
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept
    assert kept | {"config": None} == {
        "1": "nan",
        "inf": ["inf", "-inf"],
        "path": "/x",
        "enum": "red",
        "set": [1, 2, 3],
        "tuple": [1, None, True],
        "bytes": "b'x'",
        "config": None,
    }


def test_the_input_stays_as_it_is():
    config = {"token": "abc", "list": [{"password": "x"}]}
    kept = left(config)
    kept["list"][0]["password"] = "changed"
    assert config == {"token": "abc", "list": [{"password": "x"}]}


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer", "ppo_cpu_trainer"])
def test_of_a_shipped_configuration_nothing_but_variables_is_left_out(name):
    with initialize_config_module("verl.trainer.config", version_base=None):
        composed = compose(name, overrides=["actor_rollout_ref.model.path=/models/m"])
    config = OmegaConf.to_container(composed, resolve=True)
    kept = without_secrets(config, {})
    if name == "ppo_cpu_trainer":
        assert kept["ray_kwargs"]["ray_init"]["runtime_env"].pop("env_vars") == LEFT_OUT
        config["ray_kwargs"]["ray_init"]["runtime_env"].pop("env_vars")
    assert kept == config


SECRETS = st.text(alphabet=string.ascii_letters + string.digits + "-_/+.", min_size=8, max_size=20)
TEXTS = st.text(max_size=6)


@st.composite
def configs_with_a_secret(draw):
    """A secret, and a configuration that has it at some places."""
    secret = draw(SECRETS)
    planted = st.builds(lambda before, after: f"{before}{secret}{after}", TEXTS, TEXTS)
    leaf = planted | TEXTS | st.none() | st.booleans() | st.integers() | st.floats() | st.just(secret)
    keys = TEXTS | planted | st.sampled_from(["env", "token", "a.b", "value", "name"])
    tree = st.recursive(leaf, lambda t: st.lists(t, max_size=3) | st.dictionaries(keys, t, max_size=3), max_leaves=8)
    return secret, draw(st.dictionaries(keys, tree, min_size=1, max_size=4))


@given(configs_with_a_secret())
def test_a_planted_secret_never_shows(found):
    secret, config = found
    text = json.dumps(without_secrets(config, {"SOME_API_KEY": secret}), allow_nan=False)
    assert secret not in text.replace(LEFT_OUT, "\n")
