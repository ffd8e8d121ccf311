"""Models on disk: the same weights back, and every way in which the files can be wrong."""

import json
import re
from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.errors import ModelFileError
from stepwell.models import DLRM, ModelConfig, RankingModel, load_model, read_model, save_model

USER = SideSpec(dense=3, pooled=(4,), pooled_names=("age",))
ITEM = SideSpec(pooled=(4, 4), pooled_names=("ad", "shop"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tied(ModelConfig):
    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "TiedNetwork":
        return TiedNetwork()


class TiedNetwork(RankingModel):
    """Two names of one weight, a buffer, and a weight that is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(3, 2).t())
        self.b = self.a
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        return {}


def saved(folder):
    config = DLRM(bottom=(8,), top=(8,))
    model = config.build(USER, ITEM, ("click",))
    save_model(folder, config, model, USER, ITEM, ("click",))
    return model


def test_comes_back_as_it_was(tmp_path):
    model = saved(tmp_path / "run" / "model")
    torch.manual_seed(3)
    before = torch.get_rng_state()
    loaded = load_model(tmp_path / "run" / "model")
    assert torch.equal(before, torch.get_rng_state())
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(t, model.state_dict()[name]) for name, t in loaded.state_dict().items())
    spec = read_model(tmp_path / "run" / "model")
    assert (spec.config, spec.user, spec.item, spec.tasks) == (DLRM(bottom=(8,), top=(8,)), USER, ITEM, ("click",))


def test_saved_over_an_older_one(tmp_path):
    saved(tmp_path)
    model = saved(tmp_path)
    weights = load_model(tmp_path).state_dict()
    assert all(torch.equal(t, weights[name]) for name, t in model.state_dict().items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dense.safetensors", "model.json"]


def test_tied_weights_and_buffers(tmp_path):
    model = TiedNetwork()
    model.seen += 5
    save_model(tmp_path, Tied(), model, USER, ITEM, ("click",))
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.a, model.a) and loaded.b is loaded.a and loaded.seen == 5


def edit(change):
    def spoil(folder):
        body = json.loads((folder / "model.json").read_text())
        change(body)
        (folder / "model.json").write_text(json.dumps(body))

    return spoil


def other_weights(change):
    def spoil(folder):
        tensors = load_file(folder / "dense.safetensors")
        change(tensors)
        save_file(tensors, folder / "dense.safetensors")
        agree(folder)

    return spoil


def agree(folder):
    import zlib

    data = (folder / "dense.safetensors").read_bytes()
    edit(lambda body: body["weights"].update(bytes=len(data), crc32=zlib.crc32(data)))(folder)


def flip(folder):
    data = bytearray((folder / "dense.safetensors").read_bytes())
    data[-3] ^= 4
    (folder / "dense.safetensors").write_bytes(data)


def not_safetensors(folder):
    (folder / "dense.safetensors").write_bytes(b"\x80\x04pickled")
    agree(folder)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda folder: (folder / "model.json").unlink(), "could not read .*model.json.*expected a model"),
        (lambda folder: (folder / "dense.safetensors").unlink(), "could not read .*dense.safetensors"),
        (lambda folder: (folder / "model.json").write_text("{"), "model.json: found text that is not JSON"),
        (lambda folder: (folder / "model.json").write_text("[]"), "model.json: found format"),
        (edit(lambda body: body.update(format=2)), "found format 2, expected 1"),
        (edit(lambda body: body.pop("tasks")), "found no 'tasks'"),
        (edit(lambda body: body.update(tasks=[1])), r"tasks: found \[1\]"),
        (edit(lambda body: body["weights"].pop("crc32")), "weights: found"),
        (edit(lambda body: body["config"].update(kind="MyNet")), "found kind 'MyNet', .*must be imported before"),
        (edit(lambda body: body["config"].update(top=[4])), r"found torch.float32 \(8,\), expected .*\(4,\)"),
        (edit(lambda body: body["config"].update(top=[8, 1, 1])), "found no weight 'top.rest.layers.1.bias'"),
        (edit(lambda body: body["user"].update(dense=-1)), "SideSpec.dense: found -1"),
        (lambda folder: (folder / "dense.safetensors").write_bytes(b"\0" * 9), "found 9 bytes with crc32"),
        (flip, "the file is damaged or of another save"),
        (not_safetensors, "found bytes that are not safetensors"),
        (other_weights(lambda tensors: tensors.update(extra=torch.zeros(2))), "found an unknown weight 'extra'"),
        (
            other_weights(lambda tensors: tensors.update({k: t.half() for k, t in tensors.items()})),
            r"found torch.float16 .*, expected torch.float32",
        ),
    ],
)
def test_wrong_files_are_named(tmp_path, spoil, match):
    saved(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ModelFileError, match=match) as caught:
        load_model(tmp_path)
    assert re.search(str(tmp_path), str(caught.value))


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="could not write"):
        saved(tmp_path / "file" / "model")
