# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The quick forms of those benchmarks that start training runs."""

import json

import pytest

from recipe.crosscheck.bench import __main__ as command

pytestmark = [pytest.mark.slow, pytest.mark.extended]


def test_faults_of_each_phase_in_a_real_pair(tmp_path):
    assert command.main(["faults", "--quick", "--out", str(tmp_path / "faults.json")]) == 0
    found = json.loads((tmp_path / "faults.json").read_text())
    assert (found["localised"], found["healthy_steps"], found["false_accusations"]) == (3, 2, 0)


def test_sensitivity_of_a_real_pair(tmp_path):
    assert command.main(["sensitivity", "--quick", "--out", str(tmp_path / "sensitivity.json")]) == 0
    found = json.loads((tmp_path / "sensitivity.json").read_text())
    assert all(each[0]["found"] for each in found.values())
    assert (tmp_path / "sensitivity.svg").stat().st_size > 1000


def test_noise_floor_of_a_real_engine(tmp_path):
    assert command.main(["engines", "--quick", "--out", str(tmp_path / "engines.json")]) == 0
    found = json.loads((tmp_path / "engines.json").read_text())
    assert 0 < found["hf, float32"]["mean difference of a token's probability"] < 1e-4
