# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The entry point, upstream's part of it replaced: what happens to the cross-check's settings in each process."""

import pytest
from rollout_fixtures import make_config

from verl.crosscheck.errors import SettingsError
from verl.crosscheck.settings import ShareSettings
from verl.trainer import main_ppo
from verl.trainer.ppo import ray_trainer__upstream
from verl.trainer.ppo.ray_trainer import RayPPOTrainer


@pytest.fixture
def conversions(monkeypatch):
    """A trainer section for each time that one was converted."""
    found, convert = [], ShareSettings.from_section.__func__

    def counted(cls, section):
        found.append(section)
        return convert(cls, section)

    monkeypatch.setattr(ShareSettings, "from_section", classmethod(counted))
    monkeypatch.setattr(main_ppo, "_fit_to_device", lambda config: None)
    return found


@pytest.fixture
def started(monkeypatch):
    """The configurations that upstream's `run_ppo` was called with."""
    found = []
    monkeypatch.setattr(main_ppo, "_upstream_run_ppo", lambda config, task_runner_class: found.append(config))
    return found


@pytest.mark.parametrize("mode", ["ckpt", "rollout", None])
def test_each_process_of_a_run_converts_its_settings_once(tmp_path, monkeypatch, conversions, started, mode):
    config = make_config(tmp_path, mode)
    main_ppo.auto_set_device(config)
    main_ppo.run_ppo(config)
    assert started == [config]
    assert len(conversions) == 1
    monkeypatch.setattr(ray_trainer__upstream.RayPPOTrainer, "__init__", lambda self, config: None)
    monkeypatch.setattr("verl.crosscheck.run.live.collect_facts", lambda trainer: {})
    trainer = RayPPOTrainer(config)
    assert len(conversions) == 2
    trainer.crosscheck.ended(None)


def test_another_configuration_is_validated_anew(tmp_path, conversions, started):
    """A recipe may start several runs in a process, or none through `main`."""
    main_ppo.auto_set_device(make_config(tmp_path))
    with pytest.raises(SettingsError, match="Allowed"):
        main_ppo.run_ppo(make_config(tmp_path, "foo"))
    main_ppo.run_ppo(make_config(tmp_path))
    assert (len(started), len(conversions)) == (1, 3)
