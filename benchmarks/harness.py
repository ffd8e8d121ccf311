"""How every figure is measured: ours and the peer in one process, interleaved, one JSON row per case.

A benchmark is a list of `Case`s given to `main`. A case's `setup` is a context manager that prepares both sides,
touches the memory they use and yields `Sides`. Round 0 is each side's first call, reported as "cold"; one more round
warms up; then at least 30 rounds (10 with --quick) run ours and the peer in alternating order. "ours" and "peer" are
the best rounds, "ratio" above 1 always means that ours is better, and "quantiles" run from the best round to the worst.
"""

import argparse
import gc
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.machine import ROOT, describe_commit, describe_machine, load_average
from benchmarks.peers import PeerMissing

QUICK_SECONDS_PER_CASE = 45.0
RESULTS = ROOT / "benchmarks" / "results"


class Side(Protocol):
    """One contender: a figure per round, and what the round returned, for comparison with the other side's."""

    def measure(self, round_: int) -> tuple[float, object]: ...


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A call that the harness times. The figure is `work` per second, or the seconds where `work` is None.

    `call` gets what `prepare(round)` made; that is not timed, and both sides see the same round numbers.
    """

    call: Callable[[Any], object]
    prepare: Callable[[int], Any] = lambda round_: round_
    work: float | None = None

    def measure(self, round_: int) -> tuple[float, object]:
        given = self.prepare(round_)
        start = time.perf_counter()
        result = self.call(given)
        seconds = time.perf_counter() - start
        return (seconds if self.work is None else self.work / seconds), result


@dataclass(frozen=True)
class Measured:
    """A call that returns the figure itself: bytes per row, worst call over median, a disk's IOPS times a factor."""

    call: Callable[[int], float]

    def measure(self, round_: int) -> tuple[float, object]:
        return self.call(round_), None


@dataclass(frozen=True)
class Bar:
    """A fixed figure to compare with: a computed limit or a bar to reach."""

    figure: float

    def measure(self, round_: int) -> tuple[float, object]:
        return self.figure, None


@dataclass(frozen=True, kw_only=True)
class Sides:
    """What a case's setup yields.

    `agree(ours, peer)` gets what both returned in the cold round and in the last one, and raises where values differ.
    `config` is read after the last round, so a case may add what it observed on the way.
    """

    ours: Side
    peer: Side | None = None
    agree: Callable[[Any, Any], None] | None = None
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a case may adapt to: its own empty folder on the disk under test, and whether to be quick."""

    directory: Path
    quick: bool


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row. `rounds` is set only where one measurement is itself long or exact, such as opening 20M rows."""

    name: str
    setup: Callable[[Run], AbstractContextManager[Sides]]
    unit: str
    peer_name: str | None = None
    higher_is_better: bool = True
    rounds: int | None = None


def run_case(bench: str, case: Case, run: Run) -> dict[str, Any]:
    """Measure one case and return its row, without saving it."""
    where = {"machine": describe_machine(), "load": load_average(), "commit": describe_commit()}
    started = time.perf_counter()
    with case.setup(run) as sides:
        _check(case, sides)
        contenders = {"ours": sides.ours} | ({"peer": sides.peer} if sides.peer is not None else {})
        single = case.rounds == 1
        rounds = case.rounds or (10 if run.quick else 30)
        cold = None if single else _play(0, contenders, sides)
        if not single:
            _play(1, contenders, None)
        figures: dict[str, list[float]] = {name: [] for name in contenders}
        for round_ in range(2, rounds + 2):
            last = round_ == rounds + 1
            for name, figure in _play(round_, contenders, sides if last else None).items():
                figures[name].append(figure)
        config = {"quick": run.quick, **sides.config}
    best = {name: (max if case.higher_is_better else min)(values) for name, values in figures.items()}
    _warn_if_slow(case, run, time.perf_counter() - started)
    return {
        "bench": bench,
        "case": case.name,
        "ours": best["ours"],
        "peer_name": case.peer_name,
        "peer": best.get("peer"),
        "ratio": _ratio(best["ours"], best.get("peer"), case.higher_is_better),
        "unit": case.unit,
        "higher_is_better": case.higher_is_better,
        "rounds": rounds,
        **where,
        "config": config,
        "quantiles": {name: quantiles(values, case.higher_is_better) for name, values in figures.items()},
        "cold": cold,
    }


def _play(round_: int, contenders: Mapping[str, Side], compare: Sides | None) -> dict[str, float]:
    """One round of every side, the first to go alternating; the collector stays out of the timing."""
    order = list(contenders)[:: 1 if round_ % 2 == 0 else -1]
    figures, results = {}, {}
    for name in order:
        gc.collect()
        gc.disable()
        try:
            figures[name], result = contenders[name].measure(round_)
        finally:
            gc.enable()
        if compare is not None and compare.agree is not None:
            results[name] = result
    if len(results) == 2 and compare is not None and compare.agree is not None:
        compare.agree(results["ours"], results["peer"])
    return {name: figures[name] for name in contenders}


def _check(case: Case, sides: Sides) -> None:
    for side in (sides.ours, sides.peer):
        if isinstance(side, Timed) and (side.work is not None) != case.higher_is_better:
            raise ValueError(f"{case.name}: a rate (work given) is better when higher, seconds (no work) when lower")
    if (sides.peer is None) != (case.peer_name is None):
        raise ValueError(
            f"{case.name}: peer_name is {case.peer_name!r} and the peer is {sides.peer!r}; give both or none"
        )


def _ratio(ours: float, peer: float | None, higher_is_better: bool) -> float | None:
    if peer is None:
        return None
    if ours <= 0 or peer <= 0:
        raise ValueError(f"figures must be above 0 to have a ratio; ours is {ours}, the peer's {peer}")
    return ours / peer if higher_is_better else peer / ours


def quantiles(figures: Sequence[float], higher_is_better: bool) -> dict[str, float]:
    """p50 and p99 in order from best to worst: 99% of the rounds were at least as good as p99."""
    ordered = sorted(figures, reverse=higher_is_better)
    return {f"p{rank}": ordered[max(0, -(-rank * len(ordered) // 100) - 1)] for rank in (50, 99)}


def _warn_if_slow(case: Case, run: Run, seconds: float) -> None:
    if run.quick and seconds > QUICK_SECONDS_PER_CASE:
        print(f"{case.name}: {seconds:.0f} s, and --quick promises {QUICK_SECONDS_PER_CASE:.0f}", file=sys.stderr)


def require_release_build(info: Mapping[str, object]) -> None:
    """Refuse a core whose figures would say nothing: built without optimisation, or with a sanitizer."""
    if not info["optimized"] or info["sanitizer"]:
        found = f"sanitizer {info['sanitizer']!r}" if info["sanitizer"] else "no optimisation"
        raise SystemExit(f"the core was built with {found}: run `make build` for a Release build, then measure again")


def main(bench: str, cases: Sequence[Case], argv: Sequence[str] | None = None) -> int:
    """The command line of `python -m benchmarks.BENCH`; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{bench}", epilog="cases: " + _names(cases))
    parser.add_argument("--quick", action="store_true", help="10 rounds, at most 45 s per case")
    parser.add_argument("--json", action="store_true", help="one JSON row per line on standard output")
    parser.add_argument("--case", metavar="NAME", help="run this case only")
    parser.add_argument("--save", action="store_true", help=f"append the rows to benchmarks/results/{bench}.jsonl")
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "build" / "bench", help="where files go while measuring"
    )
    chosen = parser.parse_args(argv)
    wanted = [case for case in cases if chosen.case in (None, case.name)]
    if not wanted:
        parser.error(f"no case {chosen.case!r}; there are {_names(cases)}")
    require_release_build(importlib.import_module("stepwell.native._core").build_info())
    failed = False
    for case in wanted:
        try:
            with _own_folder(chosen.directory, case.name) as folder:
                row = run_case(bench, case, Run(directory=folder, quick=chosen.quick))
        except PeerMissing as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            failed = True
            continue
        print(json.dumps(row) if chosen.json else _line(row), flush=True)
        if chosen.save:
            save(row, RESULTS)
    return int(failed)


def save(row: Mapping[str, Any], folder: Path) -> None:
    """Append one row to its benchmark's file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{row['bench']}.jsonl").open("a") as out:
        out.write(json.dumps(row) + "\n")


@contextmanager
def _own_folder(parent: Path, name: str) -> Iterator[Path]:
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=parent) as folder:
        yield Path(folder)


def _names(cases: Iterable[Case]) -> str:
    return ", ".join(case.name for case in cases)


def _line(row: Mapping[str, Any]) -> str:
    text = f"{row['case']:24} {_figure(row['ours'])} {row['unit']}"
    if row["peer"] is not None:
        text += f"   {row['peer_name']} {_figure(row['peer'])}   ratio {row['ratio']:.2f}"
    p50, p99 = row["quantiles"]["ours"]["p50"], row["quantiles"]["ours"]["p99"]
    cold = "" if row["cold"] is None else f", cold {_figure(row['cold']['ours'])}"
    return text + f"   (p50 {_figure(p50)}, p99 {_figure(p99)}{cold}, {row['rounds']} rounds)"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
