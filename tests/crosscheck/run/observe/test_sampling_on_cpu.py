# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What evidence says of how a run samples and trains."""

import pytest

from verl.crosscheck.run.observe.sampling import sampling_of


def of(max_model_len=None, strategy="fsdp2", implementation="auto"):
    rollout = {"prompt_length": 100, "response_length": 50, "max_model_len": max_model_len}
    actor = {"strategy": strategy}
    return sampling_of(
        {
            "actor_rollout_ref": {"rollout": rollout, "actor": actor},
            "trainer": {"use_legacy_worker_impl": implementation},
        }
    )


@pytest.mark.parametrize("room", [None, 150, 4096])
def test_responses_with_room_end_at_their_length_limit(room):
    found, missing = of(room)
    assert found["max_tokens"] == 50
    assert "sampling/max_tokens" not in missing


def test_a_short_context_ends_responses_early_so_their_ends_cannot_be_judged():
    found, missing = of(149)
    assert found["max_tokens"] is None
    assert str(missing["sampling/max_tokens"]).startswith("actor_rollout_ref.rollout.max_model_len=149 is less than")


def test_workers():
    assert of()[0]["workers"] == "legacy fsdp"
    assert of(strategy="megatron", implementation="disable")[0]["workers"] == "new megatron"
