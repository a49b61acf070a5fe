# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every threshold of the diagnosis, each with its reason and source, and the rule of confidence. No other module holds
a number that decides.

A quantity differs beyond the limit of its name. `profile` gives the limits of a kind of model and precision,
`read_limits` lets a file replace some, `reference.with_control` measures them on two healthy runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from verl.crosscheck.diagnosis.findings import Aspect, Finding
from verl.crosscheck.errors import SettingsError


def _limit(reason: str, source: str) -> Any:
    return field(metadata={"reason": reason, "source": source})


def _fixed(value: float, reason: str, source: str) -> Any:
    return field(default=value, metadata={"reason": reason, "source": source})


_BENCH = "fault benchmark on the CPU back end"
_EXACT = "must be exact, one is enough"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The value of each quantity beyond which it differs. Log-probs are in nats."""

    name: str
    """Profile, such as `dense_bf16`; with `+file` or `+control` if some are replaced."""

    logprob_abs_diff_mean: float = _limit(
        "a mean over response tokens; 0.010 to 0.025 on GPU and below 0.05 on NPU in bf16, 0.2 with stale weights",
        "miles, trl #5312, vime #274; CI limits 0.03 (miles) and 0.1 (slime)",
    )
    logprob_abs_diff_max: float = _limit(
        "the worst token; heavy-tailed in low precision, so it only catches what is far out", _BENCH
    )
    prob_abs_diff_mean: float = _limit("healthy below 0.005, broken above 0.01", "verl FAQ and its NPU transfer guide")
    k3: float = _limit("dense 1e-5 to 1e-3, MoE 1e-3 to 1e-1 when healthy; 0.015 is a gate", "slime notes, prime-rl")
    pearson: float = _limit(
        "0.997 to 0.999 when healthy, 0.05 to 0.62 when broken; judged if probabilities spread at all",
        "verl-recipe dynamo notes, verl-omni #254",
    )
    exp_abs_diff_mean: float = _limit("1.00 to 1.02 when healthy, look at 1.05, fail at 1.1", "NeMo-RL")
    ratio_beyond_2_share: float = _limit("such tokens are rare when healthy; at least 3 of them count", _BENCH)
    logprob_row_diff_mean: float = _limit(
        "a lower bound of logprob_abs_diff_mean, from sums over rows; where tokens are not recorded",
        "triangle inequality",
    )
    nll_minus_entropy_mean: float = _limit(
        "mean negative log-prob of what was sampled, less the entropy, per token; 0 but for rounding", _BENCH
    )
    logprob_gain_train_mean: float = _limit(
        "nats per token by which the training engine explains the samples better than what the rollout engine claims; "
        "never above 0 on average if the claim is true (Gibbs' inequality), but for rounding",
        _BENCH,
    )
    grad_norm_rel_diff: float = _limit("same rollout, same weights: 1 % and 3 % are in use", "CI of slime and of miles")
    loss_rel_diff: float = _limit("NPU against GPU within 2 %; relative to the loss or to its scale", "verl #332")
    change_rel_diff: float = _limit(
        "change of all weights; Adam turns the sign of small gradients, so rounding shows strongly", _BENCH
    )
    change_rel_diff_max: float = _limit("as change_rel_diff, of one tensor that carries weight in the change", _BENCH)
    reward_rel_diff_max: float = _limit("rule-based rewards are exact, those of a model are rounded", _BENCH)
    advantage_rel_diff: float = _limit("derived from rewards and, with a critic, from rounded values", _BENCH)

    logprob_nonfinite_tokens: float = _fixed(0, "a log-prob is a finite number; " + _EXACT, "definition")
    rows_unmatched_share: float = _fixed(0, "both runs train on the same responses; " + _EXACT, "definition")
    mask_diff_rows: float = _fixed(0, "masks follow from the responses; " + _EXACT, "definition")
    tensors_out_of_sync: float = _fixed(0, "digests of equal weights are equal; " + _EXACT, "definition")
    unfinished_share: float = _fixed(
        0.01, "share of responses without a stop token below the length limit; aborted requests are rarer", _BENCH
    )
    stop_inside_share: float = _fixed(0, "an engine ends a response at its stop token; " + _EXACT, "definition")
    equal_responses_nats: float = _fixed(
        12.0, "independent samples exceed it with a chance of exp(-12), pooled over steps too", "Ville's inequality"
    )
    sampler_unmoved_tensors: float = _fixed(0, "a gradient that is not 0 moves a tensor; " + _EXACT, "definition")
    taker_unmoved_tensors: float = _fixed(0, "as sampler_unmoved_tensors", "definition")
    change_norm_rel_diff: float = _fixed(
        0.1, "Adam moves each weight by about the learning rate, whatever rounding does to the direction", "Adam's rule"
    )
    lr_rel_diff: float = _fixed(1e-6, "both runs follow one schedule, computed in float64", "definition")
    sampler_nonfinite_rollout: float = _fixed(0, _EXACT, "definition")
    sampler_nonfinite_train: float = _fixed(0, _EXACT, "definition")
    taker_nonfinite_train: float = _fixed(0, _EXACT, "definition")
    sampler_nonfinite_update: float = _fixed(0, _EXACT, "definition")
    taker_nonfinite_update: float = _fixed(0, _EXACT, "definition")

    nll_minus_entropy_z: float = _fixed(
        4.5,
        "standard errors of nll_minus_entropy_mean; exceeded by chance in about 7 of a million healthy steps",
        "normal law",
    )
    logprob_gain_train_nats: float = _fixed(
        12.0,
        "nats in total; exceeded by chance with probability exp(-12), 6 in a million, at most",
        "Ville's inequality",
    )

    own: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Limits of a quantity in one aspect alone, by `aspect/quantity`; they come before the others."""
    control_steps: int = 0
    """Steps of the control that limits were measured on; 0 without one."""
    control_alike: bool = True
    """Whether devices, engines and number formats of the runs are those of that control."""

    def of(self, aspect: Aspect, quantity: str) -> float | None:
        """The limit of a quantity; None for one that is shown and not judged."""
        own = self.own.get(f"{aspect.value}/{quantity}")
        return own if own is not None else self._general().get(_ALIASES.get(quantity, quantity))

    def has_own(self, aspect: Aspect, quantity: str) -> bool:
        """Whether a control or a file gives the limit of a quantity of one aspect."""
        return f"{aspect.value}/{quantity}" in self.own

    def _general(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in LIMIT_NAMES}


LIMIT_NAMES = tuple(each.name for each in fields(Thresholds) if "reason" in each.metadata)
"""What a file of limits may set, besides `aspect/quantity` of these."""

_ALIASES = {
    "equal_first_tokens_nats": "equal_responses_nats",
    "reward_recomputed_rel_diff_max": "reward_rel_diff_max",
    "change_rel_diff_kind_max": "change_rel_diff_max",
    "change_rel_diff_layer_max": "change_rel_diff_max",
    "nll_minus_entropy_train_mean": "nll_minus_entropy_mean",
    "nll_minus_entropy_train_z": "nll_minus_entropy_z",
    **{f"{name}_rel_diff": "loss_rel_diff" for name in ("pg_loss", "kl_loss", "entropy_loss", "entropy")},
}
"""Quantities that share the limit of another name."""

RENAMED = {
    "surprise_gap_mean": "nll_minus_entropy_mean",
    "surprise_gap_z": "nll_minus_entropy_z",
    "surprise_gap_train_mean": "nll_minus_entropy_train_mean",
    "surprise_gap_train_z": "nll_minus_entropy_train_z",
    "claim_refuted_mean": "logprob_gain_train_mean",
    "claim_refuted_nats": "logprob_gain_train_nats",
}
"""Quantities by their names in 0.1.0."""


def current_name(quantity: str) -> str:
    """Return the name of a quantity, given it or its name in 0.1.0."""
    return RENAMED.get(quantity, quantity)


BELOW_IS_BAD = frozenset({"pearson"})
"""Quantities of which small values are bad."""

ERRORS = 3.0
"""Standard errors by which a mean over tokens must be beyond its limit. One token far out carries a mean of few tokens,
and its standard error too: with 4 and 16 responses and 2 % of the tokens 20 times as noisy, half of all healthy pairs
were beyond a limit of k3 (simulated)."""
MIN_TOKENS = 16
"""Fewer response tokens than this say nothing about a mean."""
MIN_RATIO_TOKENS = 3
"""A share of tokens is no evidence below this count."""
MIN_UNFINISHED_ROWS = 2
"""Nor is a share of responses."""
MIN_PROB_SPREAD = 0.05
"""Standard deviation of the probabilities below which their correlation tells of rounding alone."""
POSITION_NEAR, POSITION_ERRORS = 0.35, 3.0
"""Where training engines differ by d, the rollout engine's difference from the first is c * d and noise of its own. It
lies with the first if |c| and three standard errors are below 0.35, with the second if |c - 1| is; between the two it
lies with neither. Noise that it shares with one engine moves c by less than that while d is three times the noise."""
RARE_TOKENS = 8.0
"""Unseen rare tokens that the variance of the sampling test allows for. With that a token that should have come up
`m` times and did not gives m / sqrt(8) standard errors, so 4.5 of them have a chance of exp(-12.7)."""
TENSOR_WEIGHT = 2e-3
"""Share of the squared change from which a tensor is judged alone. Below are biases whose true gradient is 0 (that of
keys in attention): Adam makes noise of full size of it."""

POOLED_CHANCE = 6e-6
"""About the chance that a healthy pair ever leaves the bound of a test that is carried on over steps: exp(-12)."""
UNMOVED, UNMOVED_EXPERTS = 1e-4, 0.02
"""Share of the squared change from which tensors that one run alone left as they were count; of a mixture's experts the
second. One expert of 128 in 48 layers has a share of 5e-5 in each of its tensors, and rounding in the router may send
its only token elsewhere."""

CONTROL_FACTOR, CONTROL_FACTOR_SHORT, CONTROL_ENOUGH = 1.5, 2.0, 8
"""A limit is the control's floor times the first, or times the second below that many steps."""
PREDICTED_FACTOR, PREDICTED_FACTOR_UPDATE = 2.5, 1.5
"""A limit is the prediction times the first, or its square for what goes with the square of a difference; of the update
times the second. Predictions of two models are 0.7 to 1.6 times what eager and sdpa attention, and bfloat16 and
float32, are apart in log-probs, 1.1 to 1.3 times in the gradient, 1.2 to 1.4 times in Adam's first change; in a real
pair 1.7 times in log-probs, and in the change 2 to 5 times, since a quarter of the rows is measured."""
MAXIMA = frozenset({"logprob_abs_diff_max"})
"""Quantities that grow with the number of tokens, so that no prediction on a part of the rows lowers their limit: in a
healthy pair with an engine in bfloat16 the worst token was 3.95 nats apart beside a limit that was lowered to 3 (fault
benchmark)."""
PREDICTED_SHRINK, PREDICTED_CEILING = 0.3, 10.0
"""The least and the largest multiple of the profile's limit that a prediction makes: other kernels may differ by more
than rounding in exact places, and noise ten times the profile's is none."""
PREDICTED_CEILING_UPDATE = 0.9
"""An update that is lost differs by 1, so no prediction may hide that."""
BESIDE_FACTOR = 3.0
"""Without a control, a step's log-probs must be this many times as far apart as in the other steps to be set apart from
them; quantities that go with the square of the difference, or with its tail, by the square of it. Those steps are the
ones within their limits, so the noise is seen too small: in healthy steps of a pair with an engine in bfloat16, k3 was
0.0042 to 0.0171 beside a limit of 0.005 (fault benchmark)."""
SQUARES = frozenset({"k3", "pearson", "exp_abs_diff_mean", "ratio_beyond_2_share"})
"""The quantities of which `BESIDE_FACTOR` says so."""
CONTROL_SHRINK = 0.3
"""The least share of the profile's limit that a control leaves: equal machines give a floor of exactly 0, and rounding
in another order of work must not count then. Limits of the update are left whole by a floor of 0, since Adam makes
much of little rounding."""
CONTROL_CEILING = 3.0
"""Times the profile's limit. A floor above is no noise: then the healthy run disagrees with itself."""
CONTROL_OUTLIER = 3.0
"""Times the median over steps: more than that of a single step does not raise the floor."""

MISSING_SHARE = 0.25
"""Share of steps in which an essential aspect may be missing for "no fault found"."""

STRONG = 3.0
"""Confidence of a fault: `high` if the strongest evidence is this many times beyond its limit, or there is evidence
in two steps or more, and the reference was shown by a control or scenario 2, or is not needed. `medium` if one of
these fails, such as a reference that is shown by other steps of the pair alone; two updates of which B's is taken for
right; a training engine that scenario 2 alone shows. `low` if both fail, if only sums over rows were compared, or if
only outcomes speak. Confidence of "no fault found": `high` with sampling, independence, sync, change of the weights and
rewards by the taker's own function compared too, without a critic, in 3 steps or more; `medium` with the essentials;
`low` if only sums over rows were compared."""
FAR = 10.0
"""Where neither a prediction nor a control says what noise is, thresholds are those of other models: then evidence is
strong from this many times beyond them, and several steps do not make it stronger."""
STEPS_FOR_HIGH = 3


def excess(quantity: str, value: float) -> float:
    """Return how far a value is from perfect agreement."""
    if quantity in BELOW_IS_BAD:
        return 1.0 - value
    return value - 1.0 if quantity == "exp_abs_diff_mean" else value


def value_at(quantity: str, distance: float) -> float:
    """Return the value that is so far from perfect agreement."""
    if quantity in BELOW_IS_BAD:
        return 1.0 - distance
    return distance + 1.0 if quantity == "exp_abs_diff_mean" else distance


def threshold(limits: Thresholds, finding: Finding) -> float | None:
    """The threshold of a finding; None for one that is shown and not judged.

    That of a file, or of a control of the same devices, engines and formats; else a multiple of the finding's
    prediction, no lower than a share of the profile's and no higher than a ceiling; else the profile's. A control of
    other devices may widen what follows from the prediction.

    Args:
        limits: of the pair.
        finding: with its prediction, if there is one.
    """
    aspect, quantity = finding.aspect, finding.quantity
    base, own = limits.of(aspect, quantity), limits.has_own(aspect, quantity)
    if base is None or finding.predicted is None or (own and limits.control_alike):
        return base
    width, healthy = excess(quantity, base), excess(quantity, finding.predicted)
    if aspect is Aspect.UPDATE:
        bounded = min(PREDICTED_FACTOR_UPDATE * healthy, max(width, PREDICTED_CEILING_UPDATE))
    else:
        factor = PREDICTED_FACTOR ** (2 if quantity in SQUARES else 1)
        bounded = min(factor * healthy, PREDICTED_CEILING * width)
    least = 1.0 if own or quantity in MAXIMA else PREDICTED_SHRINK
    return value_at(quantity, max(least * width, bounded))


_COMMON = {"reward_rel_diff_max": 1e-3, "advantage_rel_diff": 0.01}
_BF16: dict[str, float] = {
    "logprob_abs_diff_mean": 0.05,
    "logprob_abs_diff_max": 10.0,
    "prob_abs_diff_mean": 0.01,
    "k3": 5e-3,
    "pearson": 0.98,
    "exp_abs_diff_mean": 1.06,
    "ratio_beyond_2_share": 0.01,
    "logprob_row_diff_mean": 0.05,
    "nll_minus_entropy_mean": 0.02,
    "logprob_gain_train_mean": 0.01,
    "grad_norm_rel_diff": 0.03,
    "loss_rel_diff": 0.02,
    "change_rel_diff": 0.4,
    "change_rel_diff_max": 0.6,
    "reward_rel_diff_max": 0.02,
    "advantage_rel_diff": 0.03,
}
_MOE_BF16 = _BF16 | {
    "logprob_abs_diff_mean": 0.15,
    "logprob_abs_diff_max": 20.0,
    "prob_abs_diff_mean": 0.02,
    "k3": 0.1,
    "pearson": 0.95,
    "exp_abs_diff_mean": 1.2,
    "ratio_beyond_2_share": 0.05,
    "logprob_row_diff_mean": 0.15,
    "nll_minus_entropy_mean": 0.04,
    "logprob_gain_train_mean": 0.02,
    "grad_norm_rel_diff": 0.1,
    "loss_rel_diff": 0.05,
    "change_rel_diff": 0.6,
    "change_rel_diff_max": 0.8,
}
_FP16 = _COMMON | {
    "logprob_abs_diff_mean": 0.01,
    "logprob_abs_diff_max": 3.0,
    "prob_abs_diff_mean": 2e-3,
    "k3": 2e-4,
    "pearson": 0.995,
    "exp_abs_diff_mean": 1.02,
    "ratio_beyond_2_share": 2e-3,
    "logprob_row_diff_mean": 0.01,
    "nll_minus_entropy_mean": 8e-3,
    "logprob_gain_train_mean": 3e-3,
    "grad_norm_rel_diff": 0.01,
    "loss_rel_diff": 0.01,
    "change_rel_diff": 0.2,
    "change_rel_diff_max": 0.4,
}
_FP32 = _COMMON | {
    "logprob_abs_diff_mean": 1e-3,
    "logprob_abs_diff_max": 0.5,
    "prob_abs_diff_mean": 3e-4,
    "k3": 2e-5,
    "pearson": 0.999,
    "exp_abs_diff_mean": 1.002,
    "ratio_beyond_2_share": 1e-3,
    "logprob_row_diff_mean": 1e-3,
    "nll_minus_entropy_mean": 4e-3,
    "logprob_gain_train_mean": 1e-3,
    "grad_norm_rel_diff": 5e-3,
    "loss_rel_diff": 5e-3,
    "change_rel_diff": 0.1,
    "change_rel_diff_max": 0.25,
}
_MOE_FP16 = _FP16 | {"logprob_abs_diff_mean": 0.04, "k3": 0.01, "pearson": 0.98, "prob_abs_diff_mean": 8e-3}
_MOE_FP16 |= {"exp_abs_diff_mean": 1.06, "ratio_beyond_2_share": 0.01, "logprob_row_diff_mean": 0.04}
_MOE_FP16 |= {"logprob_abs_diff_max": 10.0, "grad_norm_rel_diff": 0.03, "loss_rel_diff": 0.02}
_MOE_FP32 = _FP32 | {"logprob_abs_diff_mean": 3e-3, "k3": 5e-4, "ratio_beyond_2_share": 3e-3}
_MOE_FP32 |= {"exp_abs_diff_mean": 1.006, "logprob_row_diff_mean": 3e-3, "logprob_abs_diff_max": 5.0}

_VALUES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "dense_bf16": _BF16,
        "dense_fp16": _FP16,
        "dense_fp32": _FP32,
        "moe_bf16": _MOE_BF16,
        "moe_fp16": _MOE_FP16,
        "moe_fp32": _MOE_FP32,
    }
)
"""Limits that depend on model and precision. bf16 against fp16 differ by a factor of about 24 in k3 (3 bits more of the
significand, about 5 in the log-prob itself); fp32 is at 1e-5 on the CPU back end, and 1e-3 leaves room for TF32. In a
mixture of experts another expert may be chosen, which moves single tokens far."""

PROFILES = tuple(_VALUES)
"""Names of the profiles."""

_FINENESS = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"}
_FINENESS |= {"float32": "fp32", "fp32": "fp32", "float": "fp32", "float64": "fp32"}


def profile(name: str) -> Thresholds:
    """The limits of a profile.

    Raises:
        SettingsError: there is none of that name; says which there are.
    """
    if name not in _VALUES:
        raise SettingsError(f"there is no profile {name!r} of thresholds; there are {', '.join(PROFILES)}")
    values: dict[str, Any] = dict(_VALUES[name])
    return Thresholds(name=name, **values)


def profile_name(sampling: Mapping[str, Any], *others: Mapping[str, Any]) -> str:
    """The profile that fits how responses were sampled and trained on (`StepEvidence.sampling`, of one run or more).

    The coarsest precision wins, and one that is not known counts as bf16. A quantised engine gets the widest limits,
    those of a mixture of experts in bf16: take a control then.
    """
    every = (sampling, *others)
    if any(each.get("quantization") for each in every):
        return "moe_bf16"
    kinds = {_FINENESS.get(_plain(each.get(key)), "bf16") for each in every for key in ("rollout_dtype", "train_dtype")}
    coarsest = next(kind for kind in ("bf16", "fp16", "fp32") if kind in kinds)
    return f"{'moe' if any(each.get('moe') for each in every) else 'dense'}_{coarsest}"


def _plain(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.").lower()


def limits_for(sampling: Mapping[str, Any], *others: Mapping[str, Any]) -> Thresholds:
    """The limits of the profile that fits, see `profile_name`."""
    return profile(profile_name(sampling, *others))


def read_limits(path: Path, base: Thresholds | None = None) -> Thresholds:
    """`base` with the limits that a YAML or JSON file sets: `profile: dense_bf16` and `quantity: number`, or
    `aspect/quantity: number` for one aspect alone.

    Args:
        path: of the file.
        base: what the file changes; None takes the profile that the file names, or `dense_bf16`.

    Raises:
        SettingsError: the file cannot be read, or a key or value is not allowed; names the allowed ones.
    """
    content = {_current(key): value for key, value in _content(path).items()}
    named = content.pop("profile", None)
    if named is not None or base is None:
        base = profile(str(named or "dense_bf16"))
    general: dict[str, Any] = {key: _number(path, key, value) for key, value in content.items() if key in LIMIT_NAMES}
    own = {key: _number(path, key, value) for key, value in content.items() if _is_own(key)}
    if unknown := sorted(set(map(str, content)) - set(general) - set(own)):
        raise SettingsError(
            f"{path} sets {', '.join(map(repr, unknown))}, which are no thresholds. Allowed: "
            f"profile, {', '.join(LIMIT_NAMES)}; or any of these for one aspect, such as forward/k3; "
            f"aspects: {', '.join(each.value for each in Aspect)}"
        )
    return replace(base, name=f"{base.name}+file", own=MappingProxyType({**base.own, **own}), **general)


def _current(key: Any) -> Any:
    """Return a key of a file, its quantity by the name that it has now."""
    aspect, slash, quantity = str(key).rpartition("/")
    return f"{aspect}{slash}{current_name(quantity)}" if isinstance(key, str) else key


def _is_own(key: Any) -> bool:
    aspect, found, quantity = str(key).partition("/")
    known = quantity in LIMIT_NAMES or quantity in _ALIASES
    return bool(found) and known and aspect in {each.value for each in Aspect}


def _content(path: Path) -> dict[Any, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as e:
        raise SettingsError(f"the file of thresholds {path} cannot be read as YAML or JSON: {e}") from None
    if not isinstance(content, dict):
        raise SettingsError(f"{path} holds {type(content).__name__}, expected lines such as 'k3: 0.002'")
    return content


def _number(path: Path, key: Any, value: Any) -> float:
    text_of_number = isinstance(value, str)  # YAML takes 1e-3 for text
    try:
        number = (
            math.nan
            if isinstance(value, bool) or not (text_of_number or isinstance(value, int | float))
            else float(value)
        )
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise SettingsError(f"{path} sets {key!r} to {value!r}, expected a number of at least 0")
    return number
