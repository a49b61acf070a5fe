# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whole tensors from the parts that ranks hold, sent only to the rank that wants them.

Several tensors travel at once, each to a rank of its own. On a CPU this is ten times as fast as `DTensor.full_tensor`,
which gives each tensor to everybody.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from verl.crosscheck.weights.portable.local_tensors import LocalTensor
from verl.crosscheck.weights.portable.regions import Region, whole


class Gathering:
    """Made and used by all ranks together.

    Where ranks hold replicas of a tensor, those count to which rank 0 belongs.

    Args:
        own: the module's tensors, in the same order on every rank.
    """

    def __init__(self, own: Sequence[LocalTensor]) -> None:
        self._own = own
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        told: list[Any] = [(_host(), [(held.replica, held.region) for held in own])]
        if dist.is_initialized() and dist.get_world_size() > 1:
            mine, told = told[0], [None] * dist.get_world_size()
            dist.all_gather_object(told, mine)
        self._layouts: list[list[tuple[int, Region]]] = [layout for _, layout in told]
        self.one_host = len({host for host, _ in told}) == 1
        """Whether all ranks run on one host."""
        self._largest_bytes = max((held.region.whole_elements * held.dtype.itemsize for held in own), default=0)
        self._memory: dict[torch.device, list[torch.Tensor]] = {}

    def contributes(self, index: int) -> bool:
        """Whether this rank's part of a tensor is one of those that count."""
        return any(rank == self.rank for rank, _ in self._sources(index))

    def gather(self, wanted: Mapping[int, int]) -> torch.Tensor | None:
        """Send tensors to ranks.

        Args:
            wanted: index of a tensor for each rank that is to get one.

        Returns:
            This rank's, where training holds its parts or in main memory. Its memory is the parameter's, or is used
            again by the second call from here: fresh memory for each tensor takes as long as sending it.
        """
        operations: list[dist.P2POp] = []
        received: list[tuple[torch.Tensor, torch.Tensor]] = []
        result = None
        for target, index in wanted.items():
            if target == self.rank:
                result = self._receive(index, operations, received)
            elif self.contributes(index) and self._own[index].local.numel():
                operations.append(dist.P2POp(dist.isend, _bytes(_reachable(self._own[index].local)), target))
        for request in dist.batch_isend_irecv(operations) if operations else []:
            request.wait()
        for place, values in received:
            place.copy_(values.view(place.shape))
        return result

    def _receive(
        self, index: int, operations: list[dist.P2POp], received: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> torch.Tensor:
        """Memory for a whole tensor, and what has to be received or copied into it."""
        held = self._own[index]
        sources = list(self._sources(index))
        if sources == [(self.rank, whole(held.shape))]:
            return held.local.view(held.shape)
        local = _reachable(held.local)
        result = self._next_memory(local.device)[: held.region.whole_elements * held.dtype.itemsize]
        result = result.view(held.dtype).view(held.shape)
        for rank, region in sources:
            place = region.of(result)
            if rank == self.rank:
                received.append((place, local))
            elif region.elements:
                direct = place.is_contiguous()
                values = place if direct else torch.empty(place.shape, dtype=held.dtype, device=local.device)
                operations.append(dist.P2POp(dist.irecv, _bytes(values), rank))
                if not direct:
                    received.append((place, values))
        return result

    def _next_memory(self, device: torch.device) -> torch.Tensor:
        """One of two pieces of memory on a device, in turn."""
        pieces = self._memory.setdefault(device, [])
        if len(pieces) < 2:
            pieces.append(torch.empty(self._largest_bytes, dtype=torch.uint8, device=device))
        pieces.reverse()
        return pieces[0]

    def _sources(self, index: int) -> Iterator[tuple[int, Region]]:
        replica = self._layouts[0][index][0]
        for rank, layout in enumerate(self._layouts):
            if layout[index][0] == replica:
                yield rank, layout[index][1]


def _host() -> tuple[str, str]:
    """What only processes on one host have in common."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return socket.gethostname(), boot.read_text() if boot.exists() else ""


def _bytes(values: torch.Tensor) -> torch.Tensor:
    """The same memory in a type that every process group can send."""
    return values.view(-1).view(torch.uint8)


def _reachable(local: torch.Tensor) -> torch.Tensor:
    """The values where the process group can send them from: NCCL and its like alone do not reach main memory."""
    if local.device.type == "cpu" and "cpu" not in str(dist.get_backend_config()):
        from verl.utils.device import get_device_id

        return local.to(get_device_id())
    return local
