"""What a person sees of a run, on a terminal and in a file, from its records alone."""

import io
import threading

import pytest
from rich.console import Console

from stepwell.cli.progress import Progress
from stepwell.cli.words import in_bytes, in_count, in_duration, in_rate
from tests.fake_run import records


def shown(count: int, *, width: int = 110) -> str:
    """The display after so many records."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    progress = Progress("recipes/criteo_dlrm.py -> runs/x", console)
    with console.capture() as captured, progress:
        for record in records()[:count]:
            progress(record)
        progress_now = progress
    with console.capture() as captured:
        console.print(progress_now)
    return captured.get()


def test_the_display_has_everything() -> None:
    text = shown(40)
    for part in (
        "recipes/criteo_dlrm.py -> runs/x",
        "step 380 of 1,000",
        "left",
        "samples/s",
        "AUC 0.7551",
        "loss 0.4",
        "memory 790 MiB",
        "dram",
        "ssd",
        "hit rate",
        "compute limits",
        "at step 250",
        "log loss",
    ):
        assert part in text, part


def test_the_time_left_follows_the_speed() -> None:
    assert "0:00:37 left" in shown(40)  # 610 steps of 60 ms
    assert "0:00:30 left" in shown(53)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_display_before_the_first_line(count: int) -> None:
    assert "starting" in shown(count) or count == 2


def test_the_end_is_said() -> None:
    assert "done (steps)" in shown(len(records()))


@pytest.mark.parametrize("width", [60, 200])
def test_any_terminal_holds_it(width: int) -> None:
    assert all(len(line) <= width for line in shown(40, width=width).splitlines())


def test_plain_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with Progress("x", Console(file=out, width=40)) as progress:
        for record in records(steps=40):
            progress(record)
    lines = out.getvalue().splitlines()
    assert len(lines) == 1 + 4 + 4 + 1 and "\x1b" not in out.getvalue()
    assert lines[0] == "start  40 steps, 263,000 dense parameters"
    assert (
        lines[1].startswith("step 10/40  loss 0.69") and "limits compute" in lines[1] and "dram 5 MiB hit" in lines[1]
    )
    assert lines[2].startswith("eval  step 10  click: AUC 0.5")
    assert lines[-1] == "end  step 40  81,920 samples in 0:00:02 (steps)"


def test_an_unknown_length_has_no_time_left() -> None:
    out = io.StringIO()
    found = records(steps=40)
    found[0]["steps"] = 0
    with Progress("x", Console(file=out, width=40)) as progress:
        for record in found:
            progress(record)
    assert "until the data ends" in out.getvalue() and "left" not in out.getvalue()


def test_figures_nobody_knows_are_dashes() -> None:
    out = io.StringIO()
    (record,) = records(steps=10, every=10)[1:2]
    record["auc"] = None
    record["tiers"]["ssd"]["hit_rate"] = None
    with Progress("x", Console(file=out)) as progress:
        progress(record)
    assert "auc -" in out.getvalue() and "hit -" in out.getvalue()


def test_records_come_from_any_thread() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Progress("x", console) as progress:
        threads = [threading.Thread(target=lambda: [progress(record) for record in records()]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            console.print(progress)
        for thread in threads:
            thread.join()


def test_numbers_as_people_read_them() -> None:
    assert [in_bytes(n) for n in (0, 1023, 1536, 200 << 20, 1023 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "200 MiB",
        "1,023 MiB",
        "5 GiB",
    ]
    assert [in_count(n) for n in (7, 9999, 12_345, 2_048_000)] == ["7", "9,999", "12.3 k", "2.05 M"]
    assert [in_rate(n) for n in (21_299.6, 4.2123)] == ["21,300", "4.21"]
    assert [in_duration(s) for s in (0, 59.6, 3725)] == ["0:00:00", "0:01:00", "1:02:05"]
