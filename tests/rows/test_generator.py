import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import ConfigError
from stepwell.rows import (
    NUM_BUCKETS,
    admission_draw,
    bucket_of_ids,
    mix64,
    philox4x32,
    stochastic_round_bits,
    table_key,
    unmix64,
    xxh64,
)
from tests.rows.golden_weights import GOLDEN_IDS

KEY = 0x954E6B31B6A372C9  # of the table "clicks" with seed 7
IDS = np.array(GOLDEN_IDS, np.int64)

GOLDEN_DRAWS = [
    "f3970f15 b054d95b 7721c7e1 d4a2b3b5 89febd18",
    "1f67e108 dcc343e3 1e9b1125 f3304655 eff42a89",
    "2e6a708b b2174c8f 40027c70 2b4d6ebe e924e4e4",
    "f7ca3e6b 5ca7b95e b86f2845 9b80ad0b 373082b5",
    "3bde3d99 be111a6f e5ccfe17 c091cfb0 f197a701",
]
GOLDEN_ADMISSION = "b037741f f79e69f5 d05e762e 964a5c2e 94afa1d4"


def hexes(words: np.ndarray) -> str:
    return " ".join(f"{int(word):08x}" for word in words)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"asdf", 0x415872F599CEA71E),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96),
    ],
)
def test_xxh64_known_answers(data: bytes, expected: int) -> None:
    assert xxh64(data) == expected


def test_xxh64_covers_every_length_and_seed() -> None:
    hashes = {xxh64(bytes(range(n)), seed) for n in range(100) for seed in (0, 1, 2**64 - 1)}
    assert len(hashes) == 300
    with pytest.raises(ConfigError, match="seed: found -1"):
        xxh64(b"", -1)


def test_table_key_is_frozen() -> None:
    assert table_key("clicks", 7) == KEY
    assert len({table_key("clicks", 8), table_key("click", 7), KEY}) == 3


def test_philox_known_answers() -> None:
    assert hexes(np.array(philox4x32((0, 0, 0, 0), (0, 0)))) == "6627e8d5 e169c58d bc57ac4c 9b00dbd8"
    ones = 2**32 - 1
    assert hexes(np.array(philox4x32((ones,) * 4, (ones, ones)))) == "408f276d 41c83b0e a20bc7c6 6d5451fd"


def test_draws_are_frozen() -> None:
    assert [hexes(row) for row in stochastic_round_bits(KEY, IDS, 9, 5)] == GOLDEN_DRAWS
    assert hexes(admission_draw(KEY, IDS, 9)) == GOLDEN_ADMISSION


def test_a_wider_row_draws_the_same_columns() -> None:
    wide = stochastic_round_bits(KEY, IDS, 3, 130)
    for dim in (1, 4, 63):
        np.testing.assert_array_equal(stochastic_round_bits(KEY, IDS, 3, dim), wide[:, :dim])
    assert len(np.unique(wide)) == wide.size
    assert not np.any(stochastic_round_bits(KEY, IDS, 4, 130) == wide)


def test_step_has_32_bits() -> None:
    assert len(admission_draw(KEY, IDS, 2**32 - 1)) == 5
    with pytest.raises(ConfigError, match="step: found 4294967296"):
        admission_draw(KEY, IDS, 2**32)
    with pytest.raises(ConfigError, match="step: found -1"):
        stochastic_round_bits(KEY, IDS, -1, 4)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_mix64_is_a_bijection(ids: list[int]) -> None:
    array = np.array(ids, np.int64)
    np.testing.assert_array_equal(unmix64(mix64(array)), array.view(np.uint64))
    np.testing.assert_array_equal(mix64(unmix64(array)), array.view(np.uint64))


def test_mix64_and_buckets() -> None:
    # splitmix64's first output from state 0 is the finalizer of its increment
    assert int(mix64(np.array([0x9E3779B97F4A7C15], np.uint64))[0]) == 0xE220A8397B1DCDAF
    buckets = bucket_of_ids(np.arange(-200_000, 200_000))
    counts = np.bincount(buckets, minlength=NUM_BUCKETS)
    assert len(counts) == NUM_BUCKETS
    assert counts.min() > 40 and counts.max() < 170  # near Poisson(97.7)
    with pytest.raises(ConfigError, match="ids: found dtype float64"):
        mix64(np.array([1.0]))
