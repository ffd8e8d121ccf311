"""What features refuse, and what they say: file, row, column, feature."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepwell.config import Config
from stepwell.data import (
    ArraySource,
    BatchReader,
    BinFeature,
    Column,
    Columns,
    CrossFeature,
    DenseFeature,
    Feature,
    FeatureSet,
    IdFeature,
    ReaderConfig,
    SequenceFeature,
    Strings,
    criteo_features,
)
from stepwell.errors import BadRows, ConfigError, DataError

ID = IdFeature(name="f", side="user", column="c", table="t")
BIN = BinFeature(name="bin", side="item", column="c", table="t", boundaries=(0.0,))
DENSE = DenseFeature(name="d", side="user", columns=("c",))
SEQUENCE = SequenceFeature(name="s", side="user", column="c", table="t", max_len=2)
CROSS = CrossFeature(name="x", side="user", features=("f", "g"), table="t")
INTS = Column(np.array([1, 2, 3]))
FLOATS = Column(np.array([1.0, 2.0, math.inf]))
LISTS = Column(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
TEXT = Column(Strings(np.frombuffer(b"1fxyz0", np.uint8), np.array([0, 2, 5, 6])))
SOME = Column(INTS.values, valid=np.array([True, False, True]))


def compute(feature: Feature, **columns: Column) -> None:
    wanted = (feature,) if not isinstance(feature, DenseFeature) else (feature, ID.replace(column="i"))
    FeatureSet(features=wanted).compute(Columns(columns | {"i": INTS}, 3, ("day_0.tsv", 1000)))


@pytest.mark.parametrize(
    ("feature", "columns", "message"),
    [
        (ID, {"c": TEXT}, r"holds strings, feature 'f' expects ints: say hash='hex' or hash='xxh64'"),
        (ID, {"c": FLOATS}, r"holds float64, feature 'f' expects ints"),
        (ID.replace(hash="hex"), {"c": FLOATS}, r"holds float64, feature 'f' expects strings or ints"),
        (ID.replace(weights="w"), {"c": INTS, "w": TEXT}, r"holds strings, feature 'f' expects numbers"),
        (ID.replace(weights="w"), {"c": INTS, "w": LISTS}, r"holds lists of int64, feature 'f' expects num"),
        (
            ID.replace(weights="w", max_ids=9),
            {"c": LISTS, "w": INTS},
            r".* expects lists of numbers, one for each id of",
        ),
        (SEQUENCE, {"c": INTS}, r"holds int64, feature 's' expects lists"),
        (BIN, {"c": TEXT}, r"holds strings, feature 'bin' expects numbers"),
        (BIN, {"c": LISTS}, r"holds lists of int64, feature 'bin' expects one number per row"),
        (DENSE, {"c": TEXT}, r"holds strings, feature 'd' expects numbers"),
        (DENSE, {"c": LISTS}, r"holds lists of int64, feature 'd' expects one number per row"),
        (DENSE.replace(dim=2), {"c": INTS}, r"holds int64, feature 'd' expects lists of 2 numbers"),
        (DENSE, {"c": Column(np.array(["a", "b", "c"]))}, r"holds <U1, feature 'd' expects numbers"),
        (DENSE, {"c": Column(np.array(["2020-01-01"] * 3, "M8[s]"))}, r"holds datetime64\[s\], feature 'd' expects nu"),
    ],
)
def test_a_column_of_the_wrong_kind(feature: Feature, columns: dict[str, Column], message: str) -> None:
    with pytest.raises(DataError, match=r"^day_0.tsv, row 1000: column '[cw]' " + message) as error:
        compute(feature, **columns)
    assert not isinstance(error.value, BadRows)


def test_a_list_cannot_be_crossed() -> None:
    features = (ID.replace(max_ids=5), ID.replace(name="g", column="i"), CROSS)
    with pytest.raises(DataError, match=r"column 'c' holds lists of int64, feature 'x' expects one value per row"):
        FeatureSet(features=features).compute(Columns({"c": LISTS, "i": INTS}, 3))


@pytest.mark.parametrize(
    ("feature", "columns", "rows", "message"),
    [
        (
            ID.replace(hash="hex"),
            {"c": TEXT},
            (1,),
            r"row 1001: column 'c' holds b'xyz', feature 'f' expects 1 to 16 h",
        ),
        (ID, {"c": LISTS}, (0,), r"row 1000: column 'c' holds 2 ids, feature 'f' expects at most 1 \(max_ids\)"),
        (ID.replace(missing="error"), {"c": SOME}, (1,), r"row 1001: column 'c' holds nothing, .*missing='error'"),
        (
            ID.replace(missing="error", max_ids=2),
            {"c": LISTS},
            (1,),
            r"row 1001: column 'c' holds nothing, feature 'f' expects a value in every row",
        ),
        (SEQUENCE.replace(missing="error"), {"c": LISTS}, (1,), r"row 1001: column 'c' holds nothing"),
        (
            ID.replace(max_ids=2, weights="w"),
            {"c": LISTS, "w": Column(np.zeros(3), np.array([0, 1, 2, 3]))},
            (0, 1),
            r"row 1000: column 'w' holds 1 weights, feature 'f' expects one for each id of column 'c' \(1 more such "
            r"rows up to day_0.tsv, row 1001\)",
        ),
        (
            ID.replace(max_ids=2, weights="w"),
            {"c": LISTS, "w": Column(np.array([1, 2, math.nan]), LISTS.offsets)},
            (2,),
            r"row 1002: column 'w' holds a weight that is no number, feature 'f' expects finite weights",
        ),
        (ID.replace(weights="w"), {"c": INTS, "w": SOME}, (1,), r"row 1001: column 'w' holds a weight that is no"),
        (ID.replace(weights="w"), {"c": INTS, "w": Column(np.array([1, 1e300, 1]))}, (1,), r"finite weights"),
        (BIN.replace(missing="error"), {"c": SOME}, (1,), r"row 1001: column 'c' holds nothing"),
        (DENSE, {"c": FLOATS}, (2,), r"row 1002: column 'c' holds inf, feature 'd' expects a finite number"),
        (DENSE.replace(clip=(0.0, 1.0)), {"c": FLOATS}, (2,), r"holds inf"),
        (DENSE.replace(log1p=True), {"c": FLOATS}, (2,), r"holds inf"),
        (DENSE, {"c": Column(np.array([1, -1e39, 2]))}, (1,), r"row 1001: column 'c' holds -1e\+39, .* within float32"),
        (DENSE.replace(missing="error"), {"c": SOME}, (1,), r"row 1001: column 'c' holds nothing"),
        (DENSE.replace(missing="error"), {"c": Column(np.array([1, 2, math.nan]))}, (2,), r"row 1002: .*nothing"),
        (DENSE.replace(dim=2), {"c": LISTS}, (2,), r"row 1002: column 'c' holds 1 numbers, feature 'd' expects 2"),
    ],
)
def test_rows_that_cannot_be_used(
    feature: Feature, columns: dict[str, Column], rows: tuple[int, ...], message: str
) -> None:
    with pytest.raises(BadRows, match=r"^day_0.tsv, .*" + message) as error:
        compute(feature, **columns)
    assert error.value.rows == rows


def test_a_bad_string_within_a_list_names_its_row() -> None:
    column = Column(TEXT.values, np.array([0, 0, 1, 3]))
    with pytest.raises(BadRows, match=r"row 1002: column 'c' holds b'xyz'") as error:
        compute(SEQUENCE.replace(hash="hex"), c=column)
    assert error.value.rows == (2,)


@pytest.mark.parametrize("text", [b"", b"0" * 17, b"0x1f", b"-1", b" 1", b"1g", b"\xff"])
def test_what_is_not_hex(text: bytes) -> None:
    column = Column(Strings(np.frombuffer(text, np.uint8), np.array([0, len(text)])))
    with pytest.raises(BadRows, match=r"^row 0: .* expects 1 to 16 hex digits"):
        FeatureSet(features=(ID.replace(hash="hex"),)).compute(Columns({"c": column}, 1))


def test_a_missing_column_names_the_file_and_the_feature() -> None:
    with pytest.raises(ConfigError, match=r"day_0.tsv: found no column 'c', only i; feature 'f' takes it"):
        compute(ID)


def test_an_infinite_value_that_is_missing_anyway_is_no_error() -> None:
    compute(DENSE, c=Column(FLOATS.values, valid=np.array([True, True, False])))


def test_compute_needs_statistics() -> None:
    with pytest.raises(ConfigError, match=r"feature 'd': found standardise without mean and std, .* FeatureSet.fit"):
        compute(DENSE.replace(standardise=True), c=INTS)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column(np.full(3, math.nan)), r"day_0.tsv: column 'c' holds nothing, expected values to fit to"),
        (FLOATS, r"row 1002: column 'c' holds inf"),
    ],
)
def test_fit_needs_values(column: Column, message: str) -> None:
    features = FeatureSet(features=(ID.replace(column="i"), DENSE.replace(standardise=True)))
    with pytest.raises(DataError, match=message):
        features.fit(Columns({"c": column, "i": INTS}, 3, ("day_0.tsv", 1000)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ID.replace(name=""), r"IdFeature\.name: found '', expected a name"),
        (lambda: ID.replace(side="both"), r"IdFeature\.side: found 'both', expected 'user' or 'item'"),
        (lambda: ID.replace(table=""), r"IdFeature\.table"),
        (lambda: ID.replace(column=""), r"IdFeature\.column"),
        (lambda: ID.replace(pooling="none"), r"IdFeature\.pooling: .*a SequenceFeature is not pooled"),
        (lambda: ID.replace(hash="md5"), r"IdFeature\.hash: found 'md5', expected 'none', 'hex' or 'xxh64'"),
        (lambda: ID.replace(max_ids=0), r"IdFeature\.max_ids"),
        (lambda: ID.replace(missing="zero"), r"IdFeature\.missing: found 'zero', expected 'none', 'error' or an id"),
        (lambda: ID.replace(missing=1 << 63), r"IdFeature\.missing"),
        (lambda: ID.replace(missing=True), r"IdFeature\.missing"),
        (lambda: ID.replace(weights=None), r"IdFeature\.weights"),
        (lambda: SEQUENCE.replace(max_len=0), r"SequenceFeature\.max_len"),
        (lambda: SEQUENCE.replace(keep="middle"), r"SequenceFeature\.keep"),
        (lambda: CROSS.replace(features=("f",)), r"CrossFeature\.features: .* two or more"),
        (lambda: CROSS.replace(features=("f", "f")), r"CrossFeature\.features"),
        (lambda: BIN.replace(boundaries=()), r"BinFeature\.boundaries"),
        (lambda: BIN.replace(boundaries=(1.0, 1.0)), r"BinFeature\.boundaries: .* rising"),
        (lambda: BIN.replace(boundaries=(math.nan,)), r"BinFeature\.boundaries"),
        (lambda: DENSE.replace(columns=()), r"DenseFeature\.columns"),
        (lambda: DENSE.replace(columns=("c", "c")), r"DenseFeature\.columns: .* different names"),
        (lambda: DENSE.replace(dim=0), r"DenseFeature\.dim"),
        (lambda: DENSE.replace(mean=(1.0,), std=(1.0,)), r"DenseFeature\.mean: .* nothing unless standardise is set"),
        (lambda: DENSE.replace(standardise=True, mean=(1.0, 2.0), std=(1.0, 1.0)), r"DenseFeature\.mean: .* 1 finite"),
        (lambda: DENSE.replace(standardise=True, mean=(1.0,)), r"DenseFeature\.std: .* as many"),
        (lambda: DENSE.replace(standardise=True, mean=(1.0,), std=(0.0,)), r"DenseFeature\.std: .* > 0"),
        (lambda: DENSE.replace(clip=(1.0, 1.0)), r"DenseFeature\.clip: .* low < high"),
        (lambda: DENSE.replace(clip=(1.0,)), r"DenseFeature\.clip"),
        (lambda: DENSE.replace(missing=math.nan), r"DenseFeature\.missing"),
        (lambda: DENSE.replace(missing="none"), r"DenseFeature\.missing"),
        (lambda: FeatureSet(features=()), r"found no feature with ids"),
        (lambda: FeatureSet(features=(DENSE,)), r"found no feature with ids"),
        (lambda: FeatureSet(features=(ID, DENSE.replace(name="f"))), r"found two features named 'f'"),
        (lambda: FeatureSet(features=(ID, "g")), r"FeatureSet\.features"),
        (lambda: FeatureSet(features=(ID, CROSS)), r"'x': found 'g' to cross, expected .* declared before it: 'f'"),
        (lambda: FeatureSet(features=(ID, CROSS, ID.replace(name="g"))), r"'x': found 'g' to cross"),
        (lambda: FeatureSet(features=(ID, SEQUENCE.replace(name="g"), CROSS)), r"the SequenceFeature 'g' to cross"),
        (lambda: FeatureSet(features=(ID, DENSE.replace(name="g"), CROSS)), r"the DenseFeature 'g' to cross"),
        (lambda: FeatureSet(features=(ID, BIN.replace(name="g"), CROSS)), r"with the item feature 'g' to cross"),
        (lambda: criteo_features(num_user_ints=14), r"num_user_ints: found 14, expected an int from 0 to 13"),
        (lambda: criteo_features(num_user_cats=-1), r"num_user_cats: found -1"),
    ],
)
def test_declarations_that_cannot_work(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_class_of_ones_own_is_refused() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True, kw_only=True, slots=True)
    class OwnFeature(IdFeature):
        pass

    assert issubclass(OwnFeature, Config)
    with pytest.raises(ConfigError, match=r"FeatureSet\.features: .* expected a tuple of IdFeature, SequenceFeature"):
        FeatureSet(features=(OwnFeature(name="o", side="user", column="c", table="t"),))


def test_a_reader_skips_the_rows_that_any_feature_refuses() -> None:
    features = FeatureSet(
        features=(
            ID.replace(hash="hex"),
            ID.replace(name="g", column="g", missing="error"),
            DENSE.replace(columns=("d",)),
        )
    )
    columns = {
        "c": ["1", "zz", "3", "4", "5", "6"],
        "g": np.ma.array([1, 2, 3, 4, 5, 6], mask=[0, 0, 0, 1, 0, 0]),
        "d": np.array([0, 0, 0, 0, math.inf, 6]),
        "y": np.zeros(6),
    }
    config = ReaderConfig(batch_size=6, on_bad_row="skip")
    with BatchReader(ArraySource(columns=columns), features, ["y"], config) as reader:
        (batch,) = reader
    assert batch.ids.values.tolist() == [1, 3, 6, 1, 3, 6] and batch.dense.tolist() == [[0], [0], [6]]
    assert reader.skipped == 3
    strict = BatchReader(ArraySource(columns=columns), features, ["y"], config.replace(on_bad_row="raise"))
    with strict, pytest.raises(BadRows, match=r"row 4: column 'd' holds inf"):
        next(iter(strict))
