"""The checksums in the headers of a RAR: libarchive does not verify those of stored (uncompressed) files.

Comics are often stored, since pictures do not compress. Headers that cannot be parsed yield no checksum; libarchive
decides whether the archive can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

RAR4, RAR5 = b"Rar!\x1a\x07\x00", b"Rar!\x1a\x07\x01\x00"
MAX_HEAD, MAX_NUMBER = 2 * 1024 * 1024, 10
FILE4, FILE5 = 0x74, 2
SPLIT_OR_ENCRYPTED4, SPLIT5 = 0x07, 0x18


class Sum(NamedTuple):
    """The size and CRC-32 that a file should have; `crc` is None if the archive does not state it."""

    size: int
    crc: int | None


def sums_of(archive: Path) -> Iterator[Sum]:
    """One for each file and directory, in archive order; none for a file of another format."""
    with archive.open("rb") as file:
        first = file.read(len(RAR5))
        try:
            if first == RAR5:
                yield from _of_rar5(file)
            elif first.startswith(RAR4):
                file.seek(len(RAR4))
                yield from _of_rar4(file)
        except (struct.error, IndexError, ValueError, OverflowError, OSError):  # also offsets beyond any file
            return


def _of_rar4(file: BinaryIO) -> Iterator[Sum]:
    length = 7
    while length >= 7:
        begin = file.tell()
        _, kind, flags, length = struct.unpack("<HBHH", file.read(7))
        head = file.read(max(length - 7, 0))
        data = struct.unpack_from("<I", head)[0] if flags & 0x8000 or kind == FILE4 else 0
        if kind == FILE4:
            _, size, _, crc = struct.unpack_from("<IIBI", head)
            if flags & 0x100:
                more_data, more_size = struct.unpack_from("<II", head, 25)
                data, size = data | more_data << 32, size | more_size << 32
            yield Sum(size, None if flags & SPLIT_OR_ENCRYPTED4 else crc)
        file.seek(begin + length + data)


def _of_rar5(file: BinaryIO) -> Iterator[Sum]:
    while True:
        begin = file.tell()
        length, at = _number(file.read(14), 4)
        if length > MAX_HEAD:
            return
        file.seek(begin + at)
        head = file.read(length)
        end = file.tell()
        kind, at = _number(head, 0)
        flags, at = _number(head, at)
        _, at = _number(head, at) if flags & 1 else (0, at)
        data, at = _number(head, at) if flags & 2 else (0, at)
        if kind == FILE5:
            yield _file5(head, at, is_whole=not flags & SPLIT5)
        file.seek(end + data)


def _file5(head: bytes, at: int, *, is_whole: bool) -> Sum:
    flags, at = _number(head, at)
    size, at = _number(head, at)
    _, at = _number(head, at)
    at += 4 if flags & 2 else 0
    crc = struct.unpack_from("<I", head, at)[0] if flags & 4 and is_whole else None
    return Sum(size, crc)


def _number(head: bytes, at: int) -> tuple[int, int]:
    """A variable-length number (seven bits in each byte), and the offset after it. Raises IndexError."""
    value = 0
    for place in range(MAX_NUMBER):
        value |= (head[at + place] & 0x7F) << 7 * place
        if not head[at + place] & 0x80:
            return value, at + place + 1
    raise IndexError("the number has no end")
