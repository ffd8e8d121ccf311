"""Epochs: deltas laid over a store that is being read.

A reader holds one view for its whole call: the epoch and the overlays over the tiers. Publishing builds an overlay
off the path and swaps one reference. When no reader is left at an epoch before an overlay's, the overlay's rows are
merged into the tiers (its readers go on finding them in the overlay), and when no reader holds a view that has the
overlay, its memory is given back. Overlay rows lie in the DRAM tier's slots, so they count to its budget.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

import numpy as np

from stepwell.errors import ConfigError
from stepwell.native import DramTable
from stepwell.store.tables import I64, U8, Mask


@dataclass(frozen=True, slots=True)
class Overlay:
    """One delta: rows by table in indexes of their own, and erased ids, sorted."""

    epoch: int
    indexes: dict[int, tuple[DramTable, int]]
    erased: dict[int, I64]

    def read(self, table: int, ids: I64, records: U8, found: Mask, open_: Mask) -> None:
        """Settle those of `ids` that are still open and that the delta names: found with their record, or absent."""
        if table in self.erased:
            known = self.erased[table]
            at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
            open_ &= known[at] != ids
        if table in self.indexes:
            core, number = self.indexes[table]
            asked = np.flatnonzero(open_)
            some = np.empty((len(asked), records.shape[1]), np.uint8)
            there = np.empty(len(asked), np.uint8)
            core.find(number, ids[asked], False, 0, some, there)
            hits = there.view(np.bool_)
            records[asked[hits]] = some[hits]
            found[asked[hits]] = True
            open_[asked[hits]] = False


@dataclass(frozen=True, slots=True)
class View:
    """What one reader sees: an epoch and the overlays, newest first, over the tiers."""

    serial: int
    epoch: int
    overlays: tuple[Overlay, ...]


class Epochs:
    """The current view, and who still reads which."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._view = View(0, 0, ())  # replaced whole
        self._views: dict[int, View] = {0: self._view}
        self._readers: Counter[int] = Counter()  # serial -> readers

    @property
    def current(self) -> int:
        """The newest epoch."""
        return self._view.epoch

    @contextmanager
    def reading(self, epoch: int | None = None) -> Iterator[View]:
        """Hold the newest view, or one of an older epoch that somebody holds."""
        with self._changed:
            view = self._view if epoch is None or epoch == self._view.epoch else self._held(epoch)
            self._readers[view.serial] += 1
        try:
            yield view
        finally:
            with self._changed:
                self._readers[view.serial] -= 1
                if self._readers[view.serial] == 0:
                    del self._readers[view.serial]
                    if view.serial != self._view.serial:
                        del self._views[view.serial]
                    self._changed.notify_all()

    def publish(self, overlay: Overlay) -> None:
        """Readers that come from now on see the overlay."""
        self._swap(overlay.epoch, (overlay, *self._view.overlays))

    def oldest_overlay(self) -> Overlay | None:
        """The overlay that is merged next."""
        return self._view.overlays[-1] if self._view.overlays else None

    def wait_mergeable(self, overlay: Overlay, timeout_s: float) -> bool:
        """Wait until nobody reads an epoch before the overlay's."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(self._views[serial].epoch >= overlay.epoch for serial in self._readers), timeout_s
            )

    def retire(self, overlay: Overlay) -> None:
        """The tiers hold the overlay's rows: readers that come from now on do not need it."""
        self._swap(self._view.epoch, tuple(other for other in self._view.overlays if other is not overlay))

    def in_use(self, overlay: Overlay) -> bool:
        """Whether a view that somebody holds has the overlay."""
        with self._changed:
            return any(any(other is overlay for other in self._views[serial].overlays) for serial in self._readers)

    def num_overlays(self) -> int:
        """Overlays not merged yet."""
        return len(self._view.overlays)

    def _swap(self, epoch: int, overlays: tuple[Overlay, ...]) -> None:
        with self._changed:
            old, self._view = self._view, View(self._view.serial + 1, epoch, overlays)
            self._views[self._view.serial] = self._view
            if old.serial not in self._readers:
                del self._views[old.serial]
            self._changed.notify_all()

    def _held(self, epoch: int) -> View:
        for view in self._views.values():
            if view.epoch == epoch and view.serial in self._readers:
                return view
        held = sorted({self._views[serial].epoch for serial in self._readers})
        raise ConfigError(
            f"epoch: found {epoch}, expected the newest, {self._view.epoch}, or one that is being read ({held}); hold "
            "one with `with store.reading() as epoch:`"
        )
