# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What is measured, in Chinese."""

# ruff: noqa: RUF001  texts stay whole, with the punctuation of Chinese

from __future__ import annotations

from verl.crosscheck.report.wording.words import Named

QUANTITIES = {
    "logprob_abs_diff_mean": Named(
        "log-prob 差的均值", "两个 log-prob 之差的绝对值，对回答的 token 取平均，单位 nat。"
    ),
    "logprob_abs_diff_max": Named("log-prob 差的最大值", "同上，取最差的 token。"),
    "prob_abs_diff_mean": Named("概率差的均值", "概率之差的绝对值的平均，在 0 和 1 之间。"),
    "k1": Named("k1", "KL 散度的估计：带符号的 log-prob 差的平均。"),
    "k3": Named("k3", "KL 散度的估计，不会为负，对大的差异更敏感。"),
    "k3_over_k1": Named("k3 / k1", "两种估计一致时约为 1；个别 token 差异很大时变大。"),
    "pearson": Named("概率的相关系数", "皮尔逊相关系数，1 为完全一致。"),
    "prob_spread": Named("概率的离散程度", "概率的标准差；它很小时，相关系数没有意义。"),
    "exp_abs_diff_mean": Named(
        "重要性比率的均值", "exp(log-prob 差的绝对值) 的平均，即损失函数会看到的比率；1 为相等。"
    ),
    "ratio_beyond_2_share": Named("比率超过 2 的 token", "其中一个概率超过另一个两倍的 token 所占的比例。"),
    "exact_zeros": Named("log-prob 恰为 0", "log-prob 为 0 的 token 数：确定的 token，或者没有计算。"),
    "logprob_row_diff_mean": Named("按回答求和的 log-prob 差的均值", "由每条回答的和算出：不会大于按 token 的均值。"),
    "logprob_nonfinite_tokens": Named("没有有效 log-prob 的 token", "NaN、Inf 或大于 0。"),
    "surprise_gap_mean": Named(
        "采样惊异度的偏差", "采样 token 的负 log-prob 的平均减去分布的熵：若 token 确实采自该分布，平均为 0。"
    ),
    "surprise_gap_z": Named("采样惊异度的偏差（标准误）", "同上，以其标准误为单位。"),
    "surprise_gap_train_mean": Named("采样惊异度的偏差（训练侧）", "同上，用训练引擎的 log-prob。"),
    "surprise_gap_train_z": Named("采样惊异度的偏差（训练侧，标准误）", "同上，以标准误为单位。"),
    "claim_refuted_mean": Named(
        "声称被反驳的程度",
        "训练引擎对采样结果的解释比推理引擎所声称的好多少（每个 token）；若声称属实，平均不会大于 0。",
    ),
    "claim_refuted_nats": Named("声称被反驳的总量", "同上，对所有 token 求和，单位 nat。"),
    "tensors_out_of_sync": Named("未同步的张量", "推理引擎中与发送的不一致的张量数。"),
    "tensors_not_matched": Named("仅一侧有的张量", "只发送过、或只被持有的张量。"),
    "unfinished_share": Named("被截断的回答", "既没有以停止符结束、也没有达到长度上限的回答所占的比例。"),
    "rows_unmatched_share": Named("仅一方有的回答", "另一个任务没有的回答所占的比例。"),
    "mask_diff_rows": Named("掩码不同的回答", "两个任务训练的 token 不同的回答数。"),
    "reward_rel_diff_max": Named("奖励差的最大值", "相对差，取最差的回答。"),
    "advantage_rel_diff": Named("优势差", "相对差。"),
    "grad_norm_rel_diff": Named("梯度范数差", "相对差。"),
    "loss_rel_diff": Named("损失差", "相对差。"),
    "pg_loss_rel_diff": Named("策略损失差", "相对于损失或其尺度。"),
    "kl_loss_rel_diff": Named("KL 损失差", "相对差。"),
    "entropy_loss_rel_diff": Named("熵损失差", "相对差。"),
    "entropy_rel_diff": Named("熵差", "相对差。"),
    "lr_rel_diff": Named("学习率差", "相对差。"),
    "change_rel_diff": Named("权重变化之差", "所有权重：两边的变化相差多少，相对于变化本身。"),
    "change_rel_diff_max": Named("单个张量的变化之差", "同上，取在变化中占有分量的张量里最差的一个。"),
    "optimiser_state": Named("优化器状态", "优化器对先前更新的记忆。"),
    "sampler_nonfinite_rollout": Named("采样方：推理非有限值", "推理的 log-prob 中的 NaN、Inf 或正值。"),
    "sampler_nonfinite_train": Named("采样方：训练非有限值", "训练的 log-prob 中的 NaN、Inf 或正值。"),
    "taker_nonfinite_train": Named("接收方：训练非有限值", "训练的 log-prob 中的 NaN、Inf 或正值。"),
    "sampler_nonfinite_update": Named("采样方：更新非有限值", "更新的数值中的 NaN 或 Inf。"),
    "taker_nonfinite_update": Named("接收方：更新非有限值", "更新的数值中的 NaN 或 Inf。"),
}

OUTCOMES = {
    "reward": "奖励",
    "reward_mean": "奖励",
    "response_length": "回答长度",
    "response_length_mean": "回答长度",
    "entropy": "熵",
    "entropy_mean": "熵",
    "grad_norm": "梯度范数",
    "loss": "损失",
    "pg_loss": "策略损失",
    "kl_loss": "KL 损失",
    "lr": "学习率",
}
