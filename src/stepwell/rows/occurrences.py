"""The one order in which the gradients of a row's occurrences are summed; native/sparse does the same bit for bit."""

from typing import Final

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError
from stepwell.rows.generator import F32

OCCURRENCES_PER_CHUNK: Final = 128


def sum_occurrences(
    rows: npt.NDArray[np.integer],
    grads: F32,
    num_rows: int,
    *,
    counts: F32 | None = None,
    weights: F32 | None = None,
) -> F32:
    """float32 [num_rows, dim]: each row's gradient, summed over its occurrences.

    `rows` [n] says which row each occurrence is of, `grads` float32 [n, dim] the gradient of the output that it went
    into. An occurrence gives grad / count where its bag is a mean of `counts` ids (1: as it is), times its own
    `weights`. A row's occurrences, in order, are cut into chunks of 128; each chunk is summed from 0, then the chunks.
    """
    if grads.dtype != np.float32 or grads.ndim != 2 or len(grads) != len(rows):
        raise ConfigError(f"grads: found {grads.dtype} {grads.shape}, expected float32 [{len(rows)}, dim]")
    given = grads
    if counts is not None:
        given = given / counts[:, None]
    if weights is not None:
        given = weights[:, None] * given
    order = np.argsort(rows, kind="stable")
    sizes = np.bincount(rows, minlength=num_rows)
    of_row = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # the how-manieth of its row
    num_chunks = -(-sizes // OCCURRENCES_PER_CHUNK)
    first_chunk = np.cumsum(num_chunks) - num_chunks
    chunk = np.repeat(first_chunk, sizes) + of_row // OCCURRENCES_PER_CHUNK
    partial = np.zeros((int(num_chunks.sum()), grads.shape[1]), np.float32)
    for place in range(min(OCCURRENCES_PER_CHUNK, int(sizes.max(initial=0)))):
        here = of_row % OCCURRENCES_PER_CHUNK == place  # at most one occurrence of each chunk
        partial[chunk[here]] += given[order[here]]
    sums = np.zeros((num_rows, grads.shape[1]), np.float32)
    for place in range(int(num_chunks.max(initial=0))):
        has = num_chunks > place
        sums[has] += partial[first_chunk[has] + place]
    return sums
