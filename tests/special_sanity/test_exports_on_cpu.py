# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The names that people import."""

import importlib
import inspect
import pkgutil

import pytest

import verl.crosscheck

CONTRACT = {
    "verl.utils.share_data": {"ShareDataTest": ("wrap_generate_sequences", "after_update_policy")},
    "verl.utils.rollout_skip": {"RolloutSkip": ("wrap_generate_sequences",)},
    "verl.trainer.config": {"TrainerConfig": ()},
    "verl.crosscheck.errors": {"CrossCheckError": ()},
    "verl.crosscheck.installation": {"require_active": (), "read_installation": ()},
}


@pytest.mark.parametrize("module", CONTRACT)
def test_promised_names_are_there(module):
    for name, methods in CONTRACT[module].items():
        found = getattr(importlib.import_module(module), name)
        assert all(callable(getattr(found, method)) for method in methods)


def packages():
    yield verl.crosscheck.__name__
    for info in pkgutil.walk_packages(verl.crosscheck.__path__, verl.crosscheck.__name__ + "."):
        if info.ispkg:
            yield info.name


@pytest.mark.parametrize("name", list(packages()))
def test_a_package_exports_what_it_lists_and_nothing_else(name):
    package = importlib.import_module(name)
    listed = getattr(package, "__all__", [])
    assert len(set(listed)) == len(listed)
    assert all(hasattr(package, each) for each in listed)
    stray = {
        each
        for each, value in vars(package).items()
        if not each.startswith("_") and each not in listed and not inspect.ismodule(value) and each != "annotations"
    }
    assert not stray
