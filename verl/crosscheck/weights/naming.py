# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Portable names of a model's tensors: as Hugging Face has them, and those of adapters as PEFT has them."""

from __future__ import annotations

import re
from typing import Any, Literal

TensorKind = Literal["parameter", "buffer", "adapter", "base"]
"""`base`: a frozen tensor under LoRA adapters, of which only the checksum is exchanged."""

_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})
_PEFT_PREFIX = "base_model.model."
_LORA = re.compile(r"\.lora_[A-Za-z_]+\.")


class UnsupportedError(Exception):
    """This kind of model, worker or tensor cannot be exchanged; says which."""


def clean(name: str) -> str:
    """Return a name without the traces of FSDP1, activation checkpointing and torch.compile."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


class PortableNames:
    """Translates names and kinds of one model's tensors into portable ones.

    Args:
        model: the module inside FSDP1's or DDP's wrapper.

    Raises:
        UnsupportedError: several adapters, or another kind than LoRA.
    """

    def __init__(self, model: Any) -> None:
        configs = getattr(model, "peft_config", None)
        self.adapter: str | None = None
        self._model = model
        if configs:
            if len(configs) > 1:
                raise UnsupportedError(f"several PEFT adapters ({', '.join(configs)})")
            self.adapter, config = next(iter(configs.items()))
            kind = str(getattr(config.peft_type, "value", config.peft_type))
            if kind != "LORA":
                raise UnsupportedError(f"PEFT adapters of kind {kind}; only LORA")
            self._model = model.base_model.model

    def __call__(self, name: str, trainable: bool, kind: TensorKind) -> tuple[str, TensorKind]:
        """Return the portable name and kind of a tensor.

        Args:
            name: its clean name in the module.
            trainable: whether it requires gradients.
            kind: parameter or buffer.
        """
        if self.adapter is None:
            return self._hf(name), kind
        saved = f".modules_to_save.{self.adapter}."
        if saved in name:
            return name.replace(saved, "."), "adapter"
        if _LORA.search(name):
            return self._lora(name), "adapter"
        base = self._hf(name.removeprefix(_PEFT_PREFIX).replace(".base_layer.", ".").replace(".original_module.", "."))
        return (base, kind) if trainable or kind == "buffer" else (base, "base")

    def _lora(self, name: str) -> str:
        """Return the name that `get_peft_model_state_dict` gives: without the adapter's own name."""
        stem, _, rest = name.rpartition(f".{self.adapter}")
        if "lora_magnitude_vector" in name:
            rest = rest.removesuffix(".weight")
        return stem + rest

    def _hf(self, name: str) -> str:
        """Return the name in Hugging Face's checkpoints, which differs from the module's own in some models."""
        if not getattr(self._model, "_checkpoint_conversion_mapping", None):
            return name
        from verl.utils.model import convert_weight_keys

        return str(next(iter(convert_weight_keys({name: None}, self._model))))
