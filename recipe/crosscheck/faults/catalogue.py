# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every fault that can be planted: its name, its phase, where it shows and what it does. Pure data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl.crosscheck.diagnosis.findings import Aspect, Phase


@dataclass(frozen=True)
class Amount:
    """How much of a fault."""

    default: float
    meaning: str
    least: float = 0.0
    most: float = math.inf
    whole: bool = False
    """Whether only integers make sense."""

    def require(self, value: float) -> float:
        """`value`, if a fault can have that much.

        Raises:
            ValueError: it cannot; says what can.
        """
        fits = self.least <= value <= self.most and not (self.whole and value != int(value))
        if not fits:
            kind = "a whole number" if self.whole else "a number"
            most = "" if math.isinf(self.most) else f" and at most {self.most:g}"
            raise ValueError(f"{value:g} is not {kind} of at least {self.least:g}{most} ({self.meaning})")
        return value


@dataclass(frozen=True)
class Fault:
    """One switch."""

    name: str
    line: int
    """Which of the catalogue's sixteen lines it belongs to; some have two switches."""
    phase: Phase
    """The verdict that names it rightly."""
    aspects: tuple[Aspect, ...]
    """What shows it, each alone being enough; the plainest first."""
    sentence: str
    """What the run that has it does wrong."""
    amount: Amount | None = None
    settings: tuple[str, ...] = ()
    """Overrides that both runs need for it to act at all."""
    first_step: int = 1
    """The first step in which it can act."""


_TINY = 1e-6
"""Stands for "above 0"."""

_VARIED = "actor_rollout_ref.rollout.temperature=1.3"
"""Other log-probs than at temperature 1, and responses that differ from their first token on."""

ROLLOUT_FAULTS = (
    Fault(
        "temperature",
        1,
        Phase.ROLLOUT,
        (Aspect.SAMPLING,),
        "samples at another temperature than asked, and reports log-probs of the one asked for",
        Amount(1.3, "factor on the temperature", _TINY),
    ),
    Fault(
        "stale_weights",
        2,
        Phase.ROLLOUT,
        (Aspect.SYNC, Aspect.ROLLOUT_TAKER),
        "does not take the last weights, so the engine is one step behind",
        first_step=2,
    ),
    Fault(
        "tensor_not_synced",
        3,
        Phase.ROLLOUT,
        (Aspect.SYNC, Aspect.ROLLOUT_TAKER),
        "does not take one tensor of the last weights, the last MLP's projection",
        first_step=2,
    ),
    Fault(
        "rotary_base",
        4,
        Phase.ROLLOUT,
        (Aspect.ROLLOUT_TAKER,),
        "computes rotary embeddings with another base",
        Amount(0.1, "factor on the base", _TINY),
    ),
    Fault(
        "position_shift",
        4,
        Phase.ROLLOUT,
        (Aspect.ROLLOUT_TAKER,),
        "decodes at positions that do not follow those of the prompt",
        Amount(1, "positions too far", 1, whole=True),
    ),
    Fault(
        "kv_cache_rounded",
        5,
        Phase.ROLLOUT,
        (Aspect.ROLLOUT_TAKER,),
        "keeps keys and values as short floats, as in an fp8 cache (e4m3)",
        Amount(8, "bits, of which 5 are sign and exponent", 5, 28, whole=True),
    ),
    Fault(
        "top_k",
        6,
        Phase.ROLLOUT,
        (Aspect.SAMPLING,),
        "samples from the likeliest tokens alone, and reports log-probs of all",
        Amount(2, "tokens to choose from", 1, whole=True),
    ),
    Fault(
        "untempered_log_probs",
        7,
        Phase.ROLLOUT,
        (Aspect.ROLLOUT_TAKER, Aspect.SAMPLING),
        "reports log-probs at temperature 1, whatever it sampled at",
        settings=(_VARIED,),
    ),
    Fault(
        "cut_responses",
        8,
        Phase.ROLLOUT,
        (Aspect.ENDING,),
        "drops the stop token that ended a response",
        Amount(1.0, "share of the responses", _TINY, 1.0),
    ),
)

TRAINING_FAULTS = (
    Fault(
        "gradient_scaled",
        9,
        Phase.TRAINING_UPDATE,
        (Aspect.UPDATE,),
        "takes a multiple of the gradient",
        Amount(10, "factor on the gradient", _TINY),
    ),
    Fault(
        "layer_gradient_zeroed",
        9,
        Phase.TRAINING_UPDATE,
        (Aspect.UPDATE,),
        "loses the gradient of one layer's MLP",
        Amount(0, "number of the layer", whole=True),
    ),
    Fault(
        "learning_rate",
        10,
        Phase.TRAINING_UPDATE,
        (Aspect.UPDATE,),
        "updates with a multiple of the learning rate that it reports",
        Amount(10, "factor on the learning rate", _TINY),
    ),
    Fault(
        "update_skipped",
        10,
        Phase.TRAINING_UPDATE,
        (Aspect.UPDATE,),
        "leaves the weights as they were",
    ),
    Fault(
        "train_temperature",
        11,
        Phase.TRAINING_FORWARD,
        (Aspect.FORWARD,),
        "computes log-probs at another temperature than the responses were sampled at",
        Amount(1.3, "factor on the temperature", _TINY),
    ),
    Fault(
        "attention_leak",
        12,
        Phase.TRAINING_FORWARD,
        (Aspect.FORWARD,),
        "lets each token attend to tokens that follow it",
        Amount(1, "tokens it sees of the future", 1, whole=True),
    ),
    Fault(
        "dropout",
        12,
        Phase.TRAINING_FORWARD,
        (Aspect.FORWARD,),
        "drops activations of each MLP",
        Amount(0.1, "probability of each to be dropped", _TINY, 0.99),
    ),
    Fault(
        "loss_mask_shifted",
        13,
        Phase.TRAINING_UPDATE,
        (Aspect.UPDATE,),
        "takes the loss over the response mask moved to the right",
        Amount(1, "tokens it is moved by", 1, whole=True),
        settings=(_VARIED,),
    ),
    Fault(
        "bf16_update",
        14,
        Phase.TRAINING_UPDATE,
        (Aspect.UPDATE,),
        "loses what an update adds to a weight if bfloat16 would round it away",
        Amount(8, "significant bits; bfloat16 has 8", 2, 23, whole=True),
    ),
    Fault(
        "nan_gradient",
        15,
        Phase.TRAINING_UPDATE,
        (Aspect.UPDATE, Aspect.OUTCOME),
        "has a NaN in its gradient",
    ),
    Fault(
        "perturbed_layer",
        16,
        Phase.TRAINING_FORWARD,
        (Aspect.FORWARD,),
        "trains with noise on the last layer's weights, put there after the rollout engine had got them",
        Amount(0.02, "standard deviation, relative to each weight", _TINY),
    ),
)

CATALOGUE = {fault.name: fault for fault in (*ROLLOUT_FAULTS, *TRAINING_FAULTS)}
"""By name."""
