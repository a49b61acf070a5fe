# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What every test starts from."""

import signal

import pytest
from hypothesis import settings

# Whatever a shell starts in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's, not the code's.
settings.register_profile("crosscheck", deadline=None)
settings.load_profile("crosscheck")

RUNS = "tests/special_e2e/"
"""Tests of training runs. A pair takes two cores and several GB; a second pair beside it would gain nothing."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Let `--dist=loadfile` keep the tests of training runs on one worker.

    Groups of xdist 3.8 (`--dist=loadgroup`) have no effect under pytest 9.2, which keeps a test's name elsewhere.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # not installed where `scripts/test-vllm` runs

    class RunsInTurn(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return RUNS if nodeid.startswith(RUNS) else super()._split_scope(nodeid)

    return RunsInTurn(config, log)
