"""LMDB as a store of fixed-size rows by u64 key."""

from pathlib import Path

import numpy as np

from benchmarks.peers import Keys, Rows, encode, import_peer, split


class LmdbStore:
    """One environment in `path`. Writes are not synced one by one; `flush` makes them durable."""

    def __init__(self, path: str | Path, *, map_bytes: int = 64 << 30) -> None:
        self._env = import_peer("lmdb").open(str(path), map_size=map_bytes, sync=False)

    def upsert(self, keys: Keys, rows: Rows, *, sort: bool = True) -> None:
        """Write one batch in one transaction; `sort` puts it in key order first, which made it 1.4x faster."""
        if sort:
            order = np.argsort(keys)
            keys, rows = keys[order], rows[order]
        with self._env.begin(write=True) as transaction:
            transaction.cursor().putmulti(list(zip(encode(keys), split(rows), strict=True)))

    def multi_get(self, keys: Keys, *, sort: bool = True) -> list[bytes]:
        """The rows of `keys`, in their order or, with `sort`, in key order; missing keys are left out.

        The rows stay the bytes objects that lmdb returns: gathering them into an array is not charged to the peer.
        """
        with self._env.begin() as transaction:
            return [row for _, row in transaction.cursor().getmulti(encode(np.sort(keys) if sort else keys))]

    def flush(self) -> None:
        """Make everything written so far durable."""
        self._env.sync(True)

    def close(self) -> None:
        """Close the environment; its files stay."""
        self._env.close()
