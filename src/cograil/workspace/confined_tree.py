"""A workspace: files below one directory, opened step by step without following links.

A program that runs in the workspace may replace any file or directory by a link at any moment. Therefore
the kernel never gets a whole path: each step is opened by its name in the directory before it, and a link
is refused there. A written file appears completely under its name, or not at all.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cograil.workspace.workspace_paths import OURS, PathParts, WorkspaceError, split_path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
)  # opening a FIFO must not block
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_THERE = (errno.ENOENT,)
_NOT_OURS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO)

FILE_MODE, DIRECTORY_MODE = 0o666, 0o777  # the user of the container is another one


class Workspace:
    """The files below this directory, given by its path or as an open descriptor."""

    def __init__(self, root: Path | int) -> None:
        self._root = os.dup(root) if isinstance(root, int) else os.open(root, _DIRECTORY)

    def close(self) -> None:
        """Close the directory; nothing can be opened any more."""
        os.close(self._root)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def directory(self, steps: PathParts, *, is_made: bool = False) -> Iterator[int]:
        """Open a directory; with `is_made`, create missing ones. Raises WorkspaceError."""
        at = os.dup(self._root)
        try:
            for step in steps:
                inner = _below(at, step, is_made=is_made)
                os.close(at)
                at = inner
            yield at
        finally:
            os.close(at)

    @contextmanager
    def reading(self, path: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading. Raises WorkspaceError for anything else."""
        *above, name = split_path(path)
        with self.directory(tuple(above)) as directory, open_regular(directory, name) as file:
            yield file

    @contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        """Open a new file for writing; it gets its name when the block ends, and is removed if the block
        raises.
        """
        *above, name = split_path(path)
        with self.directory(tuple(above), is_made=True) as directory:
            hidden = hidden_name()
            with _checked(path):
                descriptor = os.open(hidden, NEW_FILE, FILE_MODE, dir_fd=directory)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    os.fchmod(file.fileno(), FILE_MODE)
                    yield file
                with _checked(path):
                    os.rename(hidden, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(FileNotFoundError):  # a concurrent process removed the directory
                    os.unlink(hidden, dir_fd=directory)
                raise

    @contextmanager
    def staging(self) -> Iterator[int]:
        """Yield a new directory at the top of the workspace; it is removed with its content when the block
        ends.
        """
        hidden = hidden_name()
        os.mkdir(hidden, 0o700, dir_fd=self._root)
        try:
            staged = os.open(hidden, _DIRECTORY, dir_fd=self._root)
            try:
                yield staged
            finally:
                os.close(staged)
        finally:
            remove_tree(self._root, hidden)


def hidden_name() -> str:
    """Return a unique hidden name."""
    return f"{OURS}-{secrets.token_hex(8)}"


@contextmanager
def open_regular(directory: int, name: str) -> Iterator[BinaryIO]:
    """Open the regular file of this name. Raises WorkspaceError for links, directories, devices and FIFOs."""
    with _checked(name):
        descriptor = os.open(name, _FILE, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise WorkspaceError("not_a_regular_file", f"{name!r} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def merge(source: int, target: int) -> None:
    """Move the content of one directory into another: directories are merged, files replaced.

    Raises WorkspaceError, before anything is moved, when a file conflicts with a directory of the same
    name.
    """
    _check_places(source, target)
    _move_all(source, target)


def _check_places(source: int, target: int) -> None:
    for entry in os.listdir(source):
        try:
            is_joined = is_directory(target, entry)
        except FileNotFoundError:
            continue
        if is_joined != is_directory(source, entry):
            is_, needed = ("a directory", "file") if is_joined else ("no directory", "directory")
            raise WorkspaceError("not_a_regular_file", f"{entry!r} is {is_}: no {needed} can replace it")
        if is_joined:
            with _both(source, target, entry) as (inner, outer):
                _check_places(inner, outer)


def _move_all(source: int, target: int) -> None:
    for entry in os.listdir(source):
        if is_directory(source, entry):
            with _both(source, target, entry) as (inner, outer):
                _move_all(inner, outer)
        else:
            with _checked(entry):
                os.rename(entry, entry, src_dir_fd=source, dst_dir_fd=target)


@contextmanager
def _both(source: int, target: int, name: str) -> Iterator[tuple[int, int]]:
    """Open the directories of this name in both; create it in the target if it is missing."""
    inner = os.open(name, _DIRECTORY, dir_fd=source)
    try:
        outer = _below(target, name, is_made=True)
        try:
            yield inner, outer
        finally:
            os.close(outer)
    finally:
        os.close(inner)


def is_directory(directory: int, name: str) -> bool:
    """Return whether this entry is a directory, and not a link to one."""
    return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def remove_tree(directory: int, name: str) -> None:
    """Remove this entry and everything below it; links are removed, not followed.

    Works at any depth: subdirectories are moved to the top first, so only two directories are open at a
    time.
    """
    if not _unlinked(directory, name):
        top = _opened_to_remove(directory, name)
        try:
            while entries := os.listdir(top):
                for entry in entries:
                    _flatten(top, entry)
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=directory)


def _flatten(top: int, name: str) -> None:
    """Remove this entry; its subdirectories move to the top under new names."""
    if _unlinked(top, name):
        return
    inner = _opened_to_remove(top, name)
    try:
        for entry in os.listdir(inner):
            if not _unlinked(inner, entry):
                os.rename(entry, hidden_name(), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _unlinked(directory: int, name: str) -> bool:
    """Remove an entry that is not a directory. Linux returns EISDIR for a directory, other systems EPERM."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        if is_directory(directory, name):
            return False
        raise
    return True


def _opened_to_remove(directory: int, name: str) -> int:
    opened = os.open(name, _DIRECTORY, dir_fd=directory)
    os.fchmod(opened, 0o700)
    return opened


def _below(at: int, step: str, *, is_made: bool) -> int:
    """Open the directory of this name in another. Raises WorkspaceError."""
    is_new = False
    if is_made:
        try:
            os.mkdir(step, DIRECTORY_MODE, dir_fd=at)
            is_new = True
        except FileExistsError:
            pass
    with _checked(step):
        opened = os.open(step, _DIRECTORY, dir_fd=at)
    if is_new:
        os.fchmod(opened, DIRECTORY_MODE)  # the umask of this process removed some bits
    return opened


@contextmanager
def _checked(name: str) -> Iterator[None]:
    """Convert errors of the kernel to WorkspaceError."""
    try:
        yield
    except IsADirectoryError:
        raise WorkspaceError("not_a_regular_file", f"{name!r} is a directory") from None
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise WorkspaceError("file_not_found", f"{name!r} does not exist") from None
        if error.errno in _NOT_OURS:
            raise WorkspaceError(
                "not_a_regular_file", f"{name!r} is a link, or no file or directory"
            ) from None
        raise
