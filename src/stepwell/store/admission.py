"""Which new ids get a stored row, decided when the step that has them commits."""

import numpy as np
import numpy.typing as npt

from stepwell.errors import StoreCorrupt
from stepwell.native import count_ids, draw_admission
from stepwell.rows import NUM_BUCKETS, MinCount, Probability
from stepwell.store.tables import I64, Mask, Table

_COUNTERS_PER_ID = 4  # three are used: an id that shares all three with others counts too high, under 1 in 100


class Admission:
    """One table's admission policy and its memory of ids that were seen and not admitted."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._counters: npt.NDArray[np.uint16] | None = None

    def decide(self, ids: I64, step: int) -> Mask:
        """Which of these ids, none of which has a stored row, get one in this step.

        REQUIRES: ids are unique and sorted; called once per committed step that has any.
        """
        policy = self._table.spec.admission
        if isinstance(policy, MinCount):
            counts = np.empty(len(ids), np.uint16)
            count_ids(self._filter(policy), self._width(policy), ids, counts)
            return counts >= policy.n
        if isinstance(policy, Probability):
            draws = np.empty(len(ids), np.uint32)
            draw_admission(self._table.key, ids, step, draws)
            return draws < policy.threshold
        return np.ones(len(ids), np.bool_)

    @property
    def counters(self) -> npt.NDArray[np.uint16] | None:
        """The filter's counters by bucket of ids, None while nothing was counted."""
        return self._counters

    def restore(self, counters: npt.NDArray[np.uint16]) -> None:
        """Go on from counters that another Admission of this table had."""
        policy = self._table.spec.admission
        expected = NUM_BUCKETS * self._width(policy) if isinstance(policy, MinCount) else 0
        if counters.dtype != np.uint16 or counters.shape != (expected,):
            raise StoreCorrupt(
                f"the admission filter of table {self._table.spec.name!r} has {counters.size} counters, expected "
                f"{expected}; give the table the admission policy that it was saved with"
            )
        self._counters = counters.copy()

    def _filter(self, policy: MinCount) -> npt.NDArray[np.uint16]:
        if self._counters is None:
            self._counters = np.zeros(NUM_BUCKETS * self._width(policy), np.uint16)
        return self._counters

    @staticmethod
    def _width(policy: MinCount) -> int:
        return max(8, -(-policy.expected_ids * _COUNTERS_PER_ID // NUM_BUCKETS))
