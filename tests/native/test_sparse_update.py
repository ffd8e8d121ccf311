"""The core's gradients and updates against the numpy references in `rows`, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.native import POOLINGS, Routed, SparseFeature, SparsePlan, ThreadPool, sparse_table
from stepwell.rows import (
    FTRL,
    LAMB,
    SGD,
    AdaGrad,
    Adam,
    AdamW,
    MomentumScaledRowWiseAdaGrad,
    Optimizer,
    RowWiseAdaGrad,
    RowWiseAdam,
    TableSpec,
    WeightDtype,
    bf16_stochastic,
    decode_weights,
    fp16_stochastic,
    stochastic_round_bits,
    sum_occurrences,
)
from stepwell.rows.layout import WEIGHT_DTYPES, encode_weights

SEED = 7
ISAS = ("scalar", "avx2", "avx512")
EVERY = {"weight_decay": 0.02, "max_row_norm_grad": 0.7}
OPTIMIZERS: list[Optimizer] = [
    SGD(),
    SGD(**EVERY),
    SGD(momentum=0.9, **EVERY),
    SGD(momentum=0.9, nesterov=True),
    AdaGrad(),
    AdaGrad(initial_accumulator=0.1, **EVERY),
    RowWiseAdaGrad(),
    RowWiseAdaGrad(initial_accumulator=0.1, **EVERY),
    MomentumScaledRowWiseAdaGrad(scale=3.0, **EVERY),
    Adam(),
    Adam(**EVERY),
    AdamW(**EVERY),
    RowWiseAdam(),
    RowWiseAdam(**EVERY),
    FTRL(l1=0.01, l2=0.1),
    FTRL(**EVERY),
    LAMB(),
    LAMB(**EVERY),
]
U8 = np.ndarray
POOL = ThreadPool(3)


def supported(isa: str) -> bool:
    try:
        SparsePlan([], [], POOL, isa)
    except ConfigError:
        return False
    return True


SUPPORTED = [isa for isa in ISAS if supported(isa)]


class Records:
    """Aligned records of random weights and state."""

    def __init__(self, spec: TableSpec, num: int, rng: np.random.Generator) -> None:
        self.spec, self.layout = spec, spec.layout
        size = self.layout.record_bytes
        memory = np.zeros(num * size + 16, np.uint8)
        shift = -memory.ctypes.data % 16
        self.bytes = memory[shift : shift + num * size].reshape(num, size)
        self.bytes[:] = spec.initial_record()
        views = self.layout.views(self.bytes)
        weights = rng.normal(0, 0.5, views.weight.shape).astype(np.float32)
        weights[rng.random(weights.shape) < 0.05] = -0.0
        views.weight[...] = encode_weights(weights, self.layout.weight_dtype)
        for values in views.state.values():
            values[...] = np.abs(rng.normal(0, 0.3, values.shape))
        views.count[...] = 3
        views.last_step[...] = 9

    def addresses(self) -> np.ndarray:
        first = self.bytes.ctypes.data
        return (first + np.arange(len(self.bytes)) * self.layout.record_bytes).astype(np.uint64)

    def copy(self) -> np.ndarray:
        return self.bytes.copy()

    def update(self, records: np.ndarray, ids: np.ndarray, grads: np.ndarray, step: int, rate: float) -> None:
        """The reference: Optimizer.apply in float32, then rounding."""
        views, dtype = self.layout.views(records), self.layout.weight_dtype
        weight = decode_weights(views.weight, dtype).copy()
        self.spec.optimizer.apply(weight, views.state, grads, step, rate)
        draws = stochastic_round_bits(self.spec.key(SEED), ids, step, self.spec.dim)
        if dtype == "fp32":
            views.weight[...] = weight
        elif dtype == "bf16":
            views.weight[...] = bf16_stochastic(weight, draws)
        else:
            views.weight[...] = fp16_stochastic(weight, draws)


def spec_of(optimizer: Optimizer, dim: int, dtype: WeightDtype = "fp32") -> TableSpec:
    return TableSpec(name="clicks", dim=dim, weight_dtype=dtype, optimizer=optimizer)


def check_update_rows(optimizer: Optimizer, dim: int, dtype: WeightDtype, isa: str, num: int = 37) -> None:
    rng = np.random.default_rng((dim, optimizer.kind))
    spec = spec_of(optimizer, dim, dtype)
    records = Records(spec, num, rng)
    expected = records.copy()
    ids = rng.integers(-(1 << 62), 1 << 62, num)
    plan = SparsePlan([], [sparse_table(spec, SEED)], POOL, isa)
    rate = float(optimizer.lr) * 0.37
    for step in (1, 2, 1000):
        grads = rng.normal(0, 1 / np.sqrt(dim), (num, dim)).astype(np.float32)
        grads[rng.random(grads.shape) < 0.1] = 0.0
        grads[0] = 0.0
        grads[1] *= 50
        records.update(expected, ids, grads, step, rate)
        plan.update_rows(0, ids, records.addresses(), grads, step, rate)
        np.testing.assert_array_equal(records.bytes, expected)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dim", [1, 3, 16, 17, 64, 130])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_update_rows_is_the_reference(optimizer: Optimizer, dim: int, isa: str) -> None:
    for dtype in WEIGHT_DTYPES:
        check_update_rows(optimizer, dim, dtype, isa)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dim", [2, 5, 8, 31, 32, 33, 48, 100, 128, 256, 300, 1000])
def test_update_rows_in_other_dims(dim: int, isa: str) -> None:
    for optimizer in (RowWiseAdaGrad(**EVERY), RowWiseAdam(), LAMB(**EVERY)):
        check_update_rows(optimizer, dim, "fp32", isa)


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape, np.float32)


class Batch:
    """Features over tables, ids with repeats, and what the references make of them."""

    def __init__(
        self,
        specs: list[TableSpec],
        features: list[tuple[int, str]],  # table, pooling
        sizes: np.ndarray,  # [F, B]
        rng: np.random.Generator,
        *,
        weighted: bool,
        num_ids: int = 40,
    ) -> None:
        self.specs, self.features, self.sizes = specs, features, sizes
        self.batch = sizes.shape[1]
        self.offsets = np.concatenate([[0], np.cumsum(sizes.reshape(-1))]).astype(np.int64)
        total = int(self.offsets[-1])
        names = rng.integers(-(1 << 63), 1 << 63, num_ids, dtype=np.int64)
        names[:3] = [-1, 0, np.iinfo(np.int64).min]
        self.values = names[np.minimum(rng.geometric(0.15, total) - 1, num_ids - 1)]
        self.weights = rng.normal(1, 0.5, total).astype(np.float32) if weighted else None
        self.tables = np.array([table for table, _ in features], np.uint32)
        self.max_len = max(1, int(sizes.max(initial=1))) + 2
        self.plan_features, self.shapes, column = [], [], 0
        sequences = 0
        for table, pooling in features:
            dim, code = specs[table].dim, POOLINGS.index(pooling)
            if pooling == "none":
                sequences += 1
                self.plan_features.append(SparseFeature(table, code, sequences, 0, self.max_len))
                self.shapes.append((self.batch, self.max_len, dim))
            else:
                self.plan_features.append(SparseFeature(table, code, 0, column))
                column += dim
        self.shapes.insert(0, (self.batch, column))
        self.records = [Records(spec, num_ids, rng) for spec in specs]
        self.names = names

    def unique(self) -> list[np.ndarray]:
        found = []
        for table in range(len(self.specs)):
            seen = self.values[self.of_table(table)]
            _, first = np.unique(seen, return_index=True)
            found.append(seen[np.sort(first)])
        return found

    def of_table(self, table: int) -> np.ndarray:
        per_feature = np.repeat(self.tables, self.sizes.sum(axis=1))
        return np.flatnonzero(per_feature == table)

    def rows(self, routed: Routed) -> np.ndarray:
        addresses = []
        for table, records in enumerate(self.records):
            ids = routed.ids[routed.starts[table] : routed.starts[table + 1]]
            at = {int(name): i for i, name in reversed(list(enumerate(self.names)))}
            addresses.append(records.addresses()[[at[int(i)] for i in ids]])
        return np.concatenate(addresses) if addresses else np.zeros(0, np.uint64)

    def plan(self, pool: ThreadPool, isa: str) -> SparsePlan:
        return SparsePlan(self.plan_features, [sparse_table(spec, SEED) for spec in self.specs], pool, isa)

    def routed(self, pool: ThreadPool) -> Routed:
        return Routed(self.values, self.offsets, self.tables, len(self.specs), pool)

    def expected_outputs(self, unique: list[np.ndarray]) -> list[np.ndarray]:
        outputs = [zeros(shape) for shape in self.shapes]
        column = sequences = 0
        at = {int(name): i for i, name in reversed(list(enumerate(self.names)))}
        for f, (table, pooling) in enumerate(self.features):
            records, dim = self.records[table], self.specs[table].dim
            weight = decode_weights(records.layout.views(records.bytes).weight, records.layout.weight_dtype)
            sequences += pooling == "none"
            for b in range(self.batch):
                begin, end = self.offsets[f * self.batch + b], self.offsets[f * self.batch + b + 1]
                total = zeros((dim,))
                for j, p in enumerate(range(begin, end)):
                    row = weight[at[int(self.values[p])]]
                    if self.weights is not None:
                        row = self.weights[p] * row
                    if pooling == "none":
                        outputs[sequences][b, j] = row
                    total = total + row
                if pooling == "mean" and end > begin:
                    total = total / np.float32(end - begin)
                if pooling != "none":
                    outputs[0][b, column : column + dim] = total
            column += dim if pooling != "none" else 0
        return outputs

    def expected_sums(self, unique: list[np.ndarray], grads: list[np.ndarray]) -> list[np.ndarray]:
        sums = []
        for table, spec in enumerate(self.specs):
            each, counts, weights, rows = [], [], [], []
            at = {int(name): i for i, name in enumerate(unique[table])}
            column = sequences = 0
            for f, (of, pooling) in enumerate(self.features):
                sequences += pooling == "none"
                dim = self.specs[of].dim
                for b in range(self.batch if of == table else 0):
                    begin, end = self.offsets[f * self.batch + b], self.offsets[f * self.batch + b + 1]
                    for j, p in enumerate(range(begin, end)):
                        pooled = grads[0][b, column : column + dim]
                        each.append(grads[sequences][b, j] if pooling == "none" else pooled)
                        counts.append(end - begin if pooling == "mean" else 1)
                        weights.append(1.0 if self.weights is None else self.weights[p])
                        rows.append(at[int(self.values[p])])
                column += dim if pooling != "none" else 0
            sums.append(
                sum_occurrences(
                    np.array(rows, np.int64),
                    np.array(each, np.float32).reshape(-1, spec.dim),
                    len(unique[table]),
                    counts=np.array(counts, np.float32),
                    weights=np.array(weights, np.float32),
                )
            )
        return sums

    def check(self, pool: ThreadPool, isa: str) -> None:
        routed, plan, unique = self.routed(pool), self.plan(pool, isa), self.unique()
        np.testing.assert_array_equal(routed.ids, np.concatenate([*unique, np.zeros(0, np.int64)]))
        np.testing.assert_array_equal(np.diff(routed.starts), [len(ids) for ids in unique])
        np.testing.assert_array_equal(routed.ids[routed.inverse], self.values)
        rows = self.rows(routed)
        outputs = [np.full(shape, np.nan, np.float32) for shape in self.shapes]
        plan.lookup(routed, rows, self.weights, outputs)
        for output, expected in zip(outputs, self.expected_outputs(unique), strict=True):
            np.testing.assert_array_equal(output.view(np.uint32), expected.view(np.uint32))
        rng = np.random.default_rng(1)
        grads = [rng.normal(0, 1, shape).astype(np.float32) for shape in self.shapes]
        sums = [zeros((len(ids), spec.dim)) for ids, spec in zip(unique, self.specs, strict=True)]
        plan.sum_gradients(routed, self.weights, grads, sums)
        expected_sums = self.expected_sums(unique, grads)
        for got, want in zip(sums, expected_sums, strict=True):
            np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
        expected_records = [records.copy() for records in self.records]
        rates = np.array([spec.optimizer.lr for spec in self.specs])
        for table, records in enumerate(self.records):
            at = {int(name): i for i, name in reversed(list(enumerate(self.names)))}
            places = np.array([at[int(i)] for i in unique[table]], np.int64)
            touched = expected_records[table][places]
            records.update(touched, unique[table], expected_sums[table], 5, float(rates[table]))
            expected_records[table][places] = touched
        plan.update(routed, rows, self.weights, grads, 5, rates)
        for records, want in zip(self.records, expected_records, strict=True):
            np.testing.assert_array_equal(records.bytes, want)


FEATURES = [(0, "sum"), (1, "mean"), (0, "mean"), (2, "sum"), (1, "none"), (2, "none"), (3, "mean")]
TABLES = [
    replace(spec_of(RowWiseAdaGrad(), 16), name="a"),
    replace(spec_of(Adam(**EVERY), 17, "bf16"), name="b"),
    replace(spec_of(LAMB(), 64, "fp16"), name="c"),
    replace(spec_of(FTRL(), 1), name="d"),
    replace(spec_of(SGD(), 130), name="unused"),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_batches(threads: int, isa: str, weighted: bool) -> None:
    pool, rng = ThreadPool(threads), np.random.default_rng(threads)
    for batch, most in ((1, 3), (33, 1), (33, 5)):
        sizes = rng.integers(0, most + 1, (len(FEATURES), batch))
        Batch(TABLES, FEATURES, sizes, rng, weighted=weighted).check(pool, isa)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dim", [1, 3, 16, 17, 64, 130])
def test_one_id_per_feature_and_hot_rows(dim: int, isa: str) -> None:
    rng = np.random.default_rng(dim)
    specs = [replace(spec_of(optimizer, dim), name=optimizer.__class__.__name__) for optimizer in (SGD(), AdaGrad())]
    batch = Batch(specs, [(0, "sum"), (1, "mean")], np.ones((2, 700), int), rng, weighted=False, num_ids=4)
    assert np.unique(batch.values, return_counts=True)[1].max() > 128
    batch.check(ThreadPool(2), isa)


@pytest.mark.parametrize("isa", SUPPORTED)
def test_nothing_in_a_batch(isa: str) -> None:
    rng = np.random.default_rng(3)
    for batch in (0, 1, 20):
        Batch(TABLES, FEATURES, np.zeros((len(FEATURES), batch), int), rng, weighted=True).check(POOL, isa)
    sizes = np.full((len(FEATURES), 9), 2)
    sizes[1] = sizes[4] = 0  # all that table 1 has
    Batch(TABLES, FEATURES, sizes, rng, weighted=False).check(POOL, isa)


def test_large_batches_in_many_threads() -> None:
    rng = np.random.default_rng(4)
    specs = [replace(spec_of(RowWiseAdaGrad(), 8), name=name) for name in "abc"]
    sizes = rng.integers(0, 4, (4, 700))
    for weighted in (False, True):
        features = [(0, "sum"), (1, "sum"), (1, "mean"), (2, "none")]
        Batch(specs, features, sizes, rng, weighted=weighted, num_ids=2000).check(ThreadPool(16), "best")


def test_a_rate_of_nan_leaves_a_table_alone() -> None:
    rng = np.random.default_rng(5)
    batch = Batch(TABLES[:2], [(0, "sum"), (1, "sum")], np.ones((2, 50), int), rng, weighted=False)
    before = [records.copy() for records in batch.records]
    routed, plan = batch.routed(POOL), batch.plan(POOL, "best")
    grads = [np.ones(shape, np.float32) for shape in batch.shapes]
    plan.update(routed, batch.rows(routed), None, grads, 1, np.array([0.1, np.nan]))
    assert not np.array_equal(batch.records[0].bytes, before[0])
    np.testing.assert_array_equal(batch.records[1].bytes, before[1])


def test_what_cannot_be_is_an_error_before_it_is_a_change() -> None:
    rng = np.random.default_rng(6)
    batch = Batch(TABLES[:1], [(0, "none")], np.full((1, 4), 3), rng, weighted=False)
    routed, plan = batch.routed(POOL), batch.plan(POOL, "best")
    rows, outputs = batch.rows(routed), [zeros(shape) for shape in batch.shapes[1:]]
    short = SparsePlan([SparseFeature(0, 2, 0, 0, 2)], [sparse_table(TABLES[0], SEED)], POOL)
    with pytest.raises(ConfigError, match="found 3 ids in sample 0, expected at most its max_len, 2"):
        short.lookup(routed, rows, None, [zeros((4, 2, 16))])
    with pytest.raises(ConfigError, match="expected 2"):
        plan.lookup(routed, rows, None, outputs)  # output 0 is missing
    with pytest.raises(ConfigError, match="rows has"):
        plan.lookup(routed, rows[1:], None, [zeros((4, 0)), *outputs])
    with pytest.raises(ConfigError, match="weights has"):
        plan.lookup(routed, rows, zeros((3,)), [zeros((4, 0)), *outputs])
    with pytest.raises(ConfigError, match="other features"):
        plan.lookup(Routed(batch.values, batch.offsets, np.zeros(2, np.uint32), 1, POOL), rows, None, outputs)
    lean = Routed(batch.values, batch.offsets, batch.tables, 1, POOL, occurrences=False)
    with pytest.raises(ConfigError, match="without occurrences"):
        plan.update(lean, rows, None, [zeros((4, 0)), *outputs], 1, np.array([0.1]))
    with pytest.raises(ConfigError, match="step"):
        plan.update(routed, rows, None, [zeros((4, 0)), *outputs], 0, np.array([0.1]))
    with pytest.raises(ConfigError, match="rate"):
        ftrl = SparsePlan([], [sparse_table(spec_of(FTRL(), 3), SEED)], POOL)
        ftrl.update_rows(0, np.zeros(0, np.int64), np.zeros(0, np.uint64), zeros((0, 3)), 1, 0.0)


@pytest.mark.parametrize(
    ("offsets", "match"),
    [
        ([0, 2, 1, 4], "found 2 and then 1 at entry 1"),
        ([1, 2, 3, 4], "found 1 to 4"),
        ([0, 2, 3, 5], "found 0 to 5"),
        ([0, 2, 4], "found 3 entries"),
        ([0, 9, 2, 4], "found 9 and then 2 at entry 1"),
    ],
)
def test_offsets_that_do_not_rise(offsets: list[int], match: str) -> None:
    tables = np.zeros(3 if len(offsets) == 3 else 1, np.uint32)
    with pytest.raises(ConfigError, match=match):
        Routed(np.arange(4), np.array(offsets, np.int64), tables, 1, POOL)
