# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Imported by `import verl` (VERL_USE_EXTERNAL_MODULES) to put upstream's own trainer back in the fork's place."""

from verl.trainer.ppo import ray_trainer, ray_trainer__upstream

ray_trainer.RayPPOTrainer = ray_trainer__upstream.RayPPOTrainer

_fit = ray_trainer__upstream.RayPPOTrainer.fit


def fit(self):
    print("trainer of this run:", type(self).__module__, flush=True)
    return _fit(self)


ray_trainer__upstream.RayPPOTrainer.fit = fit
