# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Facts of a model, its LoRA adapters and its tokenizer: what two runs need in common to start from the same policy.

Called by `verl.crosscheck.agreement.facts`. Reads a few kilobytes of a model's folder, and no network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl.crosscheck.agreement.compare import not_known
from verl.crosscheck.reasons import ReasonCode, because, free_text
from verl.crosscheck.redaction import without_secrets
from verl.crosscheck.weights.calls import ask_all
from verl.crosscheck.weights.portable import on_worker
from verl.crosscheck.weights.portable.checksum import totals

NOT_OF_THE_SHAPE = frozenset(
    {
        "_name_or_path",
        "_commit_hash",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "use_bfloat16",
        "quantization_config",
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "auto_map",
        "use_cache",
        "gradient_checkpointing",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "torchscript",
        "id2label",
        "label2id",
    }
)
"""Keys of a model's configuration that say where it came from or how it is run, not what it computes."""

SAMPLED_TENSORS = 12
SAMPLED_BYTES = 4096

PROBE = "Übung: 3.14 × 2 = 6.28?\n\n\tdef f(x):  return x**2  # naïve 你好，世界 🙂 <|endoftext|>"  # noqa: RUF001
"""Text that tells tokenizers apart which share a vocabulary: spaces, digits, accents, scripts, a special token."""


def model_facts(path: str, override_config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the shape of the model at `path`, and a sample of its weights.

    Two runs' configurations are compared key by key, so a key that only another version of Transformers has is no
    difference. The sample is of `SAMPLED_TENSORS` tensors. They are chosen by name alone, since hosts may split the
    model over files differently; the dtype is part of the name.

    Args:
        path: A folder, or a name on the Hugging Face hub whose configuration is in the cache.
        override_config: Keys that the run changes; Megatron's are under `model_config`.
    """
    folder = Path(path).expanduser()
    changes = dict(override_config or {})
    content = {**configuration_of(path), **changes.get("model_config", changes)}
    if not folder.is_dir():
        # Without weights to look at, the name is all that says which model it is.
        weights = not_known(because(ReasonCode.NO_FOLDER, path=path))
        return {"config": _of_the_shape(without_secrets(content, {})), "weights": weights, "hub_name": path}
    weights = _weights(folder)
    return {"config": _of_the_shape(without_secrets(content, {})), "weights": weights}


def config_of_folder(folder: Path) -> dict[str, Any]:
    """Return the configuration of the model, or of the adapter, in a folder, as far as it sets the shape."""
    adapter = folder / "adapter_config.json"
    content = _read_json(adapter) if adapter.is_file() else configuration_of(str(folder))
    return _of_the_shape(without_secrets(content, {}))


def configuration_of(path: str) -> dict[str, Any]:
    """Return a model's configuration with the defaults of its class if that is installed, else what its file says."""
    from transformers import AutoConfig

    file = Path(path).expanduser() / "config.json"
    try:
        named = str(file.parent) if file.is_file() else path
        # Without trust_remote_code, Transformers may ask a person at the terminal.
        known = AutoConfig.from_pretrained(named, local_files_only=True, trust_remote_code=False)
        return dict(known.to_dict())
    except Exception:
        if file.is_file():  # a class that only the model's own code has
            return _read_json(file)
        raise


def _read_json(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _of_the_shape(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return `content` without `NOT_OF_THE_SHAPE`, and without the sampling defaults that old versions keep there."""
    from transformers import GenerationConfig

    of_sampling = GenerationConfig().to_dict().keys() - {"bos_token_id", "eos_token_id", "pad_token_id"}
    return {
        key: _of_the_shape(value) if isinstance(value, Mapping) else value
        for key, value in content.items()
        if key not in NOT_OF_THE_SHAPE and key not in of_sampling
    }


def _weights(folder: Path) -> dict[str, Any]:
    """Return digests of the first bytes of some matrices, by name and dtype."""
    found: dict[str, tuple[Path, int, int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(_matrices(file))
    if not found:
        return not_known(because(ReasonCode.NO_SAFETENSORS, path=str(folder)))
    chosen = sorted(found, key=_digest_of_text)[:SAMPLED_TENSORS]
    return {name: _digest_of_bytes(*found[name]) for name in sorted(chosen)}


def _matrices(file: Path) -> dict[str, tuple[Path, int, int]]:
    """Return file, offset and bytes to read of each tensor with two or more dimensions."""
    with file.open("rb") as opened:
        header_bytes = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(header_bytes))
    return {
        f"{name.replace('.', '/')} {entry['dtype']}": (
            file,
            8 + header_bytes + entry["data_offsets"][0],
            min(SAMPLED_BYTES, entry["data_offsets"][1] - entry["data_offsets"][0]),
        )
        for name, entry in header.items()
        if name != "__metadata__" and len(entry["shape"]) > 1
    }


def _digest_of_bytes(file: Path, offset: int, size: int) -> str:
    with file.open("rb") as opened:
        opened.seek(offset)
        return hashlib.blake2b(opened.read(size), digest_size=8).hexdigest()


def _digest_of_text(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def tokenizer_facts(tokenizer: Any) -> dict[str, Any]:
    """Return vocabulary, special tokens and chat template of a tokenizer of Transformers, and its tokens of `PROBE`."""
    if not callable(getattr(tokenizer, "get_vocab", None)) or not callable(getattr(tokenizer, "encode", None)):
        return not_known(because(ReasonCode.NO_TOKENIZER, kind=type(tokenizer).__name__))
    vocabulary = tokenizer.get_vocab()
    template = getattr(tokenizer, "chat_template", None)
    return {
        "vocabulary_size": len(vocabulary),
        "vocabulary": _digest_of_text(json.dumps(sorted(vocabulary.items()))),
        **{name: getattr(tokenizer, name, None) for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
        "chat_template": None if template is None else _digest_of_text(json.dumps(template, sort_keys=True)),
        "probe": [int(each) for each in tokenizer.encode(PROBE)],
    }


def trains_adapters(config: Any) -> bool:
    """Return whether a run's whole configuration gives the actor LoRA adapters."""
    names = ("lora_rank", "lora.rank", "lora_adapter_path")
    return any(OmegaConf.select(config, f"actor_rollout_ref.model.{name}") for name in names)


def adapter_facts(actor: Any, global_step: int) -> dict[str, Any]:
    """Return how many adapter tensors training starts with, and their checksums, by number format and by PEFT's names.

    Upstream draws adapters at random when the configuration names none, and nothing seeds that. So two runs on other
    devices, or with different numbers of ranks, start with different ones, and their first updates differ although
    neither is at fault. The checksums are the same for every layout of ranks. Adapters in two number formats cannot be
    equal, so they have no common key and are not compared. Never raises.

    Args:
        actor: upstream's worker group that holds the actor.
        global_step: steps that were done before. A run that goes on has other adapters than it started with.
    """
    if global_step > 0:
        return not_known(because(ReasonCode.GOES_ON, step=global_step))
    try:
        ranks = ask_all(actor, on_worker.adapter_sums)
    except Exception as error:
        return not_known(free_text(str(error)))
    facts: dict[str, Any] = {}
    for dtype in sorted({name for rank in ranks for name in rank}):
        sums = totals(rank.get(dtype, []) for rank in ranks)
        facts[dtype] = {name: replicas[min(replicas)].hex for name, replicas in sums.items()}
    return {"tensors": sum(map(len, facts.values())), **facts}


def critic_adapter_facts(config: Any) -> dict[str, Any]:
    """Return the fact that a critic's adapters, which are drawn at random too, are not compared; empty without any."""
    if not any(OmegaConf.select(config, f"critic.model.{name}") for name in ("lora_rank", "lora.rank")):
        return {}
    return {"critic_adapters": not_known(because(ReasonCode.CRITIC_ADAPTERS))}
