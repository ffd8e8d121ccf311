"""Recipes are found and called; `--set` reads values by a field's type and names what it does not know."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from stepwell import AdaGrad, Adam, StoreConfig, TableSpec, Uniform
from stepwell.cli.recipe import load_recipe
from stepwell.cli.settings import apply_settings
from stepwell.config import Config
from stepwell.errors import ConfigError

RECIPE = """
from stepwell import StoreConfig, TableSpec

def {name}() -> StoreConfig:
    return StoreConfig(tables=(TableSpec(name="items", dim=8), TableSpec(name="users", dim=4)), dram_bytes=1 << 20)

def small() -> StoreConfig:
    return {name}().replace(dram_bytes=1 << 18)

def asks(size: int) -> StoreConfig:
    return small()

def other():
    return 3

def broken():
    return missing
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Odd(Config):
    on: bool = False
    mode: Literal["fast", "slow", "middling"] = "slow"
    limit: int | None = None
    numbers: tuple[float, ...] = ()
    pair: tuple[int, str] = (1, "a")
    extra: dict[str, int] = field(default_factory=dict)
    store: StoreConfig = field(
        default_factory=lambda: StoreConfig(tables=(TableSpec(name="items", dim=8),), dram_bytes=1 << 20)
    )


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(RECIPE.format(name="shop"))
    return path


def test_the_function_is_the_files_name_or_is_named(recipe: Path) -> None:
    assert load_recipe(str(recipe), [], StoreConfig).dram_bytes == 1 << 20
    assert load_recipe(f"{recipe}:small", [], StoreConfig).dram_bytes == 1 << 18
    assert load_recipe(f"{recipe}:small", ["dram_bytes=2MiB"], StoreConfig).dram_bytes == 1 << 21


def test_a_recipe_in_a_package_sees_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "cookbook_of_tests"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "shop.py").write_text(RECIPE.format(name="shop"))
    (folder / "big.py").write_text(
        "from cookbook_of_tests.shop import shop\n\ndef big():\n    return shop().replace(dram_bytes=1 << 22)\n"
    )
    assert load_recipe(str(folder / "big.py"), [], StoreConfig).dram_bytes == 1 << 22


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere.py", "no file nowhere.py"),
        ("shop.py:smal", "the closest is 'small'"),
        ("shop.py:asks", "needs arguments (size)"),
        ("shop.py:other", "returned a int, expected a StoreConfig"),
        ("shop.py:broken", "shop.py, line 17: NameError"),
        ("notes.txt", "expected a Python file"),
        ("late.py", "its functions: shop, small, asks, other, broken; name one: late.py:FUNCTION"),
        ("syntax.py", "syntax.py, line 2: SyntaxError"),
        ("imports.py", "imports.py, line 1: ModuleNotFoundError: No module named 'not_there_at_all'"),
    ],
)
def test_wrong_recipes(recipe: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    folder = recipe.parent
    (folder / "notes.txt").write_text("")
    (folder / "late.py").write_text(RECIPE.format(name="shop"))
    (folder / "syntax.py").write_text("a = 1\ndef (:\n")
    (folder / "imports.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError) as found:
        load_recipe(name, [], StoreConfig)
    assert says in str(found.value)


def test_values_are_read_by_type() -> None:
    made = apply_settings(
        Odd(),
        [
            "on=true",
            "mode=fast",
            "limit=1e9",
            "numbers=1,2.5,-inf",
            "pair=7,b",
            'extra={"a": 1}',
            "extra.b=0x10",
            "store.dram_bytes=1.5GiB",
            "store.ssd.direct=false",
            "store.ssd_directory=rows=1/a,b",
            "store.ssd_bytes=10GB",
            "store.tables.items.dim=1_6",
            "store.tables.0.optimizer.lr=0.5",
        ],
    )
    assert (made.on, made.mode, made.limit) == (True, "fast", 10**9)
    assert (made.numbers, made.pair, made.extra) == ((1.0, 2.5, -math.inf), (7, "b"), {"a": 1, "b": 16})
    assert (made.store.dram_bytes, made.store.ssd_bytes) == (3 << 29, 10**10)
    assert (made.store.ssd.direct, made.store.ssd_directory) == (False, "rows=1/a,b")
    assert (made.store.tables[0].dim, made.store.tables[0].optimizer.lr) == (16, 0.5)
    assert apply_settings(made, ["limit=none", "numbers="]) == made.replace(limit=None, numbers=())


def test_a_class_is_chosen_by_name_or_json() -> None:
    made = apply_settings(
        Odd(),
        [
            "store.tables.items.optimizer=Adam",
            "store.tables.items.optimizer.beta1=0.8",
            'store.tables.items.initializer={"kind": "Uniform", "low": -1, "high": 1}',
        ],
    )
    table = made.store.tables[0]
    assert isinstance(table.optimizer, Adam) and table.optimizer.beta1 == 0.8
    assert table.initializer == Uniform(low=-1.0, high=1.0)
    assert isinstance(apply_settings(Odd(), ["store.tables.0.optimizer=AdaGrad"]).store.tables[0].optimizer, AdaGrad)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("limit", "expected KEY=VALUE"),
        ("limti=3", "the recipe (Odd) has no 'limti'; the closest is 'limit'"),
        ("store.dram_byte=3", "store (StoreConfig) has no 'dram_byte'; the closest is 'dram_bytes'"),
        ("store.tables.item.dim=3", "store.tables has no element 'item'; the closest is 'items'"),
        ("store.tables.4.dim=3", "store.tables has 1 elements, counted from 0; found 4"),
        ("store.dram_bytes.x=3", "has no parts"),
        ("store.dram_bytes=many", "--set store.dram_bytes: found 'many', expected an int"),
        ("store.dram_bytes=1.5", "expected an int"),
        ("store.dram_bytes=1e400", "expected an int"),
        ("store.dram_bytes=-5", "found -5"),
        ("on=yes", "found 'yes', expected true or false"),
        ("mode=fats", "the closest is 'fast'"),
        ("limit=soon", "expected an int (64, 1e9 and 2GiB are legal) or none"),
        ("numbers=1,a", "numbers[1]: found 'a', expected a number"),
        ("pair=1", "found 1 values, expected 2"),
        ("extra=3", "expected a JSON object"),
        ("extra.a.b=3", "has no parts|there is no 'a'"),
        ("store.tables.items.optimizer=Adan", "the closest is 'Adam'"),
        ('store.tables.items.optimizer={"kind": "Adan"}', "the closest is 'Adam'"),
        ("store.ssd_bytes=5GB", "ssd_directory"),
    ],
)
def test_wrong_settings(setting: str, says: str) -> None:
    with pytest.raises(ConfigError) as found:
        apply_settings(Odd(), [setting])
    assert any(part in str(found.value) for part in says.split("|"))
