# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""All texts of the report in Chinese, but for the reasons."""

# ruff: noqa: RUF001  texts stay whole, with the punctuation of Chinese

from __future__ import annotations

from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase
from verl.crosscheck.report.model import Cell
from verl.crosscheck.report.texts.texts import Named, Texts
from verl.crosscheck.report.texts.zh_reasons import BECAUSE, NEXT_ACTIONS, REASONS

PHASES = {
    Phase.NO_FAULT: Named("未发现问题", "所有比对过的项目在每一步都一致。"),
    Phase.ROLLOUT: Named("A 的推理（rollout）阶段存在问题", "A 的推理引擎与 B 的训练引擎不一致；A 的训练未发现问题。"),
    Phase.TRAINING_FORWARD: Named(
        "A 的训练阶段存在问题：前向", "在相同权重、相同 token 下，A 的训练引擎给出的 log-prob 与 B 不同。"
    ),
    Phase.TRAINING_UPDATE: Named("A 的训练阶段存在问题：反向或优化器", "两边的前向一致，但 A 的更新与 B 的不同。"),
    Phase.BOTH: Named("A 的推理和训练阶段都存在问题", "A 的两个阶段都与 B 不一致。"),
    Phase.REFERENCE: Named("标杆侧 B 存在问题", "出错的是被当作正常的任务 B。"),
    Phase.REWARD_OR_ADVANTAGE: Named("奖励或优势不同", "对相同的回复，两个任务的奖励或优势不同，而引擎彼此一致。"),
    Phase.INCONCLUSIVE: Named("无法定界", "已比对的内容不足以得出结论。"),
}

CONFIDENCE = {
    Confidence.HIGH: Named("高", "证据充分，且所依据的参照已得到证明"),
    Confidence.MEDIUM: Named("中", "有一处薄弱：证据本身，或证据所依据的参照"),
    Confidence.LOW: Named("低", "证据较弱，采取行动前请先确认"),
}

ASPECTS = {
    Aspect.INPUTS: Named("训练输入", "两边训练所用的样本、掩码、奖励和优势。必须相等，否则两边做的不是同一件事。"),
    Aspect.ROLLOUT_TAKER: Named(
        "{sampler} 推理 对 {taker} 训练", "{sampler} 的推理引擎与 {taker} 的训练引擎的 log-prob。"
    ),
    Aspect.ROLLOUT_SAMPLER: Named(
        "{sampler} 推理 对 {sampler} 训练", "{sampler} 的推理引擎与它自己的训练引擎的 log-prob。"
    ),
    Aspect.FORWARD: Named("{sampler} 训练 对 {taker} 训练", "两个训练引擎的 log-prob。"),
    Aspect.REFERENCE: Named("{sampler} 参考策略 对 {taker} 参考策略", "两个参考策略的 log-prob。"),
    Aspect.SAMPLING: Named("{sampler} 的采样", "采样得到的 token 是否符合其 log-prob 对应的分布。"),
    Aspect.SYNC: Named("{sampler} 的权重同步", "推理引擎中的权重是否就是发送给它的权重。"),
    Aspect.INDEPENDENCE: Named("{sampler} 的样本独立性", "同一提示的回复相同的次数，是否不超过独立采样时应有的次数。"),
    Aspect.ENDING: Named("回复的结束", "回复是以停止符结束，还是达到长度上限。"),
    Aspect.UPDATE: Named("更新", "更新的结果：梯度范数、损失、权重变化。"),
    Aspect.OUTCOME: Named("训练指标", "奖励、回复长度、熵，以及非有限的数值。"),
}

CELLS = {
    Cell.AGREE: "一致",
    Cell.PARTLY: "比对过的部分一致",
    Cell.DIFFER: "不一致",
    Cell.MISSING: "未比对",
}

LABELS = {
    "title": "verl-crosscheck：{phase}",
    "report": "交叉验证报告",
    "since": "始于第 {step} 步",
    "steps_compared": "比对了 {steps} 步",
    "one_step_compared": "比对了 1 步",
    "no_steps": "没有比对任何训练步",
    "sure": "置信度：{confidence}（{meaning}）",
    "sure_open": "现有证据不足以得出结论。",
    "sure_ok_high": "所有项目都已比对，且不少于三步",
    "sure_ok_medium": "关键项目都已比对",
    "sure_ok_low": "只比对了每条回复之和",
    "suspect": "A，调试侧",
    "healthy": "B，标杆侧",
    "why": "依据",
    "evidence": "最强的证据",
    "next": "下一步",
    "copy": "复制",
    "copied": "已复制",
    "value": "数值",
    "limit": "阈值",
    "step": "步",
    "step_n": "第 {step} 步",
    "quantity": "指标",
    "at_least": "不小于 {limit}",
    "at_most": "不大于 {limit}",
    "no_limit": "仅供参考，不作判定",
    "times": "阈值的 {times} 倍",
    "scenario_1": "场景 1：A 生成回复并加载 B 的权重，B 用 A 的 rollout 训练。",
    "scenario_2": "场景 2：B 生成回复并加载 A 的权重，A 用 B 的 rollout 训练。",
    "scenario_short": "场景 {number}",
    "recomputed_some": "{steps} 步中有 {count} 步是根据证据数据重新比对的。",
    "strip": "逐步概览",
    "strip_several": "每列至多代表 {count} 步，其中任一步不一致即显示为不一致。",
    "thinned": "每条线至多绘制 {count} 个点：每一段训练步取最低点和最高点。",
    "more_problems": "另有 {count} 个文件",
    "strip_each": "每列为一步。",
    "strip_hint": "不一致为红色叉号，未比对为斜线。",
    "distances": "各项差异随训练步的变化",
    "distances_hint": "圆点为训练步，叉号为超过阈值的训练步，虚线为阈值。",
    "floor_hint": "点线为对照运行中的最差值。",
    "beyond": "超过阈值",
    "within": "在阈值之内：{count} 项",
    "run_lacking": "任务 {letter}（模式 {mode}）",
    "run_never_came": "尚未参与此目录",
    "no_step_recorded": "尚无任务完成过带证据数据的训练步",
    "first_thing": "要定界，请先：{action}",
    "steps_lacking": "缺少其中一个任务的证据数据，或其无法使用",
    "span": "{first} 到 {last}",
    "steps_listed": "第 {steps} 步",
    "of": "{whole}：{part}",
    "zero": "每一步都恰为 0：",
    "comma": "、",
    "group": "{whole}（{parts}）",
    "separator": "；",
    "tokens": "差异最大的回复（逐 token）",
    "tokens_hint": "颜色越深，两个 log-prob 相差越大。灰色的 token 不参与训练。鼠标指向 token 可查看数值。",
    "token_tip": "第 {position} 个 token：{one} 与 {other}，相差 {apart}",
    "token_tip_missing": "第 {position} 个 token：未记录",
    "tokens_none": "没有可显示的回复：没有按 token 记录 log-prob，或没有比对。",
    "tokens_ids": "显示的是 token id；用 --tokenizer PATH 可以解码。",
    "tokens_positions": "rollout 已不在目录中，因此显示位置而不是 token。",
    "row_head": "第 {step} 步，回复 {row}",
    "row_numbers": "均值 {mean}，最大 {max}",
    "row_part": "第 {first} 到 {last} 个 token，共 {length} 个",
    "ends_of_prompt": "提示",
    "apart_scale": "log-prob 相差",
    "changes": "各层的权重变化",
    "changes_hint": "两个任务对同一层的更新相差多少，相对于变化本身：0 为相等，1 为相差与变化一样大。",
    "changes_step": "所示为差异最大的第 {step} 步。",
    "changes_equal": "在每一步中，两个任务对每个张量的改变都完全相同。",
    "changes_none": "没有比对权重变化。",
    "changes_worst": "差异最大的张量",
    "tensor": "张量",
    "relative": "相对差",
    "outcomes": "两个任务的训练指标",
    "outcomes_hint": "通常观察的曲线。两个任务共享 rollout 或权重，因此仅凭曲线无法判断是哪个阶段的问题。",
    "settings": "配置差异",
    "settings_must": "必须一致而不一致",
    "settings_may": "允许不同",
    "settings_agree": "所有必须一致的设置和事实都一致。",
    "settings_not_compared": "未比对的设置",
    "settings_unknown": "配置没有比对：缺少其中一个任务。",
    "setting": "设置",
    "not_compared": "未比对的内容",
    "not_compared_hint": "未比对的内容绝不视为一致。",
    "not_compared_none": "没有遗漏。",
    "what": "内容",
    "why_and_set": "原因，以及应如何设置",
    "predicted": "预测 {value}",
    "control_unlike": "对照运行没有收紧任何阈值：任务的设备、引擎或数值格式与对照运行不同。",
    "control_text": "阈值来自对照运行：{directory} 中的 {steps} 步。",
    "limits_file": "阈值来自 {path}。",
    "runs": "任务",
    "problems": "无法使用的文件",
    "session": "会话 {number}",
    "host": "主机",
    "device": "设备",
    "strategy": "训练策略",
    "started": "开始时间",
    "run_id": "任务",
    "mode": "模式",
    "ended": "结束状态",
    "not_ended": "未报告结束",
    "made_with": "由 {versions} 生成",
    "glossary": "指标说明",
    "no_evidence": "没有：没有任何指标超过阈值。",
    "page_written": "页面已写入 {path}",
    "phases_of_a": "任务 A 的各阶段",
    "rollout": "Rollout（推理）",
    "forward": "训练：前向",
    "update": "训练：更新",
    "phase_fault": "存在问题",
    "phase_ok": "未发现问题",
    "phase_unknown": "未定",
}

QUANTITIES = {
    "logprob_abs_diff_mean": Named(
        "log-prob 差的均值", "两个 log-prob 之差的绝对值，对回复的 token 取平均，单位 nat。"
    ),
    "logprob_abs_diff_max": Named("log-prob 差的最大值", "同上，取最差的 token。"),
    "prob_abs_diff_mean": Named("概率差的均值", "概率之差的绝对值的平均，在 0 和 1 之间。"),
    "k1": Named("k1", "KL 散度的估计：带符号的 log-prob 差的平均。"),
    "k3": Named("k3", "KL 的 k3 估计（Schulman），不会为负，对大的差异更敏感。"),
    "k3_over_k1": Named("k3 / k1", "两种估计一致时约为 1；个别 token 差异很大时变大。"),
    "pearson": Named("概率的相关系数", "皮尔逊相关系数，1 为完全一致。"),
    "prob_spread": Named("概率的离散程度", "概率的标准差；它很小时，相关系数没有意义。"),
    "exp_abs_diff_mean": Named(
        "重要性比率的均值", "exp(log-prob 差的绝对值) 的平均，即损失函数会看到的比率；1 为相等。"
    ),
    "ratio_beyond_2_share": Named("比率超过 2 的 token", "其中一个概率超过另一个两倍的 token 所占的比例。"),
    "exact_zeros": Named("log-prob 恰为 0", "log-prob 为 0 的 token 数：确定的 token，或者没有计算。"),
    "logprob_row_diff_mean": Named("按回复求和的 log-prob 差的均值", "由每条回复的和算出：不会大于按 token 的均值。"),
    "logprob_nonfinite_tokens": Named("没有有效 log-prob 的 token", "NaN、Inf 或大于 0。"),
    "nll_minus_entropy_mean": Named(
        "负对数似然与熵之差", "采样 token 的负 log-prob 的平均减去分布的熵：若 token 确实采自该分布，平均为 0。"
    ),
    "nll_minus_entropy_z": Named("负对数似然与熵之差（标准误）", "同上，以其标准误为单位。"),
    "nll_minus_entropy_train_mean": Named("负对数似然与熵之差（训练侧）", "同上，用训练引擎的 log-prob。"),
    "nll_minus_entropy_train_z": Named("负对数似然与熵之差（训练侧，标准误）", "同上，以标准误为单位。"),
    "logprob_gain_train_mean": Named(
        "训练侧对数概率增益",
        "训练引擎给采样 token 的 log-prob 比推理引擎高多少（每个 token）；若推理引擎的 log-prob 属实，平均不会大于 0。",
    ),
    "logprob_gain_train_nats": Named("训练侧对数概率增益（总量）", "同上，对所有 token 求和，单位 nat。"),
    "logprob_gain_train_signed_nats": Named("训练侧对数概率增益（带符号）", "同上；推理引擎对样本解释得更好时小于 0。"),
    **{
        f"nll_minus_entropy{which}_{what}": Named(f"负对数似然与熵之差（{by}{name}）", meaning)
        for which, by in (("", ""), ("_train", "训练侧，"))
        for what, name, meaning in (
            ("nats", "总量", "对所有 token 求和，单位 nat。"),
            ("variance", "方差", "各回复的平方和，标准误由此算出。"),
            ("tokens", "token 数", "参与计算的 token 数。"),
            ("pooled_mean", "多步均值", "到这一步为止所有训练步的均值。"),
            ("pooled_z", "多步标准误", "到这一步为止所有训练步合计；其阈值允许每一步都检验。"),
        )
    },
    "logprob_gain_train_pooled_nats": Named("训练侧对数概率增益（多步）", "到这一步为止所有训练步的总量。"),
    "equal_responses_nats": Named("重复回复的证据", "对数似然比，单位 nat：会重复先前回复的引擎与独立采样的引擎相比。"),
    "equal_first_tokens_nats": Named("重复首 token 的证据", "同上，只看第一个 token。"),
    "equal_responses_pooled_nats": Named("重复回复的证据（多步）", "同上，到这一步为止所有训练步合计。"),
    "equal_first_tokens_pooled_nats": Named("重复首 token 的证据（多步）", "同上，到这一步为止所有训练步合计。"),
    "stop_inside_share": Named("越过停止符的回复", "在结尾之前含有停止符的回复所占的比例。"),
    "rollout_position": Named("推理在两个训练之间的位置", "0：推理引擎与接收方的训练一致；1：与采样方的训练一致。"),
    "rollout_position_error": Named("推理的位置（标准误）", "由各回复之间的离散程度算出。"),
    "tensors_out_of_sync": Named("未同步的张量", "推理引擎中与发送的不一致的张量数。"),
    "tensors_not_matched": Named("仅一侧有的张量", "只发送过、或只被持有的张量。"),
    "unfinished_share": Named("被截断的回复", "既没有以停止符结束、也没有达到长度上限的回复所占的比例。"),
    "rows_unmatched_share": Named("仅一方有的回复", "另一个任务没有的回复所占的比例。"),
    "mask_diff_rows": Named("掩码不同的回复", "两个任务训练的 token 不同的回复数。"),
    "reward_rel_diff_max": Named("奖励差的最大值", "相对差，取最差的回复。"),
    "reward_recomputed_rel_diff_max": Named(
        "自己的奖励函数之差的最大值", "随 rollout 到来的奖励与接收方自己的奖励函数给出的奖励之差。"
    ),
    "advantage_rel_diff": Named("优势差", "相对差。"),
    "grad_norm_rel_diff": Named("梯度范数差", "相对差。"),
    "loss_rel_diff": Named("损失差", "相对差。"),
    "pg_loss_rel_diff": Named("策略损失差", "相对于损失或其尺度。"),
    "kl_loss_rel_diff": Named("KL 损失差", "相对差。"),
    "entropy_loss_rel_diff": Named("熵损失差", "相对差。"),
    "entropy_rel_diff": Named("熵差", "相对差。"),
    "lr_rel_diff": Named("学习率差", "相对差。"),
    "change_rel_diff": Named("权重变化之差", "所有权重：两边的变化相差多少，相对于变化本身。"),
    "change_norm_rel_diff": Named("权重变化大小之差", "所有权重：两边变化的范数的相对差。"),
    "change_rel_diff_max": Named("单个张量的变化之差", "同上，取在变化中占有分量的张量里最差的一个。"),
    "change_rel_diff_kind_max": Named("一类张量的变化之差", "同上，取所有层合计后最差的一类张量。"),
    "change_rel_diff_layer_max": Named("一层的变化之差", "同上，取所有张量合计后最差的一层。"),
    "sampler_unmoved_tensors": Named("采样方：未被更新的张量", "只有接收方的更新改变了的张量数。"),
    "taker_unmoved_tensors": Named("接收方：未被更新的张量", "只有采样方的更新改变了的张量数。"),
    "critic_update": Named("critic 的更新", "critic 自身更新的结果。"),
    "optimiser_state": Named("优化器状态", "优化器对先前更新的记忆。"),
    "sampler_nonfinite_rollout": Named("采样方：推理非有阈值", "推理的 log-prob 中的 NaN、Inf 或正值。"),
    "sampler_nonfinite_train": Named("采样方：训练非有阈值", "训练的 log-prob 中的 NaN、Inf 或正值。"),
    "taker_nonfinite_train": Named("接收方：训练非有阈值", "训练的 log-prob 中的 NaN、Inf 或正值。"),
    "sampler_nonfinite_update": Named("采样方：更新非有阈值", "更新的数值中的 NaN 或 Inf。"),
    "taker_nonfinite_update": Named("接收方：更新非有阈值", "更新的数值中的 NaN 或 Inf。"),
}

OUTCOMES = {
    "reward": "奖励",
    "reward_mean": "奖励",
    "response_length": "回复长度",
    "response_length_mean": "回复长度",
    "entropy": "熵",
    "entropy_mean": "熵",
    "grad_norm": "梯度范数",
    "loss": "损失",
    "pg_loss": "策略损失",
    "kl_loss": "KL 损失",
    "lr": "学习率",
}

TEXTS = Texts(
    language="zh-CN",
    phases=PHASES,
    confidence=CONFIDENCE,
    aspects=ASPECTS,
    cells=CELLS,
    because=BECAUSE,
    next_actions=NEXT_ACTIONS,
    quantities=QUANTITIES,
    outcomes=OUTCOMES,
    labels=LABELS,
    reasons=REASONS,
)
