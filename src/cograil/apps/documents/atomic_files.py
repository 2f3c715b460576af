"""Files that are whole or not there, and moves that never overwrite, also from one file system to another.

Whoever dies in between leaves the old name, the new one, or for a copy both, and whoever comes next goes on
from there. Every step passes a point at which tests kill.
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
GONE = f"{HIDDEN}gone-"  # what is elsewhere already, and only has to be removed
MAX_NAME = 255
MAX_INPUT = 200  # of a document: it gets longer in staging and in hold


def write_json(path: Path, value: Any) -> None:
    """Write this file, whole; its directory is made."""
    write_bytes(path, json.dumps(value, ensure_ascii=False, indent=2).encode(errors="replace") + b"\n")


def write_bytes(path: Path, content: bytes) -> None:
    """Write this file, whole: readers see what was there before, or all of it."""
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


def read_json(path: Path, most: int = MAX_JSON) -> Any:
    """What is in this file; None when it is not there, no JSON, or nothing that anybody should read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(most + 1)
        return json.loads(content) if len(content) <= most else None
    except (OSError, ValueError, RecursionError):
        return None


def hidden_name() -> str:
    """A name that nobody else gives, and that no watcher takes."""
    return f"{HIDDEN}{secrets.token_hex(8)}"


def move(source: Path, target: Path, what: str = "move", *, may_copy: bool = True) -> None:
    """Move a file or directory to a name that is free. Raises FileExistsError when it is not.

    From another file system it is copied first, and appears whole; if it may not be, that raises EXDEV.
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
    """Move it to this name, or to one like it that is free; where it is now."""
    for place in names_like(target):
        try:
            move(source, place, what)
        except FileExistsError:
            continue
        return place
    raise AssertionError("there is always another name")


def finish_move(source: Path, target: Path, what: str = "move") -> None:
    """Move it, or end what somebody began who died: the target is this file already, or becomes it.

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
    """Copy, then remove. The same bytes under the target's name are those of one who died in between."""
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
    """Remove what is elsewhere now, in one step: half a directory would be another one for who comes next.

    What cannot be removed is out of the way; whoever sweeps tries again.
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
    """Whether it can be read to its end: a file or a directory, and no link to one."""
    kind = path.lstat().st_mode
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind)


def copy(source: Path, target: Path) -> None:
    """Copy a file or a directory, links as links; what is written is on the disk. Nothing else is opened."""
    if stat.S_ISDIR(source.lstat().st_mode):
        shutil.copytree(source, target, symlinks=True, copy_function=_copy_one)
    else:
        _copy_one(source, target)


def _copy_one(source: Path | str, target: Path | str) -> None:
    found = os.lstat(source)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        os.mknod(target, found.st_mode, found.st_rdev)
        return
    shutil.copy2(source, target, follow_symlinks=False)
    if not os.path.islink(target):
        sync(Path(target))


def copy_whole(source: Path, target: Path, what: str = "copy") -> None:
    """Copy a file to a free name, whole. Raises FileExistsError when there is one already."""
    hidden = target.with_name(hidden_name())
    try:
        copy(source, hidden)
        move(hidden, target, what)
    finally:
        remove(hidden)


def sync(path: Path) -> None:
    """Have it on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove it, whatever it is, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):
        if not path.is_dir() or path.is_symlink():
            raise
        shutil.rmtree(path)


def remove_left(room: Path, *patterns: str) -> None:
    """Remove what tries that died left in a room. One that still runs was given up, and may fail of it."""
    for left in [path for pattern in patterns for path in room.glob(pattern)]:
        with contextlib.suppress(OSError):
            remove(left)


def remove_if_empty(path: Path) -> None:
    """Remove a directory in which nothing is left."""
    with contextlib.suppress(OSError):
        path.rmdir()


def hash_of(path: Path) -> str:
    """SHA-256 of a file; of a directory, of the lines `path sha256` of its files, sorted."""
    if path.is_dir():
        lines = sorted(f"{one.relative_to(path).as_posix()} {hash_of(one)}" for one in files_below(path))
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while part := file.read(CHUNK):
            digest.update(part)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """How many bytes a file has, or all files of a directory; of a link, the link."""
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        return sum(one.lstat().st_size for one in files_below(path))
    return found.st_size


def files_below(directory: Path) -> list[Path]:
    """The regular files in a directory and those in it; links are not followed."""
    found = []
    for place, names, files in os.walk(directory):
        names.sort()
        found += [Path(place, name) for name in sorted(files)]
    return [path for path in found if stat.S_ISREG(path.lstat().st_mode)]


def odd_below(directory: Path) -> Path | None:
    """What in a directory is neither a file, a directory nor a link, if there is such a thing."""
    for place, _, found in os.walk(directory):
        for name in found:
            kind = os.lstat(os.path.join(place, name)).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
                return Path(place, name)
    return None


def require_readable(path: Path) -> None:
    """Raises PermissionError for a directory in which something cannot be read; links are not followed."""
    for place, names, found in os.walk(path) if stat.S_ISDIR(path.lstat().st_mode) else ():
        for one in (Path(place, name) for name in ("", *names, *found)):
            kind = one.lstat().st_mode
            needed = os.R_OK | os.X_OK if stat.S_ISDIR(kind) else os.R_OK
            if (stat.S_ISDIR(kind) or stat.S_ISREG(kind)) and not os.access(one, needed):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(one))


def cleaned(name: str) -> str:
    """A name that can be stored and shown: what cannot be printed is an underscore."""
    shown = "".join(letter if letter.isprintable() else "_" for letter in name)
    shown = shown.encode(errors="replace").decode().replace("/", "_")
    return shown.lstrip(".") or "_"


def fitted(text: str, most: int) -> str:
    """As much of it as fits into so many bytes."""
    return text.encode()[: max(most, 1)].decode(errors="ignore")


def fitted_name(name: str, most: int) -> str:
    """The name, its stem cut so that it fits into so many bytes."""
    stem, ending = os.path.splitext(name)
    ending = fitted(ending, 16) if ending else ""
    return fitted(stem, most - len(ending.encode())) + ending


def replace(source: Path, target: Path, what: str = "replace") -> None:
    """Give a file that was just written its name; what had it before is gone."""
    fault_injection.point(f"documents.{what}.before")
    os.replace(source, target)
    fault_injection.point(f"documents.{what}.after")
