"""Streamed metrics against scikit-learn on the same predictions, on distributions that hide differences in few bits."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from sklearn.calibration import calibration_curve

from stepwell.errors import ConfigError
from stepwell.train.metrics import BinaryMetrics
from stepwell.train.rank_sketch import RankSketch

N = 400_000  # more distinct logits than the sketch keeps
DISTRIBUTIONS = ["wide", "crowded", "ties", "extremes", "rare", "drifting", "interleaved", "one_value"]


def drawn(kind: str, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """(logits float32, labels 0 or 1)."""
    rng = np.random.default_rng(DISTRIBUTIONS.index(kind))
    logits = rng.normal(-1.0, 1.5, n)
    odds = logits.copy()
    if kind == "crowded":  # predictions within 1e-3 of each other
        logits = -1.1 + 4e-3 * rng.random(n)
        odds = (logits + 1.1) * 750 - 1.5
    elif kind == "ties":
        logits = odds = np.round(logits)
    elif kind == "extremes":  # predictions of 0 and 1 in float32
        logits = odds = np.where(rng.random(n) < 0.3, np.sign(logits) * rng.uniform(18, 30, n), logits)
    elif kind == "rare":
        logits = odds = rng.normal(-9.8, 1.0, n)
    elif kind == "drifting":  # wide first, then crowded where the wide part had few entries
        logits[n // 2 :] = 0.7 + 5e-3 * rng.random(n - n // 2)
        odds = np.where(logits > 0.7025, 1.0, -1.0)
    elif kind == "interleaved":  # each positive just above a negative
        logits = np.repeat(rng.random(n // 2), 2) - 0.5
        logits[1::2] = np.nextafter(logits[1::2].astype(np.float32), np.float32(9))
        return logits.astype(np.float32), np.tile([0.0, 1.0], n // 2)
    elif kind == "one_value":
        logits = np.full(n, 0.25)
    labels = rng.random(n) < 1 / (1 + np.exp(-odds))
    return logits.astype(np.float32), labels.astype(np.float64)


def streamed(logits, labels, weights=None, groups=None, size=60_000, **options) -> BinaryMetrics:
    metrics = BinaryMetrics(groups is not None, **options)
    arrays = [
        None if a is None else torch.from_numpy(np.ascontiguousarray(a)) for a in (logits, labels, weights, groups)
    ]
    for start in range(0, len(logits), size):
        metrics.update(*(None if a is None else a[start : start + size] for a in arrays))
    return metrics


def grouped_auc(logits, labels, groups, weights) -> float:
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    areas = [
        (sklearn_metrics.roc_auc_score(labels[at], logits[at], sample_weight=weights[at]), weights[at].sum())
        for at in parts
        if 0 < labels[at].sum() < len(at)
    ]
    return float(np.average([area for area, _ in areas], weights=[weight for _, weight in areas]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_equal_to_scikit_learn(kind, weighted):
    logits, labels = drawn(kind)
    weights = np.random.default_rng(9).uniform(0.0, 3.0, N) if weighted else np.ones(N)
    found = streamed(logits, labels, weights if weighted else None).compute()
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    mean = np.average(labels, weights=weights)
    loss = sklearn_metrics.log_loss(labels, p, sample_weight=weights)
    assert found["samples"] == N
    assert found["auc"] == pytest.approx(sklearn_metrics.roc_auc_score(labels, logits, sample_weight=weights), abs=1e-4)
    assert found["log_loss"] == pytest.approx(loss, abs=1e-4, rel=1e-6)
    entropy = sklearn_metrics.log_loss(labels, np.full(N, mean), sample_weight=weights)
    assert found["normalised_entropy"] == pytest.approx(loss / entropy, abs=1e-4, rel=1e-6)
    assert found["calibration"] == pytest.approx(np.average(p, weights=weights) / mean, abs=1e-4, rel=1e-6)
    curve = np.array(found["calibration_curve"])
    assert curve[:, 2].sum() == pytest.approx(weights.sum())
    assert np.average(curve[:, 0], weights=curve[:, 2]) == pytest.approx(np.average(p, weights=weights), abs=1e-4)
    assert np.average(curve[:, 1], weights=curve[:, 2]) == pytest.approx(mean, abs=1e-9)
    if not weighted and kind in {"wide", "crowded", "rare"}:
        label, prediction = calibration_curve(labels, p, n_bins=10, strategy="quantile")
        np.testing.assert_allclose(curve[:, :2], np.stack([prediction, label], 1), atol=1e-4)


def test_few_scores_are_exact():
    logits, labels = drawn("wide", 50_000)
    found = streamed(logits, labels, size=777).compute()["auc"]
    assert found == pytest.approx(sklearn_metrics.roc_auc_score(labels, logits), abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("num_groups", [4, 400])
def test_grouped_auc(num_groups, weighted):
    n = 250_000
    logits, labels = drawn("wide", n)
    rng = np.random.default_rng(5)
    groups = rng.integers(-(2**62), 2**62, num_groups)[np.minimum(rng.geometric(3 / num_groups, n), num_groups) - 1]
    labels = np.where(groups % 5 == 0, 0.0, labels)  # one class only: left out
    weights = rng.uniform(0.1, 3.0, n) if weighted else np.ones(n)
    found = streamed(logits, labels, weights if weighted else None, groups).compute()
    assert found["grouped_auc"] == pytest.approx(grouped_auc(logits, labels, groups, weights), abs=1e-4)
    assert found["auc"] == pytest.approx(sklearn_metrics.roc_auc_score(labels, logits, sample_weight=weights), abs=1e-4)


def test_more_groups_than_there_is_room_for():
    logits, labels = drawn("wide", 300_000)
    metrics = streamed(logits, labels, groups=np.arange(300_000) // 3, max_group_entries=400_000)
    metrics.compute()
    metrics = streamed(logits[:200_000], labels[:200_000], groups=np.arange(200_000) // 3, max_group_entries=100_000)
    with pytest.raises(ConfigError, match=r"found 200000 different pairs.*at most 100000.*max_group_entries"):
        metrics.compute()


def test_labels_between_0_and_1_are_both_in_part():
    logits, labels = drawn("wide", 1000)
    soft = np.where(labels > 0, 0.75, 0.25)
    found = streamed(logits, soft).compute()
    twice = streamed(np.tile(logits, 2), np.repeat([1.0, 0.0], 1000), np.concatenate([soft, 1 - soft])).compute()
    assert found["auc"] == pytest.approx(twice["auc"], abs=1e-12)
    assert found["log_loss"] == pytest.approx(twice["log_loss"], abs=1e-12)


def test_ranks_merge_to_the_whole():
    logits, labels = drawn("wide")
    groups = np.arange(N) % 50
    parts = [streamed(logits[r::3], labels[r::3], groups=groups[r::3]) for r in range(3)]
    for part in parts[1:]:
        parts[0].merge(part)
    whole, merged = streamed(logits, labels, groups=groups).compute(), parts[0].compute()
    assert merged.pop("samples") == whole.pop("samples") == N
    for name in ("auc", "grouped_auc", "log_loss", "normalised_entropy", "calibration"):
        assert merged[name] == pytest.approx(whole[name], abs=1e-6), name
    with pytest.raises(ConfigError, match="groups"):
        parts[0].merge(BinaryMetrics())


def test_state_goes_on_where_it_was():
    logits, labels = drawn("wide", 500_000)
    groups = np.arange(500_000) % 7
    first = streamed(logits[:300_000], labels[:300_000], groups=groups[:300_000])
    again = BinaryMetrics(grouped=True)
    again.restore(first.state())
    for metrics in (first, again):
        metrics.update(
            *(torch.from_numpy(a[300_000:]) for a in (logits, labels)), groups=torch.from_numpy(groups[300_000:])
        )
    assert again.compute() == first.compute()
    with pytest.raises(ConfigError, match=r"restore: found .*groups"):
        BinaryMetrics().restore(first.state())


def test_nothing_and_one_class():
    metrics = BinaryMetrics(grouped=True)
    found = metrics.compute()
    assert found["samples"] == 0 and found["calibration_curve"] == []
    assert all(
        np.isnan(found[name]) for name in ("auc", "grouped_auc", "log_loss", "normalised_entropy", "calibration")
    )
    nothing = torch.empty(0)
    metrics.update(nothing, nothing, groups=nothing.long())
    metrics.update(torch.tensor([0.0, 1.0]), torch.zeros(2), groups=torch.tensor([1, 2]))
    found = metrics.compute()
    assert found["samples"] == 2 and found["log_loss"] == pytest.approx((np.log(2) + np.log1p(np.e)) / 2)
    assert all(np.isnan(found[name]) for name in ("auc", "grouped_auc", "normalised_entropy", "calibration"))
    metrics.reset()
    assert metrics.compute()["samples"] == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_predictions_that_are_not_finite(value):
    metrics = BinaryMetrics()
    with pytest.raises(ConfigError, match=r"logits: found -?(nan|inf) at 1, expected finite"):
        metrics.update(torch.tensor([0.0, value]), torch.zeros(2))
    assert metrics.compute()["samples"] == 0


@pytest.mark.parametrize(
    ("labels", "options", "match"),
    [
        (torch.tensor([0.0, 1.5]), {}, "labels: found 1.5 at 1"),
        (torch.zeros(3), {}, "labels: found shape"),
        (torch.zeros(2), {"weights": torch.tensor([1.0, -1.0])}, "weights: found -1.0 at 1"),
        (torch.zeros(2), {"groups": torch.tensor([1, 2])}, "groups: found some"),
    ],
)
def test_wrong_input(labels, options, match):
    with pytest.raises(ConfigError, match=match):
        BinaryMetrics().update(torch.zeros(2), labels, **options)


def test_grouped_without_groups():
    with pytest.raises(ConfigError, match="groups: found none"):
        BinaryMetrics(grouped=True).update(torch.zeros(2), torch.zeros(2))


def test_memory_is_bounded():
    rng = np.random.default_rng(0)
    sketch = RankSketch(1 << 10, 1 << 10)
    for _ in range(8):
        sketch.add(rng.normal(size=100_000).astype(np.float32), rng.random(100_000), rng.random(100_000))
        assert len(sketch.entries().score) <= 1 << 10
    assert sketch.entries().positive.sum() + sketch.entries().negative.sum() == pytest.approx(800_000, rel=0.01)
