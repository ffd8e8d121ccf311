"""The generator: every random bit of a row is a function of (seed, table, id, column) and nothing else.

Philox 4x32-10, here in numpy. The C++ core (native/rows/philox.h) and the Triton kernels draw the same bits.

    key      k0, k1 = low, high half of table_key = xxh64(table name, seed)
    counter  c0, c1 = low, high half of the id (two's complement)
             c2     = block | stream << 24
             c3     = attempt (stream 2) or step (streams 3 and 4), else 0

    stream 0  uniform init           word c % 4 of block c // 4 is column c's draw
           1  normal init            block c is column c's draw
           2  truncated normal init  block c is column c's draw, once per attempt
           3  stochastic rounding    word c % 4 of block c // 4 is column c's draw
           4  admission              word 0 of block 0

A weight is one exact conversion of an integer of at most 24 bits and one float32 multiplication. There is no addition,
so no compiler can fuse one, and no product is subnormal, so no flush-to-zero mode shows.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]

STREAM_UNIFORM: Final = 0
STREAM_NORMAL: Final = 1
STREAM_TRUNCATED: Final = 2
STREAM_ROUNDING: Final = 3
STREAM_ADMISSION: Final = 4

MAX_DIM: Final = 1 << 24  # a column block has 24 bits of c2
MAX_ATTEMPTS: Final = 32  # of a truncated normal; then it is clamped
NUM_BUCKETS: Final = 4096

_M64 = (1 << 64) - 1
_M32 = (1 << 32) - 1

# --- strings -> 64 bits: XXH64 ------------------------------------------------------------------------------------

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (64 - r))) & _M64


def _lane(acc: int, word: int) -> int:
    return _rotl((acc + word * _P2) & _M64, 31) * _P1 & _M64


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 of `data`: the project's 64-bit hash of a string, the same in every process and release."""
    if not 0 <= seed <= _M64:
        raise ConfigError(f"seed: found {seed}, expected an int from 0 to 2**64 - 1")
    n, at = len(data), 0
    if n >= 32:
        lanes = [(seed + _P1 + _P2) & _M64, (seed + _P2) & _M64, seed, (seed - _P1) & _M64]
        for at in range(0, n - 31, 32):
            words = (int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4))
            lanes = [_lane(lane, word) for lane, word in zip(lanes, words, strict=True)]
        at += 32
        h = sum(_rotl(lane, r) for lane, r in zip(lanes, (1, 7, 12, 18), strict=True)) & _M64
        for lane in lanes:
            h = ((h ^ _lane(0, lane)) * _P1 + _P4) & _M64
    else:
        h = (seed + _P5) & _M64
    h = (h + n) & _M64
    while at + 8 <= n:
        h ^= _lane(0, int.from_bytes(data[at : at + 8], "little"))
        h = (_rotl(h, 27) * _P1 + _P4) & _M64
        at += 8
    if at + 4 <= n:
        h ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _M64
        h = (_rotl(h, 23) * _P2 + _P3) & _M64
        at += 4
    for byte in data[at:]:
        h = _rotl(h ^ (byte * _P5 & _M64), 11) * _P1 & _M64
    h = (h ^ (h >> 33)) * _P2 & _M64
    h = (h ^ (h >> 29)) * _P3 & _M64
    return h ^ (h >> 32)


def table_key(table: str, seed: int) -> int:
    """The Philox key of a table: tables of other names, or other seeds, draw unrelated rows."""
    return xxh64(table.encode(), seed)


# --- ids -> 64 bits -------------------------------------------------------------------------------------------------


def mix64(x: npt.ArrayLike) -> U64:
    """The id hash: a bijection of uint64 (splitmix64's finalizer), elementwise. int64 is taken by its bits."""
    h = _as_u64(x)
    h = h ^ (h >> np.uint64(30))
    h = h * np.uint64(0xBF58476D1CE4E5B9)
    h = h ^ (h >> np.uint64(27))
    h = h * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def unmix64(x: npt.ArrayLike) -> U64:
    """The inverse of `mix64`."""
    h = _as_u64(x)
    h = h ^ (h >> np.uint64(31)) ^ (h >> np.uint64(62))
    h = h * np.uint64(0x319642B2D24D8EC3)  # the inverse of mix64's factor, modulo 2**64
    h = h ^ (h >> np.uint64(27)) ^ (h >> np.uint64(54))
    h = h * np.uint64(0x96DE1B173F119089)
    unmixed: U64 = h ^ (h >> np.uint64(30)) ^ (h >> np.uint64(60))
    return unmixed


def bucket_of_ids(ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bucket of ids, 0..4095, of each id: the top 12 bits of its hash."""
    return (mix64(ids) >> np.uint64(52)).astype(np.int64)


def _as_u64(x: npt.ArrayLike) -> U64:
    array = np.atleast_1d(np.asarray(x))  # arrays wrap around silently; numpy scalars would warn
    if array.dtype not in (np.int64, np.uint64):
        raise ConfigError(f"ids: found dtype {array.dtype}, expected int64 or uint64")
    bits: U64 = array.view(np.uint64)
    return bits


# --- Philox ---------------------------------------------------------------------------------------------------------


def philox4x32(counter: tuple[npt.ArrayLike, ...], key: tuple[int, int]) -> tuple[U32, U32, U32, U32]:
    """Ten rounds of Philox 4x32: four uint32 words (broadcast together) and a key -> the block's four words."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in np.broadcast_arrays(*counter))
    k0, k1 = key
    shift, low = np.uint64(32), np.uint64(_M32)
    for _ in range(10):
        p0 = c0 * np.uint64(0xD2511F53)
        p1 = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & _M32, (k1 + 0xBB67AE85) & _M32
    return c0.astype(np.uint32), c1.astype(np.uint32), c2.astype(np.uint32), c3.astype(np.uint32)


def _blocks(
    key: int, ids: npt.ArrayLike, block: npt.ArrayLike, stream: int, c3: npt.ArrayLike
) -> tuple[U32, U32, U32, U32]:
    bits = _as_u64(ids)
    c2 = np.asarray(block, np.uint32) | np.uint32(stream << 24)
    return philox4x32((bits & np.uint64(_M32), bits >> np.uint64(32), c2, c3), (key & _M32, key >> 32))


def _column_words(key: int, ids: I64, dim: int, stream: int, c3: int) -> U32:
    """uint32 [n, dim]: column c takes word c % 4 of block c // 4."""
    words = _blocks(key, ids[:, None], np.arange((dim + 3) // 4), stream, c3)
    return np.stack(words, axis=-1).reshape(len(ids), 4 * ((dim + 3) // 4))[:, :dim]


def _sum_of_halves(words: tuple[U32, U32, U32, U32]) -> npt.NDArray[np.int64]:
    """S2: twice the centred sum of a block's eight 16-bit halves; an even int, |S2| <= 524280, near normal."""
    total = sum((w & np.uint32(0xFFFF)).astype(np.int64) + (w >> np.uint32(16)).astype(np.int64) for w in words)
    return 2 * np.asarray(total, np.int64) - 8 * 65535


def uniform_draws(key: int, ids: I64, dim: int, a: int, b: int) -> npt.NDArray[np.int64]:
    """[n, dim] ints, a <= v < b (v = a where a = b); |a|, |b| <= 2**24."""
    words = _column_words(key, ids, dim, STREAM_UNIFORM, 0).astype(np.uint64)
    return a + ((words * np.uint64(b - a)) >> np.uint64(32)).astype(np.int64)


def normal_draws(key: int, ids: I64, dim: int) -> npt.NDArray[np.int64]:
    """[n, dim] ints S2; their standard deviation is `initializers.STD_OF_S2`."""
    return _sum_of_halves(_blocks(key, ids[:, None], np.arange(dim), STREAM_NORMAL, 0))


def truncated_draws(key: int, ids: I64, dim: int, limit: int) -> npt.NDArray[np.int64]:
    """[n, dim] ints S2 with |S2| <= limit: drawn again while beyond it, clamped after MAX_ATTEMPTS draws."""
    drawn = _sum_of_halves(_blocks(key, ids[:, None], np.arange(dim), STREAM_TRUNCATED, 0))
    for attempt in range(1, MAX_ATTEMPTS):
        row, column = np.nonzero(np.abs(drawn) > limit)
        if not len(row):
            return drawn
        drawn[row, column] = _sum_of_halves(_blocks(key, ids[row], column, STREAM_TRUNCATED, attempt))
    return np.clip(drawn, -limit, limit)


def stochastic_round_bits(key: int, ids: I64, step: int, dim: int) -> U32:
    """uint32 [n, dim]: the draws that round the weights of `ids` at `step` (see rounding.py)."""
    return _column_words(key, np.asarray(ids, np.int64), dim, STREAM_ROUNDING, _checked_step(step))


def admission_draw(key: int, ids: I64, step: int) -> U32:
    """uint32 [n]: an id that is new at `step` is admitted where its draw is below the policy's threshold."""
    return _blocks(key, np.asarray(ids, np.int64), 0, STREAM_ADMISSION, _checked_step(step))[0]


def _checked_step(step: int) -> int:
    if not 0 <= step <= _M32:
        raise ConfigError(f"step: found {step}, expected an int from 0 to 2**32 - 1")
    return step
