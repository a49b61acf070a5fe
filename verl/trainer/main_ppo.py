# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the cross-check's settings and its directory before Ray starts; the rest is upstream's entry point.

Upstream's file runs in this module's namespace, not under its private name, for two reasons: its `main` must call what
is defined here, and Hydra takes the place of the configurations from the module that `main` belongs to.
"""

# ruff: noqa: F821  upstream's names come in by `inherit`
from typing import Any

from _verl_overlay import inherit

inherit(globals())

from verl.crosscheck.run.participation import registered_run  # noqa: E402
from verl.crosscheck.run.startup import prepare, tell_workers_of_the_terminal, validate  # noqa: E402

_upstream_run_ppo = run_ppo
_fit_to_device = auto_set_device


def auto_set_device(config: Any) -> None:
    """Upstream's first act in `main`, the cross-check's settings being judged before those of the device."""
    validate(config)
    _fit_to_device(config)


def run_ppo(config: Any, task_runner_class: Any = None) -> None:
    """Upstream's `run_ppo`, after the cross-check's settings were validated and its directory was opened. The other run
    sees this one from here on, and learns how it ends.

    Raises:
        SettingsError: a `share_data*` value is not allowed, or rollout skip is on as well.
        DirectoryError: the exchange directory cannot be used by this process.
        SessionError, AgreementError, DamagedError: see `verl.crosscheck.run.participation.registered_run`.
    """
    trainer = prepare(config)
    tell_workers_of_the_terminal()
    with registered_run(config, trainer):
        _upstream_run_ppo(config, task_runner_class)


if __name__ == "__main__":
    main()
