"""Blocks of lines out of a gzip file, which can only be read from the front, or from where a copy of the decoder is."""

import zlib
from dataclasses import dataclass, field
from typing import Any

from stepwell.errors import ReadProblem

_PIECE = 1 << 13  # a block keeps at most five of them, and 40 kB of zlib
_GZIP = 31  # zlib's wbits for a gzip header and the largest window
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class GzipBlock:
    """Some whole lines, and how to come to them again."""

    num_bytes: int
    num_rows: int
    first_row: int
    decoder: "_Decoder" = field(repr=False, compare=False)


@dataclass(slots=True)
class _Decoder:
    """Decompressed bytes in order, one gzip member after another; can be copied and go on from there."""

    path: str
    at: int = 0  # bytes of the file that were taken
    ready: bytes = b""  # decompressed, not yet given
    left: bytes = b""  # taken, not yet decompressed
    zlib: Any = None  # None between two members

    def copy(self) -> "_Decoder":
        return _Decoder(self.path, self.at, self.ready, self.left, self.zlib.copy() if self.zlib is not None else None)

    def more(self, file: Any) -> bool:
        """Decompress a little; False at the end of the file."""
        if not self.left:
            self.left = file.read(_PIECE)
            self.at += len(self.left)
        if not self.left:
            if self.zlib is not None:
                raise self._problem("it ends in the middle: truncated?")
            return False
        if self.zlib is None:
            self.zlib = zlib.decompressobj(_GZIP)
        try:
            self.ready += self.zlib.decompress(self.left, 4 * _PIECE)
        except zlib.error as error:
            raise self._problem(f"it is damaged or no gzip file ({error})") from error
        self.left = self.zlib.unconsumed_tail
        if self.zlib.eof:
            self.left, self.zlib = self.zlib.unused_data, None
        return True

    def _problem(self, what: str) -> ReadProblem:
        return ReadProblem(self.path, None, "", f"byte {self.at - len(self.left)}: {what}")


def open_blocks(path: str, block_bytes: int) -> list[GzipBlock]:
    """Read a file through, to the end, and cut it into blocks of lines of at least `block_bytes`."""
    blocks: list[GzipBlock] = []
    row = 0
    with open(path, "rb") as file:
        decoder = _Decoder(path)
        if not decoder.more(file):
            raise ReadProblem(path, None, "", "found no bytes: leave empty files out of `paths`")
        while True:
            start = decoder.copy()
            data = _take(decoder, file, block_bytes)
            if not data:
                break
            num_rows = data.count(b"\n") + (not data.endswith(b"\n"))
            blocks.append(GzipBlock(len(data), num_rows, row, start))
            row += num_rows
    if not blocks:
        raise ReadProblem(path, None, "", "found no lines: leave empty files out of `paths`")
    return blocks


def read_block(path: str, block: GzipBlock) -> bytes:
    """The block's lines."""
    decoder = block.decoder.copy()
    pieces = bytearray()
    try:
        with open(path, "rb") as file:
            file.seek(decoder.at)
            while len(pieces) < block.num_bytes:
                if not decoder.ready and not decoder.more(file):
                    raise ReadProblem(path, None, "", "it became shorter since it was opened")
                pieces += decoder.ready
                decoder.ready = b""
    except OSError as error:
        raise ReadProblem(path, block.first_row, "", f"cannot be read ({error})") from error
    return bytes(pieces[: block.num_bytes])


def _take(decoder: _Decoder, file: Any, block_bytes: int) -> bytes:
    """Whole lines of at least so many bytes; less at the end."""
    pieces = bytearray()
    while True:
        if not decoder.ready and not decoder.more(file):
            return bytes(pieces)
        pieces += decoder.ready
        decoder.ready = b""
        end = pieces.find(b"\n", max(block_bytes - 1, 0)) if len(pieces) >= block_bytes else -1
        if end >= 0:
            decoder.ready = bytes(pieces[end + 1 :])
            return bytes(pieces[: end + 1])
        if len(pieces) > block_bytes + _LONGEST_LINE:
            raise ReadProblem(decoder.path, None, "", f"found no end of a line in {_LONGEST_LINE} bytes")
