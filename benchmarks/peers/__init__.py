"""What Stepwell is compared with. `make setup-peers` installs it all."""

import importlib
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]  # [n]
Rows = NDArray[np.uint8]  # [n, R]: R bytes per row


class PeerMissing(Exception):
    """A peer is not installed; the message says how to get it."""


def import_peer(module: str) -> ModuleType:
    """The peer's Python module, or `PeerMissing`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise PeerMissing(f"{module} is not installed; run `make setup-peers`") from None


def encode(keys: Keys) -> list[bytes]:
    """Keys as the peers store them: big-endian, so that their order by bytes is their order as numbers."""
    data = keys.astype(">u8").tobytes()
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def split(rows: Rows) -> list[bytes]:
    """Each row as the bytes object that a peer's put takes."""
    size, data = rows.shape[1], rows.tobytes()
    return [data[at : at + size] for at in range(0, len(data), size)]
