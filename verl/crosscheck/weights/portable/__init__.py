# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The actor's weights as a folder that any layout of ranks can write and read.

    manifest.py      `portable.json`: what a folder says of itself
    checksum.py      sums over a rank's elements, which add up over the ranks
    files.py         types and headers of safetensors files; how many are open at once
    writing.py       files written tensor by tensor, or by all ranks at offsets
    folder.py        a folder opened for reading: nothing in it is trusted
    gathering.py     whole tensors from the parts of ranks
    saving.py        all ranks together: write their parts, or gather and let some of them write
    loading.py       each rank for itself: matches the folder with the module, reads its own slices
    megatron.py      both ways through the bridge that upstream uses
    on_worker.py     what runs inside the training workers
    transfer.py      what the trainer calls: save, load, support
    device_kinds.py  from which kinds of device upstream's own checkpoint was saved, without unpickling it

The workers stay upstream's, as in `weights`. Weights only: optimizer, scheduler and RNG stay the reader's own.
"""
