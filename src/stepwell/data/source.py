"""Source: rows somewhere, in units that are read one at a time, in any order, by any thread."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.config import Config
from stepwell.data.columns import Columns


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a source that is read as one: a row group, a block of lines, a slice."""

    file: str
    part: int  # number within the file
    num_rows: int | None  # None: not known before it is read
    num_bytes: int = 0
    first_row: int | None = 0  # the file's row that it begins with; None: not known
    handle: Any = field(default=None, compare=False, repr=False)  # what the source needs to read it


@dataclass(frozen=True, kw_only=True, slots=True)
class Source(Config, ABC):
    """Rows of named columns. Methods are safe to call from several threads at once."""

    @abstractmethod
    def units(self) -> tuple[Unit, ...]:
        """Every unit, in the source's order. Opens what must be opened: call it once and keep the result."""

    @abstractmethod
    def read(self, unit: Unit, names: Sequence[str], *, skip_bad_rows: bool = False) -> Columns:
        """The named columns of one unit.

        A row that cannot be decoded is a ReadProblem; with `skip_bad_rows` it is left out and counted in
        `Columns.skipped`. A missing column, a wrong type or a damaged file is a ReadProblem in any case.
        """

    def first_row_of(self, unit: Unit) -> int:
        """The number of the unit's first row in its file. For messages: it may have to read the file to find out."""
        assert unit.first_row is not None
        return unit.first_row


def digest(units: Sequence[Unit]) -> str:
    """Says whether two lists of units are the same data, wherever the folder lies."""
    hashed = hashlib.sha256()
    for unit in units:
        name = unit.file.rsplit("/", 1)[-1]
        hashed.update(f"{name}\0{unit.part}\0{unit.num_rows}\0{unit.num_bytes}\n".encode())
    return hashed.hexdigest()[:32]
