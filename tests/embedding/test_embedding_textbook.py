"""Every optimizer through the embedding, in DRAM and over the SSD, against its textbook formula in float64."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from stepwell.embedding import Lookup, RowOptimizer, ShardedEmbedding
from stepwell.rows import LAMB, AdamW, Normal, Optimizer, TableSpec, initial_rows
from tests.embedding.reference import jagged
from tests.embedding.rig import open_store
from tests.rows.test_optimizers import CASES

NUM_ROWS, DIM, STEPS, USED = 40, 10, 12, 15  # of them in a step
TABLE = TableSpec(name="t", dim=DIM, initializer=Normal(std=1.0))


def expected_weights(spec: Optimizer, rule, used: np.ndarray, grads: np.ndarray) -> np.ndarray:
    """Row by row: only the steps that use it, each with its own number."""
    weights = initial_rows(TABLE.initializer, 0, "t", np.arange(NUM_ROWS), DIM).astype(np.float64)
    states: list[dict[str, object]] = [{} for _ in range(NUM_ROWS)]
    for step in range(1, STEPS + 1):
        for row, grad in zip(used[step - 1], grads[step - 1].astype(np.float64), strict=True):
            limit = spec.max_row_norm_grad
            g = grad * min(1, limit / np.linalg.norm(grad)) if limit else grad
            if not isinstance(spec, (AdamW, LAMB)):
                g = g + spec.weight_decay * weights[row]
            weights[row] = rule(spec, weights[row], g, states[row], step)
    return weights


@pytest.mark.parametrize("rows", [0, 25], ids=["dram", "ssd"])
@pytest.mark.parametrize(("spec", "rule"), CASES, ids=lambda case: getattr(case, "__name__", type(case).__name__))
def test_an_optimizer_is_the_textbook(spec: Optimizer, rule, rows: int) -> None:
    random = np.random.default_rng(11)
    used = np.stack([random.permutation(NUM_ROWS)[:USED] for _ in range(STEPS)])
    grads = random.normal(size=(STEPS, USED, DIM)).astype(np.float32)
    with ExitStack() as exit_stack:
        store = open_store((TABLE.replace(optimizer=spec),), exit_stack, rows=rows)
        embedding = ShardedEmbedding([Lookup(name="f", table="t", side="item")], store)
        optimizer = RowOptimizer(embedding)
        for ids, grad in zip(used, grads, strict=True):
            _, item = embedding(jagged({"f": [[one] for one in ids.tolist()]}))
            item.pooled.backward(torch.from_numpy(grad))
            optimizer.step()
        found = store.find("t", np.arange(NUM_ROWS))
        assert found.found.all()
        np.testing.assert_allclose(found.weights, expected_weights(spec, rule, used, grads), rtol=1e-4, atol=3e-5)
        assert not rows or store.stats().counters["evicted"] > 0
