"""Locks on files and directories that end with the process that holds them, also on network file systems.

On NFS an exclusive lock needs a file that is open for writing. A file that cannot be opened so is locked through a
hidden file beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
from pathlib import Path

from cograil.apps.documents import atomic_files

NETWORK = frozenset({0x6969, 0xFF534D42, 0xFE534D42, 0x65735546})  # NFS, CIFS, SMB2, FUSE
LOOK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_system = ctypes.CDLL(None, use_errno=True)


def file_system_of(descriptor: int) -> int:
    """The type number of the file system of this descriptor; 0 when unknown."""
    buffer = (ctypes.c_long * 64)()  # struct statfs is smaller, and begins with it
    return 0 if _system.fstatfs(descriptor, ctypes.byref(buffer)) else buffer[0] & 0xFFFFFFFF


def lock(
    stack: contextlib.ExitStack, path: Path, *, is_waiting: bool = False, may_be_beside: bool = True
) -> bool:
    """Lock this path until the stack is closed; False when another process has it. Raises OSError."""
    if (is_mine := _lock_by(stack, path, os.O_RDONLY, is_waiting)) is not None:
        return is_mine
    try:
        is_mine = _lock_by(stack, path, os.O_RDWR, is_waiting)
    except FileNotFoundError:
        raise
    except OSError:  # a file of another user
        if not may_be_beside:
            raise
        is_mine = None
    return _lock_beside(stack, path, is_waiting) if is_mine is None else is_mine


def _lock_by(stack: contextlib.ExitStack, path: Path, mode: int, is_waiting: bool) -> bool | None:
    """Lock the path opened in this mode; None when that mode cannot be locked."""
    descriptor = os.open(path, mode | LOOK, 0o666)
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if is_waiting else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno == errno.EBADF:
            return None
        if error.errno not in BUSY:
            raise
        return False
    return _is_still_there(descriptor, path)


def _lock_beside(stack: contextlib.ExitStack, path: Path, is_waiting: bool) -> bool:
    name = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:32]
    beside = path.with_name(f"{atomic_files.HIDDEN}lock-{name}")
    if not _lock_by(stack, beside, os.O_RDWR | os.O_CREAT, is_waiting):
        return False
    stack.callback(
        atomic_files.remove, beside
    )  # before it is closed, so that a waiting process sees that it was removed
    return os.path.lexists(path)


def _is_still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
