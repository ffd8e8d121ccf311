"""What cannot work is an error that says where; what is only empty works."""

import numpy as np
import pytest
import torch

from stepwell.embedding import Lookup, RowOptimizer, ShardedEmbedding
from stepwell.errors import ConfigError, UnknownTable
from stepwell.jagged import JaggedIds
from stepwell.rows import FTRL, SGD, TableSpec
from stepwell.store import StoreConfig, TieredStore
from tests.embedding.reference import jagged

LOOKUPS = (
    Lookup(name="user", table="users", side="user", max_len=2),
    Lookup(name="liked", table="items", side="user", pooling="mean"),
    Lookup(name="clicked", table="items", side="user", pooling="none", max_len=3),
    Lookup(name="item", table="items", side="item"),
)
NAMES = tuple(lookup.name for lookup in LOOKUPS)
IDS = {"user": [[1], []], "liked": [[1, 2], [3]], "clicked": [[], [4, 5, 6]], "item": [[7], [8]]}


def open_store(**changes: object) -> TieredStore:
    tables = (TableSpec(name="users", dim=4, optimizer=FTRL()), TableSpec(name="items", dim=6, optimizer=SGD(lr=0.1)))
    return TieredStore(StoreConfig(tables=tables, dram_bytes=8 << 20).replace(**changes))


@pytest.fixture
def embedding():
    with open_store() as store:
        yield ShardedEmbedding(LOOKUPS, store, dense=(2, 1))


def dense(size: int = 2) -> torch.Tensor:
    return torch.arange(3.0 * size).view(size, 3)


def backward(embedding: ShardedEmbedding) -> None:
    user, item = embedding(jagged(IDS), dense())
    (user.pooled.sum() + item.pooled.sum()).backward()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, r"Lookup\.name: found ''"),
        ({"table": ""}, r"Lookup\.table: found ''"),
        ({"side": "left"}, r"Lookup\.side: found 'left', expected 'user' or 'item'"),
        ({"pooling": "max"}, r"Lookup\.pooling: found 'max'"),
        ({"pooling": "none", "max_len": 0}, r"Lookup\.max_len: found 0, expected at least 1"),
        ({"max_len": -1}, r"Lookup\.max_len: found -1"),
        ({"weighted": 1}, r"Lookup\.weighted: found 1"),
    ],
)
def test_a_lookup_is_checked(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LOOKUPS[0].replace(**changes)


def test_lookups_are_checked_against_the_store() -> None:
    with open_store() as store:
        for lookups, error, message in (
            ((), ConfigError, r"lookups: found \(\), expected one Lookup or more"),
            ((LOOKUPS[0], LOOKUPS[0]), ConfigError, "'user' more than once"),
            (
                (LOOKUPS[0], LOOKUPS[3].replace(table="itmes")),
                UnknownTable,
                "feature 'item': unknown table 'itmes'; the store has items, users; did you mean 'items'",
            ),
        ):
            with pytest.raises(error, match=message):
                ShardedEmbedding(lookups, store)
        with pytest.raises(ConfigError, match=r"SideSpec\.dense: found -1"):
            ShardedEmbedding(LOOKUPS, store, dense=(-1, 0))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            jagged({"user": [[1]]}),
            "without 'liked', 'clicked', 'item'; expected the features user, liked, clicked, item",
        ),
        (jagged({**IDS, "more": [[], []]}), "with 'more', which no lookup takes"),
        (jagged(dict(reversed(IDS.items()))), "in the order item, clicked, liked, user; expected"),
        (
            jagged({**IDS, "user": [[1], [2, 3, 4]]}),
            "feature 'user': found 3 ids in sample 1 of the batch, expected at",
        ),
        (jagged({**IDS, "clicked": [[1, 2, 3, 4], []]}), "feature 'clicked': found 4 ids in sample 0"),
        (jagged(IDS, [1.0, 2.0] + [1.0] * 7), "feature 'liked' is not weighted: found weights other than 1"),
        (JaggedIds(NAMES, torch.arange(2), torch.tensor([0, 1, 2, 1, 2])), "offsets"),
        (JaggedIds(NAMES, torch.arange(2), torch.tensor([0, 1, 1, 1, 1])), "offsets"),
    ],
)
def test_a_batch_is_checked_before_anything_happens(embedding, ids: JaggedIds, message: str) -> None:
    for mode in (True, False):
        embedding.train(mode)
        with pytest.raises(ConfigError, match=message):
            embedding(ids, dense(ids.batch_size))
    assert embedding.store.stats().tiers[0].rows == 0


def test_a_weighted_lookup_needs_weights() -> None:
    with open_store() as store:
        embedding = ShardedEmbedding((*LOOKUPS[:3], LOOKUPS[3].replace(weighted=True)), store)
        with pytest.raises(ConfigError, match="feature 'item' is weighted: found a batch without weights"):
            embedding.route(jagged(IDS))
        others = [1.0] * 7
        with pytest.raises(ConfigError, match="feature 'user' is not weighted"):
            embedding.route(jagged(IDS, [0.5, *others[1:], 2.0, 3.0]))
        embedding.route(jagged(IDS, [*others, 2.0, 3.0]))


@pytest.mark.parametrize("wrong", [None, dense()[:, :2], dense(3), dense().double()])
def test_dense_columns_are_checked(embedding, wrong: torch.Tensor | None) -> None:
    with pytest.raises(ConfigError, match=r"dense: found .*, expected torch.float32 \(2, 3\): 2 columns of the user"):
        embedding(jagged(IDS), wrong)
    assert embedding.store.stats().tiers[0].rows == 0


def test_dense_columns_go_to_their_sides(embedding) -> None:
    user, item = embedding(jagged(IDS), dense())
    assert user.dense.tolist() == [[0, 1], [3, 4]]
    assert item.dense.tolist() == [[2], [5]]
    assert embedding.user_spec.dense == 2
    assert embedding.user_spec.pooled == (4, 6)
    assert [(one.name, one.dim, one.max_len) for one in embedding.user_spec.sequences] == [("clicked", 6, 3)]
    assert (embedding.item_spec.dense, embedding.item_spec.pooled, embedding.item_spec.sequences) == (1, (6,), ())


def test_steps_come_in_order(embedding) -> None:
    store, ids = embedding.store, jagged(IDS)
    with pytest.raises(ConfigError, match="apply: found no gradients"):
        embedding.apply()
    with torch.no_grad():
        embedding(ids, dense())
    with pytest.raises(ConfigError, match="apply: found no gradients"):
        embedding.apply()
    backward(embedding)
    embedding.apply()
    with pytest.raises(ConfigError, match=r"apply: found it called twice for step 1: .*commit\(1\)"):
        embedding.apply()
    with pytest.raises(ConfigError, match=r"forward pass for step 1, which apply\(\) has updated: .*commit\(1\)"):
        embedding(ids, dense())
    store.commit(1)

    second, third = (embedding.fetch(embedding.route(ids), step) for step in (2, 3))
    with pytest.raises(ConfigError, match=r"fetched for step 3, expected step 2, .*: commit step 2 first"):
        embedding(third, dense())
    user, _ = embedding(second, dense())
    store.commit(2)
    with pytest.raises(ConfigError, match="backward: found gradients for step 2, which has committed"):
        user.pooled.sum().backward()
    with pytest.raises(ConfigError, match=r"fetched for step 2, expected step 3, .*: fetch it again"):
        embedding(second, dense())
    user, _ = embedding(third, dense())
    user.pooled.sum().backward(retain_graph=True)
    embedding.apply()
    with pytest.raises(ConfigError, match=r"backward: found gradients for step 3, which has been updated by apply"):
        user.pooled.sum().backward()
    store.commit(3)
    backward(embedding)


def test_gradients_that_no_apply_took_are_noticed(embedding) -> None:
    backward(embedding)
    embedding.store.commit(1)
    for call in (lambda: backward(embedding), embedding.apply):
        with pytest.raises(ConfigError, match=r"gradients of step 1, which committed without them: .* zero_grad\(\)"):
            call()
    embedding.zero_grad()
    backward(embedding)
    embedding.apply()


def test_a_failed_update_changes_nothing_and_can_be_repeated(embedding) -> None:
    store = embedding.store
    backward(embedding)
    before = {name: store.slots(name).copy() for name in ("users", "items")}
    for arguments, message in (
        ({"lr_factor": float("nan")}, "lr_factor: found nan"),
        ({"lr_factor": -1.0}, "lr_factor: found -1"),
        ({"lr_factor": 0.0}, "expected more than 0"),  # FTRL divides by its rate
    ):
        with pytest.raises(ConfigError, match=message):
            embedding.apply(**arguments)
    with pytest.raises(UnknownTable, match="itms"):
        embedding.apply(frozen=("itms",))
    for name, records in before.items():
        np.testing.assert_array_equal(store.slots(name), records)
    embedding.apply(frozen=("users",), lr_factor=0.0)


def test_a_table_that_no_lookup_uses_cannot_be_frozen() -> None:
    with open_store() as store:
        embedding = ShardedEmbedding((LOOKUPS[0],), store)
        with pytest.raises(ConfigError, match="frozen: found table 'items', which no lookup uses"):
            embedding.apply(frozen=("items",))


def test_a_batch_belongs_to_its_embedding(embedding) -> None:
    other = ShardedEmbedding(LOOKUPS, embedding.store, dense=(2, 1))
    routed = other.route(jagged(IDS))
    for call in (lambda: embedding.fetch(routed, 1), lambda: embedding.read(routed)):
        with pytest.raises(ConfigError, match="routed by another embedding"):
            call()
    with pytest.raises(ConfigError, match="routed by another embedding"):
        embedding(other.fetch(routed, 1), dense())


def test_a_batch_that_was_read_cannot_be_trained(embedding) -> None:
    fetched = embedding.read(embedding.route(jagged(IDS)))
    with pytest.raises(ConfigError, match="found a batch that was read, in training mode"):
        embedding(fetched, dense())
    embedding.eval()
    embedding(fetched, dense())
    embedding.train()
    fetched = embedding.fetch(embedding.route(jagged(IDS), gradients=False), 1)
    with pytest.raises(ConfigError, match="found a batch routed without gradients, in training mode"):
        embedding(fetched, dense())
    with torch.no_grad():
        embedding(fetched, dense())


def test_empty_bags_features_and_batches_are_zeros(embedding) -> None:
    for ids in (
        jagged({name: [[], []] for name in NAMES}),
        jagged({**{name: [[], []] for name in NAMES}, "item": [[], [9]]}),
        jagged({name: [] for name in NAMES}),
    ):
        for mode in (False, True):
            embedding.train(mode)
            user, item = embedding(ids, dense(ids.batch_size))
            assert user.pooled.shape == (ids.batch_size, 10)
            assert not user.pooled.any()
            assert user.sequences["clicked"].values.shape == (ids.batch_size, 3, 6)
            assert not user.sequences["clicked"].values.any()
            assert user.sequences["clicked"].lengths.tolist() == [0] * ids.batch_size
            assert bool(item.pooled.any()) == bool(ids.values.numel())
        (user.pooled.sum() + item.pooled.sum() + user.sequences["clicked"].values.sum()).backward()
        assert embedding.gradients_finite()
        embedding.apply()
        embedding.store.commit(embedding.store.step + 1)
    assert embedding.store.num_rows("items") == 1


def test_a_side_without_features_has_no_columns() -> None:
    with open_store() as store:
        user, item = ShardedEmbedding((LOOKUPS[3],), store)(jagged({"item": [[1], [2]]}))
        assert (user.pooled.shape, user.dense.shape, user.sequences) == ((2, 0), (2, 0), {})
        assert item.pooled.shape == (2, 6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_gradients_that_are_not_finite_are_seen(embedding, bad: float) -> None:
    user, item = embedding(jagged(IDS), dense())
    loss = user.pooled.sum() + item.pooled.sum()
    loss.backward(retain_graph=True)
    assert embedding.gradients_finite()
    (item.pooled[1, 2] * bad).backward()
    assert not embedding.gradients_finite()
    embedding.zero_grad()
    assert embedding.gradients_finite()


def test_eval_mode_changes_nothing(embedding) -> None:
    store, ids = embedding.store, jagged(IDS)
    embedding.eval()
    user, item = embedding(ids, dense())
    assert not user.pooled.requires_grad
    assert store.stats().tiers[0].rows == 0
    embedding.train()
    trained_user, trained_item = embedding(ids, dense())  # new rows begin as they were read
    assert torch.equal(user.pooled, trained_user.pooled)
    assert torch.equal(item.pooled, trained_item.pooled)
    trained_item.pooled.sum().backward()
    embedding.apply()
    embedding.eval()
    assert torch.equal(embedding(ids, dense())[1].pooled, item.pooled)  # what is not committed cannot be read
    store.commit(1)
    before = [store.slots(name).copy() for name in ("users", "items")]
    torch.testing.assert_close(embedding(ids, dense())[1].pooled, item.pooled - 0.1)
    for name, records in zip(("users", "items"), before, strict=True):
        np.testing.assert_array_equal(store.slots(name), records)


def test_only_an_embedding_has_a_row_optimizer() -> None:
    with pytest.raises(ConfigError, match="embedding: found a Linear, expected a ShardedEmbedding"):
        RowOptimizer(torch.nn.Linear(2, 2))
