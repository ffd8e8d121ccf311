import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.rows import (
    LFU,
    LRU,
    SGD,
    TTL,
    AdaGrad,
    Adam,
    Always,
    Constant,
    L2Below,
    MaxRows,
    MinCount,
    Probability,
    TableSpec,
    Uniform,
    Zeros,
    table_key,
)

FULL = TableSpec(
    name="clicks",
    dim=16,
    weight_dtype="bf16",
    initializer=Uniform(low=-0.1, high=0.1),
    optimizer=Adam(lr=0.1),
    admission=MinCount(n=3),
    eviction=LFU(decay_steps=100),
    expiry=(TTL(seconds=60.0), MaxRows(n=10, by="lfu"), L2Below(norm=0.1)),
    expected_rows=1000,
)


def test_round_trip() -> None:
    for spec in (FULL, TableSpec(name="t", dim=4), FULL.replace(admission=Probability(p=0.5), expiry=())):
        assert TableSpec.from_json(spec.to_json()) == spec


def test_defaults() -> None:
    spec = TableSpec(name="t", dim=64)
    assert (spec.admission, spec.eviction, spec.expiry) == (Always(), LRU(), ())
    assert spec.layout.record_bytes == 272
    assert spec.key(5) == table_key("t", 5)


def test_layout_follows_the_optimizer() -> None:
    assert FULL.layout.weight_dtype == "bf16"
    assert [field.name for field in FULL.layout.state] == ["m", "v"]
    assert TableSpec(name="t", dim=4, optimizer=SGD()).layout.state == ()


def test_initial_record() -> None:
    spec = TableSpec(name="t", dim=4, optimizer=AdaGrad(initial_accumulator=0.25))
    views = spec.layout.views(spec.initial_record()[None])
    assert (views.state["v"] == np.float32(0.25)).all()
    assert not views.weight.any() and views.count[0] == 0 and views.last_step[0] == 0


def test_lfu_halves_an_unused_rows_count() -> None:
    assert [LFU(decay_steps=10).effective_count(8, 100, now) for now in (100, 109, 110, 129, 10_000)] == [8, 8, 4, 2, 0]
    assert LFU().effective_count(8, 0, 10_000) == 8


def test_probability_threshold() -> None:
    assert [Probability(p=p).threshold for p in (1.0, 0.5, 2.0**-32)] == [2**32, 2**31, 1]


def test_kinds_are_frozen() -> None:
    assert [cls.kind for cls in (Always, MinCount, Probability)] == [0, 1, 2]
    assert [cls.kind for cls in (LRU, LFU)] == [0, 1]
    assert [cls.kind for cls in (TTL, MaxRows, L2Below)] == [0, 1, 2]


@pytest.mark.parametrize("name", ["", "a/b", "a\0b", ".", "..", "x" * 201, "\u00e9" * 101, "\ud800", 3])
def test_names_that_cannot_be_a_table(name: object) -> None:
    with pytest.raises(ConfigError, match=r"TableSpec\.name: found"):
        TableSpec(name=name, dim=4)  # type: ignore[arg-type]


def test_the_longest_name() -> None:
    assert TableSpec(name="\u00e9" * 100, dim=4).key(0) != 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TableSpec(name="t", dim=0), r"TableSpec\.dim: found 0"),
        (lambda: TableSpec(name="t", dim=4, weight_dtype="fp64"), r"TableSpec\.weight_dtype"),
        (lambda: TableSpec(name="t", dim=4, initializer=SGD()), r"TableSpec\.initializer.*instance of Initializer"),
        (lambda: TableSpec(name="t", dim=4, optimizer=Zeros()), r"TableSpec\.optimizer"),
        (lambda: TableSpec(name="t", dim=4, admission=LRU()), r"TableSpec\.admission"),
        (lambda: TableSpec(name="t", dim=4, eviction=Always()), r"TableSpec\.eviction"),
        (lambda: TableSpec(name="t", dim=4, expiry=TTL(steps=1)), r"TableSpec\.expiry.*a tuple of Expiry"),
        (lambda: TableSpec(name="t", dim=4, expiry=(TTL(steps=1), TTL(steps=2))), "at most one of each class"),
        (lambda: TableSpec(name="t", dim=4, expected_rows=-1), r"TableSpec\.expected_rows"),
        (
            lambda: TableSpec(name="t", dim=4, weight_dtype="fp16", initializer=Constant(value=65520.0)),
            r"TableSpec\.initializer.*values that fp16 holds",
        ),
        (
            lambda: TableSpec(name="t", dim=4, weight_dtype="bf16", initializer=Constant(value=3.4e38)),
            r"TableSpec\.initializer.*values that bf16 holds",
        ),
        (lambda: MinCount(n=0), r"MinCount\.n: found 0"),
        (lambda: MinCount(n=2, expected_ids=0), r"MinCount\.expected_ids"),
        (lambda: Probability(p=0.0), r"Probability\.p: found 0\.0, expected a finite number > 0\.0 and <= 1\.0"),
        (lambda: Probability(p=1e-12), r"Probability\.p.*2\*\*-32"),
        (lambda: LFU(decay_steps=-1), r"LFU\.decay_steps"),
        (TTL, r"TTL\.seconds: found 0\.0.*exactly one"),
        (lambda: TTL(steps=1, seconds=1.0), r"TTL\.seconds: found 1\.0.*exactly one"),
        (lambda: TTL(seconds=-1.0), r"TTL\.seconds"),
        (lambda: MaxRows(n=0), r"MaxRows\.n"),
        (lambda: MaxRows(n=1, by="ttl"), r"MaxRows\.by: found 'ttl', expected 'lru' or 'lfu'"),
        (lambda: L2Below(norm=0.0), r"L2Below\.norm"),
        (lambda: L2Below(norm=1.0, min_count=0), r"L2Below\.min_count"),
    ],
)
def test_what_cannot_work_is_an_error(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]
