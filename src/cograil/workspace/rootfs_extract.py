"""Extracts a root file system from a tar: its links are created but never followed.

Every directory on the way to an entry is opened by its name in the one before it, and a link is refused
there; so nothing is written outside. Devices and FIFOs are skipped and reported. Owners and the setuid and
setgid bits are not restored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from cograil.workspace.confined_tree import NEW_FILE, Workspace
from cograil.workspace.tar_extract import (
    CHUNK,
    MAX_SKIPPED,
    ArchiveBounds,
    Extracted,
    GzipReader,
    TarExtractor,
)
from cograil.workspace.tar_headers import Header
from cograil.workspace.workspace_paths import MAX_NAME, PathParts, WorkspaceError

ROOT_BOUNDS = ArchiveBounds(bytes=32 * 1024**3, entries=1_000_000)
DEEPEST = 64
HARD_LINK, LINK = b"1", b"2"
_SHELLS = (("bin", "sh"), ("usr", "bin", "sh"))


@dataclass(slots=True)
class RootExtracted(Extracted):
    """The result of the extraction; whether the file system has a shell at /bin/sh."""

    links: int = 0
    has_shell: bool = False


def extract_root(
    archive: BinaryIO, directory: Path, *, owner: int | None = None, bounds: ArchiveBounds = ROOT_BOUNDS
) -> RootExtracted:
    """Extract a tar or tar.gz into an empty directory. Raises WorkspaceError; then a part may be extracted.

    With `owner`, everything belongs to that user and group.
    """
    source = archive if isinstance(archive, BufferedReader) else BufferedReader(cast("RawIOBase", archive))
    kind = GzipReader if source.peek(2).startswith(b"\x1f\x8b") else _PlainReader
    try:
        with Workspace(directory) as into:
            return _RootExtractor(kind(source, bounds), into, owner).run()
    finally:
        if source is not archive:
            source.detach()  # keeps the file open: it belongs to the caller


class _PlainReader(GzipReader):
    """Reads a file that is not compressed."""

    def __init__(self, plain: BinaryIO, bounds: ArchiveBounds) -> None:
        self._packed = plain
        self.bounds = bounds
        self._ready = memoryview(b"")
        self._given = self._taken = 0

    def _unpack(self) -> bytes:
        part = self._packed.read(CHUNK)
        self._taken += len(part)
        return self._counted(part)


class _RootExtractor(TarExtractor):
    """The extraction of one root file system into an empty directory."""

    _found: RootExtracted

    def __init__(self, stream: GzipReader, into: Workspace, owner: int | None) -> None:
        super().__init__(stream, into)
        self._found = RootExtracted()
        self._owner = owner
        self._modes: dict[PathParts, int] = {
            (): 0o755
        }  # modes of directories, set last: a read-only one still has to be filled

    def run(self) -> RootExtracted:
        """Extract everything."""
        super().run()
        if not self._found.files:
            raise WorkspaceError("archive_format", "this is not a tar archive of a root file system")
        for steps in sorted(self._modes, key=len, reverse=True):
            with suppress(WorkspaceError), self._into.directory(steps) as directory:
                self._own(directory)
                os.fchmod(directory, self._modes[steps])
        return self._found

    def _add(self, header: Header) -> None:
        name = self._name or header.name
        steps = _steps(name)
        size = header.size if self._size is None else self._size
        if header.kind == "directory" or (not steps and header.kind != "skipped"):
            self._make(steps)
            self._modes[steps] = header.mode & 0o1777 | 0o500
        elif header.kind == "file":
            self._write_file(steps, size, header.mode & 0o777)
        elif header.flag in (LINK, HARD_LINK) and steps:
            self._tie(steps, self._link or header.link, is_hard=header.flag == HARD_LINK)
        elif len(self._found.skipped) < MAX_SKIPPED:
            self._found.skipped.append(_shown(name))
        self._found.has_shell |= steps in _SHELLS

    def _make(self, steps: PathParts) -> None:
        for depth in range(1, len(steps) + 1):
            self._modes.setdefault(steps[:depth], 0o755)
        try:
            with self._into.directory(steps, is_made=True):
                pass
        except WorkspaceError:
            raise _through_link(steps) from None

    @contextmanager
    def _place(self, steps: PathParts) -> Iterator[int]:
        """Open the directory of this entry; an existing entry of its name is removed."""
        self._make(steps[:-1])
        with self._into.directory(steps[:-1]) as directory:
            try:
                os.unlink(steps[-1], dir_fd=directory)
            except FileNotFoundError:
                pass
            except (IsADirectoryError, PermissionError):
                raise _through_link(steps) from None
            yield directory

    def _write_file(self, steps: PathParts, size: int, mode: int) -> None:
        with self._place(steps) as directory:
            descriptor = os.open(steps[-1], NEW_FILE, 0o600, dir_fd=directory)
        with os.fdopen(descriptor, "wb") as file:
            for part in self._stream.exactly(size):
                file.write(part)
            self._own(descriptor)
            os.fchmod(descriptor, mode)
        self._pad(size)
        self._found.files += 1
        self._found.bytes += size

    def _tie(self, steps: PathParts, target: bytes, *, is_hard: bool) -> None:
        """Create a link. A symbolic link is text and is not resolved. A hard link is another name of an
        extracted file.
        """
        if is_hard:
            self._name_again(steps, _steps(target))
        else:
            if not target or b"\0" in target or len(target) > 4095:
                raise WorkspaceError("unsafe_entry", f"{_shown(target)} cannot be the target of a link")
            with self._place(steps) as directory:
                os.symlink(os.fsdecode(target), steps[-1], dir_fd=directory)
                if self._owner is not None:
                    os.chown(steps[-1], self._owner, self._owner, dir_fd=directory, follow_symlinks=False)
        self._found.links += 1

    def _name_again(self, steps: PathParts, target: PathParts) -> None:
        if not target or target == steps:
            raise WorkspaceError("unsafe_entry", f"{'/'.join(steps)!r} is a hard link to a missing file")
        try:
            with self._into.directory(target[:-1]) as source, self._place(steps) as directory:
                status = os.stat(target[-1], dir_fd=source, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    raise FileNotFoundError
                os.link(target[-1], steps[-1], src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            raise WorkspaceError(
                "unsafe_entry", f"{'/'.join(steps)!r} is a hard link to a file that does not precede it"
            ) from None

    def _own(self, descriptor: int) -> None:
        if self._owner is not None:
            os.fchown(descriptor, self._owner, self._owner)


def _steps(name: bytes) -> PathParts:
    """Return the steps to an entry; unlike in a workspace, all names of the file system are allowed."""
    steps = tuple(os.fsdecode(step) for step in name.split(b"/") if step not in (b"", b"."))
    if name.startswith(b"/") or b".." in name.split(b"/") or b"\0" in name:
        raise WorkspaceError("unsafe_path", f"{_shown(name)} leads out of the root file system")
    if len(steps) > DEEPEST or any(len(os.fsencode(step)) > MAX_NAME for step in steps):
        raise WorkspaceError("unsafe_path", f"{_shown(name)} is too long, or too deep")
    return steps


def _through_link(steps: PathParts) -> WorkspaceError:
    return WorkspaceError(
        "unsafe_entry", f"{_shown('/'.join(steps).encode(errors='replace'))} leads through a link or a file"
    )


def _shown(name: bytes) -> str:
    return ascii(name[:80].decode(errors="replace"))
