"""Atomic writes, and moves that never overwrite, also between file systems.

A process that dies in between leaves the old name, the new one, or (for a copy) both; the next process continues
from there. Every step passes a fault-injection point.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cograil import fault_injection
from cograil.apps.documents.safe_rename import is_reserved
from cograil.apps.documents.safe_rename import rename as _rename

CHUNK = 1024 * 1024
MAX_JSON = 16 * 1024 * 1024
HIDDEN = ".cograil-"
GONE = f"{HIDDEN}gone-"  # already copied elsewhere; only to be removed
MAX_NAME = 255
MAX_INPUT = 200  # of a document: it gets longer in staging and in hold


def write_json(path: Path, value: Any) -> None:
    """Write this file atomically; its directory is created."""
    write_bytes(path, json.dumps(value, ensure_ascii=False, indent=2).encode(errors="replace") + b"\n")


def write_bytes(path: Path, content: bytes) -> None:
    """Write this file atomically: readers see the previous content or all of the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(hidden_name())
    try:
        hidden.write_bytes(content)
        fault_injection.point("documents.write.before")
        os.replace(hidden, path)
        fault_injection.point("documents.write.after")
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def read_json(path: Path, max_bytes: int = MAX_JSON) -> Any:
    """The content of this file; None when it is missing, not JSON, too large, or not a regular file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(max_bytes + 1)
        return json.loads(content) if len(content) <= max_bytes else None
    except (OSError, ValueError, RecursionError):
        return None


def hidden_name() -> str:
    """A unique name that watchers ignore."""
    return f"{HIDDEN}{secrets.token_hex(8)}"


def move(source: Path, target: Path, what: str = "move", *, may_copy: bool = True) -> None:
    """Move a file or directory to a free name. Raises FileExistsError when the name is taken.

    From another file system it is copied first and appears whole; without `may_copy` that raises EXDEV.
    """
    fault_injection.point(f"documents.{what}.before")
    try:
        _rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV or not may_copy:
            raise
        _move_across(source, target, what)
    fault_injection.point(f"documents.{what}.after")


def move_to_free(source: Path, target: Path, what: str = "move") -> Path:
    """Move it to this name or, if that is taken, to a numbered one; return its new path."""
    for candidate in names_like(target):
        try:
            move(source, candidate, what)
        except FileExistsError:
            continue
        return candidate
    raise AssertionError("there is always another name")


def finish_move(source: Path, target: Path, what: str = "move") -> None:
    """Move it, or complete a move that a crash interrupted: the target is this file already, or becomes it.

    Raises FileExistsError when the target is another file.
    """
    try:
        move(source, target, what)
    except FileNotFoundError:
        if not target.exists():
            raise
    except FileExistsError:
        if hash_of(source) != hash_of(target):
            raise
        _part_with(source, what)


def names_like(target: Path) -> Iterator[Path]:
    """This name, then the same with (2), (3) and so on before its ending."""
    yield target
    for number in range(2, 1_000_000):
        mark = f" ({number})"
        stem = fitted(target.stem, MAX_NAME - len(target.suffix.encode()) - len(mark))
        yield target.with_name(f"{stem}{mark}{target.suffix}")


def _move_across(source: Path, target: Path, what: str) -> None:
    """Copy, then remove. A target with the same bytes was left by a process that died in between."""
    if os.path.lexists(target) and not is_reserved(target):
        if not (_has_content(source) and _has_content(target)) or hash_of(source) != hash_of(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        _part_with(source, what)
        return
    hidden = target.with_name(hidden_name())
    try:
        copy(source, hidden)
        fault_injection.point(f"documents.{what}.copied")
        _rename(hidden, target)
    finally:
        remove(hidden)
    fault_injection.point(f"documents.{what}.moved")
    _part_with(source, what)


def _part_with(source: Path, what: str) -> None:
    """Remove the copied source in one step: a half-removed directory would look like another input.

    A source that cannot be removed is renamed out of the way; the next cleanup tries again.
    """
    if not stat.S_ISDIR(source.lstat().st_mode):
        remove(source)
        return
    gone = source.with_name(f"{GONE}{secrets.token_hex(8)}")
    os.rename(source, gone)
    fault_injection.point(f"documents.{what}.gone")
    with contextlib.suppress(OSError):
        remove(gone)


def _has_content(path: Path) -> bool:
    """Whether this is a regular file or a directory, not a link to one."""
    kind = path.lstat().st_mode
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind)


def copy(source: Path, target: Path) -> None:
    """Copy a file or a directory, links as links, and sync it to disk. Special files are not opened."""
    if stat.S_ISDIR(source.lstat().st_mode):
        shutil.copytree(source, target, symlinks=True, copy_function=_copy_one)
    else:
        _copy_one(source, target)


def _copy_one(source: Path | str, target: Path | str) -> None:
    info = os.lstat(source)
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
        os.mknod(target, info.st_mode, info.st_rdev)
        return
    shutil.copy2(source, target, follow_symlinks=False)
    if not os.path.islink(target):
        sync(Path(target))


def copy_whole(source: Path, target: Path, what: str = "copy") -> None:
    """Copy a file to a free name atomically. Raises FileExistsError when the name is taken."""
    hidden = target.with_name(hidden_name())
    try:
        copy(source, hidden)
        move(hidden, target, what)
    finally:
        remove(hidden)


def sync(path: Path) -> None:
    """Sync this file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, link or directory, if it exists."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):
        if not path.is_dir() or path.is_symlink():
            raise
        shutil.rmtree(path)


def remove_left(work_dir: Path, *patterns: str) -> None:
    """Remove the leftovers of failed attempts. An abandoned attempt that still runs may fail of that."""
    for leftover in [path for pattern in patterns for path in work_dir.glob(pattern)]:
        with contextlib.suppress(OSError):
            remove(leftover)


def remove_if_empty(path: Path) -> None:
    """Remove a directory if it is empty."""
    with contextlib.suppress(OSError):
        path.rmdir()


def hash_of(path: Path) -> str:
    """SHA-256 of a file; of a directory, of the lines `path sha256` of its files, sorted."""
    if path.is_dir():
        lines = sorted(
            f"{file_path.relative_to(path).as_posix()} {hash_of(file_path)}"
            for file_path in files_below(path)
        )
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while part := file.read(CHUNK):
            digest.update(part)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """The size in bytes of a file, of all files of a directory, or of a link itself."""
    info = path.lstat()
    if stat.S_ISDIR(info.st_mode):
        return sum(path_below.lstat().st_size for path_below in files_below(path))
    return info.st_size


def files_below(directory: Path) -> list[Path]:
    """The regular files in a directory and its subdirectories; links are not followed."""
    paths = []
    for parent, names, files in os.walk(directory):
        names.sort()
        paths += [Path(parent, name) for name in sorted(files)]
    return [path for path in paths if stat.S_ISREG(path.lstat().st_mode)]


def odd_below(directory: Path) -> Path | None:
    """The first special file (not a file, directory or link) in a directory; None without one."""
    for parent, _, names in os.walk(directory):
        for name in names:
            kind = os.lstat(os.path.join(parent, name)).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
                return Path(parent, name)
    return None


def require_readable(path: Path) -> None:
    """Raise PermissionError for a directory with an unreadable entry; links are not followed."""
    for parent, directories, files in os.walk(path) if stat.S_ISDIR(path.lstat().st_mode) else ():
        for entry in (Path(parent, name) for name in ("", *directories, *files)):
            kind = entry.lstat().st_mode
            needed = os.R_OK | os.X_OK if stat.S_ISDIR(kind) else os.R_OK
            if (stat.S_ISDIR(kind) or stat.S_ISREG(kind)) and not os.access(entry, needed):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(entry))


def cleaned(name: str) -> str:
    """A printable name: every unprintable character becomes an underscore."""
    printable = "".join(letter if letter.isprintable() else "_" for letter in name)
    printable = printable.encode(errors="replace").decode().replace("/", "_")
    return printable.lstrip(".") or "_"


def fitted(text: str, max_bytes: int) -> str:
    """The longest prefix of this text that fits into `max_bytes` bytes."""
    return text.encode()[: max(max_bytes, 1)].decode(errors="ignore")


def fitted_name(name: str, max_bytes: int) -> str:
    """The name, its stem cut so that it fits into `max_bytes` bytes."""
    stem, ending = os.path.splitext(name)
    ending = fitted(ending, 16) if ending else ""
    return fitted(stem, max_bytes - len(ending.encode())) + ending


def replace(source: Path, target: Path, what: str = "replace") -> None:
    """Rename a file that was just written, replacing the target."""
    fault_injection.point(f"documents.{what}.before")
    os.replace(source, target)
    fault_injection.point(f"documents.{what}.after")
