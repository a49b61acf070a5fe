# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Facts of a model and of its tokenizer: what two runs must have in common to start from the same policy.

Called by `verl.crosscheck.agreement.facts`. Reads a few kilobytes of a model's folder, and no network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.crosscheck.agreement.compare import not_known
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.redaction import without_secrets

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
    """Shape of the model at `path`, and a sample of its weights.

    Two runs' configurations are compared key by key, so that one more key of another version of Transformers is no
    difference. The sample is of `SAMPLED_TENSORS` tensors, chosen by name alone: other files hold them on hosts that
    split the model otherwise, and a tensor of another dtype goes by another name.

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
    """Shape-relevant configuration of the model, or of the adapter, in a folder."""
    adapter = folder / "adapter_config.json"
    content = _read_json(adapter) if adapter.is_file() else configuration_of(str(folder))
    return _of_the_shape(without_secrets(content, {}))


def configuration_of(path: str) -> dict[str, Any]:
    """A model's configuration with the defaults of its class if that is at hand, else what its file says."""
    from transformers import AutoConfig

    file = Path(path).expanduser() / "config.json"
    try:
        named = str(file.parent) if file.is_file() else path
        # trust_remote_code: left unsaid, Transformers may ask a person at the terminal
        known = AutoConfig.from_pretrained(named, local_files_only=True, trust_remote_code=False)
        return dict(known.to_dict())
    except Exception:
        if file.is_file():  # a class that only the model's own code has
            return _read_json(file)
        raise


def _read_json(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _of_the_shape(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` without `NOT_OF_THE_SHAPE`, and without the sampling defaults that old versions keep there too."""
    from transformers import GenerationConfig

    of_sampling = GenerationConfig().to_dict().keys() - {"bos_token_id", "eos_token_id", "pad_token_id"}
    return {
        key: _of_the_shape(value) if isinstance(value, Mapping) else value
        for key, value in content.items()
        if key not in NOT_OF_THE_SHAPE and key not in of_sampling
    }


def _weights(folder: Path) -> dict[str, Any]:
    """Digests of the beginnings of some matrices, by name and dtype."""
    found: dict[str, tuple[Path, int, int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(_matrices(file))
    if not found:
        return not_known(because(ReasonCode.NO_SAFETENSORS, path=str(folder)))
    chosen = sorted(found, key=_digest_of_text)[:SAMPLED_TENSORS]
    return {name: _digest_of_bytes(*found[name]) for name in sorted(chosen)}


def _matrices(file: Path) -> dict[str, tuple[Path, int, int]]:
    """File, offset and bytes to read of each tensor with two or more dimensions."""
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
    """Vocabulary, special tokens and chat template of a tokenizer of Transformers, and what it makes of a probe."""
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
