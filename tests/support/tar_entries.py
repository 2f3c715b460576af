"""Archives made byte by byte, so that they can be wrong in any way."""

from __future__ import annotations

import gzip

BLOCK = 512


def header(
    name: bytes,
    size: int = 0,
    kind: bytes = b"0",
    *,
    mode: int = 0o644,
    owner: int = 0,
    link: bytes = b"",
    prefix: bytes = b"",
    size_field: bytes | None = None,
) -> bytes:
    """One header of ustar, with its checksum."""
    fields = [
        name.ljust(100, b"\0"),
        b"%07o\0" % mode,
        b"%07o\0" % owner * 2,
        size_field if size_field is not None else b"%011o\0" % size,
        b"00000000000\0",
        b" " * 8,
        kind,
        link.ljust(100, b"\0"),
        b"ustar\x0000",
        bytes(80),
        prefix.ljust(155, b"\0"),
        bytes(12),
    ]
    block = b"".join(fields)
    assert len(block) == BLOCK, len(block)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def entry(name: bytes, content: bytes = b"", kind: bytes = b"0", **more: object) -> bytes:
    """A header and what belongs to it."""
    return header(name, len(content), kind, **more) + content + bytes(-len(content) % BLOCK)  # type: ignore[arg-type]


def pax(**records: bytes) -> bytes:
    """The extension of the next entry."""
    return entry(b"pax", b"".join(pax_record(key.encode(), value) for key, value in records.items()), b"x")


def pax_record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def tar_gz(*entries: bytes, end: bytes = bytes(2 * BLOCK)) -> bytes:
    """All of it, packed."""
    return gzip.compress(b"".join(entries) + end, mtime=0)
