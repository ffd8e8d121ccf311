"""What features ask of the embedding."""

import numpy as np
import pytest
import torch

from stepwell.data import (
    BinFeature,
    Column,
    Columns,
    CrossFeature,
    DenseFeature,
    FeatureSet,
    IdFeature,
    SequenceFeature,
)
from stepwell.embedding import Lookup, SequenceSpec, ShardedEmbedding, SideSpec, lookups
from stepwell.errors import UnknownTable
from stepwell.rows import TableSpec
from stepwell.store import StoreConfig, TieredStore

FEATURES = FeatureSet(
    features=(
        IdFeature(name="item", side="item", column="item", table="items"),
        DenseFeature(name="price", side="item", columns=("price",)),
        IdFeature(name="tags", side="item", column="tags", table="tags", pooling="mean", max_ids=4, weights="scores"),
        SequenceFeature(name="clicked", side="user", column="clicked", table="items", max_len=3),
        BinFeature(name="age", side="user", column="age", boundaries=(18.0, 65.0), table="ages"),
        CrossFeature(name="age_item", side="item", features=("age", "item"), table="crosses"),
        DenseFeature(name="activity", side="user", columns=("visits", "buys")),
    )
)


def open_store(*left_out: str) -> TieredStore:
    dims = {"items": 8, "tags": 4, "ages": 2, "crosses": 6}
    tables = tuple(TableSpec(name=name, dim=dim) for name, dim in dims.items() if name not in left_out)
    return TieredStore(StoreConfig(tables=tables, dram_bytes=8 << 20))


def test_each_feature_with_ids_has_a_lookup() -> None:
    assert lookups(FEATURES) == (
        Lookup(name="item", table="items", side="item", pooling="sum", max_len=1),
        Lookup(name="tags", table="tags", side="item", pooling="mean", max_len=4, weighted=True),
        Lookup(name="clicked", table="items", side="user", pooling="none", max_len=3),
        Lookup(name="age", table="ages", side="user", pooling="sum", max_len=1),
        Lookup(name="age_item", table="crosses", side="item", pooling="sum", max_len=1),
    )
    assert tuple(Lookup.from_json(one.to_json()) for one in lookups(FEATURES)) == lookups(FEATURES)


def test_a_batch_of_features_is_looked_up() -> None:
    def lists(values: list[float], lengths: list[int], dtype: type) -> Column:
        return Column(np.array(values, dtype), np.cumsum([0, *lengths]))

    columns = Columns(
        {
            "item": Column(np.array([5, 6], np.int64)),
            "price": Column(np.array([1.5, 2.5])),
            "tags": lists([1, 2, 3], [1, 2], np.int64),
            "scores": lists([0.5, 1.0, 2.0], [1, 2], np.float32),
            "clicked": lists([5, 6, 7, 8], [4, 0], np.int64),
            "age": Column(np.array([17.0, 70.0])),
            "visits": Column(np.array([3.0, 4.0])),
            "buys": Column(np.array([0.0, 1.0])),
        },
        2,
    )
    ids, dense = FEATURES.compute(columns)
    with open_store() as store:
        embedding = ShardedEmbedding(lookups(FEATURES), store, dense=tuple(FEATURES.dense_dims.values()))
        assert embedding.user_spec == SideSpec(
            dense=2, pooled=(2,), pooled_names=("age",), sequences=(SequenceSpec(name="clicked", dim=8, max_len=3),)
        )
        assert embedding.item_spec == SideSpec(dense=1, pooled=(8, 4, 6), pooled_names=("item", "tags", "age_item"))
        user, item = embedding.eval()(ids, torch.from_numpy(dense))
        assert user.dense.tolist() == [[3, 0], [4, 1]]
        assert item.dense.tolist() == [[1.5], [2.5]]
        clicked = user.sequences["clicked"]
        assert clicked.lengths.tolist() == [3, 0]
        rows = store.read_rows({"items": np.array([5, 6, 7, 8], np.int64)}).records["items"]
        expected = store.tables.named("items").layout.views(rows).weight
        np.testing.assert_array_equal(clicked.values[0].numpy(), expected[1:])  # the last three
        np.testing.assert_array_equal(item.pooled[:, :8].numpy(), expected[:2])


def test_a_feature_of_an_unknown_table_is_named() -> None:
    with open_store("tags") as store, pytest.raises(UnknownTable, match="feature 'tags': unknown table 'tags'"):
        ShardedEmbedding(lookups(FEATURES), store)
