"""FeatureSet against a plain reading of its contract, sample by sample."""

import itertools
import math
import struct
from typing import Any

import numpy as np
import pytest

from stepwell.data import (
    BinFeature,
    Column,
    Columns,
    CrossFeature,
    DenseFeature,
    Feature,
    FeatureSet,
    IdFeature,
    SequenceFeature,
    Strings,
    criteo_features,
)
from stepwell.native import ThreadPool
from stepwell.rows import xxh64

USER, ITEM = "user", "item"


def strings(values: list[bytes | None]) -> Column:
    joined = [value or b"" for value in values]
    data = np.frombuffer(b"..." + b"".join(joined), np.uint8)
    offsets = 3 + np.cumsum([0, *map(len, joined)], dtype=np.int64)  # the first need not be 0
    valid = np.array([value is not None for value in values])
    return Column(Strings(data, offsets), valid=None if valid.all() else valid)


def scalars(values: list[Any], dtype: str) -> Column:
    valid = np.array([value is not None for value in values])
    held = np.array([77 if value is None else value for value in values], dtype)  # arbitrary where missing
    return Column(held, valid=None if valid.all() else valid)


def lists(values: list[list[Any] | None], dtype: str) -> Column:
    offsets = np.cumsum([0, *(len(value or []) for value in values)], dtype=np.int64)
    held = np.array([x for value in values for x in value or []], dtype)
    valid = np.array([value is not None for value in values])
    return Column(held, offsets, None if valid.all() else valid)


def string_lists(values: list[list[bytes]]) -> Column:
    flat = strings([x for value in values for x in value])
    return Column(flat.values, np.cumsum([0, *map(len, values)], dtype=np.int64))


def signed(bits: int) -> int:
    return bits - (1 << 64) if bits >= 1 << 63 else bits


def bytes_of(ids: list[int]) -> bytes:
    return b"".join(struct.pack("<q", id_) for id_ in ids)


def compute(features: tuple[Feature, ...], columns: dict[str, Column], **kwargs: Any) -> Any:
    num_rows = next(iter(columns.values())).num_rows
    jagged, dense = FeatureSet(features=features).compute(Columns(columns, num_rows), **kwargs)
    jagged.check()
    bags = {}
    for name in jagged.features:
        values, offsets = jagged.of(name)
        ends = offsets.tolist()
        bags[name] = [values[a:b].tolist() for a, b in itertools.pairwise(ends)]
    return jagged, bags, dense


def id_feature(name: str = "f", side: str = USER, **kwargs: Any) -> IdFeature:
    return IdFeature(**{"name": name, "side": side, "column": "c", "table": "t", **kwargs})


EDGES = [0, 1, -1, 7, (1 << 63) - 1, -(1 << 63)]


def test_ints_are_ids_as_they_are() -> None:
    _, bags, dense = compute((id_feature(),), {"c": scalars([*EDGES, None], "int64")})
    assert bags["f"] == [[id_] for id_ in EDGES] + [[]]
    assert dense.shape == (7, 0) and dense.dtype == np.float32


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "bool"])
def test_smaller_ints_are_the_same_ids(dtype: str) -> None:
    assert compute((id_feature(),), {"c": scalars([0, 1, 1], dtype)})[1]["f"] == [[0], [1], [1]]


def test_uint64_is_taken_by_its_bits() -> None:
    assert compute((id_feature(),), {"c": scalars([3, (1 << 64) - 1], "uint64")})[1]["f"] == [[3], [-1]]


def test_hex() -> None:
    text = [b"0", b"68fd1e64", b"FFFFffffFFFFffff", None, b"8000000000000000", b"00000000000000aB"]
    _, bags, _ = compute((id_feature(hash="hex"),), {"c": strings(text)})
    assert bags["f"] == [[signed(int(x, 16))] if x is not None else [] for x in text]
    ints = scalars([5, -9], "int64")
    assert compute((id_feature(hash="hex"),), {"c": ints})[1]["f"] == [[5], [-9]]


def test_strings_hash_as_the_reference_does() -> None:
    rng = np.random.default_rng(5)
    text = [bytes(rng.integers(0, 256, size, dtype=np.uint8)) for size in range(70)] + [None, b"", b"x" * 1000]
    _, bags, _ = compute((id_feature(hash="xxh64"),), {"c": strings(text)})
    assert bags["f"] == [[signed(xxh64(x))] if x is not None else [] for x in text]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"as", 0x1C330FB2D66BE179), (b"asd", 0x631C37CE72A97393),
     (b"asdf", 0x415872F599CEA71E),
     (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96)],
)  # fmt: skip
def test_published_vectors_of_xxh64(text: bytes, hashed: int) -> None:
    assert compute((id_feature(hash="xxh64"),), {"c": strings([text])})[1]["f"] == [[signed(hashed)]]


def test_ints_hash_by_their_eight_bytes() -> None:
    _, bags, _ = compute((id_feature(hash="xxh64"),), {"c": scalars(EDGES, "int64")})
    assert bags["f"] == [[signed(xxh64(struct.pack("<q", id_)))] for id_ in EDGES]
    _, narrow, _ = compute((id_feature(hash="xxh64"),), {"c": scalars([7, -1], "int32")})
    assert narrow["f"] == [bags["f"][3], bags["f"][2]]


def test_lists_of_ids_weights_and_missing_rows() -> None:
    ids, weights = [[4, 4, 5], [], None, [6]], [[0.5, 2.0, -1.0], [], [], [3.0]]
    columns = {"c": lists(ids, "int64"), "w": lists(weights, "float64"), "d": scalars([1, 2, None, 4], "int32")}
    features = (
        id_feature("plain", column="d"),
        id_feature("weighted", max_ids=3, weights="w"),
        id_feature("filled", max_ids=3, weights="w", missing=-5),
    )
    jagged, bags, _ = compute(features, columns)
    assert bags["plain"] == [[1], [2], [], [4]]
    assert bags["weighted"] == [[4, 4, 5], [], [], [6]]
    assert bags["filled"] == [[4, 4, 5], [-5], [-5], [6]]
    assert jagged.weights is not None
    assert jagged.weights.tolist() == [1, 1, 1, 0.5, 2, -1, 3, 0.5, 2, -1, 1, 1, 3]
    assert compute((features[0],), columns)[0].weights is None


def test_scalar_weights() -> None:
    columns = {"c": scalars([1, None, 3], "int64"), "w": scalars([0.5, None, 2], "float32")}
    jagged, bags, _ = compute((id_feature(weights="w"), id_feature("g", weights="w", missing=9)), columns)
    assert bags == {"f": [[1], [], [3]], "g": [[1], [9], [3]]}
    assert jagged.weights.tolist() == [0.5, 2, 0.5, 1, 2]


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("missing", ["none", 8])
def test_sequences(keep: str, missing: Any) -> None:
    values = [[1, 2, 3, 4], None, [5], [], [6, 7], [1, 2, 3]]
    feature = SequenceFeature(name="s", side=USER, column="c", table="t", max_len=2, keep=keep, missing=missing)
    _, bags, _ = compute((feature, id_feature("whole", max_ids=4)), {"c": lists(values, "int64")})
    kept = [(value or [])[:2] if keep == "first" else (value or [])[-2:] for value in values]
    assert bags["s"] == [value or ([8] if missing == 8 else []) for value in kept]
    assert bags["whole"] == [value or [] for value in values]


def test_sequences_of_strings() -> None:
    feature = SequenceFeature(name="s", side=USER, column="c", table="t", max_len=2, hash="xxh64")
    _, bags, _ = compute((feature,), {"c": string_lists([[b"a", b"bc", b""], [], [b"a"]])})
    assert bags["s"] == [[signed(xxh64(b"bc")), signed(xxh64(b""))], [], [signed(xxh64(b"a"))]]


def test_bins() -> None:
    feature = BinFeature(name="b", side=ITEM, column="c", boundaries=(-1.0, 0.5, 10), table="t")
    values = [-2, -1, 0.5, 0.4, 10, math.inf, math.nan, None, -math.inf]
    _, bags, _ = compute((feature, feature.replace(name="f", missing=99)), {"c": scalars(values, "float64")})
    assert bags["b"] == [[0], [1], [2], [1], [3], [3], [], [], [0]]
    assert bags["f"][6:8] == [[99], [99]]


def test_crosses() -> None:
    columns = {"c": scalars([1, 2, None, 1], "int64"), "d": scalars([0.1, 5, 5, None], "float32")}
    bins = BinFeature(name="bin", side=USER, column="d", boundaries=(1.0,), table="t")
    ab = CrossFeature(name="ab", side=ITEM, features=("a", "bin"), table="x")
    more = (
        ab.replace(name="ba", features=("bin", "a")),
        ab.replace(name="filled", missing=3),
        ab.replace(name="twice", features=("ab", "a", "bin")),
        id_feature("a5", missing=5),
        ab.replace(name="given", features=("a5", "bin")),
    )
    _, bags, _ = compute((id_feature("a"), bins, ab, *more), columns)

    def cross(*ids: int) -> list[int]:
        return [signed(xxh64(bytes_of(list(ids))))]

    assert bags["ab"] == [cross(1, 0), cross(2, 1), [], []]
    assert bags["ba"] == [cross(0, 1), cross(1, 2), [], []]
    assert bags["filled"] == [cross(1, 0), cross(2, 1), [3], [3]]
    assert bags["twice"] == [cross(*cross(1, 0), 1, 0), cross(*cross(2, 1), 2, 1), [], []]
    assert bags["given"] == [cross(1, 0), cross(2, 1), cross(5, 1), []]


def log1p(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


def test_dense_against_the_mathematics() -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.normal(size=500) * 10.0 ** rng.integers(-30, 30, 500), np.arange(-300.0, 3000.0)])
    feature = DenseFeature(name="d", side=USER, columns=("c",), log1p=True)
    _, _, dense = compute((id_feature(column="i"), feature), {
        "c": Column(values), "i": Column(np.zeros(len(values), np.int64))
    })  # fmt: skip
    expected = np.array([log1p(value) for value in values])
    np.testing.assert_allclose(dense[:, 0], expected, rtol=7e-8)  # half a unit of float32
    assert (dense[:, 0] == expected.astype(np.float32)).mean() > 0.999


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "uint64", "float32", "float64", "bool"])
def test_dense_rules_in_their_order(dtype: str) -> None:
    values = [0, 1, 1] if dtype == "bool" else [0, 1, 100]
    feature = DenseFeature(
        name="d", side=USER, columns=("c",), log1p=True, standardise=True, mean=(0.25,), std=(0.5,), clip=(-0.4, 3.0),
        missing=2.0,
    )  # fmt: skip
    columns = {"c": scalars([*values, None], dtype), "i": Column(np.zeros(4, np.int64))}
    _, _, dense = compute((id_feature(column="i"), feature), columns)
    expected = [min(max((log1p(value) - 0.25) / 0.5, -0.4), 3.0) for value in [*values, 2.0]]
    np.testing.assert_allclose(dense[:, 0], np.array(expected, np.float32), rtol=1e-6)
    assert dense[0, 0] == np.float32(-0.4)


GOLDEN = {  # float32 bits of sign(v) * log(1 + |v|): the same on any machine
    -0.0: 0x80000000,
    1.0: 0x3F317218,
    -3.0: 0xBFB17218,
    1e-12: 0x2B8CBCCC,
    0.1: 0x3DC331FC,
    12345.678: 0x4116BD00,
    1e300: 0x442CB1A2,
}


def test_golden_bits_of_log1p() -> None:
    feature = DenseFeature(name="d", side=USER, columns=("c",), log1p=True)
    columns = {"c": Column(np.array(list(GOLDEN))), "i": Column(np.zeros(len(GOLDEN), np.int64))}
    _, _, dense = compute((id_feature(column="i"), feature), columns)
    assert [hex(bits) for bits in dense[:, 0].view(np.uint32)] == [hex(bits) for bits in GOLDEN.values()]


def test_dense_columns_user_side_first_and_vectors() -> None:
    columns = {
        "i": Column(np.zeros(2, np.int64)),
        "p": scalars([1, 2], "int32"),
        "q": scalars([3.5, math.nan], "float32"),
        "v": lists([[1.0, math.nan, 3.0], None], "float64"),
    }
    features = (
        DenseFeature(name="item", side=ITEM, columns=("q", "p"), missing=-1.0),
        id_feature(column="i"),
        DenseFeature(name="vector", side=USER, columns=("v",), dim=3, missing=9.0),
        DenseFeature(name="last", side=USER, columns=("p",)),
    )
    _, _, dense = compute(features, columns)
    assert dense.tolist() == [[1, 9, 3, 1, 3.5, 1], [9, 9, 9, 2, -1, 2]]
    chosen = FeatureSet(features=features)
    assert chosen.dense_dims == {"user": 4, "item": 2}
    assert [feature.name for feature in chosen.dense_features] == ["vector", "last", "item"]
    assert chosen.columns == ("q", "p", "i", "v")


def test_fit_freezes_statistics() -> None:
    rng = np.random.default_rng(1)
    values = np.abs(rng.normal(size=1000)) * 50
    values[::10] = math.nan
    columns = Columns(
        {"c": Column(values), "k": Column(np.full(1000, 4, np.int32)), "i": Column(np.arange(1000))}, 1000
    )
    dense = DenseFeature(name="d", side=USER, columns=("c", "k"), log1p=True, standardise=True)
    loose = FeatureSet(features=(id_feature(column="i"), dense))
    assert not loose.is_fitted
    fitted = loose.fit(columns)
    assert fitted.is_fitted and FeatureSet.from_json(fitted.to_json()) == fitted
    known = np.log1p(values[~np.isnan(values)])
    frozen = fitted.dense_features[0]
    np.testing.assert_allclose(frozen.mean, [known.mean(), math.log(5)], rtol=1e-6)
    np.testing.assert_allclose(frozen.std, [known.std(), 1.0], rtol=1e-6)
    out = fitted.compute(columns)[1]
    there = out[~np.isnan(values), 0]
    assert abs(there.mean()) < 1e-6 and abs(there.std() - 1) < 1e-6 and abs(out[:, 1]).max() < 1e-6
    missing = out[np.isnan(values), 0]  # 0 by rule, then standardised like any other
    np.testing.assert_allclose(missing, -known.mean() / known.std(), rtol=1e-6)


def mixed_columns(n: int) -> tuple[tuple[Feature, ...], dict[str, Column]]:
    rng = np.random.default_rng(n)
    some = rng.random(n) < 0.8
    columns = {
        "int": Column(rng.integers(-9, 9, n), valid=some),
        "text": strings([b"v%d" % value if there else None for value, there in zip(range(n), some, strict=True)]),
        "hex": strings([b"%x" % value for value in rng.integers(0, 1 << 40, n)]),
        "list": lists([list(range(row % 5)) for row in range(n)], "int64"),
        "float": Column(np.where(some, rng.normal(size=n) * 100, np.nan)),
    }
    features = (
        id_feature("int", column="int"),
        id_feature("text", column="text", hash="xxh64", missing=1),
        id_feature("hex", column="hex", hash="hex", side=ITEM),
        SequenceFeature(name="list", side=USER, column="list", table="t", max_len=3),
        BinFeature(name="bin", side=USER, column="float", boundaries=(-50.0, 0.0, 50.0), table="b"),
        CrossFeature(name="cross", side=ITEM, features=("int", "hex"), table="x"),
        DenseFeature(name="dense", side=USER, columns=("float", "int"), log1p=True, clip=(-4.0, 4.0)),
    )
    return features, columns


def part_of(columns: dict[str, Column], begin: int, end: int) -> dict[str, Column]:
    def cut(column: Column) -> Column:
        valid = column.valid[begin:end] if column.valid is not None else None
        if column.offsets is not None:
            offsets = column.offsets[begin : end + 1]
            return Column(column.values[offsets[0] : offsets[-1]], offsets - offsets[0], valid)
        if isinstance(column.values, Strings):
            return Column(Strings(column.values.data, column.values.offsets[begin : end + 1]), valid=valid)
        return Column(column.values[begin:end], valid=valid)

    return {name: cut(column) for name, column in columns.items()}


def test_a_row_has_the_same_bits_alone_in_a_batch_and_on_threads() -> None:
    features, columns = mixed_columns(20_000)  # several blocks of rows
    _, bags, dense = compute(features, columns)
    _, pooled, pooled_dense = compute(features, columns, pool=ThreadPool(3))
    assert pooled == bags and pooled_dense.tobytes() == dense.tobytes()
    for begin, end in [(0, 1), (7, 8), (19_999, 20_000), (100, 333)]:
        _, some, some_dense = compute(features, part_of(columns, begin, end))
        assert some == {name: values[begin:end] for name, values in bags.items()}
        assert some_dense.tobytes() == dense[begin:end].tobytes()


def test_it_is_reproduced_from_its_json() -> None:
    features, columns = mixed_columns(500)
    chosen = FeatureSet(features=features)
    again = FeatureSet.from_json(chosen.to_json(indent=1))
    assert again == chosen
    rows = Columns(columns, 500)
    (ids, dense), (ids_again, dense_again) = chosen.compute(rows), again.compute(rows)
    assert ids.values.equal(ids_again.values) and ids.offsets.equal(ids_again.offsets)
    assert dense.tobytes() == dense_again.tobytes()


def test_no_rows() -> None:
    features, columns = mixed_columns(4)
    jagged, _, dense = compute(features, part_of(columns, 0, 0))
    assert jagged.batch_size == 0 and jagged.values.numel() == 0 and dense.shape == (0, 2)


def test_all_missing_gives_no_ids() -> None:
    jagged, bags, _ = compute((id_feature(), id_feature("g")), {"c": scalars([None, None], "int64")})
    assert bags == {"f": [[], []], "g": [[], []]} and jagged.values.numel() == 0


def test_criteo() -> None:
    chosen = criteo_features()
    assert chosen.columns == (*(f"int_{i}" for i in range(1, 14)), *(f"cat_{i}" for i in range(1, 27)))
    assert chosen.dense_dims == {"user": 6, "item": 7}
    assert {feature.table for feature in chosen.features_with_ids} == {f"cat_{i}" for i in range(1, 27)}
    assert {feature.table for feature in criteo_features(table="all").features_with_ids} == {"all"}
    columns = {f"int_{i}": scalars([i, None], "int64") for i in range(1, 14)}
    columns |= {f"cat_{i}": strings([b"%x" % i, None]) for i in range(1, 27)}
    ids, dense = chosen.compute(Columns(columns, 2))
    assert ids.values.tolist() == list(range(1, 27))
    np.testing.assert_allclose(dense, [np.log1p(np.arange(1, 14)), np.zeros(13)], rtol=1e-6)
