"""float32 -> bf16 and fp16, to nearest and stochastically, on bit patterns; the same bits as native/rows/rounding.h.

Stochastic rounding adds a random number below one unit of the kept bits and truncates, so the expected value is the
float32 value. It rounds past the largest finite number to infinity, as rounding to nearest does. Infinity stays, a NaN
stays a (quiet) NaN, and a value that the narrow type holds exactly never changes.
"""

import numpy as np
import numpy.typing as npt

from stepwell.rows.generator import F32, U32

U16 = npt.NDArray[np.uint16]
F16 = npt.NDArray[np.float16]

_EXPONENT = np.uint32(0x7F800000)
_ABS = np.uint32(0x7FFFFFFF)


def bf16_nearest(x: F32) -> U16:
    """bf16 bit patterns of `x`, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return _finish_bf16(bits, rounded)


def bf16_stochastic(x: F32, draws: U32) -> U16:
    """bf16 bit patterns of `x`; the low 16 bits of each draw decide."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return _finish_bf16(bits, bits + (draws & np.uint32(0xFFFF)))


def _finish_bf16(bits: U32, rounded: U32) -> U16:
    special = (bits & _EXPONENT) == _EXPONENT
    quiet = np.where((bits & _ABS) > _EXPONENT, np.uint32(0x40), np.uint32(0))
    return (np.where(special, bits, rounded) >> np.uint32(16) | quiet).astype(np.uint16)


def bf16_to_float(stored: U16) -> F32:
    """The exact float32 values of bf16 bit patterns."""
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def fp16_nearest(x: F32) -> F16:
    """`x` in fp16, ties to even, through subnormals."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x, np.float32).astype(np.float16)


def fp16_stochastic(x: F32, draws: U32) -> F16:
    """`x` in fp16; the low bits of each draw decide, as many as are dropped, at most 32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    magnitude = bits & _ABS
    exponent = (magnitude >> np.uint32(23)).astype(np.int64) - 127
    # Normal in fp16: 13 bits go, and the exponent is rebased first so that a carry moves it up.
    normal = (magnitude.astype(np.int64) - (112 << 23) + (draws & np.uint32(0x1FFF))) >> 13
    # Subnormal in fp16: the result is significand * 2**(exponent + 1) in units of 2**-24. Beyond 32 dropped bits the
    # excess is truncated: it is below 2**-32 units.
    significand = (magnitude & np.uint32(0x7FFFFF)).astype(np.int64) | np.where(magnitude >> np.uint32(23), 1 << 23, 0)
    dropped = np.clip(-1 - exponent, 0, 63)
    excess = np.maximum(dropped - 32, 0)
    kept = dropped - excess
    mask = (np.int64(1) << kept) - 1
    subnormal = ((significand >> excess) + (draws.astype(np.int64) & mask)) >> kept
    half: npt.NDArray[np.int64] = np.minimum(np.where(exponent >= -14, normal, subnormal), 0x7C00)
    half = np.where(magnitude > _EXPONENT, 0x7E00 | (magnitude >> np.uint32(13)) & np.uint32(0x3FF), half)
    signed = half | ((bits >> np.uint32(16)) & np.uint32(0x8000))
    rounded: F16 = signed.astype(np.uint16).view(np.float16)
    return rounded
