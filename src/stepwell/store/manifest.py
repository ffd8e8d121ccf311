"""store.json: what a directory of rows holds beside rows. Written by rename, after all that it names."""

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError, DiskFull, StoreCorrupt, StoreFormatError, StoreIOError
from stepwell.native import read_ssd_format
from stepwell.rows import TableSpec
from stepwell.store.config import StoreConfig

FORMAT = 1
FILE = "store.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A store at one commit, but for its rows."""

    seed: int
    step: int
    numbers: dict[str, int]  # table name -> number in the logs
    specs: tuple[TableSpec, ...]
    expiry: dict[str, dict[str, object]] = field(default_factory=dict)  # by table name, see Expiry.state
    filters: dict[str, npt.NDArray[np.uint16]] = field(default_factory=dict)  # by table name
    cursor: Any = None  # the caller's, JSON
    files: dict[str, int] = field(default_factory=dict)  # of a snapshot: path in its directory -> bytes


def exists(directory: str | Path) -> bool:
    """Whether a store was made there."""
    return (Path(directory) / FILE).exists()


def write(directory: str | Path, manifest: Manifest) -> None:
    """Publish a manifest: it is on disk, whole, when this returns; after a crash the old one or the new one is."""
    folder = Path(directory)
    body = {
        "format": FORMAT,
        "seed": manifest.seed,
        "step": manifest.step,
        "numbers": manifest.numbers,
        "tables": [spec.to_dict() for spec in manifest.specs],
        "expiry": manifest.expiry,
        "filters": {},
        "cursor": _as_json(manifest.cursor),
        "files": manifest.files,
    }
    try:
        for name, counters in manifest.filters.items():
            data = counters.astype("<u2").tobytes()
            file = f"filter-{manifest.numbers[name]}-{manifest.step}.u16"
            _write_file(folder / file, data)
            body["filters"][name] = {"file": file, "crc32": zlib.crc32(data), "counters": len(counters)}
        text = json.dumps(body, sort_keys=True)
        sealed = json.dumps({"crc32": zlib.crc32(text.encode()), "store": body}, sort_keys=True, indent=1)
        _write_file(folder / FILE, sealed.encode())
        keep = {entry["file"] for entry in body["filters"].values()}
        for old in folder.glob("filter-*.u16"):
            if old.name not in keep:
                old.unlink()
    except OSError as error:
        kind = DiskFull if error.errno == 28 else StoreIOError
        raise kind(error.errno, f"could not write {error.filename or folder / FILE}: {error.strerror}") from error


def read(directory: str | Path) -> Manifest:
    """The manifest of a directory: StoreFormatError if it has none or a newer one, StoreCorrupt if it is damaged."""
    path = Path(directory) / FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreFormatError(f"{path.parent} holds no {FILE}: it is not a store's directory") from error
    except OSError as error:
        raise StoreIOError(error.errno, f"could not read {path}: {error.strerror}") from error
    try:
        sealed = json.loads(text)
        body = sealed["store"]
        crc = sealed["crc32"]
        version = int(body["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{path} is damaged ({error}); restore the store from a snapshot") from error
    if version > FORMAT:
        raise StoreFormatError(
            f"{path} has format {version}, this version of stepwell reads up to {FORMAT}: upgrade it"
        )
    found = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    if found != crc:
        raise StoreCorrupt(f"{path} has checksum {found}, expected {crc}; restore the store from a snapshot")
    return Manifest(
        seed=body["seed"],
        step=body["step"],
        numbers=body["numbers"],
        specs=tuple(TableSpec.from_dict(spec) for spec in body["tables"]),
        expiry=body["expiry"],
        filters={name: _read_filter(path.parent / entry["file"], entry) for name, entry in body["filters"].items()},
        cursor=body["cursor"],
        files=body["files"],
    )


def check_files(saved: Manifest, directory: str | Path) -> None:
    """StoreCorrupt when a snapshot's files are not all there in their full size; their bytes are checked when read."""
    for name, expected in saved.files.items():
        path = Path(directory) / name
        try:
            found = path.stat().st_size
        except FileNotFoundError as error:
            raise StoreCorrupt(f"{path} is missing, {FILE} names it; use another snapshot") from error
        if found != expected:
            raise StoreCorrupt(f"{path} has {found} bytes, {FILE} says {expected}; use another snapshot")


def read_for(config: StoreConfig) -> Manifest | None:
    """The manifest of the configuration's directory, None if no store was made there yet.

    StoreFormatError when the directory's tables, layouts or seed are not the configuration's, StoreCorrupt when it
    holds rows and nothing says what they are.
    """
    directory = config.ssd_directory
    if not exists(directory):
        for log in sorted(Path(directory).glob("rows-*")):
            if (log / "SYNCED").exists() and read_ssd_format(str(log))["synced_seq"] > 0:
                raise StoreCorrupt(
                    f"{directory} holds rows in {log.name} but no {FILE}: it is what is left of a store, or of a "
                    "restore that did not finish; restore a snapshot into another directory"
                )
        return None
    saved = read(directory)
    check_tables(saved, config, directory)
    return saved


def check_tables(saved: Manifest, config: StoreConfig, directory: str | Path) -> None:
    """StoreFormatError when a configuration cannot hold what was saved."""
    wanted = {spec.name: spec for spec in config.tables}
    for old in saved.specs:
        spec = wanted.get(old.name)
        if spec is None:
            raise StoreFormatError(
                f"{directory} holds table {old.name!r}, which the configuration does not name; add it"
            )
        if old.layout.fingerprint != spec.layout.fingerprint:
            raise StoreFormatError(
                f"{directory}: table {old.name!r} has rows of {old.layout}, expected {spec.layout}; use the table as "
                "it was saved, or another directory"
            )
    if saved.seed != config.seed:
        raise StoreFormatError(
            f"{directory} was made with seed {saved.seed}, expected {config.seed}: rows would differ"
        )


def numbers_for(config: StoreConfig, saved: Manifest | None) -> dict[str, int]:
    """Each table's number: as saved, new tables after those."""
    numbers = dict(saved.numbers) if saved is not None else {}
    for spec in config.tables:
        if spec.name not in numbers:
            numbers[spec.name] = max(numbers.values(), default=-1) + 1
    return numbers


def _as_json(cursor: Any) -> Any:
    """The cursor as reading it back gives it: a checksum must be the same then."""
    try:
        return json.loads(json.dumps(cursor))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"cursor: found {cursor!r}, expected what JSON can hold ({error})") from error


def _write_file(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames and new files in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_filter(path: Path, entry: dict[str, Any]) -> npt.NDArray[np.uint16]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreIOError(f"could not read {path}, which {FILE} names: {error.strerror}") from error
    if zlib.crc32(data) != entry["crc32"] or len(data) != 2 * entry["counters"]:
        raise StoreCorrupt(f"{path} does not match its checksum in {FILE}; restore the store from a snapshot")
    return np.frombuffer(data, "<u2").astype(np.uint16)
