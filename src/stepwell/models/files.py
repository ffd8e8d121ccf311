"""A model on disk: model.json says what it is, dense.safetensors holds its weights. Nothing in them is ever run.

model.json: {"format", "config", "user", "item", "tasks", "weights": {"file", "bytes", "crc32"}}. It is written
last, and each file by rename, so a crash while saving over an older model shows as weights that model.json does not
describe.
"""

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from stepwell.embedding.inputs import SideSpec
from stepwell.errors import ConfigError, ModelFileError
from stepwell.models.ranking import ModelConfig, RankingModel

FORMAT: Final = 1
MODEL_FILE: Final = "model.json"
WEIGHTS_FILE: Final = "dense.safetensors"


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What builds a model."""

    config: ModelConfig
    user: SideSpec
    item: SideSpec
    tasks: tuple[str, ...]

    def build(self) -> RankingModel:
        """A new model; torch's generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            return self.config.build(self.user, self.item, self.tasks)


def save_model(
    directory: str | Path,
    config: ModelConfig,
    model: RankingModel,
    user: SideSpec,
    item: SideSpec,
    tasks: tuple[str, ...],
) -> None:
    """Write the model into a directory, which is made if need be, over the one that may be there."""
    from safetensors.torch import save

    folder = Path(directory)
    # Copies: safetensors takes no tensor twice, and a model may share one.
    data = save({name: t.detach().to("cpu", copy=True).contiguous() for name, t in model.state_dict().items()})
    described = {
        "format": FORMAT,
        "config": config.to_dict(),
        "user": user.to_dict(),
        "item": item.to_dict(),
        "tasks": list(tasks),
        "weights": {"file": WEIGHTS_FILE, "bytes": len(data), "crc32": zlib.crc32(data)},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _publish(folder / WEIGHTS_FILE, data)
        _publish(folder / MODEL_FILE, (json.dumps(described, indent=1) + "\n").encode())
    except OSError as error:
        raise ModelFileError(f"could not write {error.filename or folder}: {error.strerror}") from error


def read_model(directory: str | Path) -> SavedModel:
    """What model.json says; ModelFileError if it is missing or damaged, or names a class that is not imported."""
    saved, _ = _read(Path(directory) / MODEL_FILE)
    return saved


def load_model(directory: str | Path) -> RankingModel:
    """The model that `save_model` wrote, on the CPU; ModelFileError if a file is missing, damaged or another's."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    folder = Path(directory)
    saved, weights = _read(folder / MODEL_FILE)
    path = folder / WEIGHTS_FILE
    data = _bytes(path)
    found, expected = (len(data), zlib.crc32(data)), (weights["bytes"], weights["crc32"])
    if found != expected:
        raise ModelFileError(
            f"{path}: found {found[0]} bytes with crc32 {found[1]}, expected {expected[0]} with {expected[1]}, as "
            f"{MODEL_FILE} says: the file is damaged or of another save; copy both files again, or save again"
        )
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ModelFileError(f"{path}: found bytes that are not safetensors ({error})") from error
    model = saved.build()
    _check_fit(path, tensors, model.state_dict())
    model.load_state_dict(tensors)
    return model


def _read(path: Path) -> tuple[SavedModel, dict[str, Any]]:
    try:
        body = json.loads(_bytes(path))
    except ValueError as error:
        raise ModelFileError(f"{path}: found text that is not JSON ({error})") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        found = body.get("format") if isinstance(body, dict) else body
        raise ModelFileError(
            f"{path}: found format {found!r}, expected {FORMAT}: it is no model, or of a newer version"
        )
    try:
        tasks, weights = body["tasks"], body["weights"]
        if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
            raise ConfigError(f"tasks: found {tasks!r}, expected a list of names")
        if not isinstance(weights, dict) or not {"bytes", "crc32"} <= weights.keys():
            raise ConfigError(f"weights: found {weights!r}, expected their bytes and crc32")
        user, item = SideSpec.from_dict(body["user"]), SideSpec.from_dict(body["item"])
        return SavedModel(ModelConfig.from_dict(body["config"]), user, item, tuple(tasks)), weights
    except KeyError as error:
        raise ModelFileError(f"{path}: found no {error.args[0]!r}") from error
    except ConfigError as error:
        error_text = f"{path}: {error}; a model class of your own must be imported before its model is read"
        raise ModelFileError(error_text) from error


def _check_fit(path: Path, found: dict[str, Tensor], expected: dict[str, Any]) -> None:
    for name in sorted(found.keys() | expected.keys()):
        if name not in found or name not in expected:
            what = "an unknown" if name in found else "no"
            raise ModelFileError(f"{path}: found {what} weight {name!r}: {MODEL_FILE} describes another model")
        shapes = [f"{t.dtype} {tuple(t.shape)}" for t in (found[name], expected[name])]
        if shapes[0] != shapes[1]:
            raise ModelFileError(
                f"{path}: {name}: found {shapes[0]}, expected {shapes[1]}, as {MODEL_FILE} describes it"
            )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"could not read {path}: {error.strerror}; expected a model saved there") from error


def _publish(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
