# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Adds the cross-check's hooks to upstream's PPO trainer: around rollouts, and right after the actor update."""

from functools import cached_property, partial
from pathlib import Path
from typing import Any

from _verl_overlay import extend
from verl.crosscheck.console import MARK, say
from verl.crosscheck.run.checkpoints import flatten_async_save, require_all_ranks
from verl.crosscheck.run.hooks import ActorFiles, ActorUpdate, NoHooks
from verl.crosscheck.run.resuming import own_checkpoint
from verl.crosscheck.run.rewards import rescore_of
from verl.crosscheck.run.selection import hooks_for
from verl.protocol import DataProto
from verl.trainer.ppo import ray_trainer__upstream as _upstream


class RayPPOTrainer(_upstream.RayPPOTrainer):
    """Upstream's trainer, exchanging rollouts and actor checkpoints with a second run if `trainer.share_data` says so.

    The hooks are properties and methods that upstream's subclasses and recipes use or call, so they reach those too.
    With `share_data` unset every hook is a null object and each number is upstream's.

    Raises:
        SettingsError, DirectoryError, SessionError: from the constructor, before any worker starts; see `hooks_for`.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        self.config = config
        self.crosscheck  # noqa: B018  made, and the configuration validated, before upstream starts anything
        super().__init__(config, *args, **kwargs)
        self.crosscheck.constructed(self)

    @cached_property
    def crosscheck(self) -> NoHooks:
        """The hooks. Made at first use: subclasses exist that set `config` and never call this class's constructor."""
        return hooks_for(self.config)

    @property
    def async_rollout_manager(self) -> Any:
        """The rollout manager, its `generate_sequences` routed through the exchange from the moment it is set."""
        return self._async_rollout_manager

    @async_rollout_manager.setter
    def async_rollout_manager(self, manager: Any) -> None:
        if manager is not None:
            self.crosscheck.before_rollout(manager)
        self._async_rollout_manager = manager

    def fit(self) -> Any:
        try:
            result = super().fit()
        except BaseException as e:
            self.crosscheck.ended(e)
            raise
        self.crosscheck.ended(None)
        return result

    def _load_checkpoint(self) -> Any:
        result = super()._load_checkpoint()
        self.crosscheck.resumed(self.global_steps, self)
        return result

    def _save_checkpoint(self) -> None:
        self.crosscheck.before_own_checkpoint(own_checkpoint(self.config, self.global_steps))
        super()._save_checkpoint()

    def _compute_old_log_prob(self, batch: DataProto) -> Any:
        result = super()._compute_old_log_prob(batch)
        self.crosscheck.after_log_probs(result)
        return result

    def _update_actor(self, batch: DataProto) -> DataProto:
        self.crosscheck.before_update(batch, self.global_steps)
        output = super()._update_actor(batch)
        metrics = output.meta_info["metrics"]
        actor = ActorFiles(
            self._load_shared_actor, self._save_shared_actor, self._load_portable_actor, self._save_portable_actor
        )
        rescore = rescore_of(getattr(self, "reward_loop_manager", None), batch)
        update = ActorUpdate(batch, metrics, self.global_steps, rescore=rescore)
        metrics.update(self.crosscheck.after_update(actor, update))
        return output

    def _load_shared_actor(self, path: str) -> None:
        self.actor_rollout_wg.load_checkpoint(path, None, False)

    def _save_shared_actor(self, path: str) -> None:
        """Save the actor into the folder `path` by upstream's own function. Return once all ranks' parts are there."""
        # Arguments go by position: the two worker implementations name the first one differently.
        if self.config.actor_rollout_ref.actor.checkpoint.get("async_save", False):
            with flatten_async_save(Path(path), self.global_steps) as target:
                self.actor_rollout_wg.save_checkpoint(str(target), None, self.global_steps, None)
                if hasattr(self.actor_rollout_wg, "async_calls_finalize_fn_exec"):
                    self.actor_rollout_wg.async_calls_finalize_fn_exec(blocking=True)
        else:
            self.actor_rollout_wg.save_checkpoint(path, None, self.global_steps, None)
        require_all_ranks(Path(path))

    def _load_portable_actor(self, path: str) -> None:
        from verl.crosscheck.weights.portable.transfer import load

        self._portable_notices.show(load(self.actor_rollout_wg, Path(path)))

    @cached_property
    def _portable_notices(self) -> Any:
        from verl.crosscheck.weights.portable.transfer import LoadNotices

        return LoadNotices(partial(say, MARK))

    def _save_portable_actor(self, path: str) -> None:
        from verl.crosscheck.weights.portable.transfer import save

        save(self.actor_rollout_wg, Path(path))


extend(__name__, _upstream)
