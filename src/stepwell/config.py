"""Config: the base class of every setting and spec.

A config is frozen, keyword-only and slotted; it checks itself in `__post_init__`, and goes to JSON and back:

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Window(Config):
        size: int = 8

        def __post_init__(self) -> None:
            self._require_int("size", 1, 1024)

In JSON a config is an object whose "kind" is its class name. A field may hold a bool, int, float, str, None, Literal,
tuple, dict with str keys, another Config, or a union of those. A field annotated with a Config class also takes its
subclasses; "kind" says which. A class with ABC among its own bases is only a base: it cannot be made. Floats that
JSON cannot say are the strings "inf", "-inf" and "nan".
"""

import dataclasses
import difflib
import inspect
import json
import math
import types
import typing
from abc import ABC
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Self, Union

from stepwell.errors import ConfigError

_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_checked: set[type] = set()
_hints_of: dict[type, dict[str, Any]] = {}


class Config:
    """Base of settings and specs; see the module's docstring. A subclass made wrongly fails when first used."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Check the class once. Not in `__init_subclass__`: `slots=True` makes a second class after that has run."""
        _check_class(cls)
        if _is_abstract(cls):
            raise ConfigError(f"{cls.__name__} is a base: expected one of {sorted(concrete_classes([cls]))}")
        return super().__new__(cls)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values, "kind" first."""
        encoded: dict[str, Any] = {"kind": type(self).__name__}
        for name in field_types(type(self)):
            encoded[name] = _encode(getattr(self, name), f"{type(self).__name__}.{name}")
        return encoded

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON text; equal configs give equal text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, encoded: Mapping[str, Any]) -> Self:
        """The config that `to_dict` described; absent fields take their defaults, unknown ones are an error."""
        decoded: Self = _decode_config(encoded, [cls], cls.__name__)
        return decoded

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The config that `to_json` described."""
        try:
            encoded = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{cls.__name__}: found text that is not JSON ({error})") from error
        return cls.from_dict(encoded)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked again."""
        _reject_unknown(changes, list(field_types(type(self))), type(self).__name__)
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    # For __post_init__. `super().__post_init__()` does not work in a slotted dataclass on Python < 3.14; there is none.

    def _require(self, ok: bool, field: str, expected: str) -> None:
        """Raise ConfigError naming the field, what it holds and what was expected, unless `ok`."""
        if not ok:
            found = getattr(self, field)
            raise ConfigError(f"{type(self).__name__}.{field}: found {found!r}, expected {expected}")

    def _require_instance(self, field: str, base: type) -> None:
        """The field is an instance of `base`."""
        self._require(isinstance(getattr(self, field), base), field, f"an instance of {base.__name__}")

    def _require_tuple_of(self, field: str, base: type) -> None:
        """The field is a tuple of instances of `base`."""
        value = getattr(self, field)
        ok = isinstance(value, tuple) and all(isinstance(item, base) for item in value)
        self._require(ok, field, f"a tuple of {base.__name__}")

    def _require_int(self, field: str, low: int, high: int) -> None:
        """The field is an int (not a bool) with low <= field <= high."""
        value = getattr(self, field)
        self._require(type(value) is int and low <= value <= high, field, f"an int from {low} to {high}")

    def _require_float(self, field: str, low: float, high: float, *, above_low: bool = False) -> None:
        """The field is a finite number with low <= field <= high, or low < field where `above_low`."""
        value = getattr(self, field)
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        ok = ok and low <= value <= high and not (above_low and value == low)
        bounds = [f"{'> ' if above_low else '>= '}{low}"] if low != -math.inf else []
        bounds += [f"<= {high}"] if high != math.inf else []
        self._require(ok, field, " ".join(["a finite number", " and ".join(bounds)]).strip())


def _check_class(cls: type[Config]) -> None:
    if cls in _checked:
        return
    wanted = f"{cls.__name__} must be decorated with @dataclass(frozen=True, kw_only=True, slots=True)"
    params = cls.__dict__.get("__dataclass_params__")
    if params is None:
        raise ConfigError(f"{wanted}: found no dataclass")
    if not params.frozen:
        raise ConfigError(f"{wanted}: found frozen=False")
    if not _is_slotted(cls):
        raise ConfigError(f"{wanted}: found slots=False")
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if not field.kw_only:
            raise ConfigError(f"{wanted}: found the positional field {field.name!r}")
        if field.name == "kind" or not field.init:
            raise ConfigError(f"{cls.__name__}.{field.name}: a config field cannot be named 'kind' or have init=False")
    _checked.add(cls)


def _is_abstract(cls: type) -> bool:
    return inspect.isabstract(cls) or ABC in cls.__bases__


def _is_slotted(cls: type) -> bool:
    return "__slots__" in cls.__dict__ and getattr(cls, "__dictoffset__", 0) == 0


def field_types(cls: type[Config]) -> dict[str, Any]:
    """Each field's type as it is annotated, in the order of declaration."""
    if cls not in _hints_of:
        _check_class(cls)
        hints = typing.get_type_hints(cls)
        _hints_of[cls] = {field.name: hints[field.name] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return _hints_of[cls]


def _reject_unknown(found: Iterable[str], known: list[str], where: str) -> None:
    for key in found:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            hint = f"; the closest key is {close[0]!r}" if close else "; it has no keys"
            raise ConfigError(f"{where}: found the unknown key {key!r}{hint}")


def _encode(value: Any, where: str) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, tuple):
        return [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {key: _encode(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise ConfigError(f"{where}: found a {type(value).__name__}, expected a value that JSON can hold")


def _decode(value: Any, hint: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if inspect.isclass(hint) and issubclass(hint, Config):
        return _decode_config(value, [hint], where)
    if origin in (Union, types.UnionType):
        return _decode_union(value, args, where)
    if origin is tuple and isinstance(value, (list, tuple)):
        hints = args[:1] * len(value) if args[1:] == (Ellipsis,) else args
        if len(hints) == len(value):
            return tuple(_decode(item, hints[i], f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _decode(item, args[1], f"{where}[{key!r}]") for key, item in value.items()}
    return _decode_scalar(value, hint, where)


def _decode_scalar(value: Any, hint: Any, where: str) -> Any:
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint is float and isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    legal = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    if any(type(value) is type(item) and value == item for item in legal):
        return value
    if hint in (bool, int, str, type(None)) and type(value) is hint:
        return value
    raise ConfigError(f"{where}: found {value!r}, expected {_hint_name(hint)}")


def _decode_union(value: Any, options: tuple[Any, ...], where: str) -> Any:
    configs = [option for option in options if inspect.isclass(option) and issubclass(option, Config)]
    if configs and isinstance(value, Mapping):
        return _decode_config(value, configs, where)
    for option in options:
        if option not in configs:
            try:
                return _decode(value, option, where)
            except ConfigError:
                continue
    raise ConfigError(f"{where}: found {value!r}, expected {' or '.join(_hint_name(option) for option in options)}")


def _decode_config(encoded: Any, bases: list[type[Config]], where: str) -> Any:
    classes = concrete_classes(bases)
    if not isinstance(encoded, Mapping):
        expected = " or ".join(sorted(classes)) or bases[0].__name__
        raise ConfigError(f"{where}: found {encoded!r}, expected an object ({expected})")
    if "kind" in encoded:
        kind = encoded["kind"]
        if kind not in classes:
            close = difflib.get_close_matches(str(kind), list(classes), n=1, cutoff=0.0)
            hint = f"; the closest is {close[0]!r}" if close else ""
            raise ConfigError(f"{where}: found kind {kind!r}, expected one of {sorted(classes)}{hint}")
        cls = classes[kind]
    elif len(bases) == 1 and not _is_abstract(bases[0]):
        cls = bases[0]
    else:
        raise ConfigError(f"{where}: found no 'kind', expected one of {sorted(classes)}")
    hints = field_types(cls)
    given = {key: value for key, value in encoded.items() if key != "kind"}
    _reject_unknown(given, list(hints), where)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in given:
            raise ConfigError(f"{where}: found no {field.name!r}, which has no default")
    return cls(**{name: _decode(value, hints[name], f"{where}.{name}") for name, value in given.items()})


def concrete_classes(bases: list[type[Config]]) -> dict[str, type[Config]]:
    """Every class that can be made for a field of these classes, by name."""
    found: dict[str, type[Config]] = {}
    todo = list(bases)
    while todo:
        cls = todo.pop()
        todo.extend(cls.__subclasses__())
        # slots=True leaves the class it copied among the subclasses until it is collected: only the copy is slotted.
        is_real = (cls in bases or _is_slotted(cls)) and not _is_abstract(cls)
        if is_real and found.setdefault(cls.__name__, cls) is not cls:
            raise ConfigError(f"two Config classes are named {cls.__name__!r}: rename one of them")
    return found


def _hint_name(hint: Any) -> str:
    return hint.__name__ if inspect.isclass(hint) and typing.get_origin(hint) is None else str(hint)
