"""Every exception that Stepwell raises on purpose.

StepwellError
├── ConfigError (ValueError)         a setting, spec or argument that cannot work; nothing was changed
│   └── BudgetTooSmall               a tier's budget cannot hold what was asked; names the bytes needed
├── DataError                        raw data is not what was declared; names file, row and column
│   ├── BadRows                      some rows are to blame, by number in `rows`; the others can be used
│   ├── ReadProblem                  a file, row or column that a source cannot read
│   └── ReaderClosed                 a batch asked of a reader that was closed
├── StoreError
│   ├── UnknownTable (KeyError)      a table name that the store does not have
│   ├── StoreFull                    the last tier is full and no expiry policy makes room; nothing was changed
│   ├── StoreCorrupt                 bytes on disk fail their checksum; names file and offset
│   ├── StoreIOError (OSError)       the operating system refused a read or a write
│   │   └── DiskFull                 ENOSPC; what was synced is intact
│   ├── StoreLocked                  the directory is owned by another process
│   ├── StoreFormatError             another row layout, or a newer format version
│   ├── StoreClosed                  a verb on a store that was closed
│   └── TouchedLogTruncated          `touched(since)` reaches back further than the bounded log
├── ModelFileError                   model.json or dense.safetensors: missing, damaged, or of another model
├── TrainError
│   └── NotFinite                    a loss or gradient is NaN or infinite; nothing was changed, and the batch is saved
└── NativeLibraryError (ImportError) the C++ core is missing or does not match this package

A message names what was found, what was expected and what to do. Context that only a caller knows (table, step,
rank) is added with `add_note`.
"""


class StepwellError(Exception):
    """Base of every exception here."""


class ConfigError(StepwellError, ValueError):
    """A setting, spec or argument that cannot work; nothing was changed."""


class BudgetTooSmall(ConfigError):
    """A tier's budget cannot hold what was asked of it."""


class DataError(StepwellError):
    """Raw data that is not what was declared."""


class BadRows(DataError):
    """Some rows of a block are to blame; the others can be used."""

    def __init__(self, message: str, rows: tuple[int, ...]) -> None:
        super().__init__(message)
        self.rows = rows  # within the block that was read, rising


class ReadProblem(DataError):
    """A file, row or column that a source cannot read.

    `row` counts from 0 and is None where the whole file or column is meant; `column` is empty where the row is.
    """

    def __init__(self, file: str, row: int | None, column: str, problem: str) -> None:
        self.file, self.row, self.column, self.problem = file, row, column, problem
        where = (
            [file] + ([f"row {row} (from 0)"] if row is not None else []) + ([f"column {column!r}"] if column else [])
        )
        super().__init__(f"{', '.join(where)}: {problem}")


class ReaderClosed(DataError):
    """A batch asked of a reader that was closed."""


class StoreError(StepwellError):
    """A store could not do what it was asked; every row that was there before is still there."""


class UnknownTable(StoreError, KeyError):
    """A table name that the store does not have."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0]) if self.args else ""


class StoreFull(StoreError):
    """The last tier is full and no expiry policy makes room."""


class StoreCorrupt(StoreError):
    """Bytes on disk fail their checksum."""


class StoreIOError(StoreError, OSError):
    """The operating system refused a read or a write."""


class DiskFull(StoreIOError):
    """No space left on the device."""


class StoreLocked(StoreError):
    """The directory is owned by another process."""


class StoreFormatError(StoreError):
    """The files have another row layout, or were written by a newer version."""


class StoreClosed(StoreError):
    """A verb on a store that was closed."""


class TouchedLogTruncated(StoreError):
    """The bounded log of touched ids does not reach back that far."""


class ModelFileError(StepwellError):
    """A saved model's files are missing, damaged, not writable, or do not fit the model."""


class TrainError(StepwellError):
    """Training cannot go on; every step that committed stays."""


class NotFinite(TrainError):
    """A loss or gradient is NaN or infinite; the step changed nothing."""


class NativeLibraryError(StepwellError, ImportError):
    """The C++ core is missing or does not match this package."""
