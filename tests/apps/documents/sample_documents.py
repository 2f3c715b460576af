"""Documents that tests make themselves: pages with text on them, as comics, scans and hostile archives."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from tests.apps.documents.rar_streams import RAR4_NORMAL, RarStream

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSerif.ttf"
FRENCH = "Une vache à l'école\nde la forêt, son œuvre"
ENGLISH = "The quick brown fox\njumps over the dog"


def page(text: str, kind: str = "PNG", size: tuple[int, int] = (760, 200), mode: str = "L") -> bytes:
    """A white page with this text on it."""
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).text((30, 30), text, font=ImageFont.truetype(FONT, 36), fill=0)
    written = io.BytesIO()
    image.convert(mode).save(written, kind, dpi=(150, 150))
    return written.getvalue()


def dot(shade: int = 255, kind: str = "PNG") -> bytes:
    """The smallest page there is; each shade is another one."""
    written = io.BytesIO()
    Image.new("L", (40, 30), shade).save(written, kind)
    return written.getvalue()


def comic(path: Path, pages: Mapping[str, bytes]) -> Path:
    """A comic with these files in it, in this order; the same bytes whenever it is made."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in pages.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def tiny(path: Path, shade: int = 255) -> Path:
    """A comic of one dot."""
    return comic(path, {"1.png": dot(shade)})


def rar4(path: Path, entries: Mapping[str, bytes]) -> Path:
    """A RAR 4 whose files are stored: Debian has nothing that packs one."""
    return _write_rar4(
        path, {name: RarStream(4, 0x30, content, content) for name, content in entries.items()}
    )


def rar4_with_comment(path: Path, entries: Mapping[str, bytes]) -> Path:
    """A RAR 4 whose files are stored, and that has a compressed comment as many comics do."""
    stored = {name: RarStream(4, 0x30, content, content) for name, content in entries.items()}
    return _write_rar4(path, stored, _rar4_file(0x7A, "CMT", RAR4_NORMAL))


def _write_rar4(path: Path, entries: Mapping[str, RarStream], comment: bytes = b"") -> Path:
    blocks = [b"Rar!\x1a\x07\x00", _rar4_block(0x73, 0, b"\0" * 6), comment]
    blocks += [_rar4_file(0x74, name, packed) for name, packed in entries.items()]
    path.write_bytes(b"".join([*blocks, _rar4_block(0x7B, 0x4000, b"")]))
    return path


def _rar4_file(kind: int, name: str, packed: RarStream) -> bytes:
    named, crc = name.encode(), zlib.crc32(packed.content)
    sizes = struct.pack("<II", len(packed.stream), len(packed.content))
    facts = struct.pack("<BIIBBHI", 3, crc, 0x5A000000, 29, packed.method, len(named), 0x81A4)
    return _rar4_block(kind, 0x8000, sizes + facts + named) + packed.stream


def packed_rar(path: Path, entries: Mapping[str, RarStream]) -> Path:
    """A RAR whose files a real packer compressed."""
    versions = {packed.version for packed in entries.values()}
    return (_write_rar5 if versions == {5} else _write_rar4)(path, entries)


def _rar4_block(kind: int, flags: int, body: bytes) -> bytes:
    head = struct.pack("<BHH", kind, flags, 7 + len(body)) + body
    return struct.pack("<H", zlib.crc32(head) & 0xFFFF) + head


def rar5(path: Path, entries: Mapping[str, bytes]) -> Path:
    """A RAR 5 whose files are stored."""
    return _write_rar5(path, {name: RarStream(5, 0, content, content) for name, content in entries.items()})


def _write_rar5(path: Path, entries: Mapping[str, RarStream]) -> Path:
    blocks = [b"Rar!\x1a\x07\x01\x00", _rar5_block(_number(1) + _number(0) + _number(0))]
    for name, packed in entries.items():
        named = name.encode()
        facts = b"".join(
            [
                _number(0x04),  # it has a CRC
                _number(len(packed.content)),
                _number(0o100644),
                struct.pack("<I", zlib.crc32(packed.content)),
                _number(packed.method),
                _number(1),  # made on Unix
                _number(len(named)),
                named,
            ]
        )
        blocks += [
            _rar5_block(_number(2) + _number(0x02) + _number(len(packed.stream)) + facts),
            packed.stream,
        ]
    path.write_bytes(b"".join([*blocks, _rar5_block(_number(5) + _number(0) + _number(0))]))
    return path


def _rar5_block(body: bytes) -> bytes:
    sized = _number(len(body)) + body
    return struct.pack("<I", zlib.crc32(sized)) + sized


def _number(value: int) -> bytes:
    written = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        if not value:
            return bytes([*written, low])
        written.append(low | 0x80)
