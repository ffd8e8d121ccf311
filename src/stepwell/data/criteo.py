"""CriteoSource: the TSV files of the Criteo data sets, plain or gzip."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepwell.data.columns import Column, Columns
from stepwell.data.criteo_features import CRITEO_CATS, CRITEO_INTS, CRITEO_LABEL
from stepwell.data.gzip_blocks import GzipBlock, open_blocks, read_block
from stepwell.data.source import Source, Unit
from stepwell.errors import ReadProblem
from stepwell.native import count_lines, decode_tsv

_SKIP, _DECIMAL, _HEX = -1, 0, 1  # native/text/tsv.h
_WRONG_NUMBER_OF_FIELDS = -1
_LONGEST_LINE = 1 << 20
_SHOWN = 60  # characters of a field or line in a message


@dataclass(frozen=True, kw_only=True, slots=True)
class CriteoSource(Source):
    """Lines of a label, 13 integers and 26 hex ids, between tabs: columns `label`, int_1 .. int_13, cat_1 .. cat_26.

    Files, globs, and either compressed (".gz"). All columns are int64: an id is the value of its hex digits. An empty
    field is a missing value. A unit is a block of about `block_bytes` of lines. A compressed file is read through once
    by `units`, which finds out whether it is whole and where one can begin to read; that costs up to 85 kB of memory a
    block.
    """

    paths: tuple[str, ...]
    label: str = CRITEO_LABEL  # what to call the first column
    block_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        self._require_tuple_of("paths", str)
        self._require(bool(self.paths) and all(self.paths), "paths", "at least one path, none empty")
        self._require_instance("label", str)
        self._require(
            bool(self.label) and self.label not in self._columns()[1:], "label", "a name that no other column has"
        )
        self._require_int("block_bytes", 1 << 10, 1 << 30)

    def units(self) -> tuple[Unit, ...]:
        """Blocks of every file."""
        units: list[Unit] = []
        for path in [found for given in self.paths for found in _expand(given)]:
            try:
                units += self._compressed(path) if path.endswith(".gz") else self._plain(path)
            except OSError as error:
                raise ReadProblem(path, None, "", f"cannot be read ({error})") from error
        return tuple(units)

    def read(self, unit: Unit, names: Sequence[str], *, skip_bad_rows: bool = False) -> Columns:
        """Decoded by the core, on the calling thread alone: readers read several blocks at once."""
        all_names = self._columns()
        for name in names:
            if name not in all_names:
                raise ReadProblem(unit.file, None, name, f"found no such column, only {', '.join(all_names)}")
        data = self._lines(unit)
        wanted = [at for at, name in enumerate(all_names) if name in names]
        kinds = np.full(len(all_names), _SKIP, np.int32)
        kinds[wanted] = [_HEX if all_names[at] in CRITEO_CATS else _DECIMAL for at in wanted]
        num_rows = count_lines(data)
        values = np.empty((len(wanted), num_rows), np.int64)
        valid = np.empty((len(wanted), num_rows), np.uint8)
        bad = np.empty(num_rows, np.int16)
        if decode_tsv(data, kinds, values, valid, bad) and not skip_bad_rows:
            row = int(np.argmax(bad != 0))
            raise self._problem(unit, data, row, int(bad[row]))
        columns = {}
        for at, own, there in zip(wanted, values, valid.view(np.bool_), strict=True):
            columns[all_names[at]] = Column(own, None, None if there.all() else there)
        made = Columns(columns, num_rows, origin=(unit.file, unit.first_row or 0))
        return made.where(bad == 0) if bad.any() else made

    def first_row_of(self, unit: Unit) -> int:
        """Counts the lines before a block of a plain file."""
        if unit.first_row is not None:
            return unit.first_row
        left, lines = unit.handle[0], 0
        with open(unit.file, "rb") as file:
            while left:
                piece = file.read(min(left, 1 << 24))
                left -= len(piece)
                lines += piece.count(b"\n")
        return lines

    def _columns(self) -> tuple[str, ...]:
        return (self.label, *CRITEO_INTS, *CRITEO_CATS)

    def _plain(self, path: str) -> list[Unit]:
        size = os.path.getsize(path)
        if not size:
            raise ReadProblem(path, None, "", "found no bytes: leave empty files out of `paths`")
        starts = range(0, size, self.block_bytes)
        units: list[Unit] = []
        with open(path, "rb") as file:
            at = 0  # where the block's first line begins
            for part, start in enumerate(starts):
                stop = min(start + self.block_bytes, size)
                end = _line_end(file.fileno(), path, stop, size) if stop > at else at
                if end > at:
                    first_row = 0 if not units else None
                    units.append(Unit(path, part, None, end - at, first_row, handle=(at, end)))
                at = end
        return units

    def _compressed(self, path: str) -> list[Unit]:
        blocks = open_blocks(path, self.block_bytes)
        return [
            Unit(path, part, block.num_rows, block.num_bytes, block.first_row, handle=block)
            for part, block in enumerate(blocks)
        ]

    def _lines(self, unit: Unit) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        if isinstance(unit.handle, GzipBlock):
            return np.frombuffer(read_block(unit.file, unit.handle), np.uint8)
        start, end = unit.handle
        try:
            with open(unit.file, "rb") as file:
                data = os.pread(file.fileno(), end - start, start)
        except OSError as error:
            raise ReadProblem(unit.file, unit.first_row, "", f"cannot be read ({error})") from error
        if len(data) != end - start:
            raise ReadProblem(unit.file, None, "", f"found {start + len(data)} bytes, expected {end}: it was cut short")
        return np.frombuffer(data, np.uint8)

    def _problem(self, unit: Unit, data: np.ndarray[tuple[int], np.dtype[np.uint8]], row: int, bad: int) -> ReadProblem:
        line = data.tobytes().split(b"\n", row + 1)[row].rstrip(b"\r")
        fields, names = line.split(b"\t"), self._columns()
        at = self.first_row_of(unit) + row
        if bad == _WRONG_NUMBER_OF_FIELDS:
            # The first column that is not there, or none where there are too many.
            column = names[len(fields)] if len(fields) < len(names) else ""
            found = f"{len(fields)} fields in {_shown(line)}"
            return ReadProblem(unit.file, at, column, f"found {found}, expected {len(names)} between tabs")
        name = names[bad - 1]
        expected = "1 to 16 hex digits" if name in CRITEO_CATS else "an integer of 64 bits"
        return ReadProblem(unit.file, at, name, f"found {_shown(fields[bad - 1])}, expected {expected} or nothing")


def _shown(text: bytes) -> str:
    return repr(text[:_SHOWN].decode("utf-8", "replace")) + ("..." if len(text) > _SHOWN else "")


def _line_end(file: int, path: str, near: int, size: int) -> int:
    """Where the line that holds the byte before `near` ends."""
    at = near - 1
    while at < size:
        piece = os.pread(file, 4096, at)
        found = piece.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += max(len(piece), 1)
        if at - near > _LONGEST_LINE:
            raise ReadProblem(path, None, "", f"found no end of a line in {_LONGEST_LINE} bytes from byte {near} on")
    return size


def _expand(path: str) -> list[str]:
    found = sorted(glob.glob(path, recursive=True)) if any(c in path for c in "*?[") else [path]
    if not found or not all(Path(name).is_file() for name in found):
        raise ReadProblem(path, None, "", "found no such file")
    return found
