"""CriteoSource: lines of Criteo's TSV, plain and gzip, and what it says about bad ones."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from stepwell.data import (
    CRITEO_CATS,
    CRITEO_INTS,
    BatchReader,
    CriteoSource,
    ReaderConfig,
    SyntheticSource,
    criteo_features,
)
from stepwell.data.synthetic_files import write_synthetic
from stepwell.errors import BadRows, ConfigError, DataError, ReadProblem

NAMES = ("label", *CRITEO_INTS, *CRITEO_CATS)


def line(row: int, **changes: str) -> str:
    fields = {"label": str(row % 2)}
    fields |= {name: str(row * 7 - at) if (row + at) % 6 else "" for at, name in enumerate(CRITEO_INTS)}
    fields |= {name: f"{row * 1000 + at:08x}" if (row + at) % 5 else "" for at, name in enumerate(CRITEO_CATS)}
    return "\t".join((fields | changes).values())


def text(rows: int, bad: dict[int, str] | None = None) -> bytes:
    return "".join((bad or {}).get(row, line(row)) + "\n" for row in range(rows)).encode()


def source(path: Path, **changes: object) -> CriteoSource:
    return CriteoSource(**({"paths": (str(path),), "block_bytes": 4096} | changes))  # type: ignore[arg-type]


def write(path: Path, data: bytes) -> Path:
    if path.suffix == ".gz":  # of two members
        data = gzip.compress(data[: len(data) // 3]) + gzip.compress(data[len(data) // 3 :])
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_line_is_read_once_whatever_the_blocks(tmp_path: Path, name: str, end: str) -> None:
    data = text(300).replace(b"\n", end.encode())
    path = write(tmp_path / name, data.removesuffix(end.encode()))
    for block_bytes in (1024, 4096, 1 << 20):
        from_file = source(path, block_bytes=block_bytes)
        units = from_file.units()
        assert sum(unit.num_bytes for unit in units) == len(data) - len(end)
        blocks = [from_file.read(unit, NAMES) for unit in reversed(units)][::-1]
        rows = [block.num_rows for block in blocks]
        assert sum(rows) == 300 and (block_bytes > 1024 or len(units) > 20)
        assert [from_file.first_row_of(unit) for unit in units] == np.cumsum([0, *rows[:-1]]).tolist()
        assert all(unit.num_rows in {None, count} for unit, count in zip(units, rows, strict=True))
        for at, column in enumerate(NAMES):
            got: list[int | None] = []
            for block in blocks:
                values, valid = np.asarray(block[column].values), block[column].valid
                there = valid.tolist() if valid is not None else [True] * block.num_rows
                got += [value if ok else None for value, ok in zip(values.tolist(), there, strict=True)]
            fields = [line(row).split("\t")[at] for row in range(300)]
            base = 16 if column in CRITEO_CATS else 10
            assert got == [int(field, base) if field else None for field in fields]


BAD = {
    "int_3": (line(57, int_3="1.5"), r"column 'int_3': found '1\.5', expected an integer"),
    "cat_26": (line(57, cat_26="xyz"), r"column 'cat_26': found 'xyz', expected 1 to 16 hex digits"),
    "short": ("1\t2\tabc", r"column 'int_3': found 3 fields in '1\\t2\\tabc', expected 40 between tabs"),
    "long": (line(57) + "\t", r"found 41 fields in .*\.\.\., expected 40 between tabs"),
    "blank": ("", r"found 1 fields in '', expected 40"),
    "label": (line(57, label="2"), r"column 'label': found 2, expected a number from 0 to 1"),
    "no label": (line(57, label=""), r"column 'label': found no value, expected a number from 0 to 1"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_malformed_line_is_named_or_left_out_and_counted(tmp_path: Path, what: str, name: str) -> None:
    bad, message = BAD[what]
    path = write(tmp_path / name, text(120, {57: bad}))
    features, config = criteo_features(), ReaderConfig(batch_size=50)
    assert len(source(path).units()) > 4
    wrong = pytest.raises(ReadProblem, match=rf"{name}, row 57.*{message}")
    with BatchReader(source(path), features, ("label",), config) as batches, wrong:
        list(batches)
    config = config.replace(on_bad_row="skip")
    with BatchReader(source(path), features, ("label",), config) as batches:
        got = list(batches)
        assert batches.skipped == 1 and [batch.size for batch in got] == [50, 50, 19]
    with BatchReader(source(path), features, ("label",), config, cursor=got[0].cursor) as rest:
        assert [batch.size for batch in rest] == [50, 19] and rest.skipped == 1


def test_rows_that_a_feature_rejects_are_named_by_their_line(tmp_path: Path) -> None:
    lines = {row: line(row, cat_2="" if row in {57, 59} else "7") for row in range(120)}
    path = write(tmp_path / "a.tsv", text(120, lines))
    features = criteo_features()
    strict = tuple(f.replace(missing="error") if f.name == "cat_2" else f for f in features.features)
    features, config = features.replace(features=strict), ReaderConfig(batch_size=50)
    wrong = pytest.raises(BadRows, match=r"a\.tsv, row 57: column 'cat_2' holds nothing")
    with BatchReader(source(path), features, ("label",), config) as batches, wrong:
        list(batches)
    with BatchReader(source(path), features, ("label",), config.replace(on_bad_row="skip")) as batches:
        assert sum(batch.size for batch in batches) == 118 and batches.skipped == 2


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_gzip_file_that_is_not_whole_is_an_error_whatever_the_policy(tmp_path: Path, policy: str) -> None:
    path = write(tmp_path / "a.tsv.gz", text(300))
    whole = path.read_bytes()
    damaged = whole[:2000] + bytes([whole[2000] ^ 255]) + whole[2001:]
    for data, message in (
        (whole[:-1], "truncated"),
        (whole[: len(whole) // 2], "truncated"),
        (whole[:5], "truncated"),
        (damaged, "damaged"),
        (b"plain text\n", "no gzip file"),
        (b"", "found no bytes"),
    ):
        path.write_bytes(data)
        with pytest.raises(ReadProblem, match=rf"a\.tsv\.gz: .*{message}"):
            BatchReader(source(path), criteo_features(), ("label",), ReaderConfig(batch_size=9, on_bad_row=policy))  # type: ignore[arg-type]


def test_a_file_that_is_empty_absent_or_cut_short_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"")
    with pytest.raises(ReadProblem, match=r"a\.tsv: found no bytes"):
        source(path).units()
    for absent in (tmp_path / "none.tsv", tmp_path / "*.csv"):
        with pytest.raises(ReadProblem, match="found no such file"):
            source(absent).units()
    data = text(200)
    source_ = source(write(path, data))
    units = source_.units()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"a\.tsv: found \d+ bytes, expected \d+: it was cut short"):
        source_.read(units[-1], NAMES, skip_bad_rows=True)
    with pytest.raises(ReadProblem, match=r"a\.tsv, column 'cat_27': found no such column, only label, int_1"):
        source_.read(units[0], ("cat_27",))
    for wrong in ({"paths": ()}, {"label": "int_1"}, {"block_bytes": 0}):
        with pytest.raises(ConfigError, match=f"CriteoSource.{next(iter(wrong))}"):
            source(path, **wrong)


def test_a_line_without_end_is_an_error(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.tsv.gz"):
        path = write(tmp_path / name, text(10) + b"7" * (3 << 20))
        with pytest.raises(ReadProblem, match="found no end of a line"):
            source(path).units()


def test_synthetic_samples_are_the_same_from_lines(tmp_path: Path) -> None:
    made = SyntheticSource(rows=2000, vocabulary=5000)
    summary = write_synthetic(made, tmp_path / "out", "tsv")
    assert summary.num_parts == 1
    lines = CriteoSource(paths=(f"{tmp_path}/out/*.tsv",), label="click")
    [expected], [unit] = [made.read(unit, made.names) for unit in made.units()], lines.units()
    found = lines.read(unit, ("click", *NAMES[1:]))
    for name in ("click", *NAMES[1:]):
        a, b = expected[name], found[name]
        there = slice(None) if a.valid is None else a.valid
        assert np.array_equal(np.asarray(a.values)[there], np.asarray(b.values)[there])
        assert np.array_equal(a.valid, b.valid) if a.valid is not None else b.valid is None  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'tsv' with shape 'sequence'"):
        write_synthetic(made.replace(shape="sequence"), tmp_path / "other", "tsv")
