"""sum_occurrences against the plainest loop that says the same."""

import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.rows import OCCURRENCES_PER_CHUNK, sum_occurrences


def summed(rows: np.ndarray, given: np.ndarray, num_rows: int) -> np.ndarray:
    sums = np.zeros((num_rows, given.shape[1]), np.float32)
    for row in range(num_rows):
        mine = given[rows == row]
        for first in range(0, len(mine), OCCURRENCES_PER_CHUNK):
            chunk = np.zeros(given.shape[1], np.float32)
            for gradient in mine[first : first + OCCURRENCES_PER_CHUNK]:
                chunk = chunk + gradient
            sums[row] = sums[row] + chunk
    return sums


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 1500])
def test_order_of_sums(n: int) -> None:
    rng = np.random.default_rng(n)
    rows = np.minimum(rng.geometric(0.3, n) - 1, 5)  # row 6 never occurs
    grads = rng.normal(0, 1, (n, 3)).astype(np.float32)
    weights, counts = rng.normal(0, 1, n).astype(np.float32), rng.integers(1, 9, n).astype(np.float32)
    expected = summed(rows, grads, 7)
    np.testing.assert_array_equal(sum_occurrences(rows, grads, 7), expected)
    given = weights[:, None] * (grads / counts[:, None])
    found = sum_occurrences(rows, grads, 7, counts=counts, weights=weights)
    np.testing.assert_array_equal(found, summed(rows, given, 7))
    if n == 1500:
        assert not np.array_equal(expected[0], grads[rows == 0].cumsum(axis=0, dtype=np.float32)[-1])  # chunks matter


def test_one_gradient_per_occurrence() -> None:
    with pytest.raises(ConfigError, match=r"expected float32 \[3, dim\]"):
        sum_occurrences(np.zeros(3, np.int64), np.zeros((2, 4), np.float32), 1)
