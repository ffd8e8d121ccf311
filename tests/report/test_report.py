"""The report of a run: one page, everything in it, nothing fetched; numbers lie where the axes say."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stepwell.errors import ConfigError
from stepwell.report import write_report
from stepwell.report.axes import fitted_axis, in_count, make_axis
from stepwell.report.charts import Labels, Series, line_chart, smoothed
from stepwell.report.run_files import read_run
from stepwell.report.timeline import timeline
from tests.fake_run import STAGES, records, spans, write_run


class Page(HTMLParser):
    """Fails on a tag that is not closed, and keeps what a reader sees."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.figures = 0
        self.captions: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.figures += tag == "figure"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)
            if self.open[-1] == "figcaption":
                self.captions.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_report(write_run(tmp_path_factory.mktemp("runs") / "demo"))
    assert path.name == "report.html"
    return path.read_text()


def test_it_has_every_picture(page: str) -> None:
    read = Page(page)
    assert read.captions == [
        "Loss",
        "AUC",
        "Calibration of click at step 1,000",
        "Samples per second",
        "How busy each stage is",
        "The stages, batch by batch",
        "Tier dram",
        "Tier ssd",
        "Where the rows of a batch were found",
        "Memory of the process",
    ]
    assert read.figures == len(read.captions)


def test_it_fetches_nothing(page: str) -> None:
    read = Page(page)
    assert "http" not in page and "@import" not in page and "url(" not in page
    assert not {name for name, _ in read.attributes} & {"src", "href"}


def test_it_names_the_limiting_stage_the_tables_and_the_machine(page: str) -> None:
    words = " ".join(Page(page).words)
    assert "compute limits: the others waited for it in 100% of the lines." in words
    assert "items" in words and "users" in words and "AMD EPYC 7B13" in words and "2.13.0+cpu" in words
    assert '"dram_bytes": 209715200' in words


def test_pictures_are_well_formed(page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page, re.S)
    assert len(drawings) == 10
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    assert "nan" not in "".join(drawings) and "None" not in "".join(drawings)


def test_names_are_escaped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "<b>run", task="<i>click</i>")
    text = write_report(run).read_text()
    assert "<b>run" not in text and "<i>click" not in text and "&lt;i&gt;click" in text
    Page(text)


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
def test_a_run_that_is_going_on_has_a_page(tmp_path: Path, keep: int) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    lines = [json.dumps(record) + "\n" for record in records()[:keep]]
    (folder / "metrics.jsonl").write_text("".join(lines) + '{"kind": "tr')
    text = write_report(folder).read_text()
    Page(text)
    assert "no end recorded" in text


def test_values_that_are_not_there_leave_gaps(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    found = records()
    found[1]["auc"] = None
    found[2]["tiers"]["ssd"]["hit_rate"] = None
    found[3]["loss"] = float("nan")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in found))
    text = write_report(folder).read_text()
    assert "nan" not in "".join(re.findall(r"<svg.*?</svg>", text, re.S)).lower()


@pytest.mark.parametrize(
    ("text", "says"),
    [("not json\n", "line 1"), ('{"kind": "tarin"}\n', "'tarin'"), ("[]\n", "line 1"), ("{}\n", "None")],
)
def test_wrong_metrics(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(ConfigError, match="line 1") as found:
        read_run(tmp_path)
    assert says in str(found.value)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no metrics"):
        write_report(tmp_path)


def test_points_lie_where_the_axes_say() -> None:
    text = line_chart(Labels("t", "x", "y"), [Series("a", [0.0, 5.0, 10.0], [0.0, 2.0, 4.0])], from_zero=True)
    (points,) = re.findall(r'<polyline class="line c1" points="([^"]+)"', text)
    ticks = dict(re.findall(r'<text class="tick end" x="54" y="([\d.]+)">([\d.]+)</text>', text))
    zero, four = (float(y) - 4 for y, label in ticks.items() if float(label) in (0.0, 4.0))
    ys = [float(point.split(",")[1]) for point in points.split()]
    assert ys == pytest.approx([zero, (zero + four) / 2, four], abs=0.2)


def test_many_points_are_averaged_and_gaps_stay() -> None:
    ys: list[float | None] = [1.0] * 4000 + [None] * 4000 + [3.0] * 4000
    text = line_chart(Labels("t", "x", "y"), [Series("a", list(range(12000)), ys)])
    lines = re.findall(r'<polyline class="line c1" points="([^"]+)"', text)
    assert len(lines) == 2 and sum(len(line.split()) for line in lines) < 401
    assert len({point.split(",")[1] for line in lines for point in line.split()}) == 2


def test_smoothing_keeps_a_constant_and_flattens_noise() -> None:
    flat = smoothed(Series("a", list(range(200)), [2.0] * 200))
    assert list(flat.ys) == [2.0] * 200
    noisy = smoothed(Series("a", list(range(200)), [float(i % 2) for i in range(200)]), share=0.1)
    assert all(y is not None and abs(y - 0.5) < 0.1 for y in noisy.ys[10:-10])


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1e-9, 3e-9], [0.69, 0.45], [1.0, 9e12], [-5.0, -3.0]])
def test_axes_hold_their_values_and_tell_ticks_apart(values: list[float]) -> None:
    axis = make_axis(values, 0, 100)
    assert axis.low <= min(values) and max(values) <= axis.high
    labels = [axis.label(tick) for tick in axis.ticks]
    assert 2 <= len(labels) <= 8 and len(set(labels)) == len(labels)
    inside = fitted_axis(min(values), max(values), 0, 100)
    assert all(-0.001 <= inside.px(tick) <= 100.001 for tick in inside.ticks)


def test_counts_are_short() -> None:
    assert [in_count(count) for count in (0, 9999, 10_000, 123_456, 12_345_678, 999_999_999)] == [
        "0",
        "9,999",
        "10 k",
        "123 k",
        "12.3 M",
        "1,000 M",
    ]


def test_the_timeline_shows_batches_in_their_stages() -> None:
    text = timeline(spans(first_step=500, steps=20), list(STAGES))
    shown = re.findall(r"<title>step (\d+): (\w+),", text)
    computed = [int(step) for step, stage in shown if stage == "compute"]
    assert computed == list(range(507, 513))  # six from the middle
    assert {stage for _, stage in shown} == set(STAGES)
    assert "500" not in {step for step, _ in shown}
    blocks = re.findall(r'<rect class="(b\d)"[^>]*/>(?:<text[^>]*>\d+</text>)?<title>step (\d+):', text)
    colours = {step: {colour for colour, one in blocks if one == step} for _, step in blocks}
    assert len(blocks) == len(shown) and all(len(found) == 1 for found in colours.values())


def test_threads_side_by_side_get_rows() -> None:
    lines = spans(steps=8)
    for line in lines:
        if line["name"] == "read":
            line["thread"] = f"read-{line['step'] % 2}"
    one, two = timeline(spans(steps=8), list(STAGES)), timeline(lines, list(STAGES))
    heights = [int(re.findall(r'viewBox="0 0 \d+ (\d+)"', text)[0]) for text in (one, two)]
    assert heights[1] == heights[0] + 30
    assert "no spans" in timeline([], list(STAGES))
