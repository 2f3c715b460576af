"""A reader of tar headers: POSIX ustar, pax and GNU long names only.

Every number and length is validated before use. Python's own reader follows links, loops for ever on
negative sizes and reads headers of any length into memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cograil.workspace.workspace_paths import WorkspaceError

BLOCK = 512
LARGEST = 1 << 40  # maximum bytes of one file
MAX_EXTENSION = 64 * 1024  # maximum bytes of a pax header or a long name
_ZEROS = bytes(BLOCK)

Kind = Literal["file", "directory", "skipped", "pax", "global", "long_name", "long_link"]
_KINDS: dict[bytes, Kind] = {
    b"0": "file",
    b"\0": "file",
    b"5": "directory",
    b"1": "skipped",  # links and devices: never created
    b"2": "skipped",
    b"3": "skipped",
    b"4": "skipped",
    b"6": "skipped",
    b"x": "pax",
    b"g": "global",
    b"L": "long_name",
    b"K": "long_link",
}


@dataclass(frozen=True, slots=True)
class Header:
    """One header: the kind, name and size of the entry."""

    kind: Kind
    name: bytes
    size: int
    mode: int
    flag: bytes = b"0"  # the type field of the archive
    link: bytes = b""  # the target of a link

    @property
    def is_executable(self) -> bool:
        """Return whether any user may execute it."""
        return bool(self.mode & 0o111)


def bad_header(why: str) -> WorkspaceError:
    """Return the error for an invalid header."""
    return WorkspaceError("archive_bad_header", f"the archive has a header that cannot be read: {why}")


def read_header(block: bytes) -> Header | None:
    """Return the header in these 512 bytes, or None for the end of the archive. Raises WorkspaceError."""
    if block == _ZEROS:
        return None
    checksum = _number(block[148:156])
    if checksum != sum(block[:148]) + sum(block[156:]) + 8 * 0x20:
        raise bad_header("its checksum is wrong")
    kind = _KINDS.get(block[156:157])
    if kind is None:
        raise WorkspaceError("unsafe_entry", f"the archive holds an entry of type {block[156:157]!r}")
    name = _text(block[0:100])
    if block[257:263] == b"ustar\0" and block[345:346] != b"\0":
        name = _text(block[345:500]) + b"/" + name
    size = _number(block[124:136])
    if not 0 <= size <= LARGEST:
        raise bad_header("an invalid size")
    if block[156:157] == b"\0" and name.endswith(b"/"):  # before ustar, this was the only sign of a directory
        kind = "directory"
    if kind in ("directory", "skipped"):
        if kind == "directory" and size:
            raise bad_header("a directory with content")
        size = 0
    return Header(kind, name, size, _number(block[100:108]), block[156:157], _text(block[157:257]))


def read_pax(content: bytes) -> dict[bytes, bytes]:
    """Return the records of a pax header: `length key=value`. Raises WorkspaceError."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(content):
        space = content.find(b" ", at, at + 8)
        digits = content[at:space]
        if space < 0 or not digits.isdigit():
            raise bad_header("a pax record without a length")
        end = at + int(digits)
        record = content[space + 1 : end]
        key, found_equals, value = record.partition(b"=")
        if end > len(content) or not record.endswith(b"\n") or not found_equals or not key:
            raise bad_header("an invalid pax record")
        if key.startswith(b"GNU.sparse"):
            raise WorkspaceError("unsafe_entry", "the archive holds a sparse file")
        records[key] = value[:-1]
        at = end
    return records


def pax_size(value: bytes) -> int:
    """Return the size in a pax header. Raises WorkspaceError."""
    if not value.isdigit() or len(value) > 13 or int(value) > LARGEST:
        raise bad_header("an invalid size")
    return int(value)


def _number(field: bytes) -> int:
    """Parse octal digits, or a binary number behind a set high bit."""
    if field[:1] in (b"\x80", b"\xff"):
        return int.from_bytes(field[1:], "big") if field[:1] == b"\x80" else -1
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise bad_header("an invalid number")
    return int(digits, 8)


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]
