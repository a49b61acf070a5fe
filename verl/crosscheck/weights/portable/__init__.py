# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The actor's weights as a folder that any layout of ranks can write and read.

    regions.py    which elements of a tensor a rank holds
    checksum.py   sums over elements that add up over ranks
    naming.py     names of a module's tensors as Hugging Face or PEFT has them
    held.py       the tensors that one rank holds: plain modules and FSDP2
    fsdp1.py      those of FSDP's flat parameters
    manifest.py   portable.json: what a folder says of itself
    writing.py    safetensors files, written tensor by tensor
    folder.py     such a folder, opened: nothing in it is trusted
    placing.py    such files, written by all ranks together
    gathering.py  whole tensors from the parts of ranks
    saving.py     all ranks together: place their parts, or gather and let some of them write
    matching.py   whether a folder's tensors are this module's
    loading.py    each rank for itself: own slices only
    megatron.py   both ways through the bridge that upstream uses
    on_worker.py  what runs inside the training workers
    transfer.py   what the trainer calls: save, load, support
    notices.py      what a person should know of weights that were loaded
    device_kinds.py  which kinds of device upstream's own checkpoint was saved from, without unpickling it

The workers stay upstream's, as in `weights`. Weights only: optimizer, scheduler and RNG stay the reader's own.
"""
