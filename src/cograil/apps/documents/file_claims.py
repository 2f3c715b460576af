"""Detect complete files in `in` and claim them by a rename, so that exactly one of many watchers gets each.

A file is complete when no process has it open for writing. Where the system does not say so (files of other users,
network file systems), it must not have changed for a while. Claimed files wait in staging until they are checked;
a watcher that works on one holds a lock, which ends with its process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog

from cograil.apps.documents import atomic_files, locks
from cograil.apps.documents.admission import ENDINGS
from cograil.apps.documents.layout import Folder

log = structlog.get_logger("documents")
QUIET_SECONDS = 10.0
STAMP = "%Y%m%d-%H%M%S"
IS_STAMP = re.compile(r"[0-9]{8}-[0-9]{6}(-[0-9]+)?").fullmatch
CLAIM = f"{atomic_files.HIDDEN}claim-"
WHY_IGNORED = f"its name ends with none of {' '.join(sorted(ENDINGS))}"


@dataclass(slots=True)
class QuietTracker:
    """Since when files have not changed, by the clock of this process, not of the file system."""

    seconds: float = QUIET_SECONDS
    _seen: dict[Path, tuple[object, float]] = field(default_factory=dict)

    def is_quiet(self, path: Path, state: object) -> bool:
        """Whether this file has been in this state for `seconds`."""
        before, since = self._seen.get(path, (None, 0.0))
        if before != state:
            since = time.monotonic()
            self._seen[path] = (state, since)
        return time.monotonic() - since >= self.seconds

    def forget_others(self, paths: set[Path]) -> None:
        """Drop every path that is not in this set."""
        for path in self._seen.keys() - paths:
            del self._seen[path]


def arrived(folder: Folder, quiet: QuietTracker) -> Iterator[Path]:
    """The files and folders in `in` that can be claimed now, by age; their content is checked later."""
    candidates = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder.arrivals) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if _may_be_one(entry):
                    candidates.append((entry.stat(follow_symlinks=False).st_mtime_ns, Path(entry.path)))
    quiet.forget_others({path for _, path in candidates})
    for _, path in sorted(candidates):
        with contextlib.suppress(FileNotFoundError):
            if is_complete(path, quiet):
                yield path


def ignored(folder: Folder, quiet_seconds: float = 0.0) -> frozenset[str]:
    """The files in `in` that are ignored because of their names, once they are this old."""
    names = set()
    with contextlib.suppress(FileNotFoundError), os.scandir(folder.arrivals) as entries:
        for entry in entries:
            is_temporary = entry.name.startswith((".", "~")) or entry.name.lower().endswith(".part")
            with contextlib.suppress(FileNotFoundError):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if not is_temporary and not _may_be_one(entry) and age >= quiet_seconds:
                    names.add(entry.name)
    return frozenset(names)


def _may_be_one(entry: os.DirEntry[str]) -> bool:
    name = entry.name.lower()
    if name.startswith((".", "~")) or name.endswith(".part"):  # hidden, an editor's lock, a partial copy
        return False
    return entry.is_dir(follow_symlinks=False) or os.path.splitext(name)[1] in ENDINGS


def is_complete(path: Path, quiet: QuietTracker) -> bool:
    """Whether writing to this file has ended. Raises FileNotFoundError."""
    info = path.lstat()
    if stat.S_ISDIR(info.st_mode):
        return _is_folder_complete(path, quiet)
    if not stat.S_ISREG(info.st_mode):
        return True  # it will be refused for what it is
    if not os.access(path, os.R_OK):
        return False
    has_writer = has_writer_open(path)
    if has_writer is False and info.st_size:
        return True
    # Where the system does not say, and for an empty file, it must have been unchanged for a while.
    return not has_writer and quiet.is_quiet(path, (info.st_size, info.st_mtime_ns, info.st_ino))


def _is_folder_complete(path: Path, quiet: QuietTracker) -> bool:
    """Between two files of a copy none is open, so the folder must also have been unchanged for a while."""
    files = atomic_files.files_below(path)
    if any(path_below.name.endswith(".part") for path_below in files):
        return False
    state = [
        (str(path_below), path_below.stat().st_size, path_below.stat().st_mtime_ns) for path_below in files
    ]
    return quiet.is_quiet(path, state) and not any(has_writer_open(path_below) for path_below in files)


def has_writer_open(path: Path) -> bool | None:
    """Whether a process has this file open for writing; None when the system does not say."""
    try:
        descriptor = os.open(path, os.O_RDONLY | locks.LOOK)
    except FileNotFoundError:
        raise
    except OSError:
        return None
    try:
        # A lease is of this machine, and says nothing of others; NFS refuses one as if there were a writer.
        if locks.file_system_of(descriptor) in locks.NETWORK:
            return None
        # A process that opens it for writing in between sends us a signal; the default, SIGIO, would kill us.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(descriptor)
    return False


def take(path: Path, folder: Folder) -> Path | None:
    """Claim a file by moving it into staging; return its new path. None when another watcher was quicker.

    From another file system it has to be copied, which does not claim it: so it is claimed by a rename first, and
    copied under a lock. A rename between two mounts of one file system fails too.
    """
    for staged in _places(folder, path.name):
        try:
            if not _take_near(path, staged) and not _take_far(path, staged, folder):
                return None
        except FileExistsError:
            continue
        except FileNotFoundError:
            return None
        return staged
    return None


def _take_near(path: Path, staged: Path) -> bool:
    """Rename it into staging; False when that is another file system."""
    try:
        atomic_files.move(path, staged, "stage", may_copy=False)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _places(folder: Folder, name: str) -> Iterator[Path]:
    """Unique names in staging: by its name a job tells its own file from the same bytes sent again."""
    name = atomic_files.fitted_name(atomic_files.cleaned(name), atomic_files.MAX_INPUT)
    for _ in range(1000):
        yield folder.staging / f"{datetime.now(UTC).strftime(f'{STAMP}-%f')}_{name}"


def _take_far(path: Path, staged: Path, folder: Folder) -> bool:
    if staged.exists():
        raise FileExistsError
    claim = claim_of(staged, folder)
    atomic_files.move(path, claim, "claim")
    return bring_claim(claim, staged)


def claim_of(staged: Path, folder: Folder) -> Path:
    """The name of a file in `in` while it is copied to this path in staging."""
    return folder.arrivals / f"{CLAIM}{staged.name}"


def bring_claim(claim: Path, staged: Path) -> bool:
    """Copy a claimed file to staging, unless another process does; return whether it is there now."""
    with locked(claim) as is_mine:
        if is_mine:
            atomic_files.move(claim, staged, "stage")
    return is_mine


def bring_left_claims(folder: Folder) -> None:
    """Complete the claims of processes that died."""
    with contextlib.suppress(FileNotFoundError):
        for claim in sorted(folder.arrivals.glob(f"{CLAIM}*")):
            try:
                bring_claim(claim, folder.staging / claim.name.removeprefix(CLAIM))
            except FileNotFoundError:
                continue
            except OSError as error:  # of this file: it is unchanged, and the others must not wait
                name = atomic_files.cleaned(claim.name.removeprefix(CLAIM))
                log.warning("a file cannot be taken yet", file=name, error=str(error))


def is_whole(staged: Path, folder: Folder) -> bool:
    """Whether no claim is left in `in`: the process that copied it may have died before it removed that."""
    claim = claim_of(staged, folder)
    if claim.exists():
        with locked(claim) as is_mine:
            if is_mine:
                atomic_files.remove(claim)
    return not claim.exists()


def name_of(staged: Path) -> str:
    """The name that a staged file had in `in`."""
    return staged.name.partition("_")[2]


def stamp_of(staged: str) -> str:
    """The time of the claim in the name of a staged file; "" for a name that is not ours."""
    stamp = staged.partition("_")[0]
    return stamp if IS_STAMP(stamp) else ""


def waiting(folder: Folder) -> list[Path]:
    """The files in staging, the oldest first."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(
            path for path in folder.staging.iterdir() if not path.name.startswith(atomic_files.HIDDEN)
        )
    return []


@contextlib.contextmanager
def locked(staged: Path, *, is_waiting: bool = False) -> Iterator[bool]:
    """Lock a file or directory in this block; yields False when another process holds or has moved it.

    Special files are not locked. With `is_waiting` the call blocks until the lock is free.
    """
    with contextlib.ExitStack() as stack:
        try:
            kind = staged.lstat().st_mode
            is_lockable = stat.S_ISREG(kind) or stat.S_ISDIR(kind)
            is_mine = not is_lockable or locks.lock(stack, staged, is_waiting=is_waiting)
        except FileNotFoundError:
            is_mine = False
        yield is_mine
