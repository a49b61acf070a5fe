# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The report in English."""

from __future__ import annotations

from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase
from verl.crosscheck.reasons import ReasonCode
from verl.crosscheck.report.model import Cell
from verl.crosscheck.report.wording.en_quantities import OUTCOMES, QUANTITIES
from verl.crosscheck.report.wording.en_reasons import BECAUSE, NEXT_ACTIONS
from verl.crosscheck.report.wording.words import Named, Words

PHASES = {
    Phase.NO_FAULT: Named("No fault seen", "Everything that was compared agrees, in every step."),
    Phase.ROLLOUT: Named(
        "Rollout of A is at fault", "A's rollout engine and healthy training disagree; A's training is not accused."
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
    Phase.INCONCLUSIVE: Named("Inconclusive", "What was compared does not allow a verdict."),
}

SURENESS = {
    Confidence.HIGH: Named("high", "strong evidence, and what it rests on was shown"),
    Confidence.FAIR: Named("fair", "weak in one point: the evidence, or what it rests on"),
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
    "sure": "Sureness: {sureness} ({meaning})",
    "sure_open": "Not enough to be sure of anything.",
    "sure_ok_high": "all was compared, in three steps or more",
    "sure_ok_fair": "the essentials were compared",
    "sure_ok_low": "only sums over responses were compared",
    "suspect": "A, suspect",
    "healthy": "B, healthy",
    "why": "Why",
    "evidence": "Strongest evidence",
    "next": "What to do next",
    "copy": "Copy",
    "copied": "Copied",
    "value": "value",
    "limit": "limit",
    "step": "step",
    "step_n": "step {step}",
    "quantity": "quantity",
    "at_least": "at least {limit}",
    "at_most": "at most {limit}",
    "no_limit": "shown, not judged",
    "times": "{times} times the limit",
    "scenario_1": "Scenario 1: A samples and takes over B's weights, B trains on A's rollouts.",
    "scenario_2": "Scenario 2: B samples and takes over A's weights, A trains on B's rollouts.",
    "scenario_short": "Scenario {number}",
    "recomputed_some": "{count} of {steps} steps were compared anew from the evidence.",
    "strip": "Step by step",
    "strip_hint": "One column a step. What differs is red and crossed, what was not compared is hatched.",
    "distances": "Distances over steps",
    "distances_hint": "Dots are steps, crosses are steps beyond the limit, the dashed line is the limit.",
    "beyond": "Beyond the limit",
    "within": "Within the limit: {count} quantities",
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
    "tokens_hint": "The darker a token, the further apart its two log-probs. Grey tokens are not trained on. Point at "
    "a token for its numbers.",
    "token_tip": "token {position}: {one} and {other}, {apart} apart",
    "token_tip_missing": "token {position}: not recorded",
    "tokens_none": "No worst responses to show: log-probs by token were not recorded, or nothing was compared.",
    "tokens_ids": "Token ids are shown; --tokenizer PATH decodes them.",
    "tokens_positions": "The rollout is not in the directory any more, so positions are shown in place of tokens.",
    "row_head": "step {step}, response {row}",
    "row_numbers": "mean {mean}, max {max}",
    "row_part": "tokens {first} to {last} of {length}",
    "ends_of_prompt": "prompt",
    "apart_scale": "log-probs apart by",
    "changes": "Change of the weights, by layer",
    "changes_hint": "How far apart the two runs' updates of a layer are, relative to the change itself: 0 is equal, "
    "1 is as far apart as the change is long.",
    "changes_step": "Shown is step {step}, where it is largest.",
    "changes_equal": "The two runs changed every tensor in exactly the same way, in every step.",
    "changes_none": "Changes of the weights were not compared.",
    "changes_worst": "The tensors furthest apart",
    "tensor": "tensor",
    "relative": "relative difference",
    "outcomes": "Outcomes of both runs",
    "outcomes_hint": "What people watch. Both runs share rollouts or weights, so their curves cannot tell alone which "
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
    "control_text": "Limits come from two healthy runs: {steps} steps in {directory}.",
    "limits_file": "Limits are those of {path}.",
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
    "not_ended": "has told of no end",
    "made_with": "Made with {versions}",
    "glossary": "What the quantities mean",
    "phases_of_a": "Phases of run A",
    "rollout": "Rollout",
    "forward": "Training: forward pass",
    "update": "Training: update",
    "phase_fault": "at fault",
    "phase_ok": "not accused",
    "phase_unknown": "open",
    "floor_hint": "The dotted line is the worst value of the control.",
    "no_evidence": "There is none: nothing differs beyond its limit.",
    "page_written": "The page is {path}",
}

WORDS = Words(
    language="en",
    phases=PHASES,
    sureness=SURENESS,
    aspects=ASPECTS,
    cells=CELLS,
    because=BECAUSE,
    next_actions=NEXT_ACTIONS,
    quantities=QUANTITIES,
    outcomes=OUTCOMES,
    labels=LABELS,
    reasons={code: code.english for code in ReasonCode},
)
