"""Embedding and reference side by side: one step on both, and how their states compare."""

from collections.abc import Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import torch

from stepwell.embedding import Fetched, Lookup, ShardedEmbedding, SideInputs
from stepwell.jagged import JaggedIds
from stepwell.rows import TableSpec
from stepwell.store import SsdSettings, StoreConfig, TieredStore
from tests.embedding.reference import Reference
from tests.store.model import State, exported
from tests.store.test_tiered_model import dram_bytes_for

F32 = npt.NDArray[np.float32]


def open_store(
    specs: tuple[TableSpec, ...], exit_stack: ExitStack, *, rows: int = 0, threads: int = 2, seed: int = 0
) -> TieredStore:
    """In DRAM alone; with `rows`, over an SSD tier, and DRAM holds about so many of each layout."""
    directory = exit_stack.enter_context(TemporaryDirectory()) if rows else ""
    config = StoreConfig(
        tables=specs,
        dram_bytes=dram_bytes_for(specs, rows) if rows else 64 << 20,
        ssd_bytes=1 << 30 if rows else 0,
        ssd_directory=directory,
        ssd=SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16),
        threads=threads,
        seed=seed,
    )
    return exit_stack.enter_context(TieredStore(config))


def outputs_by_lookup(embedding: ShardedEmbedding, sides: tuple[SideInputs, SideInputs]) -> dict[str, torch.Tensor]:
    """Each lookup's part of what forward gives; parts of one tensor share it."""
    found = {}
    for name, side in zip(("user", "item"), sides, strict=True):
        at = 0
        for lookup in (one for one in embedding.lookups if one.side == name):
            if lookup.pooling == "none":
                found[lookup.name] = side.sequences[lookup.name].values
            else:
                dim = embedding.store.tables.named(lookup.table).spec.dim
                found[lookup.name] = side.pooled[:, at : at + dim]
                at += dim
    return {one.name: found[one.name] for one in embedding.lookups}


def gradient_of(output: F32, step: int) -> F32:
    """A made-up gradient that depends on what was looked up, the same bits wherever it is computed."""
    noise = np.random.default_rng(step).normal(size=output.shape).astype(np.float32)
    return output * np.float32(2) + noise


def run_backward(embedding: ShardedEmbedding, batch: JaggedIds | Fetched, step: int) -> dict[str, F32]:
    """Forward, and backward with `gradient_of`; what was looked up, by lookup."""
    outputs = outputs_by_lookup(embedding, embedding(batch))
    values = {name: output.detach().numpy().copy() for name, output in outputs.items()}
    some = [name for name, output in outputs.items() if output.numel()]
    grads = [torch.from_numpy(gradient_of(values[name], step)) for name in some]
    torch.autograd.backward([outputs[name] for name in some], grads)
    return values


def both_backward(embedding: ShardedEmbedding, reference: Reference, ids: JaggedIds, step: int) -> None:
    """The same on both; what they look up must be equal."""
    found, expected = run_backward(embedding, ids, step), reference.forward(ids)
    for name, output in expected.items():
        np.testing.assert_array_equal(found[name], output, err_msg=f"step {step}, {name}")
    reference.backward(ids, {name: gradient_of(output, step) for name, output in expected.items()})


def state_of(store: TieredStore) -> dict[str, State]:
    """Every committed row, by table."""
    return {table.spec.name: exported(store.export_batch(table.spec.name)) for table in store.tables}


def random_ids(
    lookups: Sequence[Lookup], size: int, step: int, ids: Sequence[int], *, weights: bool = False
) -> JaggedIds:
    """A batch that uses a few ids often, others once; bags may be empty."""
    random = np.random.default_rng((step, size))
    lengths, values = [], []
    for lookup in lookups:
        counts = random.integers(0, (lookup.max_len or 5) + 1, size)
        lengths.append(counts)
        usual = random.zipf(1.4, counts.sum()) % len(ids)
        usual[::3] = random.integers(0, len(ids), len(usual[::3]))
        values.append(np.array(ids, np.int64)[usual])
    flat = np.concatenate(values)
    return JaggedIds(
        features=tuple(lookup.name for lookup in lookups),
        values=torch.from_numpy(flat),
        offsets=torch.from_numpy(np.cumsum([0, *np.concatenate(lengths)])),
        weights=torch.from_numpy(random.normal(size=len(flat)).astype(np.float32)) if weights else None,
    )
