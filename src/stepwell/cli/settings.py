"""`--set KEY=VALUE`: one field of a config, by its path.

A path is field names joined by dots; inside a tuple an element is named by its number or by its `name`
(`store.tables.items.dim`), inside a dict by its key. `cli/values.py` says how values are written.
"""

import dataclasses
import inspect
import typing
from typing import Any, TypeVar

from stepwell.cli.values import closest, options, parse_value
from stepwell.config import Config, concrete_classes, field_types
from stepwell.errors import ConfigError

C = TypeVar("C", bound=Config)


def apply_settings(config: C, settings: list[str]) -> C:
    """The config with every `KEY=VALUE` applied in order; it is checked once, when all of them are."""
    if not settings:
        return config
    encoded = config.to_dict()
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {setting}: found no '=', expected KEY=VALUE, for example store.dram_bytes=1GiB")
        _set(encoded, type(config), key.split("."), text, f"--set {key}")
    return type(config).from_dict(encoded)


def _set(encoded: Any, hint: Any, path: list[str], text: str, where: str) -> None:
    for place, step in enumerate(path):
        key, hint = _child(encoded, hint, step, f"{where}: {'.'.join(path[:place]) or 'the recipe'}")
        if place == len(path) - 1:
            encoded[key] = parse_value(text, hint, where)
        elif isinstance(encoded, dict) and key not in encoded:
            raise ConfigError(f"{where}: there is no {step!r}; {closest(step, list(encoded))}")
        else:
            encoded = encoded[key]


def _child(encoded: Any, hint: Any, step: str, where: str) -> tuple[str | int, Any]:
    """What `step` names inside `encoded`, and the type annotated there."""
    if isinstance(encoded, list):
        index = _element(encoded, step, where)
        args = typing.get_args(_one_of(hint, tuple))
        return index, args[0] if args[1:] == (Ellipsis,) else args[index]
    if isinstance(encoded, dict) and "kind" in encoded:
        cls = _class_named(encoded["kind"], hint)
        types_ = field_types(cls)
        if step not in types_:
            raise ConfigError(f"{where} ({cls.__name__}) has no {step!r}; {closest(step, list(types_))}")
        if step not in encoded:
            encoded[step] = _default(cls, step)
        return step, types_[step]
    if isinstance(encoded, dict):
        return step, typing.get_args(_one_of(hint, dict))[1]
    raise ConfigError(f"{where} is {encoded!r}, which has no parts; set it as a whole")


def _element(encoded: list[Any], step: str, where: str) -> int:
    if step.isdecimal():
        if int(step) < len(encoded):
            return int(step)
        raise ConfigError(f"{where} has {len(encoded)} elements, counted from 0; found {step}")
    names = [item.get("name") if isinstance(item, dict) else None for item in encoded]
    if step in names:
        return names.index(step)
    known = [name for name in names if isinstance(name, str)]
    numbers = f"expected a number below {len(encoded)}"
    raise ConfigError(f"{where} has no element {step!r}; {closest(step, known) if known else numbers}")


def _class_named(kind: str, hint: Any) -> type[Config]:
    classes = concrete_classes(_config_classes(hint))
    if kind not in classes:
        raise ConfigError(f"found kind {kind!r}, expected one of {', '.join(sorted(classes))}")
    return classes[kind]


def _default(cls: type[Config], name: str) -> Any:
    """What the field holds when nobody says, encoded; None where it has no default (it is being set now)."""
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)  # type: ignore[arg-type]
    value = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, tuple):
        return [item.to_dict() if isinstance(item, Config) else item for item in value]
    return None if value is dataclasses.MISSING else value


def _config_classes(hint: Any) -> list[type[Config]]:
    return [option for option in options(hint) if inspect.isclass(option) and issubclass(option, Config)]


def _one_of(hint: Any, origin: type) -> Any:
    return next(option for option in options(hint) if typing.get_origin(option) is origin)
