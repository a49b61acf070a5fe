# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What runs and comparisons have written in English, in Chinese: why something is missing, where something differs, why a
setting may differ. A text that is not here is shown as it was written.

Each line is a whole text, with `{}` for what varies, and its translation, in which `{1}` is the first of these.
"""

# ruff: noqa: E501, RUF001  texts stay whole, with the punctuation of Chinese

from __future__ import annotations

import re
from collections.abc import Sequence

from verl.crosscheck.diagnosis.assess import NOT_READABLE, TOO_FEW
from verl.crosscheck.diagnosis.training_checks import OWN_STATE

_TOLD = {
    # What was not recorded
    "the rollout engine was not asked for log-probs: {}": "没有要求推理引擎给出 log-prob：请设置 {1}",
    "the trainer did not compute log-probs before the update ({} takes the rollout's in their place): set it to False": "训练器在更新之前没有计算 log-prob（{1} 以推理的代替）：请设为 False",
    "the configuration has no reference policy ({})": "配置中没有参考策略（{1}）",
    "the trainer did not compute log-probs, and entropies with them, before the update": "训练器在更新之前没有计算 log-prob，因而也没有熵",
    "the batch has no token_level_scores": "批次中没有 token_level_scores",
    "the batch has no advantages": "批次中没有优势",
    "the model's configuration cannot be read here ({})": "此处无法读取模型的配置（{1}）",
    "no end mark is named by tokenizer or model": "分词器和模型都没有给出结束符",
    "the trainer did not name its workers to the cross-check ({})": "训练器没有把 worker 告知交叉验证（{1}）",
    "trainer.share_data_weight_change=off; set norm or full": "trainer.share_data_weight_change=off；请设为 norm 或 full",
    "trainer.share_data_weight_change=norm; set full": "trainer.share_data_weight_change=norm；请设为 full",
    "the workers could not measure it ({})": "worker 无法测量（{1}）",
    "digests of the rollout engine's weights could not be had ({})": "无法得到推理引擎权重的摘要（{1}）",
    "no weights have been sent to the rollout engine since its digests were asked for": "自要求摘要以来，还没有向推理引擎发送过权重",
    "this rollout engine ({}) does not tell which weights it holds; only {} does. The rollout's log-probs, compared with training's, show stale weights": "该推理引擎（{1}）不会告知它持有的权重；只有 {2} 可以。推理与训练的 log-prob 之差会反映出过期的权重",
    "the rollout engine cannot tell digests of the weights it holds": "该推理引擎无法给出它所持有的权重的摘要",
    "both gradient norms are 0: there was nothing to update by": "两边的梯度范数都是 0：没有可供更新的梯度",
    "in mode rollout the own engine generates nothing": "rollout 模式下自己的引擎不生成任何内容",
    OWN_STATE: "可移植的检查点只有权重，各任务保留自己的优化器状态：更新一旦不同，之后的更新也会不同，以第一步为准",
    "{} data-parallel ranks here and {} there cut the batch into {} mini-batches of other rows, so the two updates differ by nature. {}": "此处 {1} 个、对方 {2} 个数据并行 rank 把批次切成 {3} 个 mini-batch，其中的行不同，因此两边的更新本来就不同。请在两边把 actor_rollout_ref.actor.ppo_mini_batch_size 设为 data.train_batch_size，或使数据并行 rank 数相同",
    "{} data-parallel ranks here and {} there each take the mean over their own tokens ({}), so the two losses weigh tokens otherwise. {}": "此处 {1} 个、对方 {2} 个数据并行 rank 各自对自己的 token 取平均（{3}），因此两边的损失对 token 的加权不同。请在两边设 trainer.use_legacy_worker_impl=disable 或 actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean，或使数据并行 rank 数相同",
    "{} data-parallel ranks here and {} there cut the critic's batch into {} mini-batches of other rows, so the two critics differ by nature, and with them the advantages. {}": "此处 {1} 个、对方 {2} 个数据并行 rank 把 critic 的批次切成 {3} 个 mini-batch，其中的行不同，因此两边的 critic 本来就不同，优势也随之不同。请在两边把 critic.ppo_mini_batch_size 设为 data.train_batch_size，或使数据并行 rank 数相同",
    "no weight moved in either run": "两个任务的权重都没有变化",
    "{} and {} workers log it in other ways ({})": "{1} 与 {2} 的 worker 记录它的方式不同（{3}）",
    "{}={} is less than the longest prompt and response, {} + {}, so an end may be early": "{1}={2} 小于最长提示与回答之和 {3} + {4}，回答可能因此提前结束",
    "the engine does not tell digests of the weights it holds": "该引擎不会给出它所持有的权重的摘要",
    # What could not be compared
    "run {} (mode {}) recorded no {} log-probs of tokens": "任务 {1}（模式 {2}）没有按 token 记录 {3} 的 log-prob",
    "{} log-probs of run {} (mode {}) have the shape {}, expected {}, one for each response token": "任务 {2}（模式 {3}）的 {1} log-prob 形状为 {4}，应为 {5}，即每个回答 token 一个",
    "{} rows have other lengths in the two runs": "{1} 条回答在两个任务中长度不同",
    "the two runs have no row in common": "两个任务没有相同的回答",
    "no response token is trained on: the masks are empty": "没有参与训练的回答 token：掩码为空",
    "{} log-probs of run {} (mode {}) are 0 in every token: the engine did not compute them": "任务 {2}（模式 {3}）的 {1} log-prob 全为 0：引擎没有计算它们",
    "{} log-probs of run {} (mode {}) are 0 in every token: the engine did not compute them; set {}": "任务 {2}（模式 {3}）的 {1} log-prob 全为 0：引擎没有计算它们；请设置 {4}",
    NOT_READABLE: "推理引擎与另一任务训练引擎的 log-prob 不一致或没有比对，因此后者的熵可能不是采样分布的熵",
    TOO_FEW: "可比对的回答 token 太少",
    "sampled with {}, so tokens do not come from all of the distribution; {} can be tested": "采样时 {1}，token 并非来自整个分布；设为 {2} 才能检验",
    "sampled greedily (temperature 0)": "贪心采样（temperature 为 0）",
    "the other run recorded no entropies": "另一任务没有记录熵",
    "neither run recorded log-probs of the sampled tokens": "两个任务都没有记录采样 token 的 log-prob",
    "the two runs train on other tokens of the same responses": "对相同的回答，两个任务训练的 token 不同",
    "no row has finite numbers and tokens that are trained on": "没有一条回答既有有限数值又有参与训练的 token",
    "all entropies are 0": "所有的熵都为 0",
    "in several turns a response may end with what a tool or the user says": "多轮对话中，回答可能以工具或用户的话结束",
    "the stop tokens or the length limit are not known": "不知道停止符或长度上限",
    "the last tokens were not recorded": "没有记录最后一个 token",
    "every response is empty": "所有回答都为空",
    "neither run kept a row": "两个任务都没有保留任何回答",
    "a run recorded no masks": "有一个任务没有记录掩码",
    "a run recorded no rewards": "有一个任务没有记录奖励",
    "a run recorded no advantages": "有一个任务没有记录优势",
    "no {} from the run in mode {} and {}": "模式 {2} 和 {3} 的任务都没有 {1}",
    "no {} from the run in mode {}": "模式 {2} 的任务没有 {1}",
    "neither run recorded how its update moved the weights; {}": "两个任务都没有记录更新使权重改变了多少；见 {1}",
    "not run, so the rollout phase of A was not tested": "没有运行，因此没有检验 A 的推理阶段",
    # Where something differs
    "hotter than claimed": "比声称的温度更高",
    "colder than claimed, or from a part of the tokens": "比声称的温度更低，或只从部分 token 中采样",
    "{} of {} rows are in one run alone": "{2} 条回答中有 {1} 条只在一个任务中",
    "batches of {} and {} rows": "两边的批次分别有 {1} 和 {2} 条",
    "{} rows that both runs kept": "两个任务都保留的 {1} 条回答",
    "{} of {} rows": "{2} 条中的 {1} 条",
    "of {} rows": "共 {1} 条",
    "{} of {} responses": "{2} 条回答中的 {1} 条",
    "of {}: {}": "共 {1} 个：{2}",
    "known on one side: {}": "只有一方知道：{1}",
    "the rewards of {} rows are NaN or infinite": "{1} 条回答的奖励为 NaN 或 Inf",
    "advantages are NaN or infinite": "优势为 NaN 或 Inf",
    "changes are NaN or infinite: {}": "权重变化为 NaN 或 Inf：{1}",
    "the sums of log-probs of {} rows are NaN or infinite": "{1} 条回答的 log-prob 之和为 NaN 或 Inf",
    "{} and {} of {} tokens have no log-prob (NaN, infinite or above 0) from the first and the second engine": "{3} 个 token 中，前一个引擎有 {1} 个、后一个引擎有 {2} 个没有有效的 log-prob（NaN、Inf 或大于 0）",
    "{}: {} and {}, neither is finite": "{1}：{2} 与 {3}，都不是有限值",
    "{}/{}: {} and {}": "{1}/{2}：{3} 与 {4}",
    # Why a setting may differ
    "each run says its own part of the cross-check": "各任务在交叉验证中各有分工",
    "hardware is what a cross-check compares": "硬件正是交叉验证所要比较的",
    "how many devices share the work does not change the work": "分担工作的设备数不改变工作本身",
    "the training back end is what a cross-check compares": "训练后端正是交叉验证所要比较的",
    "names the class that carries the section, whose values are compared one by one": "承载该节的类名；其中的值逐一比较",
    "parallel layout: the same sums, shared out in another way": "并行布局：同样的计算，不同的分配方式",
    "how one update is split into portions, whose losses add up to the same": "一次更新如何切分；各部分损失之和相同",
    "how one pass without an update is split into portions": "不含更新的一次前向如何切分",
    "where numbers are kept between their uses, or made again for want of memory": "数值在两次使用之间存放何处，或为节省内存而重算",
    "other kernels for the same function are what a cross-check compares": "同一函数的不同算子正是交叉验证所要比较的",
    "MindSpeed wants it said again; the model's own configuration says it too, and is compared as a fact": "MindSpeed 需要重复说明；模型自身的配置也有，并作为事实比较",
    "the number format of training is what a cross-check compares; rounding then differs, nothing else": "训练的数值格式正是交叉验证所要比较的；只有舍入会不同",
    "the rollout engine is what a cross-check compares; what it samples from is compared as the fact `sampling`": "推理引擎正是交叉验证所要比较的；采样所用的分布作为事实 `sampling` 比较",
    "upstream puts the length of the run there, which is compared by its own keys": "上游会在此填入任务的步数，步数另由它自己的配置项比对",
    "guessing ahead makes a rollout faster and leaves its distribution alone": "投机解码只加快推理，不改变分布",
    "rollout skip is refused beside the cross-check": "交叉验证时不允许 rollout skip",
    "a path of this host; the rows and their order are compared as the fact `{}`": "本机路径；样本及其顺序作为事实 `{1}` 比较",
    "a path of this host; the model is compared as the fact `{}`": "本机路径；模型作为事实 `{1}` 比较",
    "a path of this host; the tokenizer is compared as the fact `{}`": "本机路径；分词器作为事实 `{1}` 比较",
    "a path of this host; what lies there is compared as the fact `{}`": "本机路径；其内容作为事实 `{1}` 比较",
    "where and how files are kept on this host": "文件在本机的存放位置和方式",
    "whether a model's own code may run": "是否允许运行模型自带的代码",
    "how many processes and how long they may take, not what they do": "进程的数量和时限，不涉及其所做的事",
    "the run's own checkpoints; the exchange has its own": "任务自己的检查点；交换目录另有自己的",
    "names and logs": "名称和日志",
    "profiling watches and does not take part": "性能分析只旁观，不参与",
    "a run that goes on from a checkpoint is often told not to validate first": "从检查点继续的任务常被设为不先做验证",
    "nothing reads it": "没有任何代码读取它",
    "each back end has its own word for it; compared as the fact `{}`": "各后端有各自的叫法；作为事实 `{1}` 比较",
    "a key of one back end alone; what both have in common is compared as the fact `{}`": "只有一个后端有该项；共有的部分作为事实 `{1}` 比较",
    "a key of one back end alone": "只有一个后端有该项",
    "spelled in another way by each back end; compared as part of the fact `{}`": "各后端写法不同；作为事实 `{1}` 的一部分比较",
    "could be a secret": "可能是机密",
    "this run does not say": "A 没有说明",
    "the other run does not say": "B 没有说明",
    "this run does not say; the other run does not say": "A 和 B 都没有说明",
    "this run does not know: {}": "A 不知道：{1}",
    "the other run does not know: {}": "B 不知道：{1}",
    "this run does not know: {}; the other run does not know: {}": "A 不知道：{1}；B 不知道：{2}",
}

IN_SOME_STEPS = re.compile(r"(.*) \(in (\d+) of (\d+) steps\)", re.DOTALL)
"""What a verdict adds to a reason that does not hold in all steps."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("(.+?)".join(map(re.escape, text.split("{}"))), re.DOTALL)


_PATTERNS = tuple((_pattern(text), translation) for text, translation in _TOLD.items())


def translated(text: str) -> str:
    """`text` in Chinese, or as it is if it is not known."""
    some = IN_SOME_STEPS.fullmatch(text)
    if some:
        return f"{translated(some.group(1))}（{some.group(3)} 步中有 {some.group(2)} 步）"
    for pattern, translation in _PATTERNS:
        match = pattern.fullmatch(text)
        if match:
            return _filled(translation, match.groups())
    return text


def _filled(translation: str, parts: Sequence[str]) -> str:
    """With parts in place; neither `str.format` nor `Match.expand`, since parts come from files."""
    return re.sub(r"\{(\d)\}", lambda number: parts[int(number.group(1)) - 1], translation)
