# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Why, and what next, in Chinese."""

# ruff: noqa: E501, RUF001  texts stay whole, with the punctuation of Chinese

from __future__ import annotations

from verl.crosscheck.diagnosis.reasons import Because, Next

BECAUSE = {
    Because.NO_STEPS: "没有可以比对的训练步。",
    Because.NO_COMMON_ROWS: "两个任务没有任何相同的回答，说明它们处理的不是同一批 rollout。",
    Because.ALL_AGREE: "关键项目均已比对，且每一步都一致。",
    Because.SAMPLING_NOT_AS_CLAIMED: "采样得到的 token 不符合其 log-prob 所声称的分布。",
    Because.WEIGHTS_NOT_IN_ENGINE: "推理引擎中的权重与发送给它的不一致。",
    Because.RESPONSES_CUT: "有的回答既没有以停止符结束，也没有达到长度上限。",
    Because.ROLLOUT_NOT_FINITE: "推理引擎给出的 log-prob 含 NaN、Inf 或正值。",
    Because.ROLLOUT_DIFFERS: "A 的推理引擎与 B 的训练引擎给出的 log-prob 不同，而两个训练引擎彼此一致。",
    Because.ROLLOUT_DIFFERS_FROM_ALL: "A 的推理引擎与两个训练引擎都不一致，而两个训练引擎之间也不一致。",
    Because.ROLLOUT_AGREES_WITH_B: "A 的推理引擎与 B 的训练引擎一致，因此只有 A 的训练引擎与众不同。",
    Because.FORWARD_DIFFERS: "在相同权重、相同 token 下，两个训练引擎给出的 log-prob 不同。",
    Because.FORWARD_INFERRED: "A 的推理与训练彼此一致，但都与 B 的训练引擎不一致。",
    Because.REFERENCE_POLICY_DIFFERS: "对相同的 token，两个参考策略给出的 log-prob 不同。",
    Because.UPDATE_DIFFERS: "两边的前向一致，但梯度范数、损失或权重变化不同。",
    Because.UPDATE_FOLLOWS: "更新也不同，这是前向不同的后果。",
    Because.INPUTS_FOLLOW: "奖励或优势也不同，这是前向不同的后果。",
    Because.INPUTS_DIFFER: "两个任务训练的数据不同：样本、掩码、奖励或优势有差异。",
    Because.CANNOT_TELL_WHICH: "推理与两个训练引擎都不一致，无法判断错在哪一方。",
    Because.FORWARD_UNKNOWN: "更新不同，而前向没有比对，因此两者都不能认定。",
    Because.REFERENCE_SHOWN_BY_CONTROL: "参照可靠：对照实验中，健康任务的推理与训练一致。",
    Because.REFERENCE_SHOWN_BY_SCENARIO_2: "参照可靠：在场景 2 中，B 的推理与训练一致。",
    Because.REFERENCE_SHOWN_BY_OTHER_STEPS: "参照看来可靠：在其他训练步中，A 的推理与 B 的训练一致。",
    Because.REFERENCE_ASSUMED: "B 的推理与训练一致，这一点是作为已知条件给出的。",
    Because.REFERENCE_DISAGREES_WITH_ITSELF: "健康任务自身的推理与训练不一致，因此不能作为判断 A 的推理的参照。",
    Because.REFERENCE_NOT_FINITE: "任务 B 中有 NaN、Inf 或大于 0 的 log-prob，因此不能作为参照。",
    Because.REFERENCE_ROLLOUT_AT_FAULT: "B 的推理没有通过一项不需要参照的检验。",
    Because.ESSENTIAL_MISSING: "没有发现差异，但有关键项目没有比对。",
    Because.ROLLOUT_OF_A_NOT_TESTED: "只给出了场景 2，其中 A 的推理没有参与。",
    Because.OUTCOME_ROLLOUT: "使用 A 的 rollout 时指标崩溃，使用 B 的则不会。",
    Because.OUTCOME_TRAINING: "使用 A 的训练时指标崩溃，使用 B 的则不会。",
    Because.OUTCOME_BOTH: "两个场景中指标都崩溃：可能是两个阶段都有问题，也可能是同一个原因。",
}

NEXT_ACTIONS = {
    Next.GET_CONTROL: "让 B 与自己对跑若干步，把该目录作为对照（control）。",
    Next.RUN_SCENARIO_1: "运行场景 1：A 保留自己的推理，B 保留自己的训练。",
    Next.RUN_SCENARIO_2: "运行场景 2：A 保留自己的训练，B 保留自己的推理。",
    Next.SET_CALCULATE_LOG_PROBS: "在两个任务中让推理引擎给出 log-prob。",
    Next.SET_EVIDENCE_TOKENS: "在两个任务中按 token 记录 log-prob。",
    Next.SET_RECOMPUTE_LOG_PROBS: "在两个任务中让训练引擎自己计算 log-prob。",
    Next.COLLECT_ROLLOUT: "在两个任务中采集第 {step} 步的 rollout 阶段（generate_sequences），昇腾上用 msprobe；"
    "然后逐项尝试 A 的引擎设置。",
    Next.COLLECT_ACTOR_FORWARD: "在两个任务中采集第 {step} 步的 actor 前向（compute_log_prob），昇腾上用 msprobe，然后比对。",
    Next.COLLECT_ACTOR_UPDATE: "在两个任务中采集第 {step} 步的 actor 更新（update_actor），昇腾上用 msprobe，然后比对。",
    Next.CHECK_SAMPLING_SETTINGS: "检查 A 的引擎的采样设置：temperature、top-p、top-k，以及 log-prob 取自它们之前还是之后。",
    Next.CHECK_WEIGHT_SYNC: "检查权重如何到达 A 的推理引擎，从列出的张量开始。",
    Next.CHECK_STOP_TOKENS: "检查 A 的引擎的停止符和长度上限，以及回答因何结束。",
    Next.CHECK_INPUTS: "让两个任务计算相同的内容（数据、奖励函数、优势、随机种子），然后重新比对。",
    Next.CHECK_OPTIMISER: "比较优化器、学习率、梯度裁剪和优化器状态的精度。",
    Next.CHECK_REFERENCE: "先让 B 的推理与训练彼此一致：让 B 与自己对跑，修复其中的差异。",
    Next.LOOK_AT_STATUS: "查看有哪些任务参与过、正在做什么、如何结束。",
    Next.RUN_LONGER: "比对更多训练步，超过此前出现问题的那一步。",
    Next.DECODE_WORST_ROWS: "逐个 token 查看差异最大的回答。",
}
