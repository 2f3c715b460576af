"""Extracts an untrusted tar.gz: bounded, without links, completely or not at all.

The archive is extracted into a new directory first. After its last byte was valid, the content is moved to
the target: directories are merged, files replaced. Links and devices are skipped and reported, never
created.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO
from unicodedata import normalize

from cograil.workspace.confined_tree import NEW_FILE, Workspace, merge
from cograil.workspace.tar_headers import (
    BLOCK,
    MAX_EXTENSION,
    Header,
    bad_header,
    pax_size,
    read_header,
    read_pax,
)
from cograil.workspace.workspace_paths import PathParts, WorkspaceError, split_path

CHUNK = 256 * 1024
GZIP = 31  # zlib's value for the gzip format
MAX_SKIPPED = 100  # skipped entries that are reported by name
FREE_PARTS = 1_000  # gzip members, which may be almost empty: each takes longer to begin than to read
HEADERS_EACH = 4  # headers of one entry: its own, and its extensions


@dataclass(frozen=True, slots=True)
class ArchiveBounds:
    """The limits of an archive."""

    bytes: int = 16 * 1024**3
    entries: int = 100_000  # including the directories that they need
    ratio: int = 200  # ratio of the extracted to the compressed size, for large archives
    free_bytes: int = 64 * 1024**2  # bytes that may have any ratio


@dataclass(slots=True)
class Extracted:
    """The result of the extraction."""

    files: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list)  # links and devices, the first of them


def extract(
    workspace: Workspace, source: str, target: str, *, subdir: str = "", bounds: ArchiveBounds | None = None
) -> Extracted:
    """Extract the archive `source` into the directory `target`.

    Raises WorkspaceError for an invalid archive, and then changes nothing. With `subdir` only its content
    is extracted; a root folder that all entries share is ignored.
    """
    to, wanted = split_path(target, is_root_allowed=True), split_path(subdir) if subdir else ()
    with workspace.reading(source) as packed, workspace.staging() as staged, Workspace(staged) as inner:
        summary = TarExtractor(GzipReader(packed, bounds or ArchiveBounds()), inner).run()
        steps = _chosen(inner, wanted)
        with inner.directory(steps) as chosen, workspace.directory(to, is_made=True) as directory:
            merge(chosen, directory)
    return summary


def _chosen(inner: Workspace, wanted: PathParts) -> PathParts:
    """Return the path of the wanted directory in the archive."""
    if not wanted:
        return ()
    with inner.directory(()) as top:
        roots = os.listdir(top)
    places = [(roots[0], *wanted), wanted] if len(roots) == 1 else [wanted]
    for steps in places:
        try:
            with inner.directory(steps):
                return steps
        except WorkspaceError:
            continue
    raise WorkspaceError("subdir_not_found", f"the archive has no directory {'/'.join(wanted)!r}")


class GzipReader:
    """Reads the content of a gzip file, within the bounds."""

    def __init__(self, packed: BinaryIO, bounds: ArchiveBounds) -> None:
        self._packed = packed
        self.bounds = bounds
        self._unpacker = zlib.decompressobj(GZIP)
        self._input = packed.read(CHUNK)
        self._taken = len(self._input)
        self._ready = memoryview(b"")  # slices of it are not copied
        self._given = self._parts = 0
        if self._input[:2] != b"\x1f\x8b":
            raise WorkspaceError("archive_format", "this is not a tar.gz archive")

    def take(self, most: int) -> memoryview:
        """Return at most this number of bytes; none at the end. Raises WorkspaceError."""
        if not self._ready:
            self._ready = memoryview(self._unpack())
        taken, self._ready = self._ready[:most], self._ready[most:]
        return taken

    def exactly(self, count: int) -> Iterator[memoryview]:
        """Yield this number of bytes in pieces. Raises WorkspaceError when there are fewer."""
        while count:
            part = self.take(count)
            if not part:
                raise truncated()
            count -= len(part)
            yield part

    def block(self) -> bytes | None:
        """Return the next 512 bytes, or None at the end."""
        first = self.take(BLOCK)
        return b"".join([first, *self.exactly(BLOCK - len(first))]) if first else None

    def _unpack(self) -> bytes:
        while not self._unpacker.eof or self._begin_next():
            try:
                part = self._unpacker.decompress(self._input, CHUNK)
            except zlib.error as error:
                raise WorkspaceError("archive_corrupt", f"the archive is damaged: {error}") from None
            self._input = self._unpacker.unconsumed_tail  # at its end zlib may report it twice
            if part:
                return self._counted(part)
            if not self._unpacker.eof and not self._input and not self._refill():
                raise truncated()
        return b""

    def _begin_next(self) -> bool:
        """Begin the next gzip member of the file; return whether there is one."""
        self._input = self._unpacker.unused_data
        if not self._input and not self._refill():
            return False
        self._unpacker = zlib.decompressobj(GZIP)
        if self._input[:1] != b"\x1f":
            raise WorkspaceError("archive_corrupt", "the archive is followed by other data")
        self._parts += 1
        if self._parts > FREE_PARTS and self._parts * BLOCK > self._given:
            raise WorkspaceError("archive_bomb", "the archive has more gzip members than blocks")
        return True

    def _refill(self) -> bool:
        self._input = self._packed.read(CHUNK)
        self._taken += len(self._input)
        return bool(self._input)

    def _counted(self, part: bytes) -> bytes:
        self._given += len(part)
        bounds = self.bounds
        if self._given > bounds.bytes:
            raise WorkspaceError("archive_too_large", f"the archive holds more than {bounds.bytes:,} bytes")
        if self._given > bounds.free_bytes and self._given > bounds.ratio * self._taken:
            raise WorkspaceError(
                "archive_bomb", "the extracted size is too large for the size of the archive"
            )
        return part


class TarExtractor:
    """The extraction of one archive into an empty directory."""

    def __init__(self, stream: GzipReader, into: Workspace) -> None:
        self._stream = stream
        self._into = into
        self._found = Extracted()
        self._headers = self._entries = 0
        self._spelled: dict[
            int, int
        ] = {}  # the kind of each path, regardless of case; by hash, to save memory
        self._name: bytes | None = None  # fields of an extension for the next entry
        self._size: int | None = None
        self._link: bytes | None = None

    def run(self) -> Extracted:
        """Extract everything."""
        while (block := self._stream.block()) is not None and (header := read_header(block)) is not None:
            self._headers += 1
            if self._headers > HEADERS_EACH * self._stream.bounds.entries:
                raise _too_many()
            if header.kind in ("pax", "global", "long_name", "long_link"):
                self._extend(header)
            else:
                self._count()
                self._add(header)
                self._name = self._size = self._link = None
        while self._stream.take(CHUNK):  # the padding and the checksum after it
            pass
        return self._found

    def _count(self) -> None:
        self._entries += 1
        if self._entries > self._stream.bounds.entries:
            raise _too_many()

    def _extend(self, header: Header) -> None:
        if header.size > MAX_EXTENSION:
            raise bad_header("an extension has more than 64 KiB")
        content = self._content(header.size)
        if header.kind == "long_name":
            self._name = content.split(b"\0", 1)[0]
        elif header.kind == "long_link":
            self._link = content.split(b"\0", 1)[0]
        elif header.kind in ("pax", "global"):
            records = read_pax(content)
            if header.kind == "pax":
                self._name = records.get(b"path", self._name)
                self._link = records.get(b"linkpath", self._link)
                self._size = pax_size(records[b"size"]) if b"size" in records else self._size

    def _content(self, size: int) -> bytes:
        content = b"".join(self._stream.exactly(size))
        self._pad(size)
        return content

    def _pad(self, size: int) -> None:
        for _ in self._stream.exactly(-size % BLOCK):
            pass

    def _add(self, header: Header) -> None:
        name = _name_of(self._name or header.name)
        if header.kind == "skipped":
            self._found.skipped += [name] if len(self._found.skipped) < MAX_SKIPPED else []
            return
        steps = split_path(name, is_root_allowed=True)
        self._spell(steps)
        if header.kind == "directory":
            self._make(steps)
            return
        size = header.size if self._size is None else self._size
        if not steps or name.endswith("/"):
            raise WorkspaceError("unsafe_path", f"the archive holds a file named {name!r}")
        self._write(steps, size, is_executable=header.is_executable)
        self._found.files += 1
        self._found.bytes += size

    def _spell(self, steps: PathParts) -> None:
        """Record a path and its parent directories, which count as entries too.

        Raises WorkspaceError for a path that differs from another only in case or in the Unicode form of
        its accents: on other systems both are the same file.
        """
        plain = tuple(normalize("NFC", step).lower() for step in steps)
        for depth in range(len(steps), 0, -1):
            key, spelling = hash(plain[:depth]), hash(steps[:depth])
            if (known := self._spelled.get(key)) == spelling:
                return  # and so are its parents
            if known is not None:
                raise WorkspaceError(
                    "name_collision",
                    f"the archive holds {'/'.join(steps[:depth])!r} in two spellings",
                )
            self._spelled[key] = spelling
            if depth < len(steps):
                self._count()

    def _make(self, steps: PathParts) -> None:
        try:
            with self._into.directory(steps, is_made=True):
                pass
        except WorkspaceError:
            raise _twice("/".join(steps)) from None

    def _write(self, steps: PathParts, size: int, *, is_executable: bool) -> None:
        self._make(steps[:-1])
        with self._into.directory(steps[:-1]) as directory:
            mode = 0o777 if is_executable else 0o666
            try:
                descriptor = os.open(steps[-1], NEW_FILE, mode, dir_fd=directory)
            except FileExistsError:
                raise _twice("/".join(steps)) from None
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                for part in self._stream.exactly(size):
                    file.write(part)
        self._pad(size)


def _name_of(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise WorkspaceError(
            "unsafe_name", f"the archive holds a name that is not UTF-8: {name[:80]!r}"
        ) from None


def _too_many() -> WorkspaceError:
    return WorkspaceError("archive_too_many_entries", "the archive holds too many entries")


def _twice(name: str) -> WorkspaceError:
    return WorkspaceError("unsafe_entry", f"the archive holds {name!r} twice, or as a file and a directory")


def truncated() -> WorkspaceError:
    return WorkspaceError("archive_truncated", "the archive ends too early")
