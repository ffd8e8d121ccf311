"""Bytes that change on disk: each damage is found and named by file and offset, and costs no other row."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from stepwell.errors import StoreCorrupt, StoreError, StoreFormatError, StoreIOError
from stepwell.native import check_ssd_dir
from stepwell.rows import Adam, MinCount, TableSpec
from stepwell.store import SsdSettings, StoreConfig, TieredStore, manifest
from stepwell.store.ssd import log_directory
from tests.store import writer

PAGE = 4096
HEADER = 16
KEY = 16
FOOTER_ENTRY = 20
ROWS = 700
IDS = writer.IDS[:1].repeat(ROWS) + np.arange(ROWS) * np.int64(0x9E3779B97F4A7)


@dataclass(frozen=True)
class Shape:
    """Where things lie in a full segment of a layout (docs/store_format.md)."""

    spec: TableSpec
    segment_bytes: int
    block_pages: int
    per_block: int

    @property
    def stored(self) -> int:
        return KEY + self.spec.layout.record_bytes

    def places(self, size: int) -> dict[str, int]:
        """Byte offsets in a sealed segment's file of so many bytes, by what lies there."""
        layout = self.spec.layout
        page_header = {"checksum": 0, "magic": 4, "version": 6, "kind": 7, "segment": 8, "page": 12, "records": 14}
        trailer = size - PAGE
        footer_pages = 1
        while (trailer // PAGE - footer_pages - 1) // self.block_pages * self.per_block > footer_pages * 204:
            footer_pages += 1
        footer = trailer - footer_pages * PAGE
        data = PAGE * (1 + self.block_pages)  # the second block
        record = data + HEADER + KEY
        places = {
            "header: number": HEADER,
            "header: record bytes": HEADER + 24,
            "header: unused end": PAGE - 1,
            "row: id": data + HEADER + 3,
            "row: table": data + HEADER + 8,
            "row: seq": data + HEADER + 12,
            "row: weight": record + 1,
            "row: state": record + layout.weight_bytes + 1,
            "row: count": min(record + layout.count_offset, data + PAGE - 1),
            "row: last step": min(record + layout.last_step_offset, data + PAGE - 1),
            "row: padding": min(record + layout.record_bytes - 1, data + PAGE - 1),
            "row: unused end": data + PAGE * self.block_pages - 1,
            "row: last page": footer - 2500,
            "footer: id": footer + HEADER + 5 * FOOTER_ENTRY + 2,
            "footer: word": footer + HEADER + 5 * FOOTER_ENTRY + 9,
            "footer: step": footer + HEADER + 5 * FOOTER_ENTRY + 17,
            "footer: last page": trailer - 1,
            "trailer: header": trailer + HEADER + 1,
            "trailer: places": trailer + HEADER + 40,
            "trailer: unused end": size - 1,
        }
        for name, start in {"header": 0, "row": data, "footer": footer, "trailer": trailer}.items():
            places |= {f"{name}: page's {field}": start + at for field, at in page_header.items()}
        return places


SHAPES = [
    Shape(TableSpec(name="t", dim=16, optimizer=Adam()), 64 << 10, 1, 18),
    Shape(TableSpec(name="t", dim=300, optimizer=Adam()), 256 << 10, 1, 1),
    Shape(TableSpec(name="t", dim=500, optimizer=Adam()), 512 << 10, 3, 2),
]


class Damaged:
    """A store of ROWS rows, closed, that is copied for each damage."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        self.shape, self.folder = shape, folder
        self.pristine = folder / "pristine"
        with self.open(self.pristine) as store:
            for start in range(0, ROWS, 500):
                ids = IDS[start : start + 500]
                store.insert_records("t", ids, writer.records_of(shape.spec.layout, 0, ids, 7))
            store.commit(1, cursor={"at": 7})
            store.sync()

    def config(self, directory: Path) -> StoreConfig:
        settings = SsdSettings(
            segment_bytes=self.shape.segment_bytes, direct=writer.has_direct(self.folder), background_compaction=False
        )
        return StoreConfig(
            tables=(self.shape.spec,),
            dram_bytes=6 << 20,
            ssd_bytes=64 << 20,
            ssd_directory=str(directory),
            ssd=settings,
        )

    def open(self, directory: Path) -> TieredStore:
        return TieredStore(self.config(directory))

    def copy(self) -> tuple[Path, Path]:
        """A new copy, and its directory of segments."""
        directory = self.folder / "copy"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.pristine, directory)
        return directory, log_directory(directory, self.shape.spec.layout.fingerprint)

    def read(self, store: TieredStore) -> tuple[set[int], set[int], set[int], list[StoreCorrupt]]:
        """Places in IDS that are good, absent and unreadable; a row that is there is right."""
        good, absent, unreadable, errors = set(), set(), set(), []
        parts = [np.arange(start, min(start + 50, ROWS)) for start in range(0, ROWS, 50)]
        while parts:
            part = parts.pop()
            try:
                rows = store.find("t", IDS[part])
            except StoreCorrupt as error:
                errors.append(error)
                if len(part) == 1:
                    unreadable.add(int(part[0]))
                else:
                    parts += [np.array([place]) for place in part]
                continue
            assert (
                writer.versions_of(self.shape.spec.layout, 0, IDS[part][rows.found], rows.records[rows.found]) == 7
            ).all()
            good |= set(part[rows.found].tolist())
            absent |= set(part[~rows.found].tolist())
        return good, absent, unreadable, errors


def flip(path: Path, offset: int, mask: int = 0x40) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def warnings(store: TieredStore) -> list[str]:
    return [warning for log in store.stats().tiers[-1].details["logs"] for warning in log["warnings"]]


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: f"dim{shape.spec.dim}")
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged(request.param, tmp_path_factory.mktemp("store"))


def test_a_flipped_byte_of_a_segment(damaged: Damaged) -> None:
    everything = set(range(ROWS))
    segments = sorted(log_directory(damaged.pristine, damaged.shape.spec.layout.fingerprint).glob("seg-*.log"))
    assert len(segments) >= 3
    for name, offset in damaged.shape.places(segments[1].stat().st_size).items():
        loses = name.startswith("row")
        directory, log = damaged.copy()
        path = log / segments[1].name
        flip(path, offset)
        at = f"offset {offset // PAGE * PAGE}"
        with damaged.open(directory) as store:
            good, absent, unreadable, errors = damaged.read(store)
            told = [str(error) for error in errors] if loses else warnings(store)
        assert not absent, name
        assert good | unreadable == everything, name
        assert bool(unreadable) == loses, name
        assert len(unreadable) <= damaged.shape.per_block, name
        assert told, name
        for text in told if loses else told[:1]:
            assert str(path) in text, (name, text)
            assert at in text, (name, at, text)
        if errors:
            assert any("could not be read" in note for note in errors[0].__notes__)

        found = check_ssd_dir(str(log), False)
        assert [(file, where) for file, where, _ in found["problems"]] == [(str(path), offset // PAGE * PAGE)], name
        assert not found["repaired"]
        found = check_ssd_dir(str(log), True)
        assert found["repaired"]
        assert sorted(found["lost"]) == sorted((0, int(IDS[place])) for place in unreadable), name
        assert found["lost_unnamed"] == 0, name
        assert check_ssd_dir(str(log), False)["problems"] == [], name
        with damaged.open(directory) as store:
            assert damaged.read(store) == (good, unreadable, set(), []), name
            assert warnings(store) == [], name
            assert store.cursor == {"at": 7}


def test_a_flipped_byte_of_the_marker(damaged: Damaged) -> None:
    """SYNCED has two slots, written in turn: one is enough, with neither only a repair opens the log."""
    everything = (set(range(ROWS)), set(), set(), [])
    for slots in ([0], [1], [0, 1]):
        for at in (0, 4, 6, 7, 8, 12, HEADER, HEADER + 8, HEADER + 30, HEADER + 60, PAGE - 1):
            directory, log = damaged.copy()
            with damaged.open(directory) as store:  # both slots say the same rows
                for _ in range(2):
                    store.insert_records("t", IDS[:1], writer.records_of(damaged.shape.spec.layout, 0, IDS[:1], 7))
                    store.sync()
            for slot in slots:
                flip(log / "SYNCED", slot * PAGE + at)
            found = check_ssd_dir(str(log), False)["problems"]
            assert found, (slots, at)
            assert {file for file, _, _ in found} == {str(log / "SYNCED")}
            assert found[0][1] in [slot * PAGE for slot in slots]
            if len(slots) == 2:
                with pytest.raises(StoreCorrupt, match=f"{log / 'SYNCED'}.*offset"):
                    damaged.open(directory)
            else:
                with damaged.open(directory) as store:
                    assert any(f"offset {slots[0] * PAGE}" in text for text in warnings(store))
                    assert damaged.read(store) == everything
                continue
            assert check_ssd_dir(str(log), True)["repaired"]
            assert check_ssd_dir(str(log), False)["problems"] == []
            with damaged.open(directory) as store:
                assert damaged.read(store) == everything
                assert warnings(store) == []


def test_a_missing_marker(damaged: Damaged) -> None:
    directory, log = damaged.copy()
    (log / "SYNCED").unlink()
    with pytest.raises(StoreCorrupt, match="SYNCED"):
        damaged.open(directory)
    assert check_ssd_dir(str(log), True)["repaired"]
    with damaged.open(directory) as store:
        assert damaged.read(store)[0] == set(range(ROWS))


def test_a_page_in_anothers_place(damaged: Damaged) -> None:
    """Whole pages with good checksums, but not where they were written."""
    directory, log = damaged.copy()
    first, second = sorted(log.glob("seg-*.log"))[:2]
    for source, to in ((PAGE, 2 * PAGE * damaged.shape.block_pages + PAGE), (PAGE, PAGE)):
        directory, log = damaged.copy()
        data = bytearray(second.read_bytes())
        page = first.read_bytes()[source : source + PAGE]
        data[to : to + PAGE] = page
        second.write_bytes(data)
        with damaged.open(directory) as store:
            good, absent, unreadable, errors = damaged.read(store)
        assert not absent
        assert 0 < len(unreadable) <= damaged.shape.per_block
        assert len(good) + len(unreadable) == ROWS
        assert all(f"offset {to}" in str(error) for error in errors)
        assert [(file, at) for file, at, _ in check_ssd_dir(str(log), False)["problems"]] == [(str(second), to)]


@pytest.mark.parametrize(
    "cut",
    [
        "to nothing",
        "in the trailer",
        "at the trailer",
        "in the footer",
        "in the data",
        "between data pages",
        pytest.param(
            "the file is gone",
            marks=pytest.mark.xfail(strict=True, reason="a log has no list of its files, so it does not miss one"),
        ),
    ],
)
def test_a_truncated_segment(damaged: Damaged, cut: str) -> None:
    """What is left is readable; what is lost is said, and comes back as no other row."""
    directory, log = damaged.copy()
    path = sorted(log.glob("seg-*.log"))[1]
    size = path.stat().st_size
    places = damaged.shape.places(size)
    trailer, footer = places["trailer: page's checksum"], places["footer: page's checksum"]
    ends = {
        "to nothing": 0,
        "in the trailer": trailer + 500,
        "at the trailer": trailer,
        "in the footer": footer + 100,
        "in the data": PAGE * (1 + 2 * damaged.shape.block_pages) + 1000,
        "between data pages": PAGE * (1 + 2 * damaged.shape.block_pages),
    }
    if cut in ends:
        with path.open("r+b") as file:
            file.truncate(ends[cut])
    else:
        path.unlink()
    problems = check_ssd_dir(str(log), False)["problems"]
    with damaged.open(directory) as store:
        good, absent, unreadable, _ = damaged.read(store)
        told = warnings(store)
    assert len(good) + len(absent) + len(unreadable) == ROWS
    if cut in ("in the trailer", "at the trailer", "in the footer"):
        assert len(good) == ROWS
    if len(good) < ROWS or cut in ("in the trailer", "at the trailer"):
        assert any(str(path) == file for file, _, _ in problems)
        assert any(str(path) in text for text in told)


def test_every_byte_of_the_manifest(damaged: Damaged) -> None:
    rng = np.random.default_rng(0)
    directory, _ = damaged.copy()
    path = directory / manifest.FILE
    text, whole = path.read_bytes(), manifest.read(directory)
    for offset in range(len(text)):
        flipped = bytearray(text)
        flipped[offset] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            read = manifest.read(directory)
        except (StoreCorrupt, StoreFormatError) as error:
            assert manifest.FILE in str(error)
        else:  # such as 1E-3 for 1e-3
            assert read == whole, offset
    path.write_bytes(text[: len(text) // 2])
    with pytest.raises(StoreCorrupt, match=manifest.FILE):
        damaged.open(directory)
    path.unlink()
    with pytest.raises(StoreError, match=manifest.FILE):  # its rows are there, but not what they are
        damaged.open(directory)
    newer = json.loads(text)
    newer["store"]["format"] = manifest.FORMAT + 1
    path.write_text(json.dumps(newer))
    with pytest.raises(StoreFormatError, match="upgrade"):
        damaged.open(directory)


def test_admission_filters(tmp_path: Path) -> None:
    spec = TableSpec(name="t", dim=4, admission=MinCount(n=3, expected_ids=1000))
    config = StoreConfig(
        tables=(spec,),
        dram_bytes=1 << 20,
        ssd_bytes=8 << 20,
        ssd_directory=str(tmp_path / "store"),
        ssd=SsdSettings(segment_bytes=1 << 16, direct=writer.has_direct(tmp_path)),
    )
    with TieredStore(config) as store:
        store.find_or_insert("t", np.arange(10))
        store.commit(1)
        store.sync()
    (path,) = (tmp_path / "store").glob("filter-*.u16")
    data = path.read_bytes()
    for damage in (b"", data[:-2], data + b"\0\0", data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]):
        path.write_bytes(damage)
        with pytest.raises(StoreCorrupt, match=path.name):
            TieredStore(config)
    path.unlink()
    with pytest.raises(StoreIOError, match=path.name):
        TieredStore(config)
    path.write_bytes(data)
    with TieredStore(config) as store:
        assert store.step == 1
