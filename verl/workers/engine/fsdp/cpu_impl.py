# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 engines of the new workers (`trainer.use_legacy_worker_impl=disable`) for a CPU.

Upstream's engines run the model under bf16 autocast and send bf16 weights to the rollout, whatever the settings say
(https://github.com/volcengine/verl/issues/6150). A CPU gains nothing from that, and it hides small faults in rounding,
so with `fsdp_config.dtype=float32` these two compute and send full precision. In any number format they send merged
LoRA weights as they are while merged, which upstream's do not (https://github.com/volcengine/verl/pull/7014). Anything
else is upstream's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.model import VALUE_HEAD_SEED, convert_weight_keys
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

_ParametersAndLora = tuple[Iterable[tuple[str, torch.Tensor]], dict[str, Any] | None]
"""Full tensors by name, and the configuration of adapters that are sent apart from them, if any."""


class _FullPrecision(FSDPEngine):
    """Mixin over an FSDP engine: the model runs outside autocast where the configuration asks for float32."""

    @property
    def computes_float32(self) -> bool:
        """Return whether the model computes in float32."""
        return bool(PrecisionType.to_dtype(self.engine_config.dtype) == torch.float32)

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        module = super()._build_fsdp_module(module)  # type: ignore[no-untyped-call]  # upstream's has no annotations
        if self.computes_float32:
            # On the instance: FSDP2 changes the module's class, and its hooks run around this.
            module.forward = torch.autocast("cpu", enabled=False)(module.forward)
        return module


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngineWithLMHead(_FullPrecision, FSDPEngineWithLMHead):
    """The actor and the reference policy."""

    def get_per_tensor_param(
        self, layered_summon: bool = False, base_sync_done: bool = False, **kwargs: Any
    ) -> _ParametersAndLora:
        """Return full tensors by name, in the dtype in which they are trained, and no LoRA configuration.

        Adapters that are not merged, and number formats other than float32, are left to upstream.
        """
        if self._is_lora and self.model_config.lora.get("merge", False) and not self._qat_enabled:
            return self._merged(), None
        if self._is_lora or self._qat_enabled or not self.computes_float32:
            upstream: _ParametersAndLora = super().get_per_tensor_param(  # type: ignore[no-untyped-call]  # no annotations
                layered_summon=layered_summon, base_sync_done=base_sync_done, **kwargs
            )
            return upstream
        return self._parameters(), None

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        parameters = convert_weight_keys(self.module.state_dict(), self.module)
        return ((name, _whole(tensor)) for name, tensor in parameters.items())

    def _merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        """With the adapters merged into them. Copies, for a rank's own memory is restored when all have been taken."""
        with merged_lora_context(self.module, backup_adapters=True):
            parameters = convert_weight_keys(normalize_peft_param_name(self.module.state_dict()), self.module)
            for name, tensor in parameters.items():
                yield name, _whole(tensor).clone()


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngineWithValueHead(_FullPrecision, FSDPEngineWithValueHead):
    """The critic.

    Upstream's builds whatever the checkpoint's `architectures` names, which for a language model is no value model.
    """

    def _build_module(self) -> torch.nn.Module:
        config = self.model_config.hf_config
        config.architectures = [config.architectures[0].replace("ForCausalLM", "ForTokenClassification")]
        config.num_labels = 1
        config.classifier_dropout = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(VALUE_HEAD_SEED)
            module: torch.nn.Module = super()._build_module()  # type: ignore[no-untyped-call]  # no annotations
            return module


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
