"""Synthetic samples: what they promise about their teacher, their ids, and being the same wherever they are read."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from stepwell.data import (
    CRITEO_CATS,
    CRITEO_INTS,
    Columns,
    SyntheticSource,
    TeacherAuc,
    expected_auc,
    teacher_auc,
)
from stepwell.data.columns import I64
from stepwell.data.draws import PowerLaw, Stream
from stepwell.errors import ConfigError, ReadProblem

CRITEO = ("click", "convert", "event_time", "user", *CRITEO_INTS, *CRITEO_CATS, "teacher", "teacher_convert")
SEQUENCE = ("click", "convert", "event_time", "user", "item", "category", "history", "history_category")
SEQUENCE += ("price", "hour", "teacher", "teacher_convert")
NAMES = {"criteo": CRITEO, "sequence": SEQUENCE}


def read(source: SyntheticSource, names: tuple[str, ...] = ()) -> list[Columns]:
    return [source.read(unit, names or NAMES[source.shape]) for unit in source.units()]


def joined(parts: list[Columns], name: str) -> np.ndarray:
    return np.concatenate([np.asarray(part[name].values) for part in parts])


@pytest.mark.parametrize("shape", NAMES)
def test_a_row_is_a_function_of_its_number(shape: str) -> None:
    whole = SyntheticSource(rows=70_000, shape=shape)  # type: ignore[arg-type]
    (first, second), [part] = read(whole), read(whole.replace(first_row=60_000, rows=5_000))
    assert [unit.num_rows for unit in whole.units()] == [65_536, 4_464]
    assert part.num_rows == 5_000 and second.num_rows == 4_464
    for name in NAMES[shape]:
        column, same = first[name].slice(60_000, 65_000), part[name]
        for a, b in ((column.values, same.values), (column.offsets, same.offsets), (column.valid, same.valid)):
            assert (a is None) == (b is None) and np.array_equal(a, b)  # type: ignore[arg-type]
    other = read(whole.replace(seed=1, rows=1000))[0]
    assert not np.array_equal(other["user"].values, first["user"].slice(0, 1000).values)


@pytest.mark.parametrize("shape", NAMES)
@pytest.mark.parametrize("auc", [0.78, 0.82])
def test_the_teacher_is_as_good_as_was_asked(shape: str, auc: float) -> None:
    source = SyntheticSource(rows=200_000, shape=shape, auc=auc, click_rate=0.3)  # type: ignore[arg-type]
    parts = read(source, ("teacher", "teacher_convert", "click", "convert"))
    teacher, click = joined(parts, "teacher"), joined(parts, "click")
    assert teacher_auc(teacher) == pytest.approx(auc, abs=0.004)
    assert roc_auc_score(click, teacher) == pytest.approx(teacher_auc(teacher), abs=0.004)  # standard error 0.001
    assert click.mean() == pytest.approx(teacher.mean(), abs=0.004) == pytest.approx(0.3, abs=0.015)
    assert 0.55 < source.dense_auc < auc - 0.03
    convert = joined(parts, "convert")
    assert convert.mean() == pytest.approx(joined(parts, "teacher_convert").mean(), abs=0.003)
    assert not (convert > click).any()
    summed = TeacherAuc()
    for part in parts:
        summed.update(part["teacher"].values)  # type: ignore[arg-type]
    assert summed.compute() == pytest.approx(teacher_auc(teacher), abs=1e-6)
    assert summed.mean == pytest.approx(teacher.mean(), abs=1e-6)


def test_expected_auc_is_the_mean_over_pairs() -> None:
    rng = np.random.default_rng(0)
    p, scores = rng.random(60), rng.integers(0, 9, 60)
    pairs = p[:, None] * (1 - p[None, :])
    wins = (scores[:, None] > scores[None, :]) + 0.5 * (scores[:, None] == scores[None, :])
    assert expected_auc(scores, p) == pytest.approx((pairs * wins).sum() / pairs.sum(), abs=1e-12)
    labels = (p > 0.5).astype(float)
    assert expected_auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    with pytest.raises(ConfigError, match="two classes"):
        teacher_auc(np.zeros(5))


@pytest.mark.parametrize("alpha", [0.0, 0.8, 1.0, 1.05, 1.2, 2.0])
def test_slots_follow_the_power_law(alpha: float) -> None:
    law = PowerLaw(1000, alpha)
    slots = law.slots(Stream(1).uniform(1 << 20))
    assert slots.max() < 1000
    counts, p = np.bincount(slots, minlength=1000), law.probabilities(1000)
    assert p.sum() == pytest.approx(1, abs=1e-3)
    expected = p * (1 << 20)
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected) + 1e-4 * (1 << 20)).all()
    assert np.polyfit(np.log(np.arange(10, 100)), np.log(p[10:100]), 1)[0] == pytest.approx(-alpha, abs=0.1)


def ids_of(column: str, first_row: int, **changes: object) -> I64:
    source = SyntheticSource(rows=40_000, first_row=first_row, rows_per_day=100_000, **changes)  # type: ignore[arg-type]
    return joined(read(source, (column,)), column)


def test_ids_come_and_go() -> None:
    """Of a column's head a share `churn` is new after a day."""
    for churn in (0.0, 0.3):
        early, late = ids_of("cat_20", 0, churn=churn), ids_of("cat_20", 100_000, churn=churn)
        head = [id_ for id_, count in zip(*np.unique(early, return_counts=True), strict=True) if count > 15]
        assert len(head) > 100
        gone = 1 - np.isin(head, late).mean()
        assert gone == pytest.approx(churn, abs=0.12)
        weekdays = [np.unique(ids_of("cat_1", row, churn=churn)) for row in (0, 100_000)]
        assert np.array_equal(*weekdays)  # small columns stay
    ids = ids_of("cat_26", 0)
    assert ids.min() >= 0 and ids.max() < 1 << 32


def test_histories_are_lists_of_items_with_their_categories() -> None:
    [columns] = read(SyntheticSource(rows=5000, shape="sequence", max_history=200))
    history, categories = columns["history"], columns["history_category"]
    assert history.offsets is not None and np.array_equal(history.offsets, categories.offsets)  # type: ignore[arg-type]
    lengths = np.diff(history.offsets)
    assert lengths.min() >= 1 and 150 < lengths.max() <= 200
    items = np.concatenate([history.values, columns["item"].values])  # type: ignore[list-item]
    of = np.concatenate([categories.values, columns["category"].values])  # type: ignore[list-item]
    pairs = np.unique(np.stack([items, of]), axis=1)
    assert len(np.unique(pairs[0])) == pairs.shape[1]  # an item has one category


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"shape": "other"}, {"auc": 0.99}, {"max_history": 50}, {"vocabulary": 5}, {"alpha": -1}]
)
def test_a_setting_that_cannot_work_is_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"SyntheticSource.{next(iter(wrong))}"):
        SyntheticSource(**({"rows": 10} | wrong))  # type: ignore[arg-type]


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(ReadProblem, match="synthetic criteo, column 'history': found no such column"):
        read(SyntheticSource(rows=10), ("history",))
    source = SyntheticSource(rows=10, shape="sequence", max_history=512)
    assert SyntheticSource.from_json(source.to_json()) == source
