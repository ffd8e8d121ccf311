import numpy as np
import pytest

from stepwell.rows import bf16_nearest, bf16_stochastic, bf16_to_float, fp16_nearest, fp16_stochastic

ALL_BITS = np.arange(65536, dtype=np.uint16)
DRAWS = np.random.default_rng(0).integers(0, 2**32, 65536, dtype=np.uint32)
SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, 65519.0, 65521.0], np.float32)


@pytest.mark.parametrize("draws", [DRAWS, np.zeros_like(DRAWS), ~np.zeros_like(DRAWS)])
def test_exact_values_never_change(draws: np.ndarray) -> None:
    bf16, fp16 = bf16_to_float(ALL_BITS), ALL_BITS.view(np.float16).astype(np.float32)
    real = ~np.isnan(bf16)
    np.testing.assert_array_equal(bf16_stochastic(bf16, draws)[real], ALL_BITS[real])
    np.testing.assert_array_equal(bf16_nearest(bf16)[real], ALL_BITS[real])
    assert np.isnan(bf16_to_float(bf16_stochastic(bf16, draws)[~real])).all()
    assert np.isnan(bf16_to_float(bf16_nearest(bf16)[~real])).all()
    real = ~np.isnan(fp16)
    np.testing.assert_array_equal(fp16_stochastic(fp16, draws).view(np.uint16)[real], ALL_BITS[real])
    assert np.isnan(fp16_stochastic(fp16, draws)[~real]).all()


def test_special_values() -> None:
    draws = DRAWS[: len(SPECIAL)]
    for rounded in (
        bf16_to_float(bf16_nearest(SPECIAL)),
        bf16_to_float(bf16_stochastic(SPECIAL, draws)),
        fp16_nearest(SPECIAL),
        fp16_stochastic(SPECIAL, draws),
    ):
        assert rounded[0] == np.inf and rounded[1] == -np.inf and np.isnan(rounded[2])
        assert rounded[3] == 0 and rounded[4] == 0 and np.signbit(rounded[4])
    assert fp16_nearest(SPECIAL)[8] == 65504 and fp16_nearest(SPECIAL)[9] == np.inf


def test_bf16_nearest_is_the_nearest_and_ties_go_to_even() -> None:
    x = np.random.default_rng(1).integers(0, 0x7F000000, 100_000, dtype=np.uint32)
    x[::3] = (x[::3] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)  # ties
    below = bf16_to_float((x >> 16).astype(np.uint16)).astype(np.float64)
    above = bf16_to_float(((x >> 16) + 1).astype(np.uint16)).astype(np.float64)
    exact = x.view(np.float32).astype(np.float64)
    even = ((x >> 16) & 1) == 0
    expected = np.where((exact - below < above - exact) | ((exact - below == above - exact) & even), below, above)
    np.testing.assert_array_equal(bf16_to_float(bf16_nearest(x.view(np.float32))), expected)


@pytest.mark.parametrize("value", [0.3, -0.3, 1.0001, 6e4, 3.3e-6, -2e-8, 1e-9, 6.1e-5])
def test_stochastic_rounding_is_unbiased_between_neighbours(value: float) -> None:
    x = np.full(65536, value, np.float32)
    exact = float(x[0])
    for rounded, unit in (
        (bf16_to_float(bf16_stochastic(x, DRAWS)), 2.0 ** (np.floor(np.log2(abs(exact))) - 7)),
        (fp16_stochastic(x, DRAWS), 2.0 ** (max(np.floor(np.log2(abs(exact))), -14) - 10)),
    ):
        found = np.unique(rounded.astype(np.float64))
        assert len(found) <= 2 and np.abs(found - exact).max() < unit
        assert abs(rounded.astype(np.float64).mean() - exact) < 4 * 0.5 * unit / 256


def test_the_top_draw_rounds_up_and_zero_truncates() -> None:
    rng = np.random.default_rng(2)
    x = np.abs(rng.normal(size=10_000)).astype(np.float32) * np.float32(10.0) ** rng.integers(-9, 3, 10_000)
    x = x.astype(np.float32)
    zeros, ones = np.zeros(10_000, np.uint32), np.full(10_000, 2**32 - 1, np.uint32)
    assert (fp16_stochastic(x, zeros).astype(np.float64) <= x).all()
    assert (fp16_stochastic(x, ones).astype(np.float64) >= x).all()
    assert (bf16_to_float(bf16_stochastic(x, zeros)) <= x).all()
    assert (bf16_to_float(bf16_stochastic(x, ones)) >= x).all()
