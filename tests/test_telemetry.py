"""Spans, counters and the trace file."""

import json
import logging
import sys
import threading
import time
from pathlib import Path

import pytest

from stepwell.errors import ConfigError
from stepwell.telemetry import Counters, Span, Spans, setup_logging, write_chrome_trace


def test_spans_come_out_once_in_order() -> None:
    spans = Spans(capacity=8)
    spans.record("read", 1, 0.5, 0.75)
    with spans.span("route", 2):
        time.sleep(0.002)
    first, second = spans.drain()
    assert first == Span("read", 1, threading.current_thread().name, 0.5, 0.75)
    assert (second.name, second.step) == ("route", 2)
    assert second.end_s - second.start_s >= 0.002
    assert spans.drain() == [] and spans.dropped == 0
    assert list(first.to_dict()) == ["name", "step", "thread", "start_s", "end_s"]


def test_a_span_that_fails_is_recorded() -> None:
    spans = Spans()
    with pytest.raises(KeyError), spans.span("compute", 3):
        raise KeyError
    assert [span.step for span in spans.drain()] == [3]


def test_the_oldest_go_first_and_are_counted() -> None:
    spans = Spans(capacity=4)
    for step in range(10):
        spans.record("read", step, 0.0, 1.0)
    assert [span.step for span in spans.drain()] == [6, 7, 8, 9]
    assert spans.dropped == 6
    spans.record("read", 10, 0.0, 1.0)
    assert [span.step for span in spans.drain()] == [10]
    assert spans.dropped == 6


def test_capacity_is_checked() -> None:
    with pytest.raises(ConfigError, match="capacity: found 0"):
        Spans(capacity=0)


def test_threads_record_under_their_names_and_lose_nothing() -> None:
    spans, counters = Spans(capacity=1 << 16), Counters()
    each = 2000

    def work() -> None:
        for step in range(each):
            spans.record("read", step, 0.0, 1.0)
            counters.add("rows", 2)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, name=f"worker-{i}") for i in range(4)]
        for thread in threads:
            thread.start()
        found: list[Span] = []
        while any(thread.is_alive() for thread in threads):
            found += spans.drain()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    found += spans.drain()
    for thread in threads:
        assert [span.step for span in found if span.thread == thread.name] == list(range(each))
    assert spans.dropped == 0
    assert counters.snapshot() == {"rows": 4 * each * 2}


def test_counters_begin_at_nothing() -> None:
    counters = Counters()
    assert counters.snapshot() == {}
    counters.add("waits")
    counters.add("seconds", 0.25)
    held = counters.snapshot()
    counters.add("waits")
    assert held == {"waits": 1, "seconds": 0.25}


def test_chrome_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    spans = [
        Span("read", 5, "reader", 1.0, 1.5),
        Span("compute", 4, "main", 1.25, 2.0),
        Span("read", 6, "reader", 2, 3),
    ]
    write_chrome_trace(spans, path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    drawn = [event for event in events if event["ph"] == "X"]
    assert [(names[event["tid"]], event["name"], event["args"]["step"]) for event in drawn] == [
        ("reader", "read", 5),
        ("main", "compute", 4),
        ("reader", "read", 6),
    ]
    assert (drawn[0]["ts"], drawn[0]["dur"]) == (1.0e6, 0.5e6)
    assert len({event["pid"] for event in events}) == 1


def test_logging_goes_to_stderr_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        setup_logging()
        setup_logging()
        logging.getLogger("stepwell.store").info("merged %d rows", 3)
        said = capsys.readouterr().err
        assert said.count("merged 3 rows") == 1 and "INFO" in said
    finally:
        for handler in list(root.handlers):
            root.removeHandler(handler)
        for handler in handlers:
            root.addHandler(handler)
        root.setLevel(level)
