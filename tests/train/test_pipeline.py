"""The runner, with stages that know nothing of training."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepwell.errors import ConfigError, StoreFull
from stepwell.telemetry import Spans
from stepwell.train.pipeline import END, Pipeline, Stage

DEPTHS = [1, 2, 3, 5]


def counting(last: int) -> Callable[[int, Any], Any]:
    return lambda step, _: [step] if step <= last else END


def adding(mark: str) -> Callable[[int, Any], Any]:
    return lambda step, item: [*item, mark]


def stages(last: int, seen: list[Any], **replaced: Stage) -> tuple[Stage, ...]:
    made = {
        "make": Stage(name="make", run=counting(last)),
        "shape": Stage(name="shape", run=adding("s")),
        "use": Stage(name="use", run=adding("u"), here=True),
        "keep": Stage(name="keep", run=lambda step, item: seen.append((step, item))),
    }
    return tuple((made | replaced).values())


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stepwell-")]


def failing(at: int, then: Callable[[int, Any], Any], error: type[BaseException] = StoreFull) -> Callable[..., Any]:
    def run(step: int, item: Any) -> Any:
        if step == at:
            raise error("no room")
        return then(step, item)

    return run


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_item_goes_through_every_stage_in_order(depth: int) -> None:
    seen: list[Any] = []
    assert Pipeline(stages(20, seen), depth=depth).run(first_step=4) == 20
    assert seen == [(step, [step, "s", "u"]) for step in range(4, 21)]
    assert alive() == []


@pytest.mark.parametrize("depth", DEPTHS)
def test_no_items(depth: int) -> None:
    seen: list[Any] = []
    assert Pipeline(stages(0, seen), depth=depth).run() == 0
    assert seen == []


def test_the_here_stage_is_on_the_calling_thread_and_the_others_have_their_own() -> None:
    names: dict[str, set[str]] = {"shape": set(), "use": set(), "keep": set()}

    def note(name: str) -> Callable[[int, Any], Any]:
        def run(step: int, item: Any) -> Any:
            names[name].add(threading.current_thread().name)
            return item

        return run

    Pipeline(
        stages(
            9,
            [],
            shape=Stage(name="shape", run=note("shape")),
            use=Stage(name="use", run=note("use"), here=True),
            keep=Stage(name="keep", run=note("keep")),
        ),
        depth=3,
    ).run()
    here = threading.current_thread().name
    assert names == {"shape": {"stepwell-shape"}, "use": {here}, "keep": {"stepwell-keep"}}


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_depth_bounds_the_items_in_flight(depth: int) -> None:
    lock, flying, most = threading.Lock(), 0, 0

    def make(step: int, _: Any) -> Any:
        nonlocal flying, most
        if step > 30:
            return END
        with lock:
            flying += 1
            most = max(most, flying)
        return step

    def keep(step: int, item: Any) -> None:
        nonlocal flying
        time.sleep(0.001)
        with lock:
            flying -= 1

    Pipeline(
        stages(0, [], make=Stage(name="make", run=make), keep=Stage(name="keep", run=keep), shape=_passing()),
        depth=depth,
    ).run()
    assert most == depth


def _passing() -> Stage:
    return Stage(name="shape", run=lambda step, item: [item])


@pytest.mark.parametrize("last", [1, 7, 8])
@pytest.mark.parametrize("depth", [1, 4, 9])
def test_a_window_takes_consecutive_items_together(depth: int, last: int) -> None:
    seen: list[Any] = []
    calls: list[tuple[int, int]] = []

    def shape(step: int, items: list[Any]) -> list[Any]:
        calls.append((step, len(items)))
        return [[*item, "w"] for item in items]

    Pipeline(stages(last, seen, shape=Stage(name="shape", run=shape, window=4)), depth=depth).run()
    assert seen == [(step, [step, "w", "u"]) for step in range(1, last + 1)]
    if depth > 1:
        assert calls == [(step, min(4, last + 1 - step)) for step in range(1, last + 1, 4)]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("where", ["make", "shape", "use", "keep"])
@pytest.mark.parametrize("error", [StoreFull, ZeroDivisionError])
def test_an_exception_ends_the_run_after_the_items_before_it(
    depth: int, where: str, error: type[BaseException]
) -> None:
    seen: list[Any] = []
    usual = {stage.name: stage for stage in stages(50, seen)}
    broken = Stage(name=where, run=failing(7, usual[where].run, error), here=where == "use")
    with pytest.raises(error) as caught:
        Pipeline(stages(50, seen, **{where: broken}), depth=depth).run()
    assert caught.value.__notes__ == [f"in stage {where!r}, step 7"]
    assert [step for step, _ in seen] == list(range(1, 7))
    assert alive() == []


@pytest.mark.parametrize("depth", [1, 4, 5])
@pytest.mark.parametrize("at", range(1, 9))
def test_items_of_a_window_before_the_failed_one_go_on(depth: int, at: int) -> None:
    seen: list[Any] = []

    def shape(step: int, items: list[Any]) -> Iterator[Any]:
        for item in items:
            if item[0] == at:
                raise StoreFull("no room")
            yield item

    with pytest.raises(StoreFull) as caught:
        Pipeline(stages(50, seen, shape=Stage(name="shape", run=shape, window=4)), depth=depth).run()
    assert caught.value.__notes__ == [f"in stage 'shape', step {at}"]
    assert [step for step, _ in seen] == list(range(1, at))


def test_an_item_of_a_window_goes_on_before_the_next_is_made() -> None:
    used = threading.Semaphore(0)

    def shape(step: int, items: list[Any]) -> Iterator[Any]:
        for i, item in enumerate(items):
            assert i == 0 or used.acquire(
                timeout=60
            )  # as when a step's rows have room only once the one before is done
            yield item

    def use(step: int, item: Any) -> Any:
        used.release()
        return item

    replaced = {
        "shape": Stage(name="shape", run=shape, window=3),
        "use": Stage(name="use", run=use, here=True),
    }
    assert Pipeline(stages(7, [], **replaced), depth=6).run() == 7


@pytest.mark.parametrize("depth", DEPTHS)
def test_stop_ends_after_the_item_at_hand(depth: int) -> None:
    seen: list[Any] = []

    def use(step: int, item: Any) -> Any:
        if step == 5:
            pipeline.stop()
        return item

    pipeline = Pipeline(stages(1_000_000, seen, use=Stage(name="use", run=use, here=True)), depth=depth)
    assert pipeline.run() == 5
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5]
    assert alive() == []


def test_a_stage_that_waits_for_later_ones_is_woken() -> None:
    woken = threading.Event()

    def shape(step: int, item: Any) -> Any:
        if step == 3:
            assert woken.wait(60)
            raise StoreFull("stopped")
        return item

    def use(step: int, item: Any) -> Any:
        if step == 2:
            raise ZeroDivisionError("mine")
        return item

    stage = Stage(name="shape", run=shape, interrupt=woken.set)
    with pytest.raises(ZeroDivisionError, match="mine"):
        Pipeline(stages(50, [], shape=stage, use=Stage(name="use", run=use, here=True)), depth=3).run()
    assert alive() == []


@pytest.mark.parametrize("depth", DEPTHS)
def test_sigint_ends_between_items(depth: int) -> None:
    seen: list[Any] = []
    after: list[int] = []

    def use(step: int, item: Any) -> Any:
        if step == 5:
            signal.raise_signal(signal.SIGINT)
            after.append(step)
        return item

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Pipeline(stages(1_000_000, seen, use=Stage(name="use", run=use, here=True)), depth=depth).run()
    assert after == [5]
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5]
    assert signal.getsignal(signal.SIGINT) is before
    assert alive() == []


def test_a_handler_of_the_program_stays() -> None:
    seen: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *_: pipeline.stop())
    try:

        def use(step: int, item: Any) -> Any:
            if step == 5:
                signal.raise_signal(signal.SIGINT)
            return item

        pipeline = Pipeline(stages(1_000_000, seen, use=Stage(name="use", run=use, here=True)), depth=2)
        assert pipeline.run() == 5
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("depth", [1, 2])
def test_stop_from_another_thread(depth: int) -> None:
    seen: list[Any] = []
    reached = threading.Event()

    def use(step: int, item: Any) -> Any:
        if step == 5:
            reached.set()
        return item

    pipeline = Pipeline(stages(1_000_000_000, seen, use=Stage(name="use", run=use, here=True)), depth=depth)

    def stop() -> None:
        assert reached.wait(60)
        pipeline.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    last = pipeline.run()
    thread.join()
    assert last >= 5
    assert [step for step, _ in seen] == list(range(1, last + 1))


def test_sigint_twice_does_not_wait_for_the_item() -> None:
    def use(step: int, item: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt):
        Pipeline(stages(9, [], use=Stage(name="use", run=use, here=True)), depth=2).run()
    assert alive() == []


def test_sigint_while_the_caller_waits_for_an_item() -> None:
    here = threading.main_thread().ident
    assert here is not None

    def shape(step: int, item: Any) -> Any:
        if step == 3:
            time.sleep(0.02)  # the caller waits by now; if it does not yet, the test still holds
            signal.pthread_kill(here, signal.SIGINT)
            time.sleep(0.02)
        return item

    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        Pipeline(stages(1_000_000, seen, shape=Stage(name="shape", run=shape)), depth=2).run()
    assert [step for step, _ in seen] == list(range(1, len(seen) + 1))
    assert len(seen) <= 3


@pytest.mark.parametrize("depth", [1, 3])
def test_report_and_spans(depth: int) -> None:
    spans = Spans()
    reports: list[dict[str, dict[str, float]]] = []

    def use(step: int, item: Any) -> Any:
        time.sleep(0.002)
        if step % 5 == 0:
            reports.append(pipeline.report())
        return item

    pipeline = Pipeline(stages(10, [], use=Stage(name="use", run=use, here=True)), depth=depth, spans=spans)
    pipeline.run()
    assert [list(report) for report in reports] == [["make", "shape", "use", "keep"]] * 2
    for report in reports:  # the second counts from the first on: five sleeps each, less the one under way
        assert report["use"]["busy_s"] >= 0.008
        assert max(report, key=lambda name: report[name]["busy_s"]) == "use"
        assert all(0 <= figures["queue"] <= depth for figures in report.values())
    used = [span for span in spans.drain() if span.name == "use"]
    assert [span.step for span in used] == list(range(1, 11))
    assert all(span.end_s - span.start_s >= 0.002 for span in used)


def test_a_window_needs_its_depth() -> None:
    wide = Stage(name="shape", run=lambda step, items: items, window=4)
    with pytest.raises(ConfigError, match="found 3, expected 1 or at least 4"):
        Pipeline(stages(1, [], shape=wide), depth=3)
