"""Rows in and out of a store: torch and FBGEMM state dicts, Parquet, numpy."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from stepwell.embedding import transfer
from stepwell.embedding.parquet import export_parquet, import_parquet
from stepwell.embedding.state_dicts import fbgemm_weights, module_weights
from stepwell.embedding.transfer import export_numpy, import_state_dict, import_table, rows_of
from stepwell.errors import ConfigError, DataError, StepwellError, StoreIOError, UnknownTable
from stepwell.rows import AdaGrad, TableSpec
from stepwell.store import StoreConfig, TieredStore

EDGES = np.array([0, -1, 7, np.iinfo(np.int64).min, np.iinfo(np.int64).max], np.int64)


def open_store(**kwargs: Any) -> TieredStore:
    tables = (
        TableSpec(name="wide", dim=6, optimizer=AdaGrad(initial_accumulator=0.25)),
        TableSpec(name="thin", dim=3, weight_dtype="bf16"),
    )
    return TieredStore(StoreConfig(tables=tables, **{"dram_bytes": 64 << 20, "threads": 2, **kwargs}))


@pytest.fixture
def store() -> Iterator[TieredStore]:
    with open_store() as opened:
        yield opened


def weights(n: int, dim: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


def contents(store: TieredStore, table: str) -> dict[int, bytes]:
    return {int(id_): row.tobytes() for ids, rows in rows_of(store, table) for id_, row in zip(ids, rows, strict=True)}


def as_dict(ids: Any, rows: np.ndarray) -> dict[int, bytes]:
    return {int(id_): row.tobytes() for id_, row in zip(ids, rows, strict=True)}


# Tensors and arrays


@pytest.mark.parametrize("batch_rows", [1, 3, 1 << 16])
def test_row_numbers_are_ids_and_the_state_is_new(store: TieredStore, batch_rows: int) -> None:
    wanted = weights(10)
    assert import_table(store, "wide", torch.from_numpy(wanted), batch_rows=batch_rows) == 10
    rows = store.find("wide", np.arange(10))
    assert rows.found.all() and rows.weights.tobytes() == wanted.tobytes()
    assert (rows.views.state["v"] == 0.25).all() and (rows.views.count == 1).all()
    assert store.num_rows("wide") == 10


def test_ids_of_ones_own_of_equal_ones_the_last(store: TieredStore) -> None:
    wanted = weights(6)
    assert import_table(store, "wide", wanted, np.append(EDGES, 7), batch_rows=4) == 6
    assert contents(store, "wide") == as_dict(EDGES, wanted[[0, 1, 5, 3, 4]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(store: TieredStore, dtype: torch.dtype) -> None:
    given = torch.from_numpy(weights(4, 3)).to(dtype)
    import_table(store, "thin", given.requires_grad_(), torch.arange(4))
    stored = store.find("thin", np.arange(4)).weights
    np.testing.assert_array_equal(stored, given.detach().float().bfloat16().float().numpy())


def test_arrays_that_are_not_contiguous(store: TieredStore) -> None:
    wanted = weights(6, 12)[:, ::2]
    import_table(store, "wide", torch.from_numpy(wanted.T.copy()).T, torch.arange(12)[::2])
    assert contents(store, "wide") == as_dict(range(0, 12, 2), np.ascontiguousarray(wanted))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: import_table(s, "none", weights(2)), UnknownTable, "none"),
        (lambda s: import_table(s, "wide", weights(2, 5)), ConfigError, r"'wide': found \(2, 5\), expected \[n, 6\]"),
        (lambda s: import_table(s, "wide", weights(2)[0]), ConfigError, r"found \(6,\), expected \[n, 6\]"),
        (lambda s: import_table(s, "wide", weights(2), np.arange(3)), ConfigError, r"ids of table 'wide': .* \(3,\)"),
        (lambda s: import_table(s, "wide", weights(2), np.arange(2, dtype=np.int32)), ConfigError, r"torch.int32"),
        (lambda s: import_table(s, "wide", torch.zeros(2, 6, dtype=torch.uint8)), ConfigError, r"found torch.uint8"),
        (
            lambda s: import_table(
                s, "wide", np.where(np.arange(18).reshape(3, 6) == 13, np.float32("nan"), weights(3)), EDGES[:3],
                batch_rows=2,
            ),
            ConfigError,
            r"weights of table 'wide': row 2 \(id 7\) is not finite",
        ),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit(
    store: TieredStore, call: Callable[[TieredStore], int], error: type[StepwellError], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(store)


# State dicts


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleDict({"wide": nn.EmbeddingBag(5, 6), "thin": nn.Embedding(4, 3)})
        self.top = nn.Linear(9, 1)


def test_state_dict_of_a_torch_module(store: TieredStore) -> None:
    model = Model()
    assert import_state_dict(store, model.state_dict()) == {"wide": 5, "thin": 4}
    assert contents(store, "wide") == as_dict(range(5), model.towers["wide"].weight.detach().numpy())


@pytest.mark.parametrize("name", ["towers.wide", "towers.wide.weight", "wide"])
def test_names_of_a_state_dict(store: TieredStore, name: str) -> None:
    state = Model().state_dict()
    assert import_state_dict(store, state, {"wide": name}) == {"wide": 5}
    assert module_weights(state, name) is state["towers.wide.weight"]
    assert store.num_rows("thin") == 0


def test_state_dicts_that_do_not_fit(store: TieredStore) -> None:
    state = Model().state_dict()
    with pytest.raises(ConfigError, match=r"found 0 keys for 'deep', expected one; keys: top.bias, top.weight"):
        import_state_dict(store, state, {"wide": "deep"})
    with pytest.raises(ConfigError, match=r"found 2 keys for 'wide', expected one; keys: a.wide.weight, b.wide.weight"):
        module_weights({"a.wide.weight": torch.zeros(1), "b.wide.weight": torch.zeros(1)}, "wide")
    with pytest.raises(ConfigError, match=r"'wide': found \(4, 3\), expected \[n, 6\]"):
        import_state_dict(store, state, {"thin": "thin", "wide": "thin"})
    assert store.num_rows("thin") == 0  # checked before a row is written


def fbgemm_state(prefix: str = "") -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """As SplitTableBatchedEmbeddingBagsCodegen saves three tables over four features: the first two share one."""
    specs = [(5, 4, 3), (3, 8, 3), (7, 4, 3)]  # rows, dim, placement (host)
    tables = [torch.from_numpy(weights(rows, dim, seed)) for seed, (rows, dim, _) in enumerate(specs)]
    of_feature, starts = [0, 0, 1, 2], [0, 5, 8]
    offsets = [0, 20, 44]
    state = {
        "D_offsets": torch.tensor([0, 4, 8, 16, 20], dtype=torch.int32),
        "hash_size_cumsum": torch.tensor([*(starts[t] for t in of_feature), 15]),
        "weights_placements": torch.tensor([specs[t][2] for t in of_feature], dtype=torch.int32),
        "weights_offsets": torch.tensor([offsets[t] for t in of_feature]),
        "weights_host": torch.cat([table.flatten() for table in tables]),
        "weights_dev": torch.empty(0),
        "momentum1_host": torch.zeros(15),
    }
    return {prefix + key: value for key, value in state.items()}, tables


@pytest.mark.parametrize("prefix", ["", "model.tbe."])
def test_fbgemm_state_dict(prefix: str) -> None:
    state, tables = fbgemm_state(prefix)
    found = fbgemm_weights(state, prefix)
    assert len(found) == 3 and all(a.equal(b) for a, b in zip(found, tables, strict=True))
    assert found[0].data_ptr() == state[f"{prefix}weights_host"].data_ptr()  # a view
    with TieredStore(StoreConfig(tables=(TableSpec(name="t", dim=8),), dram_bytes=16 << 20)) as store:
        import_table(store, "t", found[1])
        assert contents(store, "t") == as_dict(range(3), tables[1].numpy())


def test_fbgemm_tables_on_several_placements() -> None:
    state, tables = fbgemm_state()
    host = state["weights_host"]
    state |= {
        "weights_placements": torch.tensor([0, 0, 2, 3]),
        "weights_offsets": torch.tensor([0, 0, 0, 0]),
        "weights_dev": host[:20].view(-1, 4),
        "weights_uvm": host[20:44],
        "weights_host": host[44:],
    }
    assert all(a.equal(b) for a, b in zip(fbgemm_weights(state), tables, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"D_offsets": None}, r"found no D_offsets, expected FBGEMM's state dict under ''"),
        ({"weights_host": None}, r"found no weights_host, where the placements say that table 0 is"),
        (
            {"weights_host": torch.zeros(50)},
            r"weights_host holds 50 torch.float32, expected floats for 7 rows of dim 4",
        ),
        ({"weights_host": torch.zeros(72, dtype=torch.uint8)}, r"weights_host holds 72 torch.uint8, expected floats"),
        ({"D_offsets": torch.tensor([0, 4])}, r"found 1 dims, 4 tables"),
    ],
)
def test_fbgemm_state_dicts_that_do_not_fit(changes: dict[str, torch.Tensor | None], message: str) -> None:
    state = {key: value for key, value in (fbgemm_state()[0] | changes).items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        fbgemm_weights(state)


# Parquet


def write(path: Path, ids: Any, vectors: Any) -> Path:
    pq.write_table(pa.table({"id": ids, "vector": vectors}), path, row_group_size=3)
    return path


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed", "float64", "float16"])
def test_parquet_in(store: TieredStore, tmp_path: Path, kind: str) -> None:
    wanted = weights(5).astype(np.float16).astype(np.float32)  # which every kind holds
    element = {"float64": pa.float64(), "float16": pa.float16()}.get(kind, pa.float32())
    vector = {"large_list": pa.large_list(element), "fixed": pa.list_(element, 6)}.get(kind, pa.list_(element))
    rows = [list(row.astype(np.float16)) if kind == "float16" else row.tolist() for row in wanted]
    path = write(tmp_path / "in.parquet", pa.array(EDGES), pa.array(rows, vector))
    assert import_parquet(store, "wide", path, batch_rows=2) == 5
    assert contents(store, "wide") == as_dict(EDGES, wanted)


@pytest.mark.parametrize("dtype", [pa.uint64(), pa.int32(), pa.uint8()])
def test_parquet_ids_of_any_integer_type(store: TieredStore, tmp_path: Path, dtype: pa.DataType) -> None:
    big = (1 << 64) - 1 if dtype == pa.uint64() else 200
    path = write(
        tmp_path / "in.parquet", pa.array([1, big], dtype), pa.array(weights(2).tolist(), pa.list_(pa.float32()))
    )
    import_parquet(store, "wide", path)
    assert sorted(contents(store, "wide")) == ([-1, 1] if big > 200 else [1, 200])


def test_parquet_round_trip(store: TieredStore, tmp_path: Path) -> None:
    import_table(store, "thin", weights(1000, 3), np.arange(1000) * 7 - 500)
    store.commit(1)
    path = tmp_path / "new" / "thin.parquet"
    assert export_parquet(store, "thin", path, id_column="item", vector_column="v", batch_rows=100) == 1000
    assert [entry.name for entry in path.parent.iterdir()] == ["thin.parquet"]
    table = pq.read_table(path)
    assert table.schema.field("v").type == pa.list_(pa.field("element", pa.float32(), nullable=False), 3)
    assert table.schema.metadata == {b"stepwell.table": b"thin", b"stepwell.step": b"1"}
    with open_store() as other:
        assert import_parquet(other, "thin", path, id_column="item", vector_column="v") == 1000
        assert contents(other, "thin") == contents(store, "thin")


FLOATS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("ids", "vectors", "error", "message"),
    [
        (pa.array([1.0, 2.0]), pa.array([[0.0] * 6] * 2, FLOATS), DataError, r"column 'id' holds double, expected int"),
        (pa.array([1, None]), pa.array([[0.0] * 6] * 2, FLOATS), DataError, r", row 1: column 'id' holds nothing"),
        (pa.array([1, 2]), pa.array([[0.0] * 6, None], FLOATS), DataError, r", row 1: column 'vector' holds nothing"),
        (pa.array([1, 2]), pa.array([[0.0] * 6, [0.0]], FLOATS), DataError, r"row 1: .* holds 1 floats, expected 6"),
        (pa.array([1, 2]), pa.array([[0.0] * 4] * 2, pa.list_(pa.float32(), 4)), DataError, r"row 0: .* 4 floats"),
        (pa.array([1, 2]), pa.array([[0.0] * 6, [0.0] * 5 + [None]], FLOATS), DataError, r"row 1: .* nothing in a pl"),
        (pa.array([1, 2]), pa.array([[0.0] * 6, [np.nan] * 6], FLOATS), DataError, r"row 1: .*'vector'.* not finite"),
        (pa.array([1]), pa.array([[1e300] * 6], pa.list_(pa.float64())), DataError, r"row 0: .* not finite"),
        (
            pa.array([1]),
            pa.array([[1] * 6], pa.list_(pa.int64())),
            DataError,
            r"holds list<.*int64>, expected lists of",
        ),
        (pa.array([1]), pa.array([1.0]), DataError, r"column 'vector' holds double, expected lists of floats"),
    ],
)
def test_parquet_that_does_not_fit(
    store: TieredStore, tmp_path: Path, ids: Any, vectors: Any, error: type[StepwellError], message: str
) -> None:
    path = write(tmp_path / "in.parquet", ids, vectors)
    with pytest.raises(error, match=rf"in\.parquet.*{message}"):
        import_parquet(store, "wide", path)


def test_parquet_without_the_columns(store: TieredStore, tmp_path: Path) -> None:
    path = write(tmp_path / "in.parquet", pa.array([1]), pa.array([[0.0] * 6], FLOATS))
    with pytest.raises(ConfigError, match=r"in.parquet: found no column 'key', only id, vector; expected integers"):
        import_parquet(store, "wide", path, id_column="key")


@pytest.mark.parametrize("size", [0, 3, 200, -20])
def test_a_torn_parquet_file(store: TieredStore, tmp_path: Path, size: int) -> None:
    path = write(tmp_path / "in.parquet", pa.array(np.arange(50)), pa.array(weights(50).tolist(), FLOATS))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"in.parquet: row 0 and on could not be read .*; expected a Parquet file"):
        import_parquet(store, "wide", path)
    with pytest.raises(DataError, match=r"absent.parquet: row 0 and on could not be read"):
        import_parquet(store, "wide", tmp_path / "absent.parquet")


# Numpy


@pytest.mark.parametrize("batch_rows", [1, 64, 1 << 16])
def test_numpy_out(store: TieredStore, tmp_path: Path, batch_rows: int) -> None:
    import_table(store, "wide", weights(300), np.arange(300) - 150)
    assert export_numpy(store, "wide", tmp_path / "out", batch_rows=batch_rows) == 300
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    ids, vectors = (np.load(tmp_path / "out" / f"{name}.npy", mmap_mode="r") for name in ("ids", "vectors"))
    assert (ids.dtype, vectors.dtype, vectors.shape) == (np.int64, np.float32, (300, 6))
    assert as_dict(ids, vectors) == contents(store, "wide")


def test_numpy_out_of_an_empty_table(store: TieredStore, tmp_path: Path) -> None:
    assert export_numpy(store, "wide", tmp_path / "out") == 0
    assert np.load(tmp_path / "out" / "ids.npy").shape == (0,)
    assert np.load(tmp_path / "out" / "vectors.npy").shape == (0, 6)


def test_rows_on_ssd_are_exported_too(tmp_path: Path) -> None:
    with open_store(dram_bytes=10 << 20, ssd_bytes=1 << 30, ssd_directory=str(tmp_path / "store")) as store:
        wanted = weights(5000)
        import_table(store, "wide", wanted)
        store.evict("wide", 4000)
        export_numpy(store, "wide", tmp_path / "out")
    ids, vectors = (np.load(tmp_path / "out" / f"{name}.npy") for name in ("ids", "vectors"))
    assert as_dict(ids, vectors) == as_dict(range(5000), wanted)


@pytest.mark.parametrize("export", [export_numpy, export_parquet])
def test_an_export_appears_whole_or_not_at_all(
    store: TieredStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: Callable[..., int]
) -> None:
    import_table(store, "wide", weights(300))
    with pytest.raises(ConfigError, match=r"batch_rows: found 0, expected at least 1"):
        export(store, "wide", tmp_path / "out", batch_rows=0)
    with pytest.raises(UnknownTable):
        export(store, "none", tmp_path / "out")

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StoreIOError, match=r"could not write .*out: No space left"):
        patch.setattr(transfer, "sync_directory", full)
        patch.setattr(Path, "rename", lambda self, target: full(self))
        export(store, "wide", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert export(store, "wide", tmp_path / "out") == 300
    with pytest.raises(ConfigError, match=r"out exists; an export needs a new path"):
        export(store, "wide", tmp_path / "out")
