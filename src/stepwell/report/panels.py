"""Which pictures a run gets, from its records."""

from typing import Any

from stepwell.report.axes import byte_unit, in_count, time_unit
from stepwell.report.charts import Labels, Series, calibration_chart, line_chart, smoothed
from stepwell.report.run_files import RunFiles


def quality(run: RunFiles) -> list[str]:
    """Loss, AUC and calibration."""
    return [_loss(run), _auc(run), *_calibration(run)]


def speed(run: RunFiles) -> list[str]:
    """Samples per second and how much of the time each stage worked."""
    size, unit = _time(run)
    times = [record["time_s"] / size for record in run.train]
    rate = Series("samples/s", times, [record["samples_per_s"] for record in run.train], 1)
    rates = line_chart(
        Labels("Samples per second", f"time, {unit}", "samples/s"),
        [_faint(rate), smoothed(rate)] if len(times) > 20 else [rate],
        from_zero=True,
    )
    busy = [
        smoothed(Series(stage, times, [_busy(record["stages"].get(stage)) for record in run.train], colour))
        for colour, stage in enumerate(run.stages, 1)
    ]
    note = "A stage that is busy all the time is the one that the others wait for."
    shares = line_chart(
        Labels("How busy each stage is", f"time, {unit}", "% of the time", note), busy, from_zero=True, top=100.0
    )
    return [rates, shares]


def memory(run: RunFiles) -> list[str]:
    """Bytes of every tier, hit rates and the process's memory."""
    size, unit = _time(run)
    times = [record["time_s"] / size for record in run.train]
    charts = []
    for colour, tier in enumerate(run.tiers, 1):
        charts.append(_tier_bytes(run, tier, colour, times, unit))
    rates = [
        Series(tier, times, [_percent(record["tiers"][tier]["hit_rate"]) for record in run.train], colour)
        for colour, tier in enumerate(run.tiers, 1)
    ]
    title = "Where the rows of a batch were found"
    charts.append(line_chart(Labels(title, f"time, {unit}", "% of rows"), rates, from_zero=True, top=100.0))
    resident = [record["rss_bytes"] for record in run.train]
    predicted = run.start.get("predicted_bytes")
    divisor, name = byte_unit(max([*resident, predicted or 0], default=1))
    lines = [Series("resident", times, [value / divisor for value in resident], 1)]
    if predicted:
        lines.append(Series("predicted by stepwell show", _ends(times), [predicted / divisor] * 2, 2, dashed=True))
    charts.append(line_chart(Labels("Memory of the process", f"time, {unit}", name), lines, from_zero=True))
    return charts


def _loss(run: RunFiles) -> str:
    steps = [record["step"] for record in run.train]
    raw = Series("training", steps, [record["loss"] for record in run.train], 1)
    series = [_faint(raw), smoothed(raw)] if len(steps) > 20 else [raw]
    series += _by_task(run, "log_loss", "evaluation, log loss")
    return line_chart(Labels("Loss", "step", "loss"), series)


def _auc(run: RunFiles) -> str:
    steps = [record["step"] for record in run.train]
    seen = Series("training, each sample before it is learnt", steps, [record.get("auc") for record in run.train], 1)
    return line_chart(Labels("AUC", "step", "AUC"), [seen, *_by_task(run, "auc", "evaluation")])


def _by_task(run: RunFiles, key: str, name: str) -> list[Series]:
    series = []
    for colour, task in enumerate(run.tasks, 2):
        points = [(record["step"], record["tasks"][task].get(key)) for record in run.evals if task in record["tasks"]]
        label = f"{name} ({task})" if len(run.tasks) > 1 else name
        series.append(Series(label, [step for step, _ in points], [y for _, y in points], colour, points=True))
    return series


def _calibration(run: RunFiles) -> list[str]:
    if not run.evals:
        return []
    last = run.evals[-1]
    charts = []
    for task, figures in last["tasks"].items():
        total = figures.get("calibration")
        note = f"Sum of predictions over sum of labels: {total:.4f}." if total is not None else ""
        title = f"Calibration of {task} at step {last['step']:,}"
        labels = Labels(title, "mean prediction", "mean label", note)
        charts.append(calibration_chart(labels, figures.get("calibration_curve", [])))
    return charts


def _tier_bytes(run: RunFiles, tier: str, colour: int, times: list[float], unit: str) -> str:
    used = [record["tiers"][tier]["bytes_used"] for record in run.train]
    last = run.train[-1]["tiers"][tier]
    budget = last["budget_bytes"]
    near = budget <= 3 * max([*used, 1])
    divisor, name = byte_unit(max([*used, budget if near else 0], default=1))
    series = [Series("used", times, [value / divisor for value in used], colour)]
    if near:
        series.append(Series("budget", _ends(times), [budget / divisor] * 2, 6, dashed=True))
    size, budget_unit = byte_unit(budget)
    note = f"{in_count(last['rows'])} rows at the end; the budget is {budget / size:,.3g} {budget_unit}."
    return line_chart(Labels(f"Tier {tier}", f"time, {unit}", name, note), series, from_zero=True)


def _faint(series: Series) -> Series:
    return Series(series.name, series.xs, series.ys, series.colour, faint=True)


def _ends(times: list[float]) -> list[float]:
    return [times[0], times[-1]]


def _time(run: RunFiles) -> tuple[float, str]:
    return time_unit(run.train[-1]["time_s"] if run.train else 0.0)


def _busy(stage: dict[str, Any] | None) -> float | None:
    if stage is None or stage["busy_s"] + stage["wait_s"] <= 0:
        return None
    return 100.0 * float(stage["busy_s"] / (stage["busy_s"] + stage["wait_s"]))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
