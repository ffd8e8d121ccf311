import math

import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.rows import (
    Constant,
    Initializer,
    Normal,
    TruncatedNormal,
    Uniform,
    Xavier,
    Zeros,
    draw_weights,
    encode_weights,
    initial_rows,
)
from stepwell.rows.generator import normal_draws, truncated_draws
from stepwell.rows.initializers import MAX_S2, STD_OF_S2, InitProgram
from tests.rows.golden_weights import GOLDEN_IDS, GOLDEN_WEIGHTS

GOLDEN_SPECS: dict[str, Initializer] = {
    "uniform": Uniform(low=-0.1, high=0.3),
    "normal": Normal(std=0.02),
    "truncated": TruncatedNormal(std=0.02),
    "one_sigma": TruncatedNormal(std=0.02, bound_sigmas=1.0),
    "xavier": Xavier(),
    "constant": Constant(value=0.1),
}
MANY = np.arange(-20_000, 20_000)


@pytest.mark.parametrize("name", GOLDEN_SPECS)
@pytest.mark.parametrize(("dtype", "digits"), [("fp32", 8), ("bf16", 4), ("fp16", 4)])
def test_bits_are_frozen(name: str, dtype: str, digits: int) -> None:
    weights = initial_rows(GOLDEN_SPECS[name], 7, "clicks", np.array(GOLDEN_IDS, np.int64), 5)
    bits = encode_weights(weights, dtype).view(f"<u{digits // 2}")
    assert [" ".join(f"{int(x):0{digits}x}" for x in row) for row in bits] == GOLDEN_WEIGHTS[name][dtype]


def test_golden_covers_every_initializer() -> None:
    assert GOLDEN_SPECS.keys() == GOLDEN_WEIGHTS.keys()


@pytest.mark.parametrize(
    ("spec", "mean", "std", "low", "high"),
    [
        (Uniform(low=-0.1, high=0.3), 0.1, 0.4 / math.sqrt(12), -0.1, 0.3),
        (Uniform(low=2.0, high=3.0), 2.5, 1 / math.sqrt(12), 2.0, 3.0),
        (Xavier(), 0.0, 0.25, -math.sqrt(3 / 16), math.sqrt(3 / 16)),
        (Normal(std=0.5), 0.0, 0.5, -2.45, 2.45),
        (TruncatedNormal(std=0.5), 0.0, 0.5 * 0.8880, -1.0, 1.0),
        (TruncatedNormal(std=0.5, bound_sigmas=1.0), 0.0, 0.5 * 0.5396, -0.5, 0.5),
        (TruncatedNormal(std=0.5, bound_sigmas=9.0), 0.0, 0.5, -2.45, 2.45),
    ],
)
def test_moments_and_bounds(spec: Initializer, mean: float, std: float, low: float, high: float) -> None:
    weights = initial_rows(spec, 3, "t", MANY, 16).astype(np.float64)
    assert abs(weights.mean() - mean) < 4 * std / math.sqrt(weights.size)
    assert abs(weights.std() / std - 1) < 0.01
    assert low * (1 + 1e-6 * math.copysign(1, -low)) <= weights.min() and weights.max() <= high * (1 + 1e-6)
    corners = np.corrcoef(weights, rowvar=False) - np.eye(16)
    assert np.abs(corners).max() < 0.03  # columns are unrelated


def test_a_row_depends_on_nothing_else() -> None:
    spec = TruncatedNormal(std=1.0)
    whole = initial_rows(spec, 3, "t", MANY, 8)
    np.testing.assert_array_equal(initial_rows(spec, 3, "t", MANY[::-7].copy(), 8), whole[::-7])
    np.testing.assert_array_equal(initial_rows(spec, 3, "t", MANY[:9], 3), whole[:9, :3])
    assert initial_rows(spec, 3, "t", MANY[:0], 8).shape == (0, 8)
    for seed, table in ((4, "t"), (3, "u")):
        assert np.mean(initial_rows(spec, seed, table, MANY[:99], 8) == whole[:99]) < 0.01


def test_zeros_and_constant() -> None:
    assert not initial_rows(Zeros(), 0, "t", MANY[:3], 4).any()
    assert (initial_rows(Constant(value=-0.3), 0, "t", MANY[:3], 4) == np.float32(-0.3)).all()


def test_truncation_draws_again_and_then_clamps() -> None:
    ids = MANY[:50]
    free, limited = normal_draws(5, ids, 32), truncated_draws(5, ids, 32, MAX_S2)
    assert np.mean(free == limited) < 0.01  # another stream
    halved = truncated_draws(5, ids, 32, 107_019)
    inside = np.abs(limited) <= 107_019
    np.testing.assert_array_equal(halved[inside], limited[inside])
    assert np.abs(halved).max() <= 107_019
    clamped = truncated_draws(5, ids, 32, 100)  # far below what a spec allows: attempts run out
    assert np.mean(np.abs(clamped) == 100) > 0.5 and np.abs(clamped).max() == 100


def test_programs() -> None:
    assert abs(STD_OF_S2 - 107_019.84) < 1
    assert Uniform(low=-1.0, high=1.0).program(8) == InitProgram(2, 2.0**-24, -(2**24), 2**24)
    assert Uniform(low=0.0, high=0.5).program(8) == InitProgram(2, 2.0**-25, 0, 2**24)
    assert TruncatedNormal(std=1.0, bound_sigmas=2.0).program(8).b == math.floor(2 * STD_OF_S2)
    for seed in range(200):
        low, high = np.sort(np.random.default_rng(seed).normal(size=2) * 10.0 ** (seed % 7 - 3))
        program = Uniform(low=float(low), high=float(high)).program(4)
        assert -(2**24) <= program.a < program.b <= 2**24
        assert np.float32(program.scale) == program.scale


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(low=1.0, high=1.0), r"Uniform\.high: found 1\.0, expected more than low"),
        (lambda: Uniform(low=1.0, high=1.0 + 1e-12), r"Uniform\.high"),
        (lambda: Uniform(low=0.0, high=1e-40), r"Uniform\.high"),
        (lambda: Uniform(low=math.nan, high=1.0), r"Uniform\.low: found nan"),
        (lambda: Normal(std=0.0), r"Normal\.std"),
        (lambda: Normal(std=math.inf), r"Normal\.std"),
        (lambda: TruncatedNormal(std=1.0, bound_sigmas=0.99), r"TruncatedNormal\.bound_sigmas: found 0\.99"),
        (lambda: Constant(value=1e39), r"Constant\.value"),
        (lambda: draw_weights(InitProgram(2, 1.0, 0, 1), 0, np.zeros(3), 4), "ids: found float64"),
    ],
)
def test_what_cannot_work_is_an_error(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]
