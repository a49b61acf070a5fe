# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Adds the cross-check's hooks to upstream's PPO trainer: around rollouts, and right after the actor update."""

from typing import Any

from _verl_overlay import extend
from verl.crosscheck.hooks import actor_about, hooks_for
from verl.protocol import DataProto
from verl.trainer.ppo import ray_trainer__upstream as _upstream


class RayPPOTrainer(_upstream.RayPPOTrainer):
    """Upstream's trainer, exchanging rollouts and actor checkpoints with a second run if `trainer.share_data` says so.

    The hooks are properties and methods that upstream's subclasses and recipes use or call, so they reach those too.
    With `share_data` unset every hook is a null object and each number is upstream's.

    Raises:
        SettingsError, DirectoryError: from the constructor, before any worker starts.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        self.crosscheck = hooks_for(config)
        super().__init__(config, *args, **kwargs)

    @property
    def async_rollout_manager(self) -> Any:
        """The rollout manager, its `generate_sequences` routed through the exchange from the moment it is set."""
        return self._async_rollout_manager

    @async_rollout_manager.setter
    def async_rollout_manager(self, manager: Any) -> None:
        self.crosscheck.wrap_rollout(manager)
        self._async_rollout_manager = manager

    def _update_actor(self, batch: DataProto) -> DataProto:
        output = super()._update_actor(batch)
        about = lambda: actor_about(batch, self.global_steps)  # noqa: E731  only worked out if there is an exchange
        timing_s = self.crosscheck.exchange_actor(self._load_shared_actor, self._save_shared_actor, about)
        output.meta_info["metrics"].update({f"timing_s/{name}": seconds for name, seconds in timing_s.items()})
        return output

    def _load_shared_actor(self, path: str) -> None:
        self.actor_rollout_wg.load_checkpoint(path)

    def _save_shared_actor(self, path: str) -> None:
        """Save the actor through upstream's own path; with asynchronous saving, return only once it is on the disk."""
        # By position: the two worker implementations name the first parameter differently.
        self.actor_rollout_wg.save_checkpoint(path, None, self.global_steps, None)
        if self.config.actor_rollout_ref.actor.checkpoint.get("async_save", False):
            self.actor_rollout_wg.async_calls_finalize_fn_exec(blocking=True)


extend(__name__, _upstream)
