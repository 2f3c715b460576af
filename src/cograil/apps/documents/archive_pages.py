"""Extract the pages of an untrusted archive.

No name in the archive becomes a path: pages are written as numbered files, and names only give their order.
So nothing can be written elsewhere; an archive that tries is refused all the same. The extracted size is bounded.
"""

from __future__ import annotations

import locale
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import create_string_buffer
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from cograil.apps.documents.rar_checksums import Sum, sums_of
from cograil.workspace import ArchiveBounds, WorkspaceError, split_path

IMAGES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"})
JUNK = frozenset({"thumbs.db", ".ds_store", "desktop.ini"})
JUNK_FOLDERS = frozenset({"__macosx"})
ARCHIVES = ("zip", "rar", "rar5")
UTF_8 = "UTF-8"
BLOCK = 64 * 1024
MAX_SKIPPED = 20  # reported by name
PAGE_BOUNDS = ArchiveBounds(bytes=8 * 1024**3, entries=20_000, ratio=200, free_bytes=64 * 1024**2)


@dataclass(slots=True)
class ExtractedPages:
    """The pages in their order, and the entries that were skipped."""

    pages: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    bytes: int = 0


def extract_pages(archive: Path, into: Path, bounds: ArchiveBounds = PAGE_BOUNDS) -> ExtractedPages:
    """Write the pictures of this archive to a directory, in natural order.

    Raises WorkspaceError for an archive that is damaged, encrypted, too large, or tries to get out.
    """
    import libarchive  # noqa: PLC0415  an extra, and a library in C
    from libarchive.exception import ArchiveError  # noqa: PLC0415

    extracted, ordered = ExtractedPages(), []
    packed = archive.stat().st_size
    try:
        with (
            _any_letters(),
            libarchive.file_reader(str(archive), format_name=_format(archive), filter_name="none") as reader,
        ):
            sums = sums_of(archive)
            for number, entry in enumerate(reader, 1):
                expected = next(sums, None)
                if number > bounds.entries:
                    raise WorkspaceError("archive_too_many_entries", "the archive holds too many entries")
                name = _name_of(entry)
                if not _is_page(entry, name, extracted):
                    continue
                page = into / f"{number:06}{Path(name).suffix.lower()}"
                written = _write(entry, page, extracted, packed, bounds)
                if (
                    expected
                    and expected.crc is not None
                    and expected != written
                    and expected.size == written.size
                ):
                    raise WorkspaceError("archive_corrupt", f"{name[:80]!a} does not match its checksum")
                ordered.append((order_of(name), page))
    except ArchiveError as error:
        raise WorkspaceError("archive_corrupt", f"the archive cannot be read: {error.msg}") from None
    extracted.pages = [page for _, page in sorted(ordered)]
    return extracted


@contextmanager
def _any_letters() -> Iterator[None]:
    """Use a UTF-8 locale in this block: under LC_ALL=C libarchive returns no name for non-ASCII entries."""
    before = locale.setlocale(locale.LC_CTYPE)
    with suppress(locale.Error):  # without such a locale, non-ASCII names cannot be read
        if locale.nl_langinfo(locale.CODESET) != UTF_8:
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    try:
        yield
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


def _format(archive: Path) -> str:
    with archive.open("rb") as file:
        first = file.read(8)
    if first.startswith(b"PK"):
        return "zip"
    if first.startswith(b"Rar!\x1a\x07\x01\x00"):
        return "rar5"
    if first.startswith(b"Rar!\x1a\x07\x00"):
        return "rar"
    raise WorkspaceError("archive_format", "this is neither a ZIP nor a RAR archive")


def _name_of(entry: Any) -> str:
    """The entry's name, with slashes. Raises WorkspaceError for a name that leads out of the archive.

    Old packers use a local character set without naming it; cp437 is enough, since names only give the order.
    """
    raw_name = entry.pathname or ""
    name = (raw_name.decode("cp437") if isinstance(raw_name, bytes) else raw_name).replace("\\", "/")
    if not name:
        raise WorkspaceError("archive_corrupt", "the archive holds an entry without a name")
    if name.startswith("/") or ".." in name.split("/") or re.match(r"[A-Za-z]:/", name):
        raise WorkspaceError("unsafe_path", f"the archive holds {name[:80]!a}, which leads out of it")
    split_path("".join(letter if letter.isprintable() else "_" for letter in name), is_root_allowed=True)
    return name


def _is_page(entry: Any, name: str, extracted: ExtractedPages) -> bool:
    """Whether the entry is a page of the document. Links, devices and hidden files are not."""
    if entry.isdir:
        return False
    if entry.isreg and not entry.issym and not entry.islnk and is_picture(name):
        return True
    if len(extracted.skipped) < MAX_SKIPPED:
        extracted.skipped.append(ascii(name[:80]))
    return False


def is_picture(name: str) -> bool:
    """Whether a file of this name is a page, and not metadata of an operating system."""
    *folders, last = name.lower().split("/")
    is_junk = last in JUNK or last.startswith("._") or not JUNK_FOLDERS.isdisjoint(folders)
    return not is_junk and Path(last).suffix in IMAGES


def _write(entry: Any, page: Path, extracted: ExtractedPages, packed: int, bounds: ArchiveBounds) -> Sum:
    """Write the entry to `page`; return its size and checksum."""
    bytes_before, crc = extracted.bytes, 0
    with page.open("xb") as file:
        for block in _blocks(entry):
            extracted.bytes += len(block)
            is_bomb = extracted.bytes > bounds.free_bytes and extracted.bytes > packed * bounds.ratio
            if extracted.bytes > bounds.bytes or is_bomb:
                raise WorkspaceError("archive_bomb", "the archive holds more than it may")
            crc = crc32(block, crc)
            file.write(block)
    return Sum(extracted.bytes - bytes_before, crc)


def _blocks(entry: Any) -> Iterator[bytes]:
    """The content of this entry. Raises ArchiveError, also for a wrong checksum.

    libarchive only warns of that, and the loop of its binding takes the warning's number for a byte count.
    """
    from libarchive import ffi  # noqa: PLC0415

    source, block = entry._archive_p, create_string_buffer(BLOCK)
    while count := ffi.read_data(source, block, BLOCK):
        if count < 0:
            raise ffi.archive_error(source, count)
        yield block.raw[:count]


def order_of(name: str) -> list[tuple[list[tuple[int, int, str]], str]]:
    """The natural sort key: page2 before page10, folder by folder, ignoring case."""
    return [(_natural(Path(step).stem), step) for step in name.split("/") if step not in ("", ".")]


def _natural(text: str) -> list[tuple[int, int, str]]:
    return list(_parts(text.lower()))


def _parts(text: str) -> Iterator[tuple[int, int, str]]:
    for part in re.findall(r"[0-9]+|[^0-9]+", text):
        yield (0, int(part[:18]), "") if part.isdecimal() else (1, 0, part)
