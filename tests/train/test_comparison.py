"""The paired comparison of AUCs: against scikit-learn, and against samples drawn again."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from stepwell.errors import ConfigError
from stepwell.train.comparison import auc_difference


def drawn(n, seed, spread=0.3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    labels = (rng.random(n) < 1 / (1 + np.exp(1.0 - x))).astype(np.float32)
    return labels, np.round(x + spread * rng.normal(size=n), 2), x + 1.5 * spread * rng.normal(size=n)


def test_difference_is_that_of_scikit_learn():
    labels, a, b = drawn(20_000, 0)
    found = auc_difference(torch.from_numpy(labels), a, torch.from_numpy(b))
    assert found.difference == pytest.approx(roc_auc_score(labels, a) - roc_auc_score(labels, b), abs=1e-12)
    assert auc_difference(labels, a, a) == (0.0, 0.0)
    assert auc_difference(labels, b, a).difference == -found.difference


def test_standard_error_is_the_spread_over_new_samples():
    found = [auc_difference(*drawn(2000, seed)) for seed in range(300)]
    spread = np.std([result.difference for result in found], ddof=1)
    assert np.mean([result.standard_error for result in found]) == pytest.approx(spread, rel=0.15)


def test_pairing_counts():
    labels, a, b = drawn(20_000, 1, spread=0.05)
    rng = np.random.default_rng(2)
    alone = np.std([roc_auc_score(labels[at], a[at]) for at in rng.integers(0, 20_000, (100, 20_000))])
    assert auc_difference(labels, a, b).standard_error < 0.2 * alone


@pytest.mark.parametrize(
    ("labels", "a", "match"),
    [
        ([0, 1, 1, 0], [1.0, 2.0, 3.0], "a: found 3 scores, expected 4"),
        ([0, 1, 0.5, 0], [1.0, 2.0, 3.0, 4.0], "labels: found values other"),
        ([0, 1, 0, 0], [1.0, 2.0, 3.0, 4.0], "found 1 ones and 3 zeros"),
        ([0, 1, 1, 0], [1.0, 2.0, float("nan"), 4.0], "a: found .*not finite"),
    ],
)
def test_wrong_input(labels, a, match):
    with pytest.raises(ConfigError, match=match):
        auc_difference(labels, a, [1.0, 2.0, 3.0, 4.0])
