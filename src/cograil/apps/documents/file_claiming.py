"""What has arrived in a folder, and taking it: by a rename, so that of many watchers exactly one has it.

A file is taken when nobody has it open for writing. Where the system does not say so (files of other people,
network file systems), it is one that has not changed for a while. What was taken is in staging until it is
known what it is; whoever works on it there holds a lock, which ends with him.
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
class Quiet:
    """Which files have not changed, and since when; by the clock of this process, not of the file system."""

    seconds: float = QUIET_SECONDS
    _seen: dict[Path, tuple[object, float]] = field(default_factory=dict)

    def is_quiet(self, path: Path, state: object) -> bool:
        """Whether this file was in this state for long enough."""
        before, since = self._seen.get(path, (None, 0.0))
        if before != state:
            since = time.monotonic()
            self._seen[path] = (state, since)
        return time.monotonic() - since >= self.seconds

    def forget_others(self, paths: set[Path]) -> None:
        """Only these are there any more."""
        for path in self._seen.keys() - paths:
            del self._seen[path]


def arrived(folder: Folder, quiet: Quiet) -> Iterator[Path]:
    """What can be taken now, by age: documents, folders of pictures, and what only looks like one."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder.arrivals) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if _may_be_one(entry):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, Path(entry.path)))
    quiet.forget_others({path for _, path in found})
    for _, path in sorted(found):
        with contextlib.suppress(FileNotFoundError):
            if is_complete(path, quiet):
                yield path


def ignored(folder: Folder, quiet_seconds: float = 0.0) -> frozenset[str]:
    """The files in `in` that nobody will take because of their names, once they are this old."""
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
    if name.startswith((".", "~")) or name.endswith(".part"):  # hidden, a lock of an editor, half a copy
        return False
    return entry.is_dir(follow_symlinks=False) or os.path.splitext(name)[1] in ENDINGS


def is_complete(path: Path, quiet: Quiet) -> bool:
    """Whether nobody writes to it any more. Raises FileNotFoundError."""
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        return _is_folder_complete(path, quiet)
    if not stat.S_ISREG(found.st_mode):
        return True  # it will be refused for what it is
    if not os.access(path, os.R_OK):
        return False
    has_writer = has_writer_open(path)
    if has_writer is False and found.st_size:
        return True
    # Where nobody knows, or where nothing may be about to become something, time tells.
    return not has_writer and quiet.is_quiet(path, (found.st_size, found.st_mtime_ns, found.st_ino))


def _is_folder_complete(path: Path, quiet: Quiet) -> bool:
    """Between two files of a copy none is open: so it must have been still for a while, too."""
    names = atomic_files.files_below(path)
    if any(one.name.endswith(".part") for one in names):
        return False
    state = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in names]
    return quiet.is_quiet(path, state) and not any(has_writer_open(one) for one in names)


def has_writer_open(path: Path) -> bool | None:
    """Whether somebody has this file open for writing; None when the system does not say."""
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
        # Whoever opens it for writing in between has us told, by SIGIO unless another is named: that kills.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(descriptor)
    return False


def take(path: Path, folder: Folder) -> Path | None:
    """Take it into staging; where it is then. None when another watcher was quicker.

    From another file system it has to be copied, which is no claim: so it is claimed by a rename before, and
    the copy is made under a lock. Two mounts of one file system are two for a rename, and look like one.
    """
    for place in _places(folder, path.name):
        try:
            if not _take_near(path, place) and not _take_far(path, place, folder):
                return None
        except FileExistsError:
            continue
        except FileNotFoundError:
            return None
        return place
    return None


def _take_near(path: Path, place: Path) -> bool:
    """Rename it, if that is possible."""
    try:
        atomic_files.move(path, place, "stage", may_copy=False)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _places(folder: Folder, name: str) -> Iterator[Path]:
    """A name is given once: by it a job knows its own file from the same bytes that come again at once."""
    name = atomic_files.fitted_name(atomic_files.cleaned(name), atomic_files.MAX_INPUT)
    for _ in range(1000):
        yield folder.staging / f"{datetime.now(UTC).strftime(f'{STAMP}-%f')}_{name}"


def _take_far(path: Path, place: Path, folder: Folder) -> bool:
    if place.exists():
        raise FileExistsError
    claim = claim_of(place, folder)
    atomic_files.move(path, claim, "claim")
    return bring_claim(claim, place)


def claim_of(place: Path, folder: Folder) -> Path:
    """What a file is called in `in` while it is copied to this place in staging."""
    return folder.arrivals / f"{CLAIM}{place.name}"


def bring_claim(claim: Path, place: Path) -> bool:
    """Copy what was claimed to staging, unless somebody is at it; whether it is there now."""
    with held(claim) as is_mine:
        if is_mine:
            atomic_files.move(claim, place, "stage")
    return is_mine


def bring_left_claims(folder: Folder) -> None:
    """Go on with what somebody claimed who died."""
    with contextlib.suppress(FileNotFoundError):
        for claim in sorted(folder.arrivals.glob(f"{CLAIM}*")):
            try:
                bring_claim(claim, folder.staging / claim.name.removeprefix(CLAIM))
            except FileNotFoundError:
                continue
            except OSError as error:  # of this file: it is whole where it is, and the others must not wait
                name = atomic_files.cleaned(claim.name.removeprefix(CLAIM))
                log.warning("a file cannot be taken yet", file=name, error=str(error))


def is_whole(staged: Path, folder: Folder) -> bool:
    """Whether nothing of it is left in `in`: whoever copied it may have died before he removed that."""
    claim = claim_of(staged, folder)
    if claim.exists():
        with held(claim) as is_mine:
            if is_mine:
                atomic_files.remove(claim)
    return not claim.exists()


def name_of(staged: Path) -> str:
    """What the file was called in `in`."""
    return staged.name.partition("_")[2]


def stamp_of(staged: str) -> str:
    """When a file was taken, as its name in staging says; "" for a name that is not ours."""
    stamp = staged.partition("_")[0]
    return stamp if IS_STAMP(stamp) else ""


def waiting(folder: Folder) -> list[Path]:
    """What is in staging, the oldest first."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(
            path for path in folder.staging.iterdir() if not path.name.startswith(atomic_files.HIDDEN)
        )
    return []


@contextlib.contextmanager
def held(staged: Path, *, is_waiting: bool = False) -> Iterator[bool]:
    """Work on a file in staging; False when somebody else does, or did. What is no file needs no lock.

    Whoever waits has it when the other one is done.
    """
    with contextlib.ExitStack() as stack:
        try:
            kind = staged.lstat().st_mode
            is_lockable = stat.S_ISREG(kind) or stat.S_ISDIR(kind)
            is_mine = not is_lockable or locks.lock(stack, staged, is_waiting=is_waiting)
        except FileNotFoundError:
            is_mine = False
        yield is_mine
