"""What a model asks of the shapes of its inputs, and how it says so."""

from stepwell.config import Config
from stepwell.embedding.inputs import SideSpec
from stepwell.errors import ConfigError


def check_tasks(model: Config, tasks: tuple[str, ...]) -> None:
    """There is a task, and no two have one name."""
    if not tasks or len(set(tasks)) != len(tasks):
        raise ConfigError(f"{_name(model)}: tasks: found {tasks!r}, expected at least one name, no two the same")


def check_inputs(model: Config, user: SideSpec, item: SideSpec) -> None:
    """There is an input."""
    if not any((side.dense, side.pooled, side.sequences) != (0, (), ()) for side in (user, item)):
        raise ConfigError(f"{_name(model)}: found no inputs on either side, expected features")


def check_pooled_only(model: Config, user: SideSpec, item: SideSpec) -> None:
    """There are inputs, and no sequences, which the model would not read."""
    check_inputs(model, user, item)
    for name, side in (("user", user), ("item", item)):
        if side.sequences:
            found = ", ".join(f"{sequence.name!r} (dim {sequence.dim})" for sequence in side.sequences)
            raise ConfigError(
                f"{_name(model)} reads no sequences: found {name} sequence {found}; declare an IdFeature with pooling "
                "'sum' or 'mean' instead, or take a model that reads sequences (DIN, BST)"
            )


def check_layers(model: Config, field: str, *, least: int = 0) -> None:
    """The field is a tuple of layer widths."""
    layers = getattr(model, field)
    ok = isinstance(layers, tuple) and all(type(width) is int and 1 <= width <= 1 << 20 for width in layers)
    model._require(ok and len(layers) >= least, field, f"a tuple of at least {least} layer widths, from 1 to 1048576")


def one_dim(model: Config, user: SideSpec, item: SideSpec, *, but_for: int = 0) -> int:
    """The dim that all pooled features have, those of dim `but_for` left out; ConfigError names those that differ."""
    named = [entry for entry in pooled_features(user, item) if entry[1] != but_for]
    dims = {dim for _, dim in named}
    if len(dims) != 1:
        found = ", ".join(f"{name} {dim}" for name, dim in named) or "none"
        what = f" besides those of dim {but_for}" if but_for else ""
        raise ConfigError(
            f"{_name(model)}: dims of pooled features: found {found}; expected at least one feature{what} and one dim "
            "for all: give their tables the same dim"
        )
    return dims.pop()


def pooled_features(user: SideSpec, item: SideSpec) -> list[tuple[str, int]]:
    """(what to call it, dim) of every pooled feature."""
    named = []
    for side_name, side in (("user", user), ("item", item)):
        for at, dim in enumerate(side.pooled):
            name = repr(side.pooled_names[at]) if side.pooled_names else f"pooled feature {at}"
            named.append((f"{side_name} {name}", dim))
    return named


def _name(model: Config) -> str:
    return type(model).__name__
