"""`--verify exact`: does the pipeline over the tiers make the bits that a plain loop over rows in memory makes?

The run trains some steps, so that its tiers are in use. Then the next steps are trained twice from there: by the run
itself, and without a pipeline by a copy of the dense model, its optimizer and its generator, over a store in memory
that has the committed rows of those steps' ids (and all rows of a table with MaxRows, which looks at all of them).
"""

import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepwell.data import Batch, BatchReader
from stepwell.errors import ConfigError, NotFinite
from stepwell.rows import MaxRows, RowLayout
from stepwell.store import Rows, StoreConfig, TieredStore
from stepwell.store.tables import Tables
from stepwell.train.config import TrainConfig
from stepwell.train.learner import Learner, Work
from stepwell.train.pipeline import Pipeline
from stepwell.train.run_folder import resolved
from stepwell.train.stages import five_stages

_MOST_DIFFERENCES, _MOST_OF_A_TABLE = 10, 3
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was compared, and the first differences: in which step, of which table, id and column."""

    batches: int  # steps that were trained twice
    rows: int  # compared, once for each step that used them
    differences: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether losses, rows and dense weights were equal bit for bit."""
        return not self.differences


@dataclass(slots=True)
class _Seen:
    """What a step left."""

    losses: tuple[float, ...]
    rows: dict[str, tuple[I64, Rows]]


def verify_exact(config: TrainConfig, batches: int, *, after: int | None = None) -> VerifyReport:
    """Train `after` steps (as many as `batches`, unless said otherwise), then the next `batches` steps twice.

    Keeps those steps' rows in memory. Rows on SSD go to a directory of their own beside the config's.
    """
    if batches < 1:
        raise ConfigError(f"batches: found {batches}, expected at least 1")
    config = resolved(config.replace(steps=0), None)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        config = config.replace(store=stack.enter_context(_own_directory(config.store)))
        learner = Learner(config, stack.enter_context(TieredStore(config.store)))
        reader = stack.enter_context(BatchReader(config.train, config.features, config.labels, config.reader))
        taken = iter(reader)
        seen: dict[int, _Seen] = {}

        def watch(step: int, work: Work) -> None:
            rows = {name: (ids, learner.store.find(name, ids)) for name, ids in _ids(work).items()}
            seen[step] = _Seen(work.losses, rows)

        _train(learner, islice(taken, (batches if after is None else after) * config.accumulate), _unwatched)
        works = _following(config, learner.store.cursor, batches)
        reference = stack.enter_context(_reference(learner, works))
        state = torch.get_rng_state()
        _train(learner, islice(taken, batches * config.accumulate), watch)
        torch.set_rng_state(state)
        differences = _Differences()

        def compare(step: int, work: Work) -> None:
            differences.compare_step(step, seen.pop(step, None), work, reference.store)

        _train(reference, (batch for work in works for batch in work.batches), compare)
        differences.compare_dense(learner, reference)
        return VerifyReport(len(works), differences.num_rows, tuple(differences.found))


def _unwatched(step: int, work: Work) -> None:
    """Nobody looks."""


def _train(learner: Learner, batches: Iterator[Batch], on_step: Callable[[int, Work], None]) -> None:
    def on_bad(step: int, work: Work, error: NotFinite) -> None:
        """It goes to the caller."""

    stages = five_stages(learner, batches, on_step, on_bad)
    Pipeline(stages, depth=learner.config.depth).run(learner.store.step + 1)


def _following(config: TrainConfig, cursor: Any, steps: int) -> list[Work]:
    """The batches of the next steps, read anew from the cursor that was committed."""
    with BatchReader(config.train, config.features, config.labels, config.reader, cursor=cursor) as reader:
        batches = list(islice(reader, steps * config.accumulate))
    if not batches:
        raise ConfigError("verify: the training data ends before the first step that was to be compared")
    size = config.accumulate
    return [Work(tuple(batches[start : start + size])) for start in range(0, len(batches), size)]


@contextmanager
def _reference(learner: Learner, works: list[Work]) -> Iterator[Learner]:
    """A learner that stands where this one does, over rows in memory."""
    config, store = learner.config, learner.store
    wanted = _ids_by_table(learner, works)
    rows: dict[str, list[tuple[I64, npt.NDArray[np.uint8]]]] = {}
    for spec in config.store.tables:
        if any(isinstance(policy, MaxRows) for policy in spec.expiry):
            rows[spec.name] = list(store.export_batch(spec.name))
        else:
            ids = wanted[spec.name]
            found = store.find(spec.name, ids)
            rows[spec.name] = [(ids[found.found], np.ascontiguousarray(found.records[found.found]))]
    sizes = {name: sum(len(ids) for ids, _ in parts) + len(wanted[name]) for name, parts in rows.items()}
    in_memory = config.store.replace(
        dram_bytes=_bytes_for(config.store, sizes), ssd_bytes=0, ssd_directory="", threads=1
    )
    before = torch.get_rng_state()
    with TieredStore(in_memory) as memory:
        for name, parts in rows.items():
            for ids, records in parts:
                memory.insert_records(name, ids, records)
        memory.adopt(store.describe())
        twin = Learner(config.replace(store=in_memory, depth=1, fetch_window=1), memory)
        twin.model.load_state_dict(learner.model.state_dict())
        if twin.optimizer is not None and learner.optimizer is not None:
            twin.optimizer.load_state_dict(copy.deepcopy(learner.optimizer.state_dict()))
        torch.set_rng_state(before)
        yield twin


def _bytes_for(config: StoreConfig, rows: dict[str, int]) -> int:
    """A budget with which a store in memory holds so many rows of each table, and more."""
    tables = Tables(config.tables, config.seed)
    fractions = tables.fractions()
    most = 0.0
    for fingerprint, members in tables.by_layout().items():
        row_bytes = members[0].layout.record_bytes + 32
        needed = sum((1 << 18) + row_bytes * rows[table.spec.name] for table in members) + (1 << 20)
        most = max(most, 1.25 * needed / fractions[fingerprint])
    return int(most)


def _ids_by_table(learner: Learner, works: list[Work]) -> dict[str, I64]:
    """Every table's unique ids of these steps."""
    named: dict[str, list[I64]] = {spec.name: [np.empty(0, np.int64)] for spec in learner.config.store.tables}
    for work in works:
        for batch in work.batches:
            for name, ids in learner.embedding.route(batch.ids).ids.items():
                named[name].append(ids)
    return {name: np.unique(np.concatenate(lists)) for name, lists in named.items()}


def _ids(work: Work) -> dict[str, I64]:
    """The same of a step that was routed."""
    named: dict[str, list[I64]] = {}
    for routed in work.routed:
        for name, ids in routed.ids.items():
            named.setdefault(name, []).append(ids)
    return {name: np.unique(np.concatenate(lists)) for name, lists in named.items()}


class _Differences:
    """The first differences, in words."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.num_rows = 0

    def compare_step(self, step: int, seen: _Seen | None, work: Work, store: TieredStore) -> None:
        """What the run left after a step, and what the reference has now."""
        if seen is None:
            self._add(f"step {step}: the run did not train it")
            return
        if _bits(seen.losses) != _bits(work.losses):
            self._add(f"step {step}: losses: found {seen.losses}, expected {work.losses}")
        for name, (ids, rows) in seen.rows.items():
            self.num_rows += len(ids)
            expected = store.find(name, ids)
            wrong = np.flatnonzero((rows.records != expected.records).any(1) | (rows.found != expected.found))
            for at in wrong[:_MOST_OF_A_TABLE]:
                where = f"step {step}: table {name!r}, id {ids[at]}"
                if rows.found[at] != expected.found[at]:
                    self._add(f"{where}: found {_there(rows, at)}, expected {_there(expected, at)}")
                else:
                    self._add(f"{where}, {_column(rows.layout, rows.records[at], expected.records[at])}")

    def compare_dense(self, ours: Learner, theirs: Learner) -> None:
        """Weights, buffers and the optimizer's state after the last step."""
        ours_dense, theirs_dense = _dense(ours), _dense(theirs)
        for name, tensor in theirs_dense.items():
            found = ours_dense[name]
            if not torch.equal(found.view(torch.uint8), tensor.view(torch.uint8)):
                at = int((found != tensor).reshape(-1).nonzero()[0]) if bool((found != tensor).any()) else 0
                a, b = found.reshape(-1)[at].item(), tensor.reshape(-1)[at].item()
                self._add(f"after the last step: dense {name}, element {at}: found {a!r}, expected {b!r}")

    def _add(self, text: str) -> None:
        if len(self.found) < _MOST_DIFFERENCES:
            self.found.append(text)


def _dense(learner: Learner) -> dict[str, Tensor]:
    tensors = {f"weight {name}": tensor.reshape(-1) for name, tensor in learner.model.state_dict().items()}
    names = [name for name, parameter in learner.model.named_parameters() if parameter.requires_grad]
    if learner.optimizer is not None:
        for at, state in learner.optimizer.state_dict()["state"].items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"{key} of {names[at]}"] = value.reshape(-1)
    return tensors


def _bits(losses: tuple[float, ...]) -> bytes:
    return np.array(losses, np.float64).tobytes()


def _there(rows: Rows, at: int) -> str:
    return "the row" if rows.found[at] else "no row"


def _column(layout: RowLayout, found: npt.NDArray[np.uint8], expected: npt.NDArray[np.uint8]) -> str:
    """The first column of a record that differs."""
    ours, theirs = layout.views(found[None]), layout.views(expected[None])
    fields = {"weight": (ours.weight, theirs.weight)}
    fields |= {name: (ours.state[name], theirs.state[name]) for name in ours.state}
    fields |= {"count": (ours.count, theirs.count), "last_step": (ours.last_step, theirs.last_step)}
    for name, (ours_field, theirs_field) in fields.items():
        a, b = ours_field.reshape(-1), theirs_field.reshape(-1)
        size = a.dtype.itemsize
        unequal = (a.view(np.uint8).reshape(-1, size) != b.view(np.uint8).reshape(-1, size)).any(1)
        if unequal.any():
            at = int(unequal.argmax())
            return f"column {name}[{at}]: found {a[at]!r}, expected {b[at]!r}"
    return "padding"


@contextmanager
def _own_directory(config: StoreConfig) -> Iterator[StoreConfig]:
    """The config with an SSD directory beside its own, which goes at the end."""
    if not config.ssd_directory:
        yield config
        return
    beside = Path(config.ssd_directory).absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="verify-", dir=beside) as directory:
        yield config.replace(ssd_directory=directory)
