"""Creates archives: a file or a directory as tar.gz, streamed, while the workspace may change."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from cograil.workspace.confined_tree import Workspace, open_regular
from cograil.workspace.file_list import changed, walk
from cograil.workspace.workspace_paths import PathParts, WorkspaceError, split_path

MAX_FILES = 100_000
MAX_BYTES = 64 * 1024**3
LEVEL = 6


def write_archive(
    workspace: Workspace,
    source: str,
    target: str,
    *,
    most_bytes: int = MAX_BYTES,
    on_skipped: Callable[[str], None] = lambda path: None,
) -> int:
    """Write `source` as tar.gz to `target`; return the number of files. Raises WorkspaceError.

    Entries are named relative to the directory. Links, devices and FIFOs are left out and reported. A
    target inside its own source is left out. Only regular files are opened, step by step: nothing leads
    out.
    """
    steps = split_path(source, is_root_allowed=True)
    count, left = 0, most_bytes
    with (
        workspace.writing(target) as out,
        gzip.GzipFile("", "wb", LEVEL, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, above, last in _sources(workspace, steps):
            try:
                with workspace.directory(above) as directory, open_regular(directory, last) as file:
                    left -= _add(archive, name, file, left)
            except WorkspaceError as error:
                if error.code == "file_not_found":  # it was removed since it was listed
                    raise changed(name) from None
                if error.code != "not_a_regular_file":
                    raise
                on_skipped(name)
                continue
            count += 1
            if count > MAX_FILES:
                raise WorkspaceError("too_many_files", f"more than {MAX_FILES:,} files to archive")
    return count


def _sources(workspace: Workspace, steps: PathParts) -> Iterator[tuple[str, PathParts, str]]:
    """Yield the name of each entry, the steps to its directory, and its name there."""
    if steps:
        with workspace.directory(steps[:-1]) as directory:
            try:
                with open_regular(directory, steps[-1]):
                    is_file = True
            except WorkspaceError as error:
                if error.code == "file_not_found":
                    raise
                is_file = False
        if is_file:
            yield steps[-1], steps[:-1], steps[-1]
            return
    for path in walk(workspace, steps):
        *above, name = path.split("/")
        yield path, (*steps, *above), name


def _add(archive: tarfile.TarFile, name: str, file: BinaryIO, left: int) -> int:
    """Add one file; return its size. Raises WorkspaceError when it is too large, or shrinks while it is
    read.
    """
    status = os.fstat(file.fileno())
    if status.st_size > left:
        raise WorkspaceError(
            "too_large", f"{name!r} is {status.st_size:,} bytes long, and only {left:,} bytes are left"
        )
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = status.st_size, int(status.st_mtime)
    entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
    try:
        archive.addfile(entry, file)
    except OSError as error:
        if error.errno is not None:
            raise
        raise changed(name) from None
    return status.st_size
