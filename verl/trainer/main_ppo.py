# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the cross-check's settings and its directory before Ray starts; the rest is upstream's entry point.

Upstream's file runs in this module's namespace, not under its private name, for two reasons: its `main` must call what
is defined here, and Hydra takes the place of the configurations from the module that `main` belongs to.
"""

from collections.abc import Callable
from typing import Any

from _verl_overlay import inherit

inherit(globals())

from verl.crosscheck.run.participation import registered_run  # noqa: E402
from verl.crosscheck.run.startup import pass_terminal_to_workers, prepare, validate  # noqa: E402
from verl.crosscheck.settings import ShareSettings  # noqa: E402

# Named here for readers and checkers, which do not see what `inherit` brings in.
main: Callable[[], None] = globals()["main"]
_upstream_run_ppo: Callable[[Any, Any], None] = globals()["run_ppo"]
_fit_to_device: Callable[[Any], None] = globals()["auto_set_device"]
_validated: tuple[Any, ShareSettings] | None = None
"""A configuration that `auto_set_device` has validated, and its settings, until `run_ppo` takes them."""


def auto_set_device(config: Any) -> None:
    """Validate the cross-check's settings, then do upstream's first act in `main`: errors of the device come second."""
    global _validated
    _validated = config, validate(config)
    _fit_to_device(config)


def run_ppo(config: Any, task_runner_class: Any = None) -> None:
    """Upstream's `run_ppo`, after the cross-check's settings were validated and its directory was opened. The other run
    sees this one from here on, and learns how it ends.

    Raises:
        SettingsError: a `share_data*` value is not allowed, or rollout skip is on as well.
        DirectoryError: the exchange directory cannot be used by this process.
        SessionError, AgreementError, DamagedError: see `verl.crosscheck.run.participation.registered_run`.
    """
    global _validated
    # A recipe's main program comes here without `auto_set_device`, or with another configuration.
    settings = _validated[1] if _validated is not None and _validated[0] is config else None
    _validated = None
    settings = prepare(config, settings)
    pass_terminal_to_workers()
    with registered_run(config, settings):
        _upstream_run_ppo(config, task_runner_class)


if __name__ == "__main__":
    main()
