# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""All texts of the report in English."""

# ruff: noqa: E501  texts stay whole

from __future__ import annotations

from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase
from verl.crosscheck.diagnosis.rules import Because, Next
from verl.crosscheck.reasons import ReasonCode
from verl.crosscheck.report.model import Cell
from verl.crosscheck.report.texts.texts import Named, Texts

PHASES = {
    Phase.NO_FAULT: Named("No fault found", "Everything that was compared agrees, in every step."),
    Phase.ROLLOUT: Named(
        "Rollout of A is at fault",
        "A's rollout engine disagrees with B's training engine; no fault was found in A's training.",
    ),
    Phase.TRAINING_FORWARD: Named(
        "Training of A is at fault: forward pass",
        "A's training engine gives other log-probs than B's for the same tokens under the same weights.",
    ),
    Phase.TRAINING_UPDATE: Named(
        "Training of A is at fault: backward pass or optimiser",
        "Both forward passes agree, and A's update does something else than B's.",
    ),
    Phase.BOTH: Named("Rollout and training of A are at fault", "Either phase of A disagrees with B's."),
    Phase.REFERENCE: Named("Run B is at fault", "Run B, which was taken for healthy, is the one that is wrong."),
    Phase.REWARD_OR_ADVANTAGE: Named(
        "Reward or advantage differs",
        "For the same responses the two runs have other rewards or advantages, while the engines agree.",
    ),
    Phase.INCONCLUSIVE: Named("Inconclusive", "What was compared does not allow a verdict."),
}

CONFIDENCE = {
    Confidence.HIGH: Named("high", "strong evidence, and what it rests on was shown"),
    Confidence.MEDIUM: Named("medium", "weak in one point: the evidence, or what it rests on"),
    Confidence.LOW: Named("low", "weak evidence: confirm it before acting on it"),
}

ASPECTS = {
    Aspect.INPUTS: Named(
        "Inputs",
        "Rows, masks, rewards and advantages that both trained on. They must be equal, or the two did different work.",
    ),
    Aspect.ROLLOUT_TAKER: Named(
        "Rollout {sampler} to training {taker}",
        "Log-probs of {sampler}'s rollout engine against those of {taker}'s training engine.",
    ),
    Aspect.ROLLOUT_SAMPLER: Named(
        "Rollout {sampler} to training {sampler}",
        "Log-probs of {sampler}'s rollout engine against those of its own training engine.",
    ),
    Aspect.FORWARD: Named("Training {sampler} to training {taker}", "Log-probs of both training engines."),
    Aspect.REFERENCE: Named("Reference {sampler} to reference {taker}", "Log-probs of both reference policies."),
    Aspect.SAMPLING: Named(
        "Sampling of {sampler}",
        "Whether the sampled tokens look drawn from the distribution that their log-probs claim.",
    ),
    Aspect.SYNC: Named("Weight sync of {sampler}", "Whether the rollout engine holds the weights that it was sent."),
    Aspect.INDEPENDENCE: Named(
        "Independence of the samples of {sampler}",
        "Whether responses to one prompt are equal no more often than independent samples are.",
    ),
    Aspect.ENDING: Named("Ends of responses", "Whether responses end at a stop token or at the length limit."),
    Aspect.UPDATE: Named("Update", "What the update did: gradient norm, losses, change of the weights."),
    Aspect.OUTCOME: Named("Outcome", "Reward, response length, entropy, and numbers that are not finite."),
}

CELLS = {
    Cell.AGREE: "agrees",
    Cell.PARTLY: "agrees as far as compared",
    Cell.DIFFER: "differs",
    Cell.MISSING: "not compared",
}

LABELS = {
    "title": "verl-crosscheck: {phase}",
    "report": "Report of a cross-check",
    "since": "since step {step}",
    "steps_compared": "{steps} steps compared",
    "one_step_compared": "1 step compared",
    "no_steps": "no step compared",
    "sure": "Confidence: {confidence} ({meaning})",
    "sure_open": "The evidence is not enough for a verdict.",
    "sure_ok_high": "all was compared, in three steps or more",
    "sure_ok_medium": "the essentials were compared",
    "sure_ok_low": "only sums over responses were compared",
    "suspect": "A, suspect run",
    "healthy": "B, reference run",
    "why": "Why",
    "evidence": "Strongest evidence",
    "next": "What to do next",
    "copy": "Copy",
    "copied": "Copied",
    "value": "value",
    "limit": "threshold",
    "step": "step",
    "step_n": "step {step}",
    "quantity": "quantity",
    "at_least": "at least {limit}",
    "at_most": "at most {limit}",
    "no_limit": "shown, not judged",
    "times": "{times} times the threshold",
    "scenario_1": "Scenario 1: A samples and takes over B's weights, B trains on A's rollouts.",
    "scenario_2": "Scenario 2: B samples and takes over A's weights, A trains on B's rollouts.",
    "scenario_short": "Scenario {number}",
    "recomputed_some": "{count} of {steps} steps were compared anew from the evidence.",
    "strip": "Step by step",
    "strip_several": "Each column stands for up to {count} steps, and differs if one of them does.",
    "thinned": "Of each line at most {count} points are drawn: the lowest and the highest of each stretch of steps.",
    "more_problems": "and {count} more files",
    "strip_each": "Each column stands for one step.",
    "strip_hint": "What differs is red and crossed, what was not compared is hatched.",
    "distances": "Distances over steps",
    "distances_hint": "Dots are steps, crosses are steps that exceed the threshold, the dashed line is the threshold.",
    "beyond": "Exceeds the threshold",
    "within": "Within the threshold: {count} quantities",
    "run_lacking": "run {letter} (mode {mode})",
    "run_never_came": "it has not taken part in this directory yet",
    "no_step_recorded": "no run has finished a step with evidence yet",
    "first_thing": "To decide it: {action}",
    "steps_lacking": "the evidence of a run is not there, or cannot be used",
    "span": "{first} to {last}",
    "steps_listed": "steps {steps}",
    "of": "{whole}: {part}",
    "zero": "Exactly 0 in every step:",
    "comma": ", ",
    "group": "{whole} ({parts})",
    "separator": "; ",
    "tokens": "Worst responses, token by token",
    "tokens_hint": "The darker a token, the larger the difference of its two log-probs. Grey tokens are not trained on. Point at "
    "a token for its numbers.",
    "token_tip": "token {position}: {one} and {other}, difference {apart}",
    "token_tip_missing": "token {position}: not recorded",
    "tokens_none": "No worst responses to show: log-probs by token were not recorded, or nothing was compared.",
    "tokens_ids": "Token ids are shown; --tokenizer PATH decodes them.",
    "tokens_positions": "The rollout is not in the directory any more, so positions are shown in place of tokens.",
    "row_head": "step {step}, response {row}",
    "row_numbers": "mean {mean}, max {max}",
    "row_part": "tokens {first} to {last} of {length}",
    "ends_of_prompt": "prompt",
    "apart_scale": "log-prob difference",
    "changes": "Change of the weights, by layer",
    "changes_hint": "Difference of the two runs' updates of a layer, relative to the change itself: 0 is equal, "
    "1 is a difference as large as the change.",
    "changes_step": "Shown is step {step}, where it is largest.",
    "changes_equal": "The two runs changed every tensor in exactly the same way, in every step.",
    "changes_none": "Changes of the weights were not compared.",
    "changes_worst": "The tensors that differ most",
    "tensor": "tensor",
    "relative": "relative difference",
    "outcomes": "Outcomes of both runs",
    "outcomes_hint": "What people watch. Both runs share rollouts or weights, so their curves do not show alone which "
    "phase is at fault.",
    "settings": "What differs between the configurations",
    "settings_must": "Must agree and do not",
    "settings_may": "Differ and may",
    "settings_agree": "All settings, facts and versions that must agree do.",
    "settings_not_compared": "Settings that were not compared",
    "settings_unknown": "The configurations were not compared: one of the runs is not there.",
    "setting": "setting",
    "not_compared": "What was not compared",
    "not_compared_hint": "What was not compared is never taken for agreement.",
    "not_compared_none": "Nothing was left out.",
    "what": "what",
    "why_and_set": "why, and what to set",
    "predicted": "predicted {value}",
    "control_unlike": "It lowers none: devices, engines or number formats of the runs are not those of the control run.",
    "control_text": "Thresholds come from the control run: {steps} steps in {directory}.",
    "limits_file": "Thresholds are those of {path}.",
    "runs": "Runs",
    "problems": "Files that could not be used",
    "session": "session {number}",
    "host": "host",
    "device": "device",
    "strategy": "strategy",
    "started": "started",
    "run_id": "run",
    "mode": "mode",
    "ended": "ended",
    "not_ended": "has reported no end",
    "made_with": "Made with {versions}",
    "glossary": "What the quantities mean",
    "phases_of_a": "Phases of run A",
    "rollout": "Rollout",
    "forward": "Training: forward pass",
    "update": "Training: update",
    "phase_fault": "at fault",
    "phase_ok": "no fault found",
    "phase_unknown": "open",
    "floor_hint": "The dotted line is the worst value of the control run.",
    "no_evidence": "There is none: nothing exceeds its threshold.",
    "page_written": "The page is {path}",
}

QUANTITIES = {
    "logprob_abs_diff_mean": Named(
        "log-prob difference, mean", "Mean over response tokens of the absolute difference of two log-probs, in nats."
    ),
    "logprob_abs_diff_max": Named("log-prob difference, max", "The same of the worst token."),
    "prob_abs_diff_mean": Named(
        "probability difference, mean", "Mean absolute difference of the probabilities, between 0 and 1."
    ),
    "k1": Named("k1", "Estimate of the KL divergence: mean of the log-prob difference with its sign."),
    "k3": Named("k3", "Estimate of the KL divergence that is never negative and weighs large differences."),
    "k3_over_k1": Named("k3 / k1", "About 1 if both estimate the same; large where single tokens differ much."),
    "pearson": Named("correlation of probabilities", "Pearson's; 1 is perfect."),
    "prob_spread": Named(
        "spread of probabilities", "Their standard deviation; where it is small, a correlation says nothing."
    ),
    "exp_abs_diff_mean": Named(
        "importance ratio, mean",
        "Mean of exp(absolute log-prob difference): the ratio that a loss would see; 1 is equal.",
    ),
    "ratio_beyond_2_share": Named(
        "tokens with a ratio beyond 2", "Share of tokens of which one probability is more than twice the other."
    ),
    "exact_zeros": Named("log-probs of exactly 0", "Tokens whose log-prob is 0: certain, or not computed."),
    "logprob_row_diff_mean": Named(
        "log-prob difference by response, mean", "From sums over responses: less than the mean over tokens, never more."
    ),
    "logprob_nonfinite_tokens": Named("tokens without a log-prob", "NaN, infinite, or above 0."),
    "nll_minus_entropy_mean": Named(
        "NLL minus entropy, mean",
        "Mean negative log-prob of what was sampled, less the entropy of the distribution: 0 on average if tokens are "
        "drawn from it.",
    ),
    "nll_minus_entropy_z": Named("NLL minus entropy, standard errors", "The same in its standard errors."),
    "nll_minus_entropy_train_mean": Named(
        "NLL minus entropy by training, mean", "The same with the training engine's log-probs."
    ),
    "nll_minus_entropy_train_z": Named(
        "NLL minus entropy by training, standard errors", "The same in standard errors."
    ),
    "logprob_gain_train_mean": Named(
        "log-prob gain of training, mean",
        "By how much the training engine explains the samples better than what the rollout engine claims, a token; "
        "never above 0 on average if the claim is true.",
    ),
    "logprob_gain_train_nats": Named("log-prob gain of training, in total", "The same over all tokens, in nats."),
    "logprob_gain_train_signed_nats": Named(
        "log-prob gain of training, with its sign", "The same; below 0 where the rollout engine explains them better."
    ),
    **{
        f"nll_minus_entropy{which}_{what}": Named(f"NLL minus entropy{by}, {name}", meaning)
        for which, by in (("", ""), ("_train", " by training"))
        for what, name, meaning in (
            ("nats", "in total", "The same over all tokens, in nats."),
            ("variance", "variance", "Sum of squares over responses, from which standard errors follow."),
            ("tokens", "tokens", "Tokens that it was taken over."),
            ("pooled_mean", "mean over steps", "The mean over all steps so far."),
            (
                "pooled_z",
                "standard errors over steps",
                "Of all steps so far; its threshold may be tested at each step.",
            ),
        )
    },
    "logprob_gain_train_pooled_nats": Named("log-prob gain of training over steps", "In total over all steps so far."),
    "equal_responses_nats": Named(
        "evidence of repeated responses",
        "Log likelihood ratio, in nats, of an engine that repeats earlier responses to the prompt against one that samples "
        "independently.",
    ),
    "equal_first_tokens_nats": Named("evidence of repeated first tokens", "The same, of the first token alone."),
    "equal_responses_pooled_nats": Named(
        "evidence of repeated responses over steps", "The same over all steps so far."
    ),
    "equal_first_tokens_pooled_nats": Named(
        "evidence of repeated first tokens over steps", "The same over all steps so far."
    ),
    "stop_inside_share": Named(
        "responses beyond a stop token", "Share of responses with a stop token before their end."
    ),
    "rollout_position": Named(
        "position of rollout between the trainings",
        "0: the rollout engine lies with the taker's training, 1: with the sampler's.",
    ),
    "rollout_position_error": Named("position of rollout, standard error", "From the scatter over responses."),
    "tensors_out_of_sync": Named("tensors out of sync", "Tensors that the rollout engine holds otherwise than sent."),
    "tensors_not_matched": Named("tensors on one side only", "Tensors that were sent or are held, and not both."),
    "unfinished_share": Named(
        "responses cut", "Share of responses that end neither at a stop token nor at the length limit."
    ),
    "rows_unmatched_share": Named("responses of one run only", "Share of responses that the other run does not have."),
    "mask_diff_rows": Named("responses with other masks", "Responses of which the two runs train on other tokens."),
    "reward_rel_diff_max": Named("reward difference, max", "Relative, of the worst response."),
    "reward_recomputed_rel_diff_max": Named(
        "reward by the own function, difference, max",
        "The rewards that came with the rollout against those of the taker's own reward function.",
    ),
    "advantage_rel_diff": Named("advantage difference", "Relative."),
    "grad_norm_rel_diff": Named("gradient norm difference", "Relative."),
    "loss_rel_diff": Named("loss difference", "Relative."),
    "pg_loss_rel_diff": Named("policy loss difference", "Relative to the loss, or to its scale."),
    "kl_loss_rel_diff": Named("KL loss difference", "Relative."),
    "entropy_loss_rel_diff": Named("entropy loss difference", "Relative."),
    "entropy_rel_diff": Named("entropy difference", "Relative."),
    "lr_rel_diff": Named("learning rate difference", "Relative."),
    "change_rel_diff": Named(
        "change of the weights, difference", "Of all weights: difference of both changes, relative to the change."
    ),
    "change_norm_rel_diff": Named(
        "size of the change of the weights, difference",
        "Of all weights: relative difference of the norms of both changes.",
    ),
    "change_rel_diff_max": Named(
        "change of a tensor, difference", "The same of the worst tensor among those that carry weight in the change."
    ),
    "change_rel_diff_kind_max": Named(
        "change of a kind of tensor, difference", "The same of the worst kind of tensor, over all layers together."
    ),
    "change_rel_diff_layer_max": Named(
        "change of a layer, difference", "The same of the worst layer, all tensors together."
    ),
    "sampler_unmoved_tensors": Named("sampler: tensors not updated", "Tensors that the taker's update alone moved."),
    "taker_unmoved_tensors": Named("taker: tensors not updated", "Tensors that the sampler's update alone moved."),
    "critic_update": Named("update of the critic", "What the critic's own update did."),
    "optimiser_state": Named("optimiser state", "What the optimiser remembers of earlier updates."),
    "sampler_nonfinite_rollout": Named(
        "sampler: rollout not finite", "NaN, infinite or positive log-probs of rollout."
    ),
    "sampler_nonfinite_train": Named(
        "sampler: training not finite", "NaN, infinite or positive log-probs of training."
    ),
    "taker_nonfinite_train": Named("taker: training not finite", "NaN, infinite or positive log-probs of training."),
    "sampler_nonfinite_update": Named("sampler: update not finite", "NaN or infinite numbers of the update."),
    "taker_nonfinite_update": Named("taker: update not finite", "NaN or infinite numbers of the update."),
}

OUTCOMES = {
    "reward": "Reward",
    "reward_mean": "Reward",
    "response_length": "Response length",
    "response_length_mean": "Response length",
    "entropy": "Entropy",
    "entropy_mean": "Entropy",
    "grad_norm": "Gradient norm",
    "loss": "Loss",
    "pg_loss": "Policy loss",
    "kl_loss": "KL loss",
    "lr": "Learning rate",
}


BECAUSE = {
    Because.NO_STEPS: "No step was compared.",
    Because.NO_COMMON_ROWS: "The two runs have no response in common, so they did not work on the same rollouts.",
    Because.ALL_AGREE: "All that is essential was compared, and agrees in every step.",
    Because.SAMPLING_NOT_AS_CLAIMED: "The sampled tokens are not drawn from the distribution that their log-probs claim.",
    Because.WEIGHTS_NOT_IN_ENGINE: "The rollout engine does not hold the weights that it was sent.",
    Because.RESPONSES_CUT: "Responses end neither at a stop token nor at the length limit.",
    Because.STOP_TOKEN_INSIDE: "Responses go on after a stop token.",
    Because.SAMPLES_NOT_INDEPENDENT: "Responses to one prompt are equal more often than independent samples are.",
    Because.ROLLOUT_NOT_FINITE: "The rollout engine reports log-probs that are NaN, infinite or above 0.",
    Because.ROLLOUT_DIFFERS: "A's rollout engine and B's training engine give different log-probs, while both training "
    "engines agree.",
    Because.ROLLOUT_DIFFERS_FROM_ALL: "A's rollout engine differs from both training engines, and these differ from each "
    "other too.",
    Because.ROLLOUT_AGREES_WITH_B: "In scenario 1, A's rollout engine agrees with B's training engine, and not with A's "
    "own.",
    Because.ENGINES_OF_B_AGREE_AGAINST_A: "In scenario 2, B's rollout and training agree with each other, and not with A's "
    "training engine.",
    Because.ENGINES_OF_A_AGREE_AGAINST_B: "In scenario 1, A's rollout and training agree with each other, and not with B's "
    "training engine: either that one is wrong, or something that both engines of A share (weights, model code, a library).",
    Because.TRAINING_OF_B_ALONE: "In scenario 2, B's rollout engine agrees with A's training engine, and not with B's own.",
    Because.ROLLOUT_OF_B_ALONE: "In scenario 2, B's rollout engine differs from both training engines; in scenario 1, A's "
    "agrees with them.",
    Because.EACH_SIDE_AGREES_WITH_ITSELF: "In both scenarios, rollout and training of each run agree with each other, and "
    "not with the other run's: the runs do not compute the same model.",
    Because.EACH_ROLLOUT_AGREES_WITH_THE_OTHER: "In both scenarios, a rollout engine agrees with the other run's training "
    "engine, and not with its own.",
    Because.READINGS_CONTRADICT: "Scenario 1 and scenario 2 do not name the same engine.",
    Because.TRAININGS_MAY_SHARE_A_FAULT: "In both scenarios, the rollout engine differs from both training engines, which "
    "agree with each other and may share a fault.",
    Because.CANNOT_TELL_WHICH_TRAINING: "The two training engines differ, and the rollout engine does not show which of "
    "them is wrong.",
    Because.REFERENCE_SHOWN_ONLY_BEFORE: "Rollout A differs from both training engines, and that B's rollout and training "
    "agree was shown for earlier steps only: a fault that began in both training engines looks the same.",
    Because.UPDATE_OF_B_TAKEN_AS_RIGHT: "Which of the two updates is wrong the pair does not show; B's is taken for right.",
    Because.ONLY_A_LEFT_UNMOVED: "A's update left tensors exactly as they were that B's moved.",
    Because.ONLY_B_LEFT_UNMOVED: "B's update left tensors exactly as they were that A's moved.",
    Because.UNMOVED_MAY_BE_MEANT: "Tensors that one run leaves as they were may be frozen there on purpose.",
    Because.SOMETHING_DIFFERS: "Something is beyond its threshold that shows no phase at fault.",
    Because.REWARDS_DIFFER: "For the same responses, the two runs have other rewards.",
    Because.ADVANTAGES_DIFFER: "For the same responses and rewards, the two runs have other advantages.",
    Because.FORWARD_DIFFERS: "The two training engines give different log-probs for the same tokens under the same "
    "weights.",
    Because.FORWARD_INFERRED: "A's rollout and training agree with each other, and not with B's training engine.",
    Because.REFERENCE_POLICY_DIFFERS: "The two reference policies give different log-probs for the same tokens; "
    "B's are taken for right.",
    Because.UPDATE_DIFFERS: "Both forward passes agree, and gradient norm, losses or change of the weights differ.",
    Because.UPDATE_FOLLOWS: "The update differs as well, which follows from the forward pass.",
    Because.INPUTS_FOLLOW: "Rewards or advantages differ as well, which follows from the forward pass.",
    Because.INPUTS_DIFFER: "The two runs did not train on the same: rows, masks, rewards or advantages differ.",
    Because.CANNOT_TELL_WHICH: "Rollout and training disagree with both training engines: which of them is wrong is not "
    "known.",
    Because.FORWARD_UNKNOWN: "The updates differ, and the forward passes were not compared: neither can be named.",
    Because.REFERENCE_SHOWN_BY_CONTROL: "The reference is sound: in the control run, rollout and training of reference run B "
    "agree.",
    Because.REFERENCE_SHOWN_BY_SCENARIO_2: "The reference is sound: in scenario 2, B's rollout and training agree.",
    Because.REFERENCE_SHOWN_BY_OTHER_STEPS: "The reference seems sound: in other steps, A's rollout agrees with B's "
    "training.",
    Because.REFERENCE_ASSUMED: "That B's rollout and training agree with each other was taken as known.",
    Because.REFERENCE_DISAGREES_WITH_ITSELF: "Rollout and training of reference run B differ from each other, so it is no "
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
    Next.GET_CONTROL: "Run B against itself for a few steps, and give that directory as the control run.",
    Next.GET_LONGER_CONTROL: "Run B against itself for at least as many steps, and give that directory as the control run.",
    Next.CHECK_SEEDS: "Look at the seed that the engine samples with: each sample of a prompt needs one of its own.",
    Next.CHECK_WEIGHTS_AND_CODE: "Compare what each run starts from: initial weights, model code, positions, chat template.",
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

TEXTS = Texts(
    language="en",
    phases=PHASES,
    confidence=CONFIDENCE,
    aspects=ASPECTS,
    cells=CELLS,
    because=BECAUSE,
    next_actions=NEXT_ACTIONS,
    quantities=QUANTITIES,
    outcomes=OUTCOMES,
    labels=LABELS,
    reasons={code: code.english for code in ReasonCode},
)
