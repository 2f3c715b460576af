"""Renames that never overwrite, also on file systems without RENAME_NOREPLACE.

NFS, 9p and some FUSE file systems refuse RENAME_NOREPLACE. There a file is linked, which fails for a name that is
taken, and then unlinked; without links, the name is reserved by an empty file or directory that is renamed over.
A crash between two such steps leaves a state that the next process recognises and continues.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from cograil import fault_injection

UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR)
_NOREPLACE = 1
_AT_FDCWD = -100
_FOLDER, _FILE = (
    stat.S_ISVTX | 0o700,
    stat.S_ISVTX | 0o600,
)  # modes that mark an empty file or directory as reserved
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def rename(source: Path, target: Path) -> None:
    """Rename. Raises FileExistsError if the target exists."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        names = os.fsencode(source), os.fsencode(target)
        if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in UNKNOWN:
            raise OSError(number, os.strerror(number), str(source), None, str(target))
    rename_without_kernel(source, target)


def rename_without_kernel(source: Path, target: Path) -> None:
    """Rename without overwriting in two steps."""
    _require_one_file_system(source, target)
    if stat.S_ISDIR(source.lstat().st_mode):
        _rename_over_reserved(source, target)
        return
    is_linked = False
    try:
        os.link(source, target, follow_symlinks=False)
        is_linked = True
    except FileExistsError:
        if not os.path.samestat(source.lstat(), target.lstat()):
            raise
    except OSError as error:
        if error.errno not in UNKNOWN:
            raise
        _rename_over_reserved(source, target)
        return
    fault_injection.point("documents.rename.linked")
    _unlink(source, target, is_linked)


def _require_one_file_system(source: Path, target: Path) -> None:
    """Raise EXDEV, as a rename does before it checks the name; a link checks the name first."""
    if source.lstat().st_dev != target.parent.stat().st_dev:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))
    try:
        os.rename(source, os.path.join(target.parent, "."))  # never succeeds: EBUSY on one mount
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise


def _unlink(source: Path, target: Path, is_linked: bool) -> None:
    """Unlink the source. If another process renamed it in between, the file is theirs."""
    try:
        os.unlink(source)
    except FileNotFoundError:
        if is_linked and target.lstat().st_nlink > 1:
            os.unlink(target)
            raise


def _rename_over_reserved(source: Path, target: Path) -> None:
    is_folder = stat.S_ISDIR(source.lstat().st_mode)
    with _reserved_folder(target) if is_folder else _reserved_file(target):
        fault_injection.point("documents.rename.reserved")
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno in TAKEN:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
            with contextlib.suppress(OSError):
                if is_reserved(target):
                    target.rmdir() if is_folder else target.unlink()
            raise


def is_reserved(path: Path) -> bool:
    """Whether this is an empty reservation for a file that is about to be moved here, or whose mover died."""
    return _is_reserved(path.lstat())


def _is_reserved(info: os.stat_result) -> bool:
    is_empty = stat.S_ISDIR(info.st_mode) or (stat.S_ISREG(info.st_mode) and not info.st_size)
    return is_empty and stat.S_IMODE(info.st_mode) & ~stat.S_ISGID in (_FOLDER, _FILE)


@contextlib.contextmanager
def _reserved_folder(target: Path) -> Iterator[None]:
    """Reserve a name by an empty directory: a rename only replaces an empty one, so one of two movers fails."""
    try:
        target.mkdir(mode=_FOLDER)
    except FileExistsError:
        if not is_reserved(target):
            raise
    yield


@contextlib.contextmanager
def _reserved_file(target: Path) -> Iterator[None]:
    """Reserve a name by an empty, locked file; the lock ends with its process."""
    is_own = True
    try:
        descriptor = os.open(target, _OPEN | os.O_CREAT | os.O_EXCL, _FILE)
    except FileExistsError:
        if not is_reserved(target):
            raise
        descriptor, is_own = os.open(target, _OPEN), False
    try:
        if not _is_ours(descriptor, target, is_own):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        yield
    finally:
        os.close(descriptor)


def _is_ours(descriptor: int, target: Path, is_own: bool) -> bool:
    """Whether we hold the reservation. Where there are no locks, the process that created it does."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return is_own
    now = os.fstat(descriptor)
    return os.path.samestat(now, target.lstat()) and (is_own or _is_reserved(now))
