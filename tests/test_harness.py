"""The benchmark harness: rows, ratios, interleaving, the refusal of builds that say nothing."""

import json
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import Bar, Case, Measured, Run, Sides, Timed
from benchmarks.peers import PeerMissing, import_peer

KEYS = ["bench", "case", "ours", "peer_name", "peer", "ratio", "unit", "higher_is_better", "rounds"]
KEYS += ["machine", "load", "commit", "config"]
RELEASE = {"optimized": True, "sanitizer": ""}


def yielding(sides: Sides) -> Callable[[Run], AbstractContextManager[Sides]]:
    @contextmanager
    def setup(run: Run) -> Iterator[Sides]:
        assert run.directory.is_dir()
        yield sides

    return setup


def figures(ours: float, peer: float | None = None, *, higher_is_better: bool = True, rounds: int | None = 1) -> Case:
    sides = Sides(ours=Bar(ours), peer=None if peer is None else Bar(peer))
    name = None if peer is None else "bar"
    return Case(
        name="c", setup=yielding(sides), unit="x", peer_name=name, higher_is_better=higher_is_better, rounds=rounds
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(directory=tmp_path, quick=True)


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    info = dict(RELEASE)
    fake = types.SimpleNamespace(build_info=lambda: info)
    monkeypatch.setitem(sys.modules, "stepwell.native", types.ModuleType("stepwell.native"))
    monkeypatch.setitem(sys.modules, "stepwell.native._core", fake)
    return info


def test_a_row_has_exactly_the_agreed_keys(run: Run) -> None:
    row = harness.run_case("b", figures(2.0, 1.0), run)
    assert list(row) == [*KEYS, "quantiles", "cold"]
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["config"] == {"quick": True}


@pytest.mark.parametrize(("higher_is_better", "ratio"), [(True, 4.0), (False, 0.25)])
def test_ratio_above_one_means_that_ours_is_better(run: Run, higher_is_better: bool, ratio: float) -> None:
    assert harness.run_case("b", figures(8.0, 2.0, higher_is_better=higher_is_better), run)["ratio"] == ratio


def test_a_figure_without_a_peer_has_no_ratio(run: Run) -> None:
    row = harness.run_case("b", figures(8.0), run)
    assert (row["ours"], row["peer"], row["peer_name"], row["ratio"], row["cold"]) == (8.0, None, None, None, None)


def test_a_ratio_needs_figures_above_zero(run: Run) -> None:
    with pytest.raises(ValueError, match="above 0"):
        harness.run_case("b", figures(0.0, 1.0), run)


def test_a_peer_needs_a_name(run: Run) -> None:
    with pytest.raises(ValueError, match="peer_name"):
        harness.run_case("b", Case(name="c", unit="x", setup=yielding(Sides(ours=Bar(1.0), peer=Bar(1.0)))), run)


def test_seconds_cannot_be_better_when_higher(run: Run) -> None:
    sides = Sides(ours=Timed(call=lambda given: None))
    with pytest.raises(ValueError, match="seconds"):
        harness.run_case("b", Case(name="c", unit="s", setup=yielding(sides)), run)


def test_rounds_interleave_and_the_first_is_cold(run: Run) -> None:
    calls: list[str] = []

    def side(name: str) -> Measured:
        def call(round_: int) -> float:
            calls.append(name)
            return 100.0 if round_ == 0 else float(round_)

        return Measured(call)

    case = Case(
        name="c",
        unit="s",
        peer_name="p",
        setup=yielding(Sides(ours=side("ours"), peer=side("peer"))),
        higher_is_better=False,
    )
    row = harness.run_case("b", case, run)
    assert row["cold"] == {"ours": 100.0, "peer": 100.0}
    assert (row["rounds"], row["ours"], row["peer"]) == (10, 2.0, 2.0)  # rounds 2 to 11; the cold one counts nowhere
    assert row["quantiles"]["ours"] == {"p50": 6.0, "p99": 11.0}
    pairs = [tuple(calls[at : at + 2]) for at in range(0, len(calls), 2)]
    assert pairs == [("ours", "peer"), ("peer", "ours")] * 6


def test_thirty_rounds_unless_quick(tmp_path: Path) -> None:
    row = harness.run_case("b", figures(1.0, rounds=None), Run(directory=tmp_path, quick=False))
    assert row["rounds"] == 30


def test_quantiles_run_from_best_to_worst() -> None:
    values = [float(value) for value in range(1, 101)]
    assert harness.quantiles(values, higher_is_better=False) == {"p50": 50.0, "p99": 99.0}
    assert harness.quantiles(values, higher_is_better=True) == {"p50": 51.0, "p99": 2.0}


def test_timed_counts_the_call_and_not_its_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(harness.time, "perf_counter", lambda: now[0])

    def spend(seconds: float) -> float:
        now[0] += seconds
        return seconds

    prepare = lambda round_: spend(5.0) and round_  # noqa: E731
    assert Timed(call=lambda given: spend(2.0) + given, prepare=prepare, work=10).measure(3) == (5.0, 5.0)
    assert Timed(call=lambda given: spend(2.0) + given, prepare=prepare).measure(3) == (2.0, 5.0)


def test_values_that_differ_stop_the_case(run: Run) -> None:
    compared: list[tuple[int, int]] = []

    def agree(ours: int, peer: int) -> None:
        compared.append((ours, peer))
        assert ours == peer, "differs"

    def case(extra: int) -> Case:
        ours = Timed(call=lambda round_: round_ + extra, work=1)
        sides = Sides(ours=ours, peer=Timed(call=lambda round_: round_, work=1), agree=agree)
        return Case(name="c", unit="x/s", peer_name="p", setup=yielding(sides))

    harness.run_case("b", case(0), run)
    assert compared == [(0, 0), (11, 11)]
    with pytest.raises(AssertionError, match="differs"):
        harness.run_case("b", case(1), run)


def test_config_holds_what_the_case_observed(run: Run) -> None:
    config: dict[str, object] = {"rows": 5}

    def call(round_: int) -> float:
        config["last"] = round_
        return 1.0

    case = Case(name="c", unit="x", setup=yielding(Sides(ours=Measured(call), config=config)))
    assert harness.run_case("b", case, run)["config"] == {"quick": True, "rows": 5, "last": 11}


@pytest.mark.parametrize("change", [{"optimized": False}, {"sanitizer": "thread"}])
def test_a_debug_or_sanitizer_build_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SystemExit, match="Release"):
        harness.require_release_build(RELEASE | change)


@pytest.mark.usefixtures("core")
def test_json_rows_go_to_standard_output_and_to_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    for _ in range(2):
        arguments = ["--quick", "--json", "--save", "--case", "c", "--directory", str(tmp_path / "bench")]
        assert harness.main("b", [figures(2.0, 1.0)], arguments) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    saved = [json.loads(line) for line in (tmp_path / "results" / "b.jsonl").read_text().splitlines()]
    assert printed == saved and len(saved) == 2
    assert list((tmp_path / "bench").iterdir()) == []  # a case's folder goes with it


@pytest.mark.usefixtures("core")
def test_the_table_names_both_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness.main("b", [figures(2000.0, 0.5)], ["--directory", str(tmp_path)]) == 0
    line = capsys.readouterr().out
    assert "2,000 x" in line and "bar 0.5" in line and "ratio 4000.00" in line


@pytest.mark.usefixtures("core")
def test_an_unknown_case_is_an_error_that_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        harness.main("b", [figures(1.0)], ["--case", "nothing"])
    assert "no case 'nothing'; there are c" in capsys.readouterr().err


@pytest.mark.usefixtures("core")
def test_a_missing_peer_fails_its_case_and_not_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def setup(run: Run) -> Iterator[Sides]:
        yield Sides(ours=Bar(float(bool(import_peer("stepwell_has_no_such_peer")))))

    cases = [Case(name="absent", unit="x", setup=setup), figures(1.0)]
    assert harness.main("b", cases, ["--directory", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "make setup-peers" in printed.err and printed.out.startswith("c ")
    with pytest.raises(PeerMissing):
        import_peer("stepwell_has_no_such_peer")


def test_the_core_is_checked_before_anything_is_measured(core: dict[str, object]) -> None:
    core["sanitizer"] = "address"
    with pytest.raises(SystemExit, match="address"):
        harness.main("b", [figures(1.0)], [])
