# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the trainer calls, with workers in this process: plain modules, and bridges that stand for Megatron's."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from verl.crosscheck.errors import CrossCheckError, DamagedError, MismatchError, PublishError
from verl.crosscheck.weights import calls
from verl.crosscheck.weights.portable import transfer
from verl.crosscheck.weights.portable.checksum import PartSum, first_difference
from verl.crosscheck.weights.portable.manifest import TensorEntry
from verl.crosscheck.weights.portable.saving import BehindWriter, SavedRank
from verl.crosscheck.weights.portable.transfer import LoadedWeights, LoadNotices, load, save, support
from verl.crosscheck.weights.portable.writing import FolderWriter


class Worker:
    """Stands for a Ray actor: runs functions at once, and keeps what they raise."""

    def __init__(self, held):
        def remote(function, *args):
            try:
                return function(held, *args), None
            except Exception as error:
                return None, error

        self.__ray_call__ = SimpleNamespace(remote=remote)


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    def get(call):
        if call[1] is not None:
            raise call[1]
        return call[0]

    monkeypatch.setattr(calls, "ray", SimpleNamespace(get=get, wait=lambda calls, timeout: (calls[:1], calls[1:])))


def group(*actors):
    return SimpleNamespace(workers=[Worker(SimpleNamespace(worker_dict={"actor": actor})) for actor in actors])


def legacy(module):
    return SimpleNamespace(_is_actor=True, actor_module_fsdp=module, actor_module=module)


def new(module, **more):
    return SimpleNamespace(_is_actor=True, actor=SimpleNamespace(engine=SimpleNamespace(module=module, **more)))


def model(seed=0, width=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, width), nn.Linear(width, 2))


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(("writer", "reader"), [(legacy, new), (new, legacy)])
def test_from_one_worker_implementation_to_the_other(tmp_path, writer, reader):
    there, here = model(1), model(2)
    saved = save(group(writer(there)), tmp_path)
    assert (saved.tensors, saved.files, saved.size_bytes, saved.left_out) == (4, 1, 4 * (6 + 3 + 6 + 2), 0)
    loaded = load(group(reader(here)), tmp_path)
    assert equal(there, here)
    assert (loaded.tensors, loaded.size_bytes, loaded.converted) == (4, saved.size_bytes, ())


def test_what_upstream_has_put_aside_in_main_memory_is_read_and_written_there(tmp_path):
    """Parameters keep their identity, so an optimizer still finds them; older graphs are told of the change."""
    there, here = model(1), model(2)
    save(group(legacy(there)), tmp_path)
    before = [(id(p), p.data_ptr(), p._version) for p in here.parameters()]
    load(group(legacy(here)), tmp_path)
    after = [(id(p), p.data_ptr(), p._version) for p in here.parameters()]
    assert all(one[:2] == other[:2] and one[2] < other[2] for one, other in zip(before, after, strict=True))


def test_another_model_is_refused_and_nothing_is_loaded(tmp_path):
    save(group(legacy(model(1))), tmp_path)
    other = model(2, width=4)
    with pytest.raises(MismatchError, match=r"rank 0: .*0.weight has shape \[4, 2\] here, and \[3, 2\] in the folder"):
        load(group(legacy(other)), tmp_path)
    assert equal(other, model(2, width=4))
    larger = nn.Sequential(*model(2), nn.Linear(2, 2))
    with pytest.raises(MismatchError, match=r"lacks 2 of this run's tensors \(the first: 2.weight\).*the same model"):
        load(group(legacy(larger)), tmp_path)
    with pytest.raises(MismatchError, match=r"actor lacks 2 of the folder's tensors \(the first: 1.weight\)"):
        load(group(legacy(nn.Sequential(model(2)[0]))), tmp_path)
    whole = model(2)
    whole[0].weight = nn.Parameter(torch.zeros(3, 2, dtype=torch.int32), requires_grad=False)
    with pytest.raises(MismatchError, match="0.weight is of type int32 here, and float32 in the folder"):
        load(group(legacy(whole)), tmp_path)


def test_every_rank_answers_before_an_error_is_raised(tmp_path):
    save(group(legacy(model(1))), tmp_path)
    good = model(3)
    with pytest.raises(MismatchError, match=r"rank 1: .*\(2 of 3 ranks failed\)"):
        load(group(legacy(good), legacy(model(2, 4)), legacy(model(2, 4))), tmp_path)
    assert equal(good, model(3))  # it could have loaded, and did not since others could not


def test_errors_of_other_kinds_are_told_in_one_line(tmp_path):
    with pytest.raises(CrossCheckError, match="rank 0: FileNotFoundError: .*portable.json"):
        load(group(legacy(model())), tmp_path)
    with pytest.raises(CrossCheckError, match="rank 0: LookupError: none of the workers"):
        load(group(SimpleNamespace()), tmp_path)


def test_a_bit_flipped_on_the_way_is_told_with_its_tensor(tmp_path):
    save(group(legacy(model(1))), tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 128  # the sign of the last element of the last tensor
    file.write_bytes(data)
    with pytest.raises(DamagedError, match="not what was written: 1.bias: checksum [0-9a-f]{16} expected"):
        load(group(legacy(model(2))), tmp_path)


def no_space(*_):
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr("verl.crosscheck.weights.portable.writing.os.pwrite", no_space)
    with pytest.raises(CrossCheckError, match="rank 0: OSError: .*No space left"):
        save(group(legacy(model())), tmp_path)


def test_a_disk_that_is_full_leaves_no_other_rank_waiting(tmp_path, monkeypatch):
    """A rank that gathers goes on doing so, and tells at the end."""
    monkeypatch.setattr(FolderWriter, "add", no_space)
    added = []
    with pytest.raises(OSError, match="No space left"), BehindWriter(tmp_path) as writer:
        for number in range(5):
            added.append(writer.add(f"w{number}", "parameter", torch.zeros(1)))
    assert len(added) == 5


def test_a_folder_that_the_nodes_do_not_share(tmp_path):
    entry = TensorEntry("w", "parameter", "float32", (1,), file="part-00000-00001")
    with pytest.raises(PublishError, match="not seen from here.*share_data_dir"):
        transfer.finish(tmp_path, [SavedRank([entry])])


def test_sums_of_all_ranks():
    expected = {"w": TensorEntry("w", "parameter", "float32", (4,), f"{30:016x}")}
    half, other_half = PartSum("w", 0, 2, 10), PartSum("w", 0, 2, 20)
    again = [PartSum("w", 1, 4, 30)]
    assert first_difference([[half], [other_half], again], expected) == ""
    assert "w: 4 elements expected, the ranks of replica 0 hold 2" in first_difference([[half], again], expected)
    assert "expected, the ranks of replica 0 hold 0" in first_difference([[]], expected)
    wrong = first_difference([[half], [other_half], [PartSum("w", 1, 4, 31)]], expected)
    assert wrong == "w: checksum 000000000000001e expected, 000000000000001f found"
    large = [PartSum("w", 0, 2, 2**64 - 5), PartSum("w", 0, 2, 35)]
    assert first_difference([large], expected) == ""


class Chunk(nn.Module):
    """One of Megatron's model chunks: what a bridge gathers is split over several."""

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values)


class Bridge:
    """Gives whole tensors under Hugging Face names and takes them from a folder, as the bridges of upstream do."""

    names = ("model.a.weight", "model.b.weight")

    def export_weights(self, chunks):
        for name, chunk in zip(self.names, chunks, strict=True):
            yield name, chunk.weight.detach().t().contiguous()

    def load_weights(self, chunks, path):
        index = json.loads(Path(path, "model.safetensors.index.json").read_text())["weight_map"]
        for name, chunk in zip(self.names, chunks, strict=True):
            chunk.weight.data.copy_(load_file(f"{path}/{index[name]}")[name].t())


class OtherBridge:
    """The same under the names that Megatron-Bridge gives it."""

    export_hf_weights = Bridge.export_weights
    load_hf_weights = Bridge.load_weights
    names = Bridge.names


class Optimizer:
    def __init__(self, chunks):
        self.chunks = chunks
        self.reload_model_params()

    def reload_model_params(self):
        self.main = [chunk.weight.detach().clone() for chunk in self.chunks]


def megatron(seed, bridge, dtype=torch.float32, **more):
    torch.manual_seed(seed)
    chunks = [Chunk(torch.randn(2, 3).to(dtype)), Chunk(torch.randn(4, 2).to(dtype))]
    more = {"optimizer": Optimizer(chunks), "vanilla_bridge": isinstance(bridge, Bridge), **more}
    return new(chunks, bridge=bridge, **more), chunks


@pytest.mark.parametrize("bridge", [Bridge(), OtherBridge()])
def test_megatron_through_its_bridge(tmp_path, bridge):
    there, sent = megatron(1, bridge)
    here, received = megatron(2, bridge)
    assert support(group(there)) == ""
    saved = save(group(there), tmp_path)
    assert saved.tensors == 2
    load(group(here), tmp_path)
    assert all(torch.equal(one.weight, other.weight) for one, other in zip(sent, received, strict=True))
    # The optimizer's own copies are the loaded weights too, or the next step would bring the old ones back.
    assert all(torch.equal(one.weight, main) for one, main in zip(sent, here.actor.engine.optimizer.main, strict=True))


def test_megatron_into_another_type(tmp_path):
    there, sent = megatron(1, Bridge())
    here, received = megatron(2, Bridge(), torch.bfloat16)
    save(group(there), tmp_path)
    assert load(group(here), tmp_path).rounded == Bridge.names
    assert all(torch.equal(a.weight.bfloat16(), b.weight) for a, b in zip(sent, received, strict=True))


def test_a_bridge_that_loads_something_else_is_found_out(tmp_path):
    class Careless(Bridge):
        def load_weights(self, chunks, path):
            super().load_weights(chunks, path)
            chunks[1].weight.data[0, 0] += 1

    there, _ = megatron(1, Bridge())
    save(group(there), tmp_path)
    with pytest.raises(DamagedError, match="model.b.weight: checksum"):
        load(group(megatron(2, Careless())[0]), tmp_path)
    with pytest.raises(DamagedError, match="model.b.weight: Megatron does not hold"):
        load(group(megatron(2, Careless(), torch.bfloat16)[0]), tmp_path)


def test_megatron_with_another_model_loads_nothing(tmp_path):
    save(group(legacy(model())), tmp_path)
    here, received = megatron(2, Bridge())
    with pytest.raises(MismatchError, match="the first: model.a.weight"):
        load(group(here), tmp_path)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(received, megatron(2, Bridge())[1], strict=True))


class VeOmniEngine:
    module = None


class Derived(VeOmniEngine):
    pass


def veomni():
    actor = new(model())
    actor.actor.engine = Derived()
    return actor


@pytest.mark.parametrize(
    ("actor", "reason"),
    [
        (lambda: legacy(model()), ""),
        (lambda: megatron(1, None)[0], "without a bridge; set .*use_mbridge=True"),
        (lambda: megatron(1, Bridge(), peft_cls=object())[0], "LoRA with Megatron"),
        (lambda: megatron(1, Bridge(), optimizer=object())[0], "cannot take loaded weights over"),
        (lambda: new(model(), _qat_enabled=True), "quantisation-aware training"),
        (veomni, r"VeOmni \(Derived\)"),
        (lambda: new(object()), "at none of the places that are known"),
        (lambda: legacy(model().to(torch.complex64)), "0.weight is of type torch.complex64"),
    ],
)
def test_what_is_not_supported_is_told_at_start(actor, reason):
    found = support(group(actor()))
    assert re.fullmatch(f".*{reason}.*" if reason else "", found), found


def test_each_thing_is_said_once():
    lines = []
    notices = LoadNotices(lines.append)
    for _ in range(3):
        notices.show(LoadedWeights(27, 100, ("a", "b"), ("a",), ("base",)))
    notices.show(LoadedWeights(27, 100, (), (), ()))
    assert len(lines) == 2
    assert lines[0].startswith("1 of 27 tensors are rounded") and lines[0].endswith("the first is a")
    assert lines[1].startswith("Warning: 1 frozen tensors") and lines[1].endswith("the first is base")
