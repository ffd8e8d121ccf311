"""The timeline: which batch was in which stage when, over a few steps of the steady state."""

import html
from typing import Any

from stepwell.report.axes import fitted_axis

_WIDTH = 1300
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 14, 10, 40
_LANE = 30
_STEPS_SHOWN = 6
_COLOURS = 6
_LABEL_PX = 9.0  # a digit, with room


def timeline(spans: list[dict[str, Any]], stages: list[str]) -> str:
    """A <figure>: a row for each stage, one more where its threads work side by side."""
    chosen = _steady([span for span in spans if span["name"] in stages], stages)
    if not chosen:
        return (
            '<figure class="card wide"><figcaption>The stages, batch by batch</figcaption>'
            '<p class="note">The run has no spans of steady steps.</p></figure>'
        )
    start, end = chosen[0], chosen[1]
    shown = [span for span in chosen[2] if span["end_s"] > start and span["start_s"] < end]
    lanes = _lanes(shown, stages)
    height = _TOP + _LANE * len(lanes) + _BOTTOM
    axis = fitted_axis(0.0, (end - start) * 1e3, _LEFT, _WIDTH - _RIGHT, num_ticks=10)
    body = []
    bottom = _TOP + _LANE * len(lanes)
    for tick in axis.ticks:
        x = axis.px(tick)
        body.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        body.append(f'<text class="tick mid" x="{x:.1f}" y="{bottom + 18}">{axis.label(tick)}</text>')
    body.append(f'<text class="axis end" x="{_WIDTH - _RIGHT}" y="{height - 4}">milliseconds</text>')
    named = set()
    for row, (stage, _) in enumerate(lanes):
        y = _TOP + _LANE * row
        if stage not in named:
            named.add(stage)
            body.append(f'<line class="grid" x1="0" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
            body.append(f'<text class="stage" x="2" y="{y + _LANE / 2 + 5}">{html.escape(stage)}</text>')
        for span in shown:
            if (span["name"], span["thread"]) == lanes[row]:
                body.append(_block(span, axis.px, start, end, y))
    return (
        '<figure class="card wide"><figcaption>The stages, batch by batch</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline of the stages">{"".join(body)}</svg>'
        '<p class="note">A block is one batch in one stage; its number is the step, its colour stays with it. '
        "Empty stretches of a row are waits.</p></figure>"
    )


def _block(span: dict[str, Any], px: Any, start: float, end: float, y: float) -> str:
    left = px((max(span["start_s"], start) - start) * 1e3)
    width = max(1.0, px((min(span["end_s"], end) - start) * 1e3) - left)
    took = (span["end_s"] - span["start_s"]) * 1e3
    tip = f"step {span['step']}: {span['name']}, {took:.2f} ms, thread {span['thread']}"
    text = str(span["step"])
    label = ""
    if width > _LABEL_PX * len(text) + 4:
        label = f'<text class="in-block" x="{left + width / 2:.1f}" y="{y + _LANE / 2 + 4.5:.1f}">{text}</text>'
    return (
        f'<g><rect class="b{span["step"] % _COLOURS + 1}" x="{left:.1f}" y="{y + 3}" width="{width:.1f}" '
        f'height="{_LANE - 6}" rx="3"/>{label}<title>{html.escape(tip)}</title></g>'
    )


def _steady(spans: list[dict[str, Any]], stages: list[str]) -> tuple[float, float, list[dict[str, Any]]] | None:
    """From when to when: a few steps of compute (or of the stage there is) from the middle of what was recorded."""
    stage = "compute" if "compute" in stages else next(iter(stages), "")
    steps = sorted((span for span in spans if span["name"] == stage), key=lambda span: float(span["start_s"]))
    if not steps:
        return None
    first = max(0, (len(steps) - _STEPS_SHOWN) // 2)
    window = steps[first : first + _STEPS_SHOWN]
    return window[0]["start_s"], max(span["end_s"] for span in window), spans


def _lanes(spans: list[dict[str, Any]], stages: list[str]) -> list[tuple[str, str]]:
    """(stage, thread) of each row; a stage that did nothing in this window keeps an empty one."""
    lanes = []
    for stage in stages:
        threads = sorted({span["thread"] for span in spans if span["name"] == stage})
        lanes += [(stage, thread) for thread in threads] or [(stage, "")]
    return lanes
