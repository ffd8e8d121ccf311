"""Values as they are written on a command line, read by a config field's type.

int       64, 1_000, 1e9, 0x10; bytes with KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024)
float     0.1, 1e-3, inf
bool      true, false
str       as it stands
tuple     JSON, or values between commas
a config  a class name, with its defaults (optimizer=Adam), or a JSON object
"""

import inspect
import json
import math
import re
import types
import typing
from difflib import get_close_matches
from typing import Any, Union

from stepwell.config import Config, concrete_classes
from stepwell.errors import ConfigError

_SUFFIXES: dict[str, int] = {
    f"{letter}{unit}": base**power
    for unit, base in (("B", 1000), ("iB", 1024))
    for power, letter in enumerate("KMGTP", 1)
}
_NUMBER = re.compile(r"([-+]?[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?) ?([KMGTP]i?B)?")


def options(hint: Any) -> list[Any]:
    """The types that a union allows, or the type itself."""
    is_union = typing.get_origin(hint) in (Union, types.UnionType)
    return list(typing.get_args(hint)) if is_union else [hint]


def closest(word: str, known: list[str]) -> str:
    """Names the known word that looks most like this one."""
    close = get_close_matches(word, known, n=1, cutoff=0.0)
    return f"the closest is {close[0]!r}" if close else "it has none"


def parse_value(text: str, hint: Any, where: str) -> Any:
    """A JSON value for a field of this type."""
    problems = []
    for option in options(hint):
        try:
            return _parse_one(text, option, where)
        except ConfigError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    expected = " or ".join(str(problem).split("expected ", 1)[-1] for problem in problems)
    raise ConfigError(f"{where}: found {text!r}, expected {expected}")


def _parse_one(text: str, hint: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if inspect.isclass(hint) and origin is None and issubclass(hint, Config):
        return _parse_config(text, hint, where)
    if hint is str:
        return text
    if hint in (int, float):
        return _parse_int(text, where) if hint is int else _parse_float(text, where)
    if origin is tuple:
        return _parse_tuple(text, hint, where)
    if origin is dict:
        return _parse_json(text, where, dict, "a JSON object")
    return _parse_choice(text, hint, where)


def _parse_choice(text: str, hint: Any, where: str) -> Any:
    """A bool, None or one of a Literal's values, by the way it is spelt."""
    legal = {bool: (True, False), type(None): (None,)}.get(hint, typing.get_args(hint))
    spellings = {str(value).lower() if isinstance(value, bool | None) else str(value): value for value in legal}
    if text in spellings:
        return spellings[text]
    close = f"; {closest(text, list(spellings))}" if len(spellings) > 2 else ""
    raise ConfigError(f"{where}: found {text!r}, expected {' or '.join(spellings)}{close}")


def _parse_int(text: str, where: str) -> int:
    found = _NUMBER.fullmatch(text)
    if found is not None:
        number, suffix = found.groups()
        if suffix is None and number.lstrip("+-").replace("_", "").isdecimal():
            return int(number)
        value = float(number) * _SUFFIXES.get(suffix or "", 1)
        if value.is_integer():
            return int(value)
    elif re.fullmatch(r"[-+]?0[xX][0-9a-fA-F_]+", text):
        return int(text, 16)
    raise ConfigError(f"{where}: found {text!r}, expected an int (64, 1e9 and 2GiB are legal)")


def _parse_float(text: str, where: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{where}: found {text!r}, expected a number") from None
    return value if math.isfinite(value) else ("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")


def _parse_tuple(text: str, hint: Any, where: str) -> list[Any]:
    if text.lstrip().startswith("["):
        found: list[Any] = _parse_json(text, where, list, "a JSON list")
        return found
    args = typing.get_args(hint)
    texts = [part.strip() for part in text.split(",")] if text.strip() else []
    if args[1:] != (Ellipsis,) and len(texts) != len(args):
        raise ConfigError(f"{where}: found {len(texts)} values, expected {len(args)}")
    hints = args[:1] * len(texts) if args[1:] == (Ellipsis,) else args
    return [parse_value(part, hints[i], f"{where}[{i}]") for i, part in enumerate(texts)]


def _parse_config(text: str, hint: type[Config], where: str) -> dict[str, Any]:
    classes = concrete_classes([hint])
    if text.lstrip().startswith("{"):
        found: dict[str, Any] = _parse_json(text, where, dict, "a JSON object")
        if len(classes) == 1:
            found = {"kind": next(iter(classes)), **found}
        return found
    if text not in classes:
        names = ", ".join(sorted(classes))
        raise ConfigError(f"{where}: found {text!r}, expected one of {names}; {closest(text, list(classes))}")
    return {"kind": text}


def _parse_json(text: str, where: str, expected: type, name: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: found {text!r}, expected {name} ({error})") from error
    if not isinstance(found, expected):
        raise ConfigError(f"{where}: found {text!r}, expected {name}")
    return found
