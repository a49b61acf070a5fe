# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Reasons: why something was not recorded or not compared, where something differs, why a setting may differ.

A reason is a code with parameters. Evidence, comparisons and verdicts carry it; only what is shown to people is a
sentence. Each code has its English sentence here, since the log needs it; `report.texts.zh_reasons` has the Chinese
ones, and a test proves that both know every code with the same parameters. A new reason is one line here and one
line there.

On disk a reason is `{"code": ..., "params": {...}, "text": ...}`. `text` is the English sentence, for people who read
the file and for readers of another version that do not know the code. Files of 0.1.0 hold the sentence alone, see
`evidence.old_reasons`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Union

MAX_DEPTH = 4
"""Reasons inside reasons that are read from a file."""


class ReasonCode(str, Enum):
    """A code and its English sentence, in which `{name}` stands for a parameter."""

    english: str

    def __new__(cls, code: str, english: str) -> ReasonCode:
        member = str.__new__(cls, code)
        member._value_, member.english = code, english
        return member

    # Any text, as it was written: a name, an error's message, a sentence of another version.
    FREE_TEXT = "free_text", "{text}"
    NAME = "name", "{name}"

    # What was not recorded
    NOT_RECORDED_ERROR = "not_recorded_error", "could not be recorded: {error}"
    ROLLOUT_LOG_PROBS_OFF = (
        "rollout_log_probs_off",
        "the rollout engine was not asked for log-probs: actor_rollout_ref.rollout.calculate_log_probs=True",
    )
    TRAIN_LOG_PROBS_OFF = (
        "train_log_probs_off",
        "the trainer did not compute log-probs before the update (algorithm.rollout_correction.bypass_mode=True "
        "takes the rollout's in their place): set it to False",
    )
    NO_REFERENCE_POLICY = (
        "no_reference_policy",
        "the configuration has no reference policy (actor_rollout_ref.actor.use_kl_loss, algorithm.use_kl_in_reward)",
    )
    NO_ENTROPY = (
        "no_entropy",
        "the trainer did not compute log-probs, and entropies with them, before the update",
    )
    NO_SCORES = "no_scores", "the batch has no token_level_scores"
    REWARD_NOT_LOCAL = (
        "reward_not_local",
        "rewards come with the rollout, and are of a model or not known to the trainer, so the own ones were not taken",
    )
    REWARD_NOT_REPEATABLE = (
        "reward_not_repeatable",
        "the reward function gives other scores for the same responses when called again ({where})",
    )
    REWARD_ERROR = "reward_error", "the own reward function failed on the other run's responses ({error})"
    REWARD_NOT_RECOMPUTED = (
        "reward_not_recomputed",
        "rewards come with the rollout, and evidence has none by the own reward function",
    )
    NO_ADVANTAGES = "no_advantages", "the batch has no advantages"
    MODEL_CONFIG_UNREADABLE = "model_config_unreadable", "the model's configuration cannot be read here ({error})"
    NO_END_MARK = "no_end_mark", "no end mark is named by tokenizer or model"
    NO_ROOM = (
        "no_room",
        "{key}={room} is less than the longest prompt and response, {prompt} + {response}, so an end may be early",
    )
    WORKERS_NOT_NAMED = (
        "workers_not_named",
        "the trainer did not name its workers to the cross-check (ShareDataTest.begin_training)",
    )
    GENERATES_NOTHING = "generates_nothing", "in mode rollout the own engine generates nothing"
    CHANGE_OFF = "change_off", "trainer.share_data_weight_change=off; set norm or full"
    CHANGE_NORM = "change_norm", "trainer.share_data_weight_change=norm; set full"
    CHANGE_ERROR = "change_error", "the workers could not measure it ({error})"
    CHANGE_ERROR_AND_MEMORY = (
        "change_error_and_memory",
        "the workers could not measure it ({error}); nor free what they had copied ({memory_error})",
    )
    NOISE_OFF = "noise_off", "trainer.share_data_noise=0; set how often it is measured"
    NOISE_OTHER_STEP = "noise_other_step", "measured in one of {every} steps (trainer.share_data_noise)"
    NOISE_NOT_ASKED = (
        "noise_not_asked",
        "the trainer did not announce its update to the cross-check (ShareDataTest.before_update_policy)",
    )
    NOISE_BACK_END = "noise_back_end", "noise is measured with FSDP and FSDP2, not with {back_end}"
    NOISE_FORMAT = (
        "noise_format",
        "how the rollout engine rounds is not known (dtype={dtype}, quantization={quantization})",
    )
    NOISE_NO_CHANGE = "noise_no_change", "the optimizer is not of Adam's kind, or the gradient is 0"
    DIGESTS_ERROR = "digests_error", "digests of the rollout engine's weights could not be had ({error})"
    NOTHING_SENT = (
        "nothing_sent",
        "no weights have been sent to the rollout engine since its digests were asked for",
    )
    ENGINE_WITHOUT_DIGESTS = (
        "engine_without_digests",
        "this rollout engine ({engine}) does not report which weights it holds; only actor_rollout_ref.rollout.name=hf "
        "does. The rollout's log-probs, compared with training's, show stale weights",
    )

    # What could not be compared
    NO_COLUMN = "no_column", "run {run} (mode {mode}) recorded no {column} log-probs of tokens"
    COLUMN_SHAPE = (
        "column_shape",
        "{column} log-probs of run {run} (mode {mode}) have the shape {shape}, expected {expected}, one for each "
        "response token",
    )
    COLUMN_ZERO = (
        "column_zero",
        "{column} log-probs of run {run} (mode {mode}) are 0 in every token: the engine did not compute them",
    )
    COLUMN_ZERO_SET_FLAG = (
        "column_zero_set_flag",
        "{column} log-probs of run {run} (mode {mode}) are 0 in every token: the engine did not compute them; set "
        "actor_rollout_ref.rollout.calculate_log_probs=True",
    )
    LENGTHS_DIFFER = "lengths_differ", "{rows} rows have other lengths in the two runs"
    NO_COMMON_ROW = "no_common_row", "the two runs have no row in common"
    MASKS_EMPTY = "masks_empty", "no response token is trained on: the masks are empty"
    ENTROPY_NOT_COMPARABLE = (
        "entropy_not_comparable",
        "log-probs of the rollout engine and of the other run's training engine do not agree or were not compared, so "
        "its entropy may be of another distribution than that which was sampled from",
    )
    TOO_FEW_TOKENS = "too_few_tokens", "fewer than {tokens} response tokens to compare"
    SAMPLED_FROM_A_PART = (
        "sampled_from_a_part",
        "sampled with {key}={value}, so tokens do not come from all of the distribution; {testable} can be tested",
    )
    SAMPLED_GREEDILY = "sampled_greedily", "sampled greedily (temperature 0)"
    OTHER_WITHOUT_ENTROPIES = "other_without_entropies", "the other run recorded no entropies"
    NO_SAMPLED_LOG_PROBS = "no_sampled_log_probs", "neither run recorded log-probs of the sampled tokens"
    OTHER_TOKENS_TRAINED = (
        "other_tokens_trained",
        "the two runs train on other tokens of the same responses",
    )
    NO_FINITE_ROW = "no_finite_row", "no row has finite numbers and tokens that are trained on"
    ENTROPIES_ZERO = "entropies_zero", "all entropies are 0"
    SEVERAL_TURNS = "several_turns", "in several turns a response may end with what a tool or the user says"
    NO_STOP_TOKENS = "no_stop_tokens", "the stop tokens or the length limit are not known"
    NO_LAST_TOKENS = "no_last_tokens", "the last tokens were not recorded"
    RESPONSES_EMPTY = "responses_empty", "every response is empty"
    MASKS_NOT_WHOLE = (
        "masks_not_whole",
        "masks leave out tokens that were sampled, by what was sampled: what is left is not drawn as the test takes it",
    )
    NO_ROW_COLUMN = "no_row_column", "the evidence has no {column} of rows: it is of an older version"
    NO_PROMPT_TWICE = "no_prompt_twice", "no prompt has two responses"
    STOPS_INSIDE_NOT_RECORDED = (
        "stops_inside_not_recorded",
        "it is not known which tokens end a response in every engine (several turns, ignore_eos, no tokenizer, or "
        "evidence of an older version)",
    )
    CRITIC_NOT_COMPARED = "critic_not_compared", "the critic's own update is not compared"
    NO_DIGESTS = "no_digests", "the engine does not report digests of the weights it holds"
    NO_ROW_KEPT = "no_row_kept", "neither run kept a row"
    NO_MASKS = "no_masks", "a run recorded no masks"
    NO_REWARDS = "no_rewards", "a run recorded no rewards"
    ADVANTAGES_NOT_RECORDED = "advantages_not_recorded", "a run recorded no advantages"
    NO_METRIC = "no_metric", "no {metric} from the run in mode {mode}"
    NO_METRIC_IN_BOTH = "no_metric_in_both", "no {metric} from the run in mode {mode} and {other_mode}"
    GRADIENTS_ZERO = "gradients_zero", "both gradient norms are 0: there was nothing to update by"
    OWN_OPTIMISER_STATE = (
        "own_optimiser_state",
        "portable checkpoints hold weights alone, so each run keeps its own optimiser state: an update that differs "
        "once makes later ones differ too, and the first step counts",
    )
    LOGGED_OTHERWISE = (
        "logged_otherwise",
        "{own} and {other} workers log it in other ways (actor.strategy, use_legacy_worker_impl)",
    )
    NEITHER_FINITE = "neither_finite", "{metric}: {own} and {other}, neither is finite"
    NO_CHANGES = (
        "no_changes",
        "neither run recorded how its update moved the weights; trainer.share_data_evidence",
    )
    NO_WEIGHT_MOVED = "no_weight_moved", "no weight moved in either run"
    UPDATES_SPLIT_OTHERWISE = (
        "updates_split_otherwise",
        "{own_ranks} data-parallel ranks here and {other_ranks} there cut the batch into {mini_batches} mini-batches "
        "of other rows, so the two updates differ by nature. Type actor_rollout_ref.actor.ppo_mini_batch_size equal to "
        "data.train_batch_size on both runs, or give both equal numbers of data-parallel ranks",
    )
    LOSSES_WEIGHED_OTHERWISE = (
        "losses_weighed_otherwise",
        "{own_ranks} data-parallel ranks here and {other_ranks} there each take the mean over their own tokens (legacy "
        "workers, loss_agg_mode=token-mean), so the two losses weigh tokens otherwise. Type "
        "trainer.use_legacy_worker_impl=disable or actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean on both "
        "runs, or give both equal numbers of data-parallel ranks",
    )
    CRITICS_SPLIT_OTHERWISE = (
        "critics_split_otherwise",
        "{own_ranks} data-parallel ranks here and {other_ranks} there cut the critic's batch into {mini_batches} "
        "mini-batches of other rows, so the two critics differ by nature, and with them the advantages. Type "
        "critic.ppo_mini_batch_size equal to data.train_batch_size on both runs, or give both equal numbers of "
        "data-parallel ranks",
    )
    SCENARIO_1_NOT_RUN = "scenario_1_not_run", "not run, so the rollout phase of A was not tested"
    IN_SOME_STEPS = "in_some_steps", "{why} (in {steps} of {all_steps} steps)"

    # Where something differs
    HOTTER = "hotter", "hotter than claimed"
    COLDER = "colder", "colder than claimed, or from a part of the tokens"
    OVER_STEPS = "over_steps", "over {steps} steps together"
    ROWS_ALONE = "rows_alone", "{rows} of {all_rows} rows are in one run alone"
    BATCH_SIZES = "batch_sizes", "batches of {own} and {other} rows"
    ROWS_KEPT = "rows_kept", "{rows} rows that both runs kept"
    SOME_ROWS = "some_rows", "{rows} of {all_rows} rows"
    OF_ROWS = "of_rows", "of {rows} rows"
    SOME_RESPONSES = "some_responses", "{responses} of {all_responses} responses"
    OF_TENSORS = "of_tensors", "of {count}: {names}"
    ONE_SIDED = "one_sided", "known on one side: {names}"
    REWARDS_NOT_FINITE = "rewards_not_finite", "the rewards of {rows} rows are NaN or infinite"
    ADVANTAGES_NOT_FINITE = "advantages_not_finite", "advantages are NaN or infinite"
    CHANGES_NOT_FINITE = "changes_not_finite", "changes are NaN or infinite: {names}"
    SUMS_NOT_FINITE = "sums_not_finite", "the sums of log-probs of {rows} rows are NaN or infinite"
    TOKENS_NOT_FINITE = (
        "tokens_not_finite",
        "{first} and {second} of {tokens} tokens have no log-prob (NaN, infinite or above 0) from the first and the "
        "second engine",
    )
    TWO_NUMBERS = "two_numbers", "{metric}: {own} and {other}"

    # Why a setting may differ
    OWN_PART = "own_part", "each run says its own part of the cross-check"
    HARDWARE = "hardware", "hardware is what a cross-check compares"
    DEVICE_COUNT = "device_count", "how many devices share the work does not change the work"
    BACK_END = "back_end", "the training back end is what a cross-check compares"
    RUN_LENGTH = "run_length", "upstream puts the length of the run there, which is compared by its own keys"
    CLASS_NAME = "class_name", "names the class that carries the section, whose values are compared one by one"
    PARALLEL_LAYOUT = "parallel_layout", "parallel layout: the same sums, shared out in another way"
    UPDATE_PARTS = "update_parts", "how one update is split into parts, whose losses add up to the same"
    FORWARD_PARTS = "forward_parts", "how one pass without an update is split into parts"
    MEMORY = "memory", "where numbers are kept between their uses, or made again for want of memory"
    KERNELS = "kernels", "other kernels for the same function are what a cross-check compares"
    MINDSPEED = (
        "mindspeed",
        "MindSpeed wants it said again; the model's own configuration says it too, and is compared as a fact",
    )
    NUMBER_FORMAT = (
        "number_format",
        "the number format of training is what a cross-check compares; rounding then differs, nothing else",
    )
    ROLLOUT_ENGINE = (
        "rollout_engine",
        "the rollout engine is what a cross-check compares; what it samples from is compared as the fact `sampling`",
    )
    SPECULATION = "speculation", "guessing ahead makes a rollout faster and leaves its distribution alone"
    ROLLOUT_SKIP = "rollout_skip", "rollout skip is refused beside the cross-check"
    DATA_PATH = "data_path", "a path of this host; the rows and their order are compared as the fact `data`"
    MODEL_PATH = "model_path", "a path of this host; the model is compared as the fact `model`"
    TOKENIZER_PATH = "tokenizer_path", "a path of this host; the tokenizer is compared as the fact `tokenizer`"
    FILE_PATH = "file_path", "a path of this host; what lies there is compared as the fact `files`"
    HOST_FILES = "host_files", "where and how files are kept on this host"
    REMOTE_CODE = "remote_code", "whether a model's own code may run"
    PROCESSES = "processes", "how many processes and how long they may take, not what they do"
    OWN_CHECKPOINTS = "own_checkpoints", "the run's own checkpoints; the exchange has its own"
    NAMES_AND_LOGS = "names_and_logs", "names and logs"
    PROFILING = "profiling", "profiling watches and does not take part"
    RESUMED = "resumed", "a run that goes on from a checkpoint is often asked not to validate first"
    NOTHING_READS_IT = "nothing_reads_it", "nothing reads it"
    OPTIMISER_WORD = "optimiser_word", "each back end has its own word for it; compared as the fact `optimiser`"
    OPTIMISER_KEY = (
        "optimiser_key",
        "a key of one back end alone; what both have in common is compared as the fact `optimiser`",
    )
    ONE_BACK_END = "one_back_end", "a key of one back end alone"
    SPELLED_OTHERWISE = (
        "spelled_otherwise",
        "spelled in another way by each back end; compared as part of the fact `model`",
    )
    UNSET = "unset", "what 0.7.1 does without the key, which not every shipped configuration has"

    # Why a setting or a fact was not compared
    SECRET = "secret", "could be a secret"
    OWN_SILENT = "own_silent", "this run does not say"
    OTHER_SILENT = "other_silent", "the other run does not say"
    OWN_UNKNOWN = "own_unknown", "this run does not know: {why}"
    OTHER_UNKNOWN = "other_unknown", "the other run does not know: {why}"
    OWN_SECRET = "own_secret", "this run left out what could be a secret"
    OTHER_SECRET = "other_secret", "the other run left out what could be a secret"
    BOTH = "both", "{own}; {other}"
    NO_FACTS = "no_facts", "its trainer reported none"
    NO_FOLDER = "no_folder", "{path} is no folder on this host"
    NO_FILE = "no_file", "{path} is no file on this host"
    NO_TABLE = "no_table", "{kind} has no table of rows that could be read without going through it"
    SAMPLER_NOT_REPEATABLE = (
        "sampler_not_repeatable",
        "{sampler} might not draw the same again if it were asked twice",
    )
    GLOBAL_RANDOM_STATE = "global_random_state", "the order is drawn from PyTorch's global random state"
    NO_SAFETENSORS = "no_safetensors", "{path} has no safetensors files"
    NO_TOKENIZER = "no_tokenizer", "{kind} is no tokenizer of Transformers"
    NO_SUCH_SETTING = "no_such_setting", "the {engine} engine has no such setting"
    SCHEDULE_UNKNOWN = "schedule_unknown", "the schedules of {backend} have no counterpart in other back ends"
    GOES_ON = "goes_on", "it goes on after step {step}"
    CRITIC_ADAPTERS = "critic_adapters", "LoRA adapters of a critic are drawn at random and not looked at"


_BY_CODE = {code.value: code for code in ReasonCode}

Param = Union[str, int, float, "Reason"]


@dataclass(frozen=True)
class Reason:
    """A code with its parameters; `str` of it is the English sentence."""

    code: ReasonCode
    params: Mapping[str, Param] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.sentence(lambda code: code.english)

    def __hash__(self) -> int:
        return hash((self.code, *sorted(self.params)))

    def sentence(self, template_of: Callable[[ReasonCode], str]) -> str:
        """Return the sentence in a language.

        Args:
            template_of: the sentence of a code, with `{name}` for each parameter.
        """
        texts = {
            name: each.sentence(template_of) if isinstance(each, Reason) else str(each)
            for name, each in self.params.items()
        }
        # Parameters may come from a file: one that is lacking is a question mark, not an error.
        return template_of(self.code).format_map(_WithGaps(texts))

    def to_json(self) -> dict[str, Any]:
        """Return what `reason_from_json` reads."""
        params = {name: each.to_json() if isinstance(each, Reason) else each for name, each in self.params.items()}
        return {"code": self.code.value, "params": params, "text": str(self)}


class _WithGaps(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def because(code: ReasonCode, **params: Param) -> Reason:
    """Return a reason: `because(ReasonCode.SOME_ROWS, rows=2, all_rows=6)`."""
    return Reason(code, params)


def free_text(text: str) -> Reason:
    """Return a reason that is shown as it is in every language."""
    return Reason(ReasonCode.FREE_TEXT, {"text": text})


def reason_from_json(value: Any, depth: int = 0) -> Reason:
    """Return the reason that `Reason.to_json` gave; the text as it is where the code is of another version.

    Raises:
        ValueError: it is no reason.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("code"), str) or depth > MAX_DEPTH:
        raise ValueError(f"a reason is {value!r:.60}, expected an object with `code` and `params`")
    params = value.get("params", {})
    if not isinstance(params, Mapping):
        raise ValueError(f"params is {params!r:.60}, expected an object")
    code = _BY_CODE.get(value["code"])
    if code is None:
        return free_text(str(value.get("text") or value["code"]))
    return Reason(code, {str(name): _param(each, depth) for name, each in params.items()})


def _param(value: Any, depth: int) -> Param:
    if isinstance(value, str | int | float):
        return value
    return reason_from_json(value, depth + 1)
