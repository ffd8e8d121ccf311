"""What a store must do, in plain dicts: rows by (table, id), nothing resident, nothing pinned, nothing concurrent."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepwell.rows import (
    LFU,
    TTL,
    L2Below,
    MaxRows,
    MinCount,
    Probability,
    TableSpec,
    admission_draw,
    decode_weights,
    encode_weights,
    initial_rows,
    mix64,
    unmix64,
)

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
State = dict[int, bytes]  # id -> record


def int64s(ids: Iterable[int]) -> I64:
    return np.array(list(ids), np.int64)


def colliding_ids(n: int) -> list[int]:
    """Half with one shard's first home in any index, half with one shard's last: they share a bucket each, too."""
    first = [(0x5A << 56) | k for k in range((n + 1) // 2)]
    last = [(0xA5 << 56) | ((1 << 56) - 1 - k) for k in range(n // 2)]
    return [int(i) for i in unmix64(np.array(first + last, np.uint64)).view(np.int64)]


IDS = [0, -1, -(1 << 63), (1 << 63) - 1, 1 << 32, -(1 << 32), *colliding_ids(28), *range(1, 31)]


def first_records(spec: TableSpec, ids: I64, seed: int = 0) -> U8:
    """uint8 [n, record_bytes]: rows as they begin, not committed."""
    records = np.tile(spec.initial_record(), (len(ids), 1))
    weights = initial_rows(spec.initializer, seed, spec.name, ids, spec.dim)
    spec.layout.views(records).weight[...] = encode_weights(weights, spec.weight_dtype)
    return records


def made_records(spec: TableSpec, ids: I64, mark: int, count: int = 1, last_step: int = 1) -> U8:
    """Records whose every field says `mark` (below 128, so that every dtype holds it) and which id it is."""
    records = np.tile(spec.initial_record(), (len(ids), 1))
    views = spec.layout.views(records)
    wanted = np.full((len(ids), spec.dim), float(mark), np.float32)
    views.weight[...] = encode_weights(wanted, spec.weight_dtype)
    for values in views.state.values():
        values[...] = mark + (ids % 7).reshape((-1,) + (1,) * (values.ndim - 1))
    views.count[...] = count
    views.last_step[...] = last_step
    return records


def train(spec: TableSpec, records: U8, ids: I64, step: int) -> None:
    """A made-up update in place: each row by itself, so that its order in a batch says nothing."""
    views = spec.layout.views(records)
    weights = decode_weights(views.weight, spec.weight_dtype)
    pull = ((ids % 5 + step) % 4).astype(np.float32)[:, None]  # 0 for some: small norms appear
    views.weight[...] = encode_weights((weights * np.float32(0.5) * pull).astype(np.float32), spec.weight_dtype)
    for values in views.state.values():
        values[...] = values + np.float32(step)


@dataclass
class Counted:
    """Ids touched and erased by one step, or between two."""

    touched: dict[str, set[int]] = field(default_factory=dict)
    erased: dict[str, set[int]] = field(default_factory=dict)  # by name
    expired: dict[str, set[int]] = field(default_factory=dict)  # row by row, by a policy


class Model:
    """A store's state at its last commit, and by-name changes since."""

    def __init__(self, specs: Iterable[TableSpec], seed: int = 0) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.seed = seed
        self.rows: dict[str, State] = {name: {} for name in self.specs}
        self.step = 0
        self.logs: dict[int, Counted] = {}
        self._seen: dict[str, dict[int, int]] = {name: {} for name in self.specs}
        self._times: dict[int, float] = {}
        self._rules = dict.fromkeys(self.specs, (0, 0))  # rows with an older (last step, tie class) expired

    # Reading

    def find(self, table: str, ids: I64) -> tuple[U8, npt.NDArray[np.bool_]]:
        records = np.zeros((len(ids), self.specs[table].layout.record_bytes), np.uint8)
        found = np.zeros(len(ids), np.bool_)
        for i, row_id in enumerate(ids.tolist()):
            if row_id in self.rows[table]:
                records[i], found[i] = np.frombuffer(self.rows[table][row_id], np.uint8), True
        return records, found

    def batch(self, table: str, ids: I64) -> U8:
        """What a step works on: rows as they are, or as they would begin."""
        records = first_records(self.specs[table], ids, self.seed)
        had, found = self.find(table, ids)
        records[found] = had[found]
        return records

    def touched(self, since: int) -> tuple[dict[str, set[int]], dict[str, set[int]], dict[str, set[int]]]:
        """By table: ids written, ids that must be in `erased`, and ids that may be."""
        written: dict[str, set[int]] = {}
        must: dict[str, set[int]] = {}
        may: dict[str, set[int]] = {}
        for step, log in self.logs.items():
            for into, sets in ((written, log.touched), (must, log.erased), (may, log.erased), (may, log.expired)):
                if step > since:
                    for table, ids in sets.items():
                        into.setdefault(table, set()).update(ids)
        return written, must, may

    # Changes by name

    def assign(self, table: str, ids: I64, records: U8) -> None:
        for row_id, record in zip(ids.tolist(), records, strict=True):
            self.rows[table][row_id] = record.tobytes()
        self._drop_expired(table)
        if len(ids):
            self._log(self.step + 1).touched.setdefault(table, set()).update(ids.tolist())

    def insert_or_assign(self, table: str, ids: I64, weights: npt.NDArray[np.float32]) -> None:
        spec = self.specs[table]
        records = np.tile(spec.initial_record(), (len(ids), 1))
        views = spec.layout.views(records)
        views.weight[...] = encode_weights(weights, spec.weight_dtype)
        views.count[...], views.last_step[...] = 1, self.step + 1
        self.assign(table, ids, records)

    def erase(self, table: str, ids: I64) -> npt.NDArray[np.bool_]:
        gone = np.zeros(len(ids), np.bool_)
        for i, row_id in enumerate(ids.tolist()):
            gone[i] = self.rows[table].pop(row_id, None) is not None
            if gone[i]:
                self._log(self.step + 1).erased.setdefault(table, set()).add(row_id)
        return gone

    # Steps

    def commit(self, worked: dict[str, tuple[I64, U8]], event_time: float | None = None) -> None:
        """The next step commits: `worked` has each table's unique ids and what the step made of their rows."""
        self.step += 1
        if event_time is not None:
            self._times[self.step] = max(event_time, *self._times.values()) if self._times else event_time
        for table, (ids, records) in worked.items():
            self._stamp(table, ids, records.copy())
        for table in self.specs:
            self._expire(table)

    def _stamp(self, table: str, ids: I64, records: U8) -> None:
        spec = self.specs[table]
        views = spec.layout.views(records)
        small = next((policy for policy in spec.expiry if isinstance(policy, L2Below)), None)
        for i, row_id in enumerate(ids.tolist()):
            had = row_id in self.rows[table]
            if not had and not self._admits(table, row_id):
                continue
            count, last_step = self._stamps(table, self.rows[table][row_id]) if had else (0, 0)
            views.count[i], views.last_step[i] = self._decayed(spec, count, last_step) + 1, self.step
            self.rows[table][row_id] = records[i].tobytes()
            self._log(self.step).touched.setdefault(table, set()).add(row_id)
            weights = decode_weights(views.weight[i : i + 1], spec.weight_dtype).astype(np.float64)
            if small and views.count[i] >= small.min_count and np.sqrt((weights**2).sum()) < small.norm:
                self._remove(table, row_id)

    def _admits(self, table: str, row_id: int) -> bool:
        spec = self.specs[table]
        policy = spec.admission
        if isinstance(policy, MinCount):
            self._seen[table][row_id] = self._seen[table].get(row_id, 0) + 1
            return self._seen[table][row_id] >= policy.n
        if isinstance(policy, Probability):
            return bool(admission_draw(spec.key(self.seed), int64s([row_id]), self.step)[0] < policy.threshold)
        return True

    def _expire(self, table: str) -> None:
        spec, rows = self.specs[table], self.rows[table]
        policies = {type(policy): policy for policy in spec.expiry}
        ttl, most = policies.get(TTL), policies.get(MaxRows)
        if isinstance(ttl, TTL):
            self._rules[table] = max(self._rules[table], (self._first_live_step(ttl), 0))
            self._drop_expired(table)
        while isinstance(most, MaxRows) and most.by == "lru" and len(rows) > most.n:
            ages = sorted(self._ages(table).values())
            oldest, excess = ages[0][0], len(rows) - most.n
            of_oldest = [age for age in ages if age[0] == oldest]
            whole = len(of_oldest) <= excess  # else its classes of ids go until enough did
            self._rules[table] = (oldest + 1, 0) if whole else (oldest, of_oldest[excess - 1][1] + 1)
            self._drop_expired(table)
        if isinstance(most, MaxRows) and most.by == "lfu" and len(rows) > most.n:
            order = sorted(
                (self._decayed(spec, *self._stamps(table, record)), int(mix64(int64s([row_id]))[0]), row_id)
                for row_id, record in rows.items()
            )
            for _, _, row_id in order[: len(rows) - (most.n - most.n // 20)]:
                self._remove(table, row_id)

    def _first_live_step(self, ttl: TTL) -> int:
        if ttl.steps:
            return max(0, self.step - ttl.steps)
        over = [step for step, time in self._times.items() if time < self._times[self.step] - ttl.seconds]
        return max(over) + 1 if over else 0

    def _drop_expired(self, table: str) -> None:
        for row_id, age in self._ages(table).items():
            if age < self._rules[table]:
                del self.rows[table][row_id]

    def _remove(self, table: str, row_id: int) -> None:
        del self.rows[table][row_id]
        self._log(self.step).expired.setdefault(table, set()).add(row_id)

    def _log(self, step: int) -> Counted:
        return self.logs.setdefault(step, Counted())

    def _stamps(self, table: str, record: bytes) -> tuple[int, int]:
        views = self.specs[table].layout.views(np.frombuffer(record, np.uint8)[None])
        return int(views.count[0]), int(views.last_step[0])

    def _ages(self, table: str) -> dict[int, tuple[int, int]]:
        """By id: last step, class of ids that breaks ties."""
        rows = self.rows[table]
        classes = (mix64(int64s(rows)) >> np.uint64(44)).astype(np.int64) & 255
        stamps = (self._stamps(table, record)[1] for record in rows.values())
        return dict(zip(rows, zip(stamps, classes.tolist(), strict=True), strict=True))

    def _decayed(self, spec: TableSpec, count: int, last_step: int) -> int:
        return spec.eviction.effective_count(count, last_step, self.step) if isinstance(spec.eviction, LFU) else count


def exported(batches: Iterable[tuple[I64, U8]]) -> State:
    """All of an export or a scan; fails on a row that comes twice."""
    rows: State = {}
    for ids, records in batches:
        for row_id, record in zip(ids.tolist(), records, strict=True):
            assert row_id not in rows, f"id {row_id} came twice"
            rows[row_id] = record.tobytes()
    return rows
