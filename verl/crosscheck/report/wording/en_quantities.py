# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What is measured, in English. `outcomes` are what people watch."""

from __future__ import annotations

from verl.crosscheck.report.wording.words import Named

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
    "k3_over_k1": Named("k3 / k1", "About 1 if both estimate the same; large where single tokens are far apart."),
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
    "surprise_gap_mean": Named(
        "surprise of samples, mean",
        "Mean negative log-prob of what was sampled, less the entropy of the distribution: 0 on average if tokens are "
        "drawn from it.",
    ),
    "surprise_gap_z": Named("surprise of samples, standard errors", "The same in its standard errors."),
    "surprise_gap_train_mean": Named(
        "surprise of samples to training, mean", "The same with the training engine's log-probs."
    ),
    "surprise_gap_train_z": Named("surprise of samples to training, standard errors", "The same in standard errors."),
    "claim_refuted_mean": Named(
        "claim refuted, mean",
        "By how much the training engine explains the samples better than what the rollout engine claims, a token; "
        "never above 0 on average if the claim is true.",
    ),
    "claim_refuted_nats": Named("claim refuted, in total", "The same over all tokens, in nats."),
    "tensors_out_of_sync": Named("tensors out of sync", "Tensors that the rollout engine holds otherwise than sent."),
    "tensors_not_matched": Named("tensors on one side only", "Tensors that were sent or are held, and not both."),
    "unfinished_share": Named(
        "responses cut", "Share of responses that end neither at a stop token nor at the length limit."
    ),
    "rows_unmatched_share": Named("responses of one run only", "Share of responses that the other run does not have."),
    "mask_diff_rows": Named("responses with other masks", "Responses of which the two runs train on other tokens."),
    "reward_rel_diff_max": Named("reward difference, max", "Relative, of the worst response."),
    "advantage_rel_diff": Named("advantage difference", "Relative."),
    "grad_norm_rel_diff": Named("gradient norm difference", "Relative."),
    "loss_rel_diff": Named("loss difference", "Relative."),
    "pg_loss_rel_diff": Named("policy loss difference", "Relative to the loss, or to its scale."),
    "kl_loss_rel_diff": Named("KL loss difference", "Relative."),
    "entropy_loss_rel_diff": Named("entropy loss difference", "Relative."),
    "entropy_rel_diff": Named("entropy difference", "Relative."),
    "lr_rel_diff": Named("learning rate difference", "Relative."),
    "change_rel_diff": Named(
        "change of the weights, difference", "Of all weights: how far apart both changes are, relative to the change."
    ),
    "change_rel_diff_max": Named(
        "change of a tensor, difference", "The same of the worst tensor among those that carry weight in the change."
    ),
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
