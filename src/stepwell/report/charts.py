"""Pictures of numbers: lines over an axis, and points about a diagonal. Each is a <figure> that stands alone."""

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stepwell.report.axes import Axis, fitted_axis, make_axis

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 28, 40
_MOST_POINTS = 400  # a line; more are averaged, since nobody sees them


@dataclass(frozen=True, slots=True)
class Series:
    """One line. Points that are None or not finite leave a gap."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: int = 1  # of the page's palette
    faint: bool = False  # the raw values behind their mean
    points: bool = False  # few of them: draw each
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Labels:
    """What is written about a chart: its title, what its axes are and in what unit, and a line below."""

    title: str
    x: str
    y: str
    note: str = ""


def line_chart(labels: Labels, series: Sequence[Series], *, from_zero: bool = False, top: float | None = None) -> str:
    """Lines over one x axis; `from_zero` begins the y axis there, `top` makes it reach that far."""
    drawn = [_thinned(one) for one in series]
    xs = [x for one in drawn for x in one.xs]
    ys = [y for one in drawn for y in one.ys if y is not None]
    if not ys:
        return _empty(labels)
    x_axis = fitted_axis(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
    ys_shown = ys if top is None else [*ys, top]
    y_axis = make_axis(ys_shown, HEIGHT - _BOTTOM, _TOP, from_zero=from_zero)
    body = [_frame(x_axis, y_axis, labels)]
    for one in sorted(drawn, key=lambda one: not one.faint):
        body.append(_line(one, x_axis, y_axis))
    shown = [one for one in drawn if not one.faint] or drawn
    hover = {
        "x": [x_axis.start_px, x_axis.end_px, x_axis.low, x_axis.high],
        "xLabel": labels.x,
        "series": [
            {
                "name": one.name,
                "colour": one.colour,
                "points": [
                    [_short(x), _short(y), round(y_axis.px(y), 1)]
                    for x, y in zip(one.xs, one.ys, strict=True)
                    if y is not None
                ],
            }
            for one in shown
        ],
    }
    return _figure(labels, "".join(body), legend(drawn), hover)


def calibration_chart(labels: Labels, curve: Sequence[Sequence[float]]) -> str:
    """Mean label over mean prediction, a dot a bin with its area by samples; on the diagonal, the two agree."""
    points = [point for point in curve if point[2] > 0]
    if not points:
        return _empty(labels)
    highest = max(max(point[0], point[1]) for point in points)
    y_axis = make_axis([0.0, highest], HEIGHT - _BOTTOM, _TOP, from_zero=True)
    x_axis = Axis(y_axis.low, y_axis.high, _LEFT, WIDTH - _RIGHT, y_axis.ticks)
    most = max(point[2] for point in points)
    ends = (x_axis.px(x_axis.low), y_axis.px(y_axis.low), x_axis.px(x_axis.high), y_axis.px(y_axis.high))
    body = [_frame(x_axis, y_axis, labels)]
    body.append('<line class="diagonal" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends))
    path = " ".join(f"{x_axis.px(p[0]):.1f},{y_axis.px(p[1]):.1f}" for p in points)
    body.append(f'<polyline class="line c1 faint" points="{path}"/>')
    for predicted, label, samples in points:
        radius = 2.5 + 6 * math.sqrt(samples / most)
        tip = f"predicted {predicted:.4f}, found {label:.4f}, {samples:,.0f} samples"
        body.append(
            f'<circle class="dot c1" cx="{x_axis.px(predicted):.1f}" cy="{y_axis.px(label):.1f}" r="{radius:.1f}">'
            f"<title>{tip}</title></circle>"
        )
    keys = '<span class="key c1">a bin, its area by samples</span><span class="key dashed">as predicted</span>'
    return _figure(labels, "".join(body), keys, None)


def smoothed(series: Series, *, share: float = 0.03) -> Series:
    """The running mean over about this share of the points, centred."""
    half = max(1, round(len(series.ys) * share / 2))
    ys: list[float | None] = []
    for i in range(len(series.ys)):
        near = [y for y in series.ys[max(0, i - half) : i + half + 1] if y is not None and math.isfinite(y)]
        ys.append(sum(near) / len(near) if near else None)
    return Series(series.name, series.xs, ys, series.colour)


def legend(series: Sequence[Series]) -> str:
    """What each line is; raw values behind their mean are not named twice."""
    keys = []
    for one in series:
        if not one.faint:
            style = f"c{one.colour}" + (" dashed" if one.dashed else "")
            keys.append(f'<span class="key {style}">{html.escape(one.name)}</span>')
    return "".join(keys)


def _figure(labels: Labels, body: str, keys: str, hover: object) -> str:
    data = f" data-hover='{html.escape(json.dumps(hover), quote=True)}'" if hover else ""
    note = f'<p class="note">{html.escape(labels.note)}</p>' if labels.note else ""
    return (
        f'<figure class="card"{data}><figcaption>{html.escape(labels.title)}</figcaption>'
        f'<div class="legend">{keys}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(labels.title, quote=True)}">'
        f'{body}<line class="rule" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/></svg><div class="tip"></div>{note}</figure>'
    )


def _empty(labels: Labels) -> str:
    return (
        f'<figure class="card"><figcaption>{html.escape(labels.title)}</figcaption>'
        '<p class="note">Nothing was recorded.</p></figure>'
    )


def _frame(x_axis: Axis, y_axis: Axis, labels: Labels) -> str:
    parts = []
    for tick in y_axis.ticks:
        y = y_axis.px(tick)
        parts.append(f'<line class="grid" x1="{x_axis.start_px}" x2="{x_axis.end_px}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 8}" y="{y + 4:.1f}">{y_axis.label(tick)}</text>')
    for tick in x_axis.ticks:
        x, y = x_axis.px(tick), HEIGHT - _BOTTOM
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>')
        parts.append(f'<text class="tick mid" x="{x:.1f}" y="{y + 18}">{x_axis.label(tick)}</text>')
    parts.append(f'<text class="axis" x="8" y="14">{html.escape(labels.y)}</text>')
    parts.append(f'<text class="axis end" x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}">{html.escape(labels.x)}</text>')
    return "".join(parts)


def _line(one: Series, x_axis: Axis, y_axis: Axis) -> str:
    style = f"line c{one.colour}" + (" faint" if one.faint else "") + (" dashed" if one.dashed else "")
    runs: list[list[str]] = [[]]
    dots = []
    for x, y in zip(one.xs, one.ys, strict=True):
        if y is None:
            runs.append([])
            continue
        at = (x_axis.px(x), y_axis.px(y))
        runs[-1].append(f"{at[0]:.1f},{at[1]:.1f}")
        if one.points:
            dots.append(f'<circle class="dot c{one.colour}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4"/>')
    lines = "".join(f'<polyline class="{style}" points="{" ".join(run)}"/>' for run in runs if len(run) > 1)
    return lines + "".join(dots)


def _thinned(one: Series) -> Series:
    """At most so many points, each the mean of its neighbours; what is not finite is a gap."""
    ys = [y if y is not None and math.isfinite(y) else None for y in one.ys]
    count = len(ys)
    if count <= _MOST_POINTS:
        return Series(one.name, one.xs, ys, one.colour, one.faint, one.points, one.dashed)
    edges = [i * count // _MOST_POINTS for i in range(_MOST_POINTS + 1)]
    thin_xs, thin_ys = [], []
    for a, b in pairwise(edges):
        near = [y for y in ys[a:b] if y is not None]
        thin_xs.append(sum(one.xs[a:b]) / (b - a))
        thin_ys.append(sum(near) / len(near) if near else None)
    return Series(one.name, thin_xs, thin_ys, one.colour, one.faint, one.points, one.dashed)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
