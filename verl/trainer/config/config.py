# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Adds `TrainerConfig`, the typed `trainer` section of the PPO configurations, to upstream's configuration classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from _verl_overlay import extend
from verl.base_config import BaseConfig
from verl.crosscheck.settings import ShareSettings
from verl.trainer.config import config__upstream as _upstream

__all__ = [*_upstream.__all__, "TrainerConfig"]  # noqa: PLE0604  they are all strings


@dataclass
class TrainerConfig(BaseConfig):
    """The `trainer` section: upstream 0.7.1's keys with upstream's meaning, and those of the cross-check.

    Only the cross-check's keys are validated here; upstream's are used by upstream as they are. Read-only after
    construction, like every `BaseConfig`.

    Raises:
        SettingsError: a `share_data*` key has a value that is not allowed; the message lists the allowed ones.
    """

    balance_batch: bool = True
    """Reorder rows so that data-parallel ranks get about equal token counts."""
    total_epochs: int = 30
    """Passes over the training data; used only if `total_training_steps` is null."""
    total_training_steps: int | None = None
    """Steps of the whole run; null derives them from `total_epochs`."""
    project_name: str = "verl_examples"
    """Name of the project in the loggers and in checkpoint paths."""
    experiment_name: str = "gsm8k"
    """Name of the run in the loggers and in checkpoint paths."""
    logger: list[str] = field(default_factory=lambda: ["console", "wandb"])
    """Back ends that metrics go to."""
    log_val_generations: int = 0
    """Validation samples to log at each validation; 0 logs none."""
    rollout_data_dir: str | None = None
    """Folder for the training samples of each step as JSON lines; null writes none."""
    validation_data_dir: str | None = None
    """Folder for the validation samples as JSON lines; null writes none."""
    nnodes: int = 1
    """Nodes of the actor's resource pool."""
    n_gpus_per_node: int = 8
    """Accelerators a node; on a CPU, ranks."""
    save_freq: int = -1
    """Steps between the run's own checkpoints; -1 saves none."""
    esi_redundant_time: int = 0
    """Seconds of margin when a checkpoint is forced before the machine's lease ends."""
    resume_mode: str = "auto"
    """`auto`, `disable` or `resume_path`."""
    resume_from_path: str | None = None
    """A `global_step_*` folder; read only with `resume_mode=resume_path`."""
    val_before_train: bool = True
    """Validate before the first step."""
    val_only: bool = False
    """Stop after that first validation."""
    test_freq: int = -1
    """Steps between validations; -1 validates never."""
    critic_warmup: int = 0
    """First step in which the actor is updated; until then only the critic is, and no `ckpt_{index}` is exchanged."""
    default_hdfs_dir: str | None = None
    """Remote folder that checkpoints are copied to; null copies none."""
    del_local_ckpt_after_load: bool = False
    """Remove local copies of remote checkpoints once loaded."""
    default_local_dir: str | None = None
    """Folder of the run's own checkpoints; the YAML derives it from project and experiment."""
    max_actor_ckpt_to_keep: int | None = None
    """Own actor checkpoints to keep; null keeps all."""
    max_critic_ckpt_to_keep: int | None = None
    """Own critic checkpoints to keep; null keeps all."""
    ray_wait_register_center_timeout: int = 300
    """Seconds that workers may take to register with each other."""
    device: str = "cuda"
    """Device of the workers; upstream sets `npu` by itself on Ascend."""
    use_legacy_worker_impl: str = "auto"
    """`auto`, `enable` or `disable`."""
    share_data: str | None = None
    """Cross-check mode: `rollout`, `ckpt` or null (off). See `verl.crosscheck.settings.ShareMode`."""
    share_data_dir: str = str(ShareSettings.directory)
    """Directory that both runs reach; made absolute once, in the driver."""
    share_data_timeout_s: float = ShareSettings.timeout_s
    """Longest wait, in seconds, without a sign of progress of the other run."""
    share_data_silence_s: float = ShareSettings.silence_s
    """Seconds without any sign of life after which the other run counts as dead; at least 15."""
    share_data_ckpt_format: str = ShareSettings.ckpt_format.value
    """Form of the exchanged checkpoints: `native` (upstream's own, for equal layouts of ranks), `portable` (weights
    alone, for any), or `auto` (native between runs laid out alike, else portable)."""
    share_data_keep_ckpts: int | None = ShareSettings.keep_ckpts
    """Exchanged checkpoints to keep, at least 2; older ones go once the other run has loaded them. Null keeps all."""
    share_data_strict: bool = ShareSettings.strict
    """Stop if the two runs differ where they must agree, or ask different questions; False warns and goes on."""
    share_data_replay: bool = ShareSettings.replay
    """Take what a finished session in `share_data_dir` recorded, without another run; nothing is written there."""
    share_data_evidence: str = ShareSettings.evidence.value
    """What is recorded of each step for the verdict: `tokens`, `summary` or `off`. See `evidence.step.Detail`."""
    share_data_evidence_tokens: int | None = ShareSettings.evidence_tokens
    """Most response tokens to record of a step, at 6 to 8 bytes each; both runs leave out the same rows. Null keeps
    all."""
    share_data_weight_change: str = ShareSettings.weight_change.value
    """How closely mode `ckpt` compares both updates' changes of each tensor: `full`, `norm` or `off`."""
    share_data_noise: int = ShareSettings.noise_every
    """Steps between two predictions of how far rounding can move log-probs, gradient and update; 0 makes none."""

    def __post_init__(self) -> None:
        self.share_settings  # noqa: B018  validates

    @classmethod
    def from_section(cls, section: Mapping[str, Any]) -> "TrainerConfig":
        """Convert a resolved `trainer` section. Keys that a recipe added with `+trainer.key=...` are left to it."""
        known = {f.name for f in fields(cls)}
        return cls(**{str(key): value for key, value in section.items() if key in known})

    @property
    def share_settings(self) -> ShareSettings:
        """The keys of the cross-check, converted and validated."""
        return ShareSettings.from_section({each.name: self[each.name] for each in fields(self)})


extend(__name__, _upstream)
