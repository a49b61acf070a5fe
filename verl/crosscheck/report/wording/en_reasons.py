# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Why, and what next, in English."""

# ruff: noqa: E501  texts stay whole

from __future__ import annotations

from verl.crosscheck.diagnosis.reasons import Because, Next

BECAUSE = {
    Because.NO_STEPS: "No step was compared.",
    Because.NO_COMMON_ROWS: "The two runs have no response in common, so they did not work on the same rollouts.",
    Because.ALL_AGREE: "All that is essential was compared, and agrees in every step.",
    Because.SAMPLING_NOT_AS_CLAIMED: "The sampled tokens are not drawn from the distribution that their log-probs claim.",
    Because.WEIGHTS_NOT_IN_ENGINE: "The rollout engine does not hold the weights that it was sent.",
    Because.RESPONSES_CUT: "Responses end neither at a stop token nor at the length limit.",
    Because.ROLLOUT_NOT_FINITE: "The rollout engine reports log-probs that are NaN, infinite or above 0.",
    Because.ROLLOUT_DIFFERS: "A's rollout engine and B's training engine give different log-probs, while both training "
    "engines agree.",
    Because.ROLLOUT_DIFFERS_FROM_ALL: "A's rollout engine differs from both training engines, and these differ from each "
    "other too.",
    Because.ROLLOUT_AGREES_WITH_B: "A's rollout engine agrees with B's training engine, so A's training engine stands "
    "alone.",
    Because.FORWARD_DIFFERS: "The two training engines give different log-probs for the same tokens under the same "
    "weights.",
    Because.FORWARD_INFERRED: "A's rollout and training agree with each other, and not with B's training engine.",
    Because.REFERENCE_POLICY_DIFFERS: "The two reference policies give different log-probs for the same tokens.",
    Because.UPDATE_DIFFERS: "Both forward passes agree, and gradient norm, losses or change of the weights differ.",
    Because.UPDATE_FOLLOWS: "The update differs as well, which follows from the forward pass.",
    Because.INPUTS_FOLLOW: "Rewards or advantages differ as well, which follows from the forward pass.",
    Because.INPUTS_DIFFER: "The two runs did not train on the same: rows, masks, rewards or advantages differ.",
    Because.CANNOT_TELL_WHICH: "Rollout and training disagree with both training engines: which of them is wrong cannot "
    "be told.",
    Because.FORWARD_UNKNOWN: "The updates differ, and the forward passes were not compared: neither can be named.",
    Because.REFERENCE_SHOWN_BY_CONTROL: "The reference is sound: in the control, rollout and training of the healthy run "
    "agree.",
    Because.REFERENCE_SHOWN_BY_SCENARIO_2: "The reference is sound: in scenario 2, B's rollout and training agree.",
    Because.REFERENCE_SHOWN_BY_OTHER_STEPS: "The reference seems sound: in other steps, A's rollout agrees with B's "
    "training.",
    Because.REFERENCE_ASSUMED: "That B's rollout and training agree with each other was taken as known.",
    Because.REFERENCE_DISAGREES_WITH_ITSELF: "Rollout and training of the healthy run differ from each other, so it is no "
    "reference for A's rollout.",
    Because.REFERENCE_NOT_FINITE: "Run B has numbers that are not finite, or log-probs above 0, so it is no reference.",
    Because.REFERENCE_ROLLOUT_AT_FAULT: "B's rollout fails a test that needs no reference.",
    Because.ESSENTIAL_MISSING: "Nothing differs, but something essential was not compared.",
    Because.ROLLOUT_OF_A_NOT_TESTED: "Only scenario 2 was given, in which A's rollout takes no part.",
    Because.OUTCOME_ROLLOUT: "Outcomes collapse with A's rollouts, and not with B's.",
    Because.OUTCOME_TRAINING: "Outcomes collapse with A's training, and not with B's.",
    Because.OUTCOME_BOTH: "Outcomes collapse in both scenarios: by both phases, or by one common cause.",
}

NEXT_ACTIONS = {
    Next.GET_CONTROL: "Run B against itself for a few steps, and give that directory as the control.",
    Next.RUN_SCENARIO_1: "Run scenario 1: A keeps its own rollout, B its own training.",
    Next.RUN_SCENARIO_2: "Run scenario 2: A keeps its own training, B its own rollout.",
    Next.SET_CALCULATE_LOG_PROBS: "Let the rollout engine report log-probs, in both runs.",
    Next.SET_EVIDENCE_TOKENS: "Record log-probs by token, in both runs.",
    Next.SET_RECOMPUTE_LOG_PROBS: "Let the training engine compute log-probs of its own, in both runs.",
    Next.COLLECT_ROLLOUT: "Collect the rollout phase (generate_sequences) of step {step} in both runs; on Ascend with "
    "msprobe. Then try one setting of A's engine after the other.",
    Next.COLLECT_ACTOR_FORWARD: "Collect the actor's forward pass (compute_log_prob) of step {step} in both runs; on "
    "Ascend with msprobe, then compare.",
    Next.COLLECT_ACTOR_UPDATE: "Collect the actor update (update_actor) of step {step} in both runs; on Ascend with "
    "msprobe, then compare.",
    Next.CHECK_SAMPLING_SETTINGS: "Look at what A's engine samples with: temperature, top-p, top-k, and whether its "
    "log-probs are taken before or after these.",
    Next.CHECK_WEIGHT_SYNC: "Look at how weights reach A's rollout engine, beginning with the tensors that are named.",
    Next.CHECK_STOP_TOKENS: "Look at stop tokens and length limit of A's engine, and at what ends its responses.",
    Next.CHECK_INPUTS: "Make both runs compute the same (data, reward function, advantages, seeds), and compare again.",
    Next.CHECK_OPTIMISER: "Compare optimiser, learning rate, gradient clipping and precision of the optimiser's state.",
    Next.CHECK_REFERENCE: "Make B's rollout and training agree with each other first: run B against itself, and repair "
    "what differs.",
    Next.LOOK_AT_STATUS: "See which runs have taken part, what they are doing, and how they ended.",
    Next.RUN_LONGER: "Compare more steps, beyond the one in which runs went wrong before.",
    Next.DECODE_WORST_ROWS: "Read the worst responses token by token.",
}
