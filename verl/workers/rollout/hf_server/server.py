# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The Ray actor around an engine: what upstream's agent loops, replicas and workers call.

Everything runs on the actor's one event loop: between two steps requests come in, weights are loaded, answers leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import torch
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM, PreTrainedModel

from verl.utils.config import omega_conf_to_dataclass
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.hf_server.digests import digest as tensor_digest
from verl.workers.rollout.hf_server.engine import Engine, Request
from verl.workers.rollout.hf_server.sampling import SamplingParams
from verl.workers.rollout.hf_server.seeding import base_seed, digest, turn_seed
from verl.workers.rollout.hf_server.weights import PackedTensor, unpack
from verl.workers.rollout.replica import TokenOutput

logger = logging.getLogger(__name__)


class HFServer:
    """Serves one replica.

    Args:
        config: The rollout configuration. Read here: `dtype`, `load_format`, `max_num_seqs`, `max_model_len`,
            `prompt_length`, `response_length`, `ignore_eos`, `enable_prefix_caching`, and under `engine_kwargs.hf`
            the keys `seed` and `num_threads`.
        model_config: The model configuration.
        replica_rank: Which replica this is; names it in logs.
    """

    def __init__(self, config: RolloutConfig, model_config: DictConfig | HFModelConfig, replica_rank: int) -> None:
        self.config: RolloutConfig = omega_conf_to_dataclass(config)
        options = dict(self.config.engine_kwargs.get("hf") or {})
        torch.set_num_threads(options.get("num_threads") or 1)
        model_config = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        self._eos_token_ids = _eos_token_ids(model_config)
        length = self.config.max_model_len or self.config.prompt_length + self.config.response_length
        model = _build_model(model_config, self.config)
        self.engine = Engine(model, self.config.max_num_seqs, length, self.config.enable_prefix_caching)
        self._seed = base_seed(options.get("seed"))
        self._unseeded: Counter[tuple[int, ...]] = Counter()
        self._parameters = frozenset(name for name, _ in model.named_parameters())
        self._received: set[str] = set()
        self._futures: dict[Request, asyncio.Future[None]] = {}
        self._by_id: dict[str, Request] = {}
        self._paused = False
        self._loop_task: asyncio.Task[None] | None = None
        if not self.engine.slots_agree():
            logger.warning(
                "rollout replica %d: on this CPU a row's logits depend on its slot in the batch, so two runs may "
                "differ in the last digits; actor_rollout_ref.rollout.engine_kwargs.hf.num_threads=1 (or, failing "
                "that, actor_rollout_ref.rollout.max_num_seqs=1) avoids that",
                replica_rank,
            )

    async def ready(self) -> bool:
        """Answers once the model is built."""
        return True

    async def generate(
        self,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
    ) -> TokenOutput:
        """Generate one response.

        Args:
            request_id: Names the request in `abort_request`.
            prompt_ids: Token ids of the prompt.
            sampling_params: See `SamplingParams.from_request`.
            image_data, video_data: Must be empty.

        Raises:
            ValueError: Images or video, a sampling parameter that is not honoured, or a prompt that leaves no room.
            FloatingPointError: The model has diverged. An error of one request is one of all that run beside it.
        """
        if image_data or video_data:
            raise ValueError("the hf rollout serves text only")
        request = self._request(list(prompt_ids), sampling_params)
        self.engine.add(request)
        done = self._futures[request] = asyncio.get_running_loop().create_future()
        self._by_id[request_id] = request
        self._start()
        try:
            await done
        finally:
            self._by_id.pop(request_id, None)
        asked = sampling_params.get("logprobs")
        wants_log_probs = asked is not None and asked is not False  # vLLM's 0 asks for those of the sampled tokens
        return TokenOutput(
            token_ids=request.token_ids,
            log_probs=request.log_probs if wants_log_probs else None,
            stop_reason=request.stop_reason,
        )

    async def load_weights(self, bucket: list[PackedTensor]) -> None:
        """Copy tensors into the model, which keeps its own dtype.

        Raises:
            KeyError: The model has no tensor of that name.
            ValueError: Its shape is another.
        """
        state = self.engine.model.state_dict()
        for packed in bucket:
            if packed.name not in state:
                raise KeyError(f"the rollout model has no tensor {packed.name!r}")
            if packed.shape != tuple(state[packed.name].shape):
                raise ValueError(
                    f"{packed.name} has shape {tuple(state[packed.name].shape)} here and was sent as {packed.shape}"
                )
            state[packed.name].copy_(unpack(packed))
            self._received.add(packed.name)

    async def finish_weights(self, global_steps: int | None = None) -> None:
        """All buckets of an update have been loaded.

        Raises:
            RuntimeError: The update left parts of the model as they were.
        """
        missing, self._received = self._parameters - self._received, set()
        if missing:
            raise RuntimeError(
                f"an update of the rollout's weights (global step {global_steps}) lacks {len(missing)} of the model's "
                f"{len(self._parameters)} parameters, which would stay as they were: {', '.join(sorted(missing))}"
            )
        self.engine.forget_prefixes()
        self._unseeded.clear()

    async def weight_dtypes(self) -> dict[str, torch.dtype]:
        """In which dtype the model holds each of its tensors, by name."""
        return {name: tensor.dtype for name, tensor in self.engine.model.state_dict().items()}

    async def weight_digests(self, names: list[str]) -> dict[str, str]:
        """Digests of the model's own tensors of these names, as they are now; a name that it lacks is left out."""
        state = self.engine.model.state_dict()
        return {name: tensor_digest(state[name], state[name].dtype) for name in names if name in state}

    async def abort_request(self, request_id: str) -> dict[str, Any]:
        """End one request where it stands; its caller gets what there is."""
        request = self._by_id.get(request_id)
        return self._abort([] if request is None else [request])

    async def abort_all_requests(self) -> dict[str, Any]:
        """End all requests where they stand, and hold new ones until `resume_generation`."""
        self._paused = True
        return self._abort(list(self._futures))

    async def resume_generation(self) -> None:
        self._paused = False
        self._start()

    async def clear_kv_cache(self) -> None:
        self.engine.forget_prefixes()

    async def wake_up(self, **_: object) -> None:
        """Main memory is not handed back and forth."""

    async def sleep(self, **_: object) -> None:
        """Main memory is not handed back and forth."""

    def _request(self, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Request:
        asked = {"ignore_eos": self.config.ignore_eos, **sampling_params}
        room = min(self.config.response_length, self.engine.cache.length - len(prompt_ids))
        params = SamplingParams.from_request(asked, max(room, 1), self._eos_token_ids)
        if params.seed is None:
            # Nobody says which row this is. Equal prompts are told apart by their order of arrival, so the responses
            # to a prompt repeat as a set, but which row gets which may not.
            key = tuple(prompt_ids)
            self._unseeded[key] += 1
            return Request(prompt_ids, params, digest(self._seed, prompt_ids, self._unseeded[key]))
        return Request(prompt_ids, params, turn_seed(params.seed, prompt_ids))

    def _start(self) -> None:
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Step while there is work, letting new requests in between steps."""
        await asyncio.sleep(0)
        while self.engine.busy and not self._paused:
            try:
                ended = self.engine.step()
            except Exception as error:  # every waiter must hear of it, also those whose requests ended in this step
                self.engine.abort()
                for future in self._take(list(self._futures)):
                    future.set_exception(error)
                return
            for future in self._take(ended):
                future.set_result(None)
            await asyncio.sleep(0)

    def _take(self, requests: list[Request]) -> list[asyncio.Future[None]]:
        """The waiters of `requests` that still wait."""
        futures = [self._futures.pop(request, None) for request in requests]
        return [future for future in futures if future is not None and not future.done()]

    def _abort(self, requests: list[Request]) -> dict[str, Any]:
        ids = [request_id for request_id, request in self._by_id.items() if request in requests]
        for future in self._take(self.engine.abort(requests)):
            future.set_result(None)
        return {"aborted_count": len(ids), "request_ids": ids}


def _build_model(model_config: HFModelConfig, config: RolloutConfig) -> PreTrainedModel:
    dtype = PrecisionType.to_dtype(config.dtype)
    kwargs = {"trust_remote_code": model_config.trust_remote_code, "attn_implementation": "sdpa"}
    if config.load_format == "dummy":  # the weights come from the trainer
        return AutoModelForCausalLM.from_config(model_config.hf_config, **kwargs).to(dtype)
    return AutoModelForCausalLM.from_pretrained(
        model_config.local_path, config=model_config.hf_config, torch_dtype=dtype, **kwargs
    )


def _eos_token_ids(model_config: HFModelConfig) -> frozenset[int]:
    """End marks by the generation configuration, the model configuration and the tokenizer together."""
    found: set[int] = set()
    for source in (model_config.generation_config, model_config.hf_config, model_config.tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(found)
