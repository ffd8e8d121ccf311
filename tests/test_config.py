import json
import math
import pickle
from abc import ABC
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Literal

import pytest

from stepwell.config import Config
from stepwell.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner(Config):
    size: int = 8
    rate: float = 0.5

    def __post_init__(self) -> None:
        self._require_int("size", 1, 64)
        self._require_float("rate", 0.0, math.inf)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape(Config, ABC):
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Circle(Shape):
    radius: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Square(Shape):
    side: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outer(Config):
    name: str
    inner: Inner = field(default_factory=Inner)
    shape: Shape = field(default_factory=Circle)
    either: Inner | Circle | None = None
    shapes: tuple[Shape, ...] = ()
    pair: tuple[int, str] = (1, "a")
    mode: Literal["fast", "exact"] = "fast"
    limit: float = math.inf
    extra: dict[str, int | None] = field(default_factory=dict)


FULL = Outer(
    name="x",
    inner=Inner(size=3),
    shape=Square(side=2.0),
    either=Circle(radius=0.1),
    shapes=(Square(side=1.0), Circle()),
    pair=(7, "b"),
    mode="exact",
    limit=-math.inf,
    extra={"a": 1, "b": None},
)


@pytest.mark.parametrize("config", [FULL, Outer(name="y"), FULL.replace(either=Inner())])
def test_round_trip(config: Outer) -> None:
    assert Outer.from_json(config.to_json()) == config
    assert Outer.from_dict(config.to_dict()) == config
    assert Outer.from_json(config.to_json(indent=2)).to_json() == config.to_json()
    assert pickle.loads(pickle.dumps(config)) == config


def test_json_is_plain_and_tagged() -> None:
    encoded = json.loads(FULL.to_json())
    assert encoded["kind"] == "Outer"
    assert encoded["shape"] == {"kind": "Square", "side": 2.0}
    assert encoded["limit"] == "-inf"
    assert math.isnan(Circle.from_json(Circle(radius=math.nan).to_json()).radius)


def test_an_int_is_a_float_and_not_the_other_way() -> None:
    assert type(Circle.from_dict({"radius": 3}).radius) is float
    with pytest.raises(ConfigError, match=r"Inner\.size: found 3\.0, expected int"):
        Inner.from_dict({"size": 3.0})
    with pytest.raises(ConfigError, match=r"Inner\.size: found True, expected int"):
        Inner.from_dict({"size": True})


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ({"name": "x", "inmer": {}}, "unknown key 'inmer'; the closest key is 'inner'"),
        ({"name": "x", "inner": {"sise": 3}}, r"Outer\.inner: found the unknown key 'sise'; the closest key is 'size'"),
        ({}, "found no 'name', which has no default"),
        ({"name": "x", "shape": {"kind": "Sqare"}}, "expected one of .*'Circle', 'Square'.*closest is 'Square'"),
        ({"name": "x", "shape": {"side": 1.0}}, r"Outer\.shape: found no 'kind'"),
        ({"name": "x", "shape": {"kind": "Shape"}}, "found kind 'Shape'"),
        ({"name": "x", "shape": {"kind": "Inner"}}, "found kind 'Inner'"),
        ({"name": "x", "shape": 3}, r"Outer\.shape: found 3, expected an object"),
        ({"name": "x", "either": 3}, r"Outer\.either: found 3, expected Inner or Circle or NoneType"),
        ({"name": "x", "mode": "slow"}, r"Outer\.mode: found 'slow'"),
        ({"name": "x", "pair": [1]}, r"Outer\.pair: found \[1\]"),
        ({"name": "x", "pair": [1, 2]}, r"Outer\.pair\[1\]: found 2, expected str"),
        ({"name": "x", "shapes": [{"kind": "Square", "side": "1"}]}, r"Outer\.shapes\[0\]\.side: found '1'"),
        ({"name": "x", "extra": {"a": 1.5}}, r"Outer\.extra\['a'\]: found 1\.5"),
        ({"name": "x", "inner": {"size": 65}}, r"Inner\.size: found 65, expected an int from 1 to 64"),
        ({"name": "x", "inner": {"rate": "inf"}}, r"Inner\.rate: found inf, expected a finite number >= 0\.0"),
        ({"kind": "Inner", "name": "x"}, r"Outer: found kind 'Inner'"),
    ],
)
def test_what_cannot_be_decoded_is_named(encoded: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Outer.from_dict(encoded)


def test_text_that_is_not_json() -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        Inner.from_json("{")
    with pytest.raises(ConfigError, match="expected an object"):
        Inner.from_json("[]")


def test_replace_checks_names_and_values() -> None:
    assert Inner().replace(size=9).size == 9
    with pytest.raises(ConfigError, match="the closest key is 'size'"):
        Inner().replace(sizes=9)
    with pytest.raises(ConfigError, match=r"Inner\.size"):
        Inner().replace(size=0)


def test_a_value_that_json_cannot_hold() -> None:
    with pytest.raises(ConfigError, match=r"Outer\.name: found a bytes"):
        Outer(name=b"x").to_json()  # type: ignore[arg-type]


def test_configs_are_frozen_hashable_and_without_dict() -> None:
    with pytest.raises(FrozenInstanceError):
        Inner().size = 3  # type: ignore[misc]
    assert hash(Inner()) == hash(Inner())
    assert not hasattr(Inner(), "__dict__")


def test_a_base_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match=r"Shape is a base: expected one of .*'Circle', 'Square'"):
        Shape()


def test_wrongly_made_classes_fail_when_first_used() -> None:
    class Plain(Config):
        size: int = 1

    @dataclass(kw_only=True, slots=True)
    class Thawed(Config):
        size: int = 1

    @dataclass(frozen=True, slots=True)
    class Positional(Config):
        size: int = 1

    @dataclass(frozen=True, kw_only=True)
    class Loose(Config):
        size: int = 1

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Tagged(Config):
        kind: str = "a"

    for made, message in (
        (Plain, "found no dataclass"),
        (Thawed, "found frozen=False"),
        (Positional, "found the positional field 'size'"),
        (Loose, "found slots=False"),
        (Tagged, "cannot be named 'kind'"),
    ):
        with pytest.raises(ConfigError, match=message):
            made()
        with pytest.raises(ConfigError, match=message):
            made.from_dict({})
