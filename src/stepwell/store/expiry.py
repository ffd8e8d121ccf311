"""When a table's rows expire: its rule for the tiers, and how many rows are live."""

import heapq
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError
from stepwell.native import ExpiryRule, mix64
from stepwell.rows import TTL, L2Below, MaxRows
from stepwell.store.tables import I64, U32, Mask, Table

_CLASSES = 256
_CLASS_SHIFT = np.uint64(44)


class Expiry:
    """One table's expiry policies at one commit.

    Rows that were not used for long expire by rule: no tier is searched for them, they are absent from then on. A
    histogram of last steps says how many rows that leaves, and for MaxRows by lru where the rule must lie; ties go by
    256 classes of id hashes. MaxRows by lfu and L2Below name rows one by one (see store.steps).
    """

    def __init__(self, table: Table) -> None:
        policies = {type(policy): policy for policy in table.spec.expiry}
        ttl, most, small = policies.get(TTL), policies.get(MaxRows), policies.get(L2Below)
        self._name = table.spec.name
        self._ttl = ttl if isinstance(ttl, TTL) else None
        self._most = most if isinstance(most, MaxRows) else None
        self.small = small if isinstance(small, L2Below) else None
        self._classes = _CLASSES if self._most is not None and self._most.by == "lru" else 1
        self.counts_steps = self._ttl is not None or self._classes > 1
        self.live = 0  # rows that are committed and have not expired
        self._live_from, self._tie_class = 0, 0
        self._rows_by_step: dict[int, npt.NDArray[np.int64]] = {}
        self._steps: list[int] = []  # a heap of the histogram's steps
        self._times: list[float] = []  # event time of the commits from self._first_time_step on
        self._first_time_step = 1

    @property
    def rule(self) -> ExpiryRule:
        """What the tiers must be told."""
        return ExpiryRule(self._live_from, self._tie_class)

    @property
    def needs_event_time(self) -> bool:
        """Whether commits must say their event time."""
        return self._ttl is not None and self._ttl.seconds > 0

    @property
    def acts(self) -> bool:
        """Whether commits may change the rule."""
        return self._ttl is not None or (self._most is not None and self._most.by == "lru")

    @property
    def max_rows_by_lfu(self) -> int:
        """MaxRows' n if it goes by lfu, else 0."""
        return self._most.n if self._most is not None and self._most.by == "lfu" else 0

    def expired(self, ids: I64, last_steps: U32) -> Mask:
        """Which committed rows the rule names."""
        expired = np.empty(len(ids), np.uint8)
        self.rule.expired(ids, np.ascontiguousarray(last_steps), expired)
        return expired.view(np.bool_)

    def add(self, ids: I64, last_steps: U32) -> None:
        """Rows became live, or live rows have these last steps now."""
        self.live += len(ids)
        self._count(ids, last_steps, 1)

    def remove(self, ids: I64, last_steps: U32) -> None:
        """Rows that were live with these last steps are not, or are about to have others."""
        self.live -= len(ids)
        self._count(ids, last_steps, -1)

    def advance(self, step: int, event_time: float | None) -> bool:
        """Step `step` has committed: whether the rule changed."""
        before = (self._live_from, self._tie_class)
        if self._ttl is not None:
            self._expire_before(self._ttl_horizon(self._ttl, step, event_time))
        if self._most is not None and self._most.by == "lru" and self.live > self._most.n:
            self._expire_down_to(self._most.n)
        return before != (self._live_from, self._tie_class)

    def state(self) -> dict[str, object]:
        """What `restore` needs, as JSON; the histogram is rebuilt from rows."""
        return {
            "live_from_step": self._live_from,
            "tie_class": self._tie_class,
            "first_time_step": self._first_time_step,
            "times": self._times,
        }

    def restore(self, state: dict[str, object]) -> None:
        """Go on from another's state. The rows follow through `add`."""
        self._live_from, self._tie_class = int(str(state["live_from_step"])), int(str(state["tie_class"]))
        self._first_time_step = int(str(state["first_time_step"]))
        times = state["times"]
        self._times = [float(time) for time in times] if isinstance(times, list) else []

    def _ttl_horizon(self, ttl: TTL, step: int, event_time: float | None) -> int:
        if ttl.steps:
            return max(0, step - ttl.steps)
        if event_time is None:
            raise ConfigError(f"commit({step}): table {self._name!r} expires by seconds; give the step's event_time")
        if not self._times:
            self._first_time_step = step
        latest = self._times[-1] if self._times else event_time
        self._times.append(max(event_time, latest))
        old = bisect_left(self._times, self._times[-1] - ttl.seconds)
        if old == 0:  # steps before the first known time are as old as that
            return 0
        horizon = self._first_time_step + old
        # Steps below the rule need no time any more.
        del self._times[:old]
        self._first_time_step = horizon
        return horizon

    def _expire_before(self, step: int) -> None:
        if step <= self._live_from:
            return
        while self._steps and self._steps[0] < step:
            self.live -= int(self._rows_by_step.pop(heapq.heappop(self._steps)).sum())
        self._live_from, self._tie_class = step, 0

    def _expire_down_to(self, most: int) -> None:
        while self.live > most:
            oldest = self._steps[0]
            rows = self._rows_by_step[oldest]
            total = int(rows.sum())
            if self.live - total >= most:
                self._expire_before(oldest + 1)
                continue
            going = int(np.searchsorted(np.cumsum(rows), self.live - most)) + 1  # classes
            self._expire_before(oldest)
            self.live -= int(rows[:going].sum())
            rows[:going] = 0
            self._live_from, self._tie_class = oldest, going
            if going == _CLASSES:
                self._expire_before(oldest + 1)

    def _count(self, ids: I64, last_steps: U32, sign: int) -> None:
        if not self.counts_steps or len(ids) == 0:
            return
        steps, which = np.unique(last_steps, return_inverse=True)
        cells = which.astype(np.int64) * self._classes
        if self._classes > 1:
            cells += tie_classes(ids)
        rows = np.bincount(cells, minlength=len(steps) * self._classes).reshape(len(steps), self._classes)
        for step, counts in zip(steps.tolist(), rows, strict=True):
            if step not in self._rows_by_step:
                self._rows_by_step[step] = np.zeros(self._classes, np.int64)
                heapq.heappush(self._steps, step)
            self._rows_by_step[step] += sign * counts


def tie_classes(ids: I64) -> I64:
    """The class of each id that breaks ties, as the core has it."""
    keys = np.empty(len(ids), np.uint64)
    mix64(np.ascontiguousarray(ids), keys)
    return ((keys >> _CLASS_SHIFT) & np.uint64(_CLASSES - 1)).astype(np.int64)


def norms(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The L2 norm of each row, summed in float64."""
    wide = weights.astype(np.float64)
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", wide, wide)))


def least_frequent(ids: I64, counts: U32, going: int) -> I64:
    """The `going` ids of the lowest counts, ties by id hash."""
    keys = np.empty(len(ids), np.uint64)
    mix64(ids, keys)
    return ids[np.lexsort((keys, counts))[:going]]
