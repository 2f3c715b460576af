"""Taking the pages out of an archive of unknown origin.

No name of an archive becomes a path: pages are numbered files, and their names only say their order. So
nothing can be written elsewhere; an archive that tries is refused all the same. What it holds is bounded.
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
MAX_SKIPPED = 20  # that are told by name
PAGE_BOUNDS = ArchiveBounds(bytes=8 * 1024**3, entries=20_000, ratio=200, free_bytes=64 * 1024**2)


@dataclass(slots=True)
class ExtractedPages:
    """The pages in their order, and what was left where it was."""

    pages: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    bytes: int = 0


def take_pages(archive: Path, into: Path, bounds: ArchiveBounds = PAGE_BOUNDS) -> ExtractedPages:
    """Write the pictures of this archive to a directory; in their natural order.

    Raises WorkspaceError for an archive that is damaged, encrypted, too large, or tries to get out.
    """
    import libarchive  # noqa: PLC0415  an extra, and a library in C
    from libarchive.exception import ArchiveError  # noqa: PLC0415

    taken, named = ExtractedPages(), []
    packed = archive.stat().st_size
    try:
        with (
            _any_letters(),
            libarchive.file_reader(str(archive), format_name=_format(archive), filter_name="none") as reader,
        ):
            sums = sums_of(archive)
            for number, entry in enumerate(reader, 1):
                wanted = next(sums, None)
                if number > bounds.entries:
                    raise WorkspaceError("archive_too_many_entries", "the archive holds too many entries")
                name = _name_of(entry)
                if not _is_page(entry, name, taken):
                    continue
                page = into / f"{number:06}{Path(name).suffix.lower()}"
                written = _write(entry, page, taken, packed, bounds)
                if wanted and wanted.crc is not None and wanted != written and wanted.size == written.size:
                    raise WorkspaceError("archive_corrupt", f"{name[:80]!a} is not what was packed")
                named.append((order_of(name), page))
    except ArchiveError as error:
        raise WorkspaceError("archive_corrupt", f"the archive cannot be read: {error.msg}") from None
    taken.pages = [page for _, page in sorted(named)]
    return taken


@contextmanager
def _any_letters() -> Iterator[None]:
    """Let the library read names of all letters in this block: under LC_ALL=C it gives none for them."""
    before = locale.setlocale(locale.LC_CTYPE)
    with suppress(locale.Error):  # then what is not ASCII cannot be read here
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
    """The entry's name, with slashes. Raises WorkspaceError for one that leads elsewhere.

    Packers of old write names in the letters of their country and do not say which: they only need an order.
    """
    found = entry.pathname or ""
    name = (found.decode("cp437") if isinstance(found, bytes) else found).replace("\\", "/")
    if not name:
        raise WorkspaceError("archive_corrupt", "the archive holds an entry without a name")
    if name.startswith("/") or ".." in name.split("/") or re.match(r"[A-Za-z]:/", name):
        raise WorkspaceError("unsafe_path", f"the archive holds {name[:80]!a}, which leads out of it")
    split_path("".join(letter if letter.isprintable() else "_" for letter in name), is_root_allowed=True)
    return name


def _is_page(entry: Any, name: str, taken: ExtractedPages) -> bool:
    """Whether it is a picture of the document. Links, devices and what is hidden are not."""
    if entry.isdir:
        return False
    if entry.isreg and not entry.issym and not entry.islnk and is_picture(name):
        return True
    if len(taken.skipped) < MAX_SKIPPED:
        taken.skipped.append(ascii(name[:80]))
    return False


def is_picture(name: str) -> bool:
    """Whether a file of this name is a page; not what systems leave behind."""
    *folders, last = name.lower().split("/")
    is_junk = last in JUNK or last.startswith("._") or not JUNK_FOLDERS.isdisjoint(folders)
    return not is_junk and Path(last).suffix in IMAGES


def _write(entry: Any, page: Path, taken: ExtractedPages, packed: int, bounds: ArchiveBounds) -> Sum:
    """Write it; what it came to."""
    before, crc = taken.bytes, 0
    with page.open("xb") as file:
        for block in _blocks(entry):
            taken.bytes += len(block)
            is_bomb = taken.bytes > bounds.free_bytes and taken.bytes > packed * bounds.ratio
            if taken.bytes > bounds.bytes or is_bomb:
                raise WorkspaceError("archive_bomb", "the archive holds more than it may")
            crc = crc32(block, crc)
            file.write(block)
    return Sum(taken.bytes - before, crc)


def _blocks(entry: Any) -> Iterator[bytes]:
    """What is in this entry. Raises ArchiveError, also for a wrong checksum.

    The library only warns of that, and its own loop takes the number of the warning for a count of bytes.
    """
    from libarchive import ffi  # noqa: PLC0415

    source, block = entry._archive_p, create_string_buffer(BLOCK)
    while count := ffi.read_data(source, block, BLOCK):
        if count < 0:
            raise ffi.archive_error(source, count)
        yield block.raw[:count]


def order_of(name: str) -> list[tuple[list[tuple[int, int, str]], str]]:
    """Sorts as people count: page2 before page10, folder by folder, capitals like others."""
    return [(_natural(Path(step).stem), step) for step in name.split("/") if step not in ("", ".")]


def _natural(text: str) -> list[tuple[int, int, str]]:
    return list(_parts(text.lower()))


def _parts(text: str) -> Iterator[tuple[int, int, str]]:
    for part in re.findall(r"[0-9]+|[^0-9]+", text):
        yield (0, int(part[:18]), "") if part.isdecimal() else (1, 0, part)
