"""The core and numpy draw the same bits: every initializer, dtype and edge id; the id hash; admission draws; ties."""

import numpy as np
import pytest

from stepwell.native import InitProgram, draw_admission, draw_weights, mix64
from stepwell.rows import (
    Constant,
    Initializer,
    Normal,
    TruncatedNormal,
    Uniform,
    WeightDtype,
    Xavier,
    Zeros,
    admission_draw,
    encode_weights,
    initial_rows,
    table_key,
)
from stepwell.rows import mix64 as mix64_numpy
from stepwell.rows.layout import WEIGHT_DTYPES

IDS = np.array([0, 1, -1, 7, 1 << 40, np.iinfo(np.int64).min, np.iinfo(np.int64).max, -(1 << 33)], np.int64)
SPECS: list[Initializer] = [
    Zeros(),
    Constant(value=0.3),
    Uniform(low=-0.1, high=0.25),
    Normal(std=0.02),
    TruncatedNormal(std=0.5, bound_sigmas=1.0),
    Xavier(),
]


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
@pytest.mark.parametrize("dim", [1, 3, 8, 64, 130])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_first_values(spec: Initializer, dim: int, dtype: WeightDtype) -> None:
    program = spec.program(dim)
    out = np.empty((len(IDS), dim * (4 if dtype == "fp32" else 2)), np.uint8)
    draw_weights(
        InitProgram(program.kind, program.scale, program.a, program.b, program.constant),
        table_key("clicks", 11),
        IDS,
        dim,
        WEIGHT_DTYPES.index(dtype),
        out,
    )
    expected = encode_weights(initial_rows(spec, 11, "clicks", IDS, dim), dtype)
    assert out.tobytes() == expected.tobytes()


def test_id_hash() -> None:
    keys = np.empty(len(IDS), np.uint64)
    mix64(IDS, keys)
    np.testing.assert_array_equal(keys, mix64_numpy(IDS.view(np.uint64)))


def test_admission_draws() -> None:
    draws = np.empty(len(IDS), np.uint32)
    draw_admission(table_key("clicks", 11), IDS, 123456, draws)
    np.testing.assert_array_equal(draws, admission_draw(table_key("clicks", 11), IDS, 123456))
