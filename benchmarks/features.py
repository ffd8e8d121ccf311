"""Features of Criteo's shape on one thread. `python -m benchmarks.features [--quick] [--json] [--case NAME] [--save]`.

`criteo_ints` has ids that are ints already, against the same in numpy; `criteo_hex` has them as hex digits.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from benchmarks.harness import Bar, Case, Run, Sides, Timed, main
from stepwell.data import CRITEO_CATS, CRITEO_INTS, Column, Columns, Strings, criteo_features

_ROWS = 1 << 16
_BAR = 1 / 3e-6  # 1.5 us on each of two cores leave a reader of Parquet its 400k samples/s
_SEED = 7


def _columns(as_hex: bool) -> Columns:
    rng = np.random.default_rng(_SEED)
    made = {}
    for name in CRITEO_INTS:
        counts = np.exp(rng.normal(3, 2, _ROWS)).astype(np.int32)
        made[name] = Column(counts, valid=rng.random(_ROWS) < 0.8)
    for name in CRITEO_CATS:
        ids = rng.integers(0, 1 << 32, _ROWS)
        there = rng.random(_ROWS) < 0.95
        if as_hex:
            digits = np.frombuffer(b"".join(b"%08x" % id_ for id_ in ids.tolist()), np.uint8)
            made[name] = Column(Strings(digits, np.arange(_ROWS + 1) * 8), valid=there)
        else:
            made[name] = Column(ids, valid=there)
    return Columns(made, _ROWS)


def _with_numpy(columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    dense = np.empty((_ROWS, len(CRITEO_INTS)), np.float32)
    for at, name in enumerate(CRITEO_INTS):
        column = columns[name]
        counts = np.where(column.valid, column.values, 0).astype(np.float32)
        dense[:, at] = np.copysign(np.log1p(np.abs(counts)), counts)
    there = [columns[name].valid for name in CRITEO_CATS]
    values = np.concatenate([columns[name].values[mask] for name, mask in zip(CRITEO_CATS, there, strict=True)])
    offsets = np.zeros(len(there) * _ROWS + 1, np.int64)
    np.cumsum(np.concatenate(there), out=offsets[1:])
    return values, offsets, dense


def _case(as_hex: bool) -> Callable[[Run], AbstractContextManager[Sides]]:
    @contextmanager
    def setup(run: Run) -> Iterator[Sides]:
        columns, features = _columns(as_hex), criteo_features()

        def ours(_: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            ids, dense = features.compute(columns)
            return ids.values.numpy(), ids.offsets.numpy(), dense

        def agree(mine: tuple[np.ndarray, ...], theirs: tuple[np.ndarray, ...]) -> None:
            equal = np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])
            if not equal or not np.allclose(mine[2], theirs[2], rtol=1e-6):
                raise ValueError("features and numpy disagree")

        peer = Bar(_BAR) if as_hex else Timed(call=lambda _: _with_numpy(columns), work=_ROWS)
        yield Sides(
            ours=Timed(call=ours, work=_ROWS),
            peer=peer,
            agree=None if as_hex else agree,
            config={"rows": _ROWS, "dense": len(CRITEO_INTS), "ids": len(CRITEO_CATS), "threads": 1},
        )

    return setup


CASES = [
    Case(name="criteo_ints", setup=_case(False), unit="samples/s", peer_name="the same in numpy"),
    Case(name="criteo_hex", setup=_case(True), unit="samples/s", peer_name="bar: 3 us on one core"),
]

if __name__ == "__main__":
    raise SystemExit(main("features", CASES))
