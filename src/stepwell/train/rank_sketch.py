"""RankSketch: how scores order positives and negatives, group by group, in bounded memory.

An entry is a group, a score and two masses: of positives and of negatives with that score. A group of at most
`per_group` distinct scores is exact. In a larger one neighbours are merged into cells of equal share, so that what is
merged holds at most 4 / per_group of the group's positives and of its negatives: the AUC's error is of that order at
worst, and of its square where the share of positives changes smoothly with the score.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError

F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

_BUFFER_ROWS: Final = 1 << 18  # rows kept before they are sorted in; half the entries' number when those are more
_TOP_BIT: Final = np.uint32(1 << 31)


class Entries(NamedTuple):
    """Sorted by group, then by score; no two alike."""

    group: I64
    score: F32
    positive: F64
    negative: F64


class RankSketch:
    """See the module. At most `capacity` entries of 28 bytes; sorting rows in takes five times that for a moment."""

    def __init__(self, per_group: int, capacity: int) -> None:
        self.per_group, self.capacity = per_group, capacity
        self._entries = _NOTHING
        self._buffer: list[Entries] = []
        self._buffered = 0

    def add(self, score: F32, positive: F64, negative: F64, group: I64 | None = None) -> None:
        """Rows: finite scores and masses of at least 0; without groups they are in group 0."""
        if len(score) == 0:
            return
        self._buffer.append(
            Entries(np.zeros(len(score), np.int64) if group is None else group, score, positive, negative)
        )
        self._buffered += len(score)
        if self._buffered >= max(_BUFFER_ROWS, len(self._entries.score) // 2):
            self.entries()

    def merge(self, other: "RankSketch") -> None:
        """Add what another has seen."""
        entries = other.entries()
        self.add(entries.score, entries.positive, entries.negative, entries.group)

    def entries(self) -> Entries:
        """All that was added; ConfigError if it takes more than `capacity` entries."""
        if self._buffered:
            merged = _sorted(Entries(*map(np.concatenate, zip(self._entries, *self._buffer, strict=True))))
            merged = _compressed(merged, self.per_group)
            if len(merged.score) > self.capacity:
                groups = 1 + np.count_nonzero(np.diff(merged.group))
                raise ConfigError(
                    f"grouped AUC: found {len(merged.score)} different pairs of a group and a score, in {groups} "
                    f"groups, expected at most {self.capacity}: evaluate fewer rows, or raise max_group_entries (28 "
                    "bytes each)"
                )
            self._entries, self._buffer, self._buffered = merged, [], 0
        return self._entries

    def restore(self, entries: Entries) -> None:
        """Begin again from what `entries` gave."""
        self._entries, self._buffer, self._buffered = entries, [], 0

    def areas(self) -> tuple[F64, F64]:
        """(AUC, mass) of each group that has both classes; ties count half."""
        entries = self.entries()
        if not len(entries.group):
            return np.empty(0), np.empty(0)
        starts, sizes = _groups(entries.group)
        positives, negatives = (np.add.reduceat(mass, starts) for mass in (entries.positive, entries.negative))
        below = np.cumsum(entries.negative) - entries.negative
        below -= np.repeat(below[starts], sizes)  # negatives of the same group with a smaller score
        won = np.add.reduceat(entries.positive * (below + 0.5 * entries.negative), starts)
        both = (positives > 0) & (negatives > 0)
        return won[both] / (positives[both] * negatives[both]), (positives + negatives)[both]


def _sorted(rows: Entries) -> Entries:
    """In order, rows that are alike added up."""
    score = rows.score + np.float32(0.0)  # -0.0 becomes 0.0
    bits = score.view(np.uint32)
    rising = np.where(bits & _TOP_BIT, ~bits, bits | _TOP_BIT)  # as integers, in the order of the scores
    # Sorting plain integers is several times faster than argsort: the score above, the row's number below.
    packed = np.sort((rising.astype(np.uint64) << np.uint64(32)) | np.arange(len(bits), dtype=np.uint64))
    order = (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
    if rows.group.any():
        order = order[np.argsort(rows.group[order], kind="stable")]
    group, score = rows.group[order], score[order]
    starts = _starts((group[1:] != group[:-1]) | (score[1:] != score[:-1]))
    positive, negative = (np.add.reduceat(mass[order], starts) for mass in (rows.positive, rows.negative))
    return Entries(group[starts], score[starts], positive, negative)


def _compressed(entries: Entries, per_group: int) -> Entries:
    """Groups of more than `per_group` entries merged into half as many cells; a heavy score is a cell by itself."""
    starts, sizes = _groups(entries.group)
    if sizes.max() <= per_group:
        return entries
    shares = np.zeros(len(entries.group))  # half of a group's positives and half of its negatives: 1 in all
    for mass in (entries.positive, entries.negative):
        totals = np.add.reduceat(mass, starts)
        shares += np.repeat(np.divide(0.5, totals, out=np.zeros_like(totals), where=totals > 0), sizes) * mass
    before = np.cumsum(shares) - shares
    before -= np.repeat(before[starts], sizes)
    cell = np.floor((before + 0.5 * shares) * (per_group // 2)).astype(np.int64)
    alone = np.repeat(sizes <= per_group, sizes) | (shares * (per_group // 2) > 1.0)
    merged = _starts((np.diff(entries.group) != 0) | (np.diff(cell) != 0) | alone[1:] | alone[:-1])
    weight = np.maximum(shares, np.finfo(np.float64).tiny)
    score = np.add.reduceat(weight * entries.score, merged) / np.add.reduceat(weight, merged)
    positive, negative = (np.add.reduceat(mass, merged) for mass in (entries.positive, entries.negative))
    return Entries(entries.group[merged], score.astype(np.float32), positive, negative)


def _groups(group: I64) -> tuple[I64, I64]:
    """(where each group starts, how many entries it has); there is at least one entry."""
    starts = _starts(group[1:] != group[:-1])
    return starts, np.diff(np.append(starts, len(group)))


def _starts(changes: npt.NDArray[np.bool_]) -> I64:
    """Where runs begin: at 0, and at each later place that `changes` marks."""
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])


_NOTHING: Final = Entries(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0), np.empty(0))
