"""The data directory of one instance: its lock, and the address of the instance.

    DATA/lock            held by flock(2) while the instance lives, whatever else is in the directory
    DATA/instance.json   tells the command line where the instance is

The kernel releases the lock of a killed process at once, so the lock tells whether the instance runs; the
process id is only for messages.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from cograil.errors import DatabaseUnavailable, DirectoryInUse, UsageError

LOCK_NAME = "lock"
INSTANCE_NAME = "instance.json"

# `is_held` takes the lock for a moment: a process that starts then must not be refused.
PATIENCE_SECONDS = 0.2
# A read-only command holds the directory during its queries: an instance that starts waits for it.
BRIEF = " briefly"
BRIEF_PATIENCE_SECONDS = 30.0


def make_directory(data_dir: Path) -> Path:
    """Return the real path of the directory, created if necessary; only its owner may enter it."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return data_dir.resolve()
    except OSError as error:
        raise UsageError(f"the data directory {data_dir} cannot be created: {error.strerror}") from error


class DirectoryLock:
    """The right to run an instance in a data directory.

    Executed children do not inherit it (the descriptor closes on exec); it ends with `release` or with the
    process.
    """

    def __init__(self, data_dir: Path, *, is_brief: bool = False) -> None:
        self.path = data_dir / LOCK_NAME
        self._mark = BRIEF if is_brief else ""
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock. Raises DirectoryInUse, which names the process that holds it.

        Removes the instance file of a killed instance: a client would try its old address instead of
        waiting for the instance that is about to start.
        """
        descriptor = self._open()
        began = time.monotonic()
        while not _try_lock(descriptor):
            holder = _holder(descriptor)
            patience = BRIEF_PATIENCE_SECONDS if holder.endswith(BRIEF) else PATIENCE_SECONDS
            if time.monotonic() - began > patience:
                os.close(descriptor)
                raise DirectoryInUse(
                    f"another cograil (process {holder}) runs on {self.path.parent}; "
                    "stop it, or choose another directory with --data-dir"
                )
            time.sleep(0.01)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}{self._mark}".encode("ascii"), 0)
        self._descriptor = descriptor
        remove_instance(self.path.parent)

    def release(self) -> None:
        """Release the lock. The file stays: removing it could break a lock that another process just took."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also for a child between fork and exec
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DatabaseUnavailable(
                f"the data directory {self.path.parent} cannot be used: {error.strerror} ({self.path.name})"
            ) from error


@contextmanager
def hold_directory(data_dir: Path) -> Iterator[Path]:
    """Hold the data directory during this block. Raises DirectoryInUse when another process holds it."""
    lock = DirectoryLock(make_directory(data_dir))
    lock.take()
    try:
        yield lock.path.parent
    finally:
        lock.release()


def is_held(data_dir: Path) -> bool:
    """Return whether a running process holds this directory. Raises DatabaseUnavailable when it cannot be
    read.
    """
    try:
        descriptor = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        message = f"the data directory {data_dir} cannot be used: {error.strerror}"
        raise DatabaseUnavailable(message) from error
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)  # shared: two concurrent checks do not see each other
    finally:
        os.close(descriptor)


def is_held_briefly(data_dir: Path) -> bool:
    """Return whether a read-only command holds this directory."""
    with suppress(OSError), open(data_dir / LOCK_NAME, "rb") as file:
        return is_held(data_dir) and _holder(file.fileno()).endswith(BRIEF)
    return False


def _holder(descriptor: int) -> str:
    """Return what the process that holds the lock wrote into the file."""
    return os.pread(descriptor, 40, 0).decode("ascii", "replace").strip() or "unknown"


def has_cluster(data_dir: Path) -> bool:
    """Return whether an embedded PostgreSQL has its data here; False when that cannot be read."""
    with suppress(OSError):
        return (data_dir / "pgdata" / "PG_VERSION").is_file()
    return False


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False


@dataclass(frozen=True, slots=True)
class Instance:
    """A running instance, as other processes find it."""

    pid: int
    conninfo: str
    host: str
    port: int
    version: str
    started_at: datetime
    data_dir: Path

    def is_alive(self) -> bool:
        return is_held(self.data_dir)


def write_instance(instance: Instance) -> None:
    """Write the address of this instance. Readers see all of it or nothing."""
    target = instance.data_dir / INSTANCE_NAME
    document = asdict(instance) | {
        "started_at": instance.started_at.isoformat(),
        "data_dir": str(instance.data_dir),
    }
    descriptor, temporary = tempfile.mkstemp(prefix=f".{INSTANCE_NAME}.", dir=instance.data_dir)  # mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).rename(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_instance(data_dir: Path) -> Instance | None:
    """Return the last instance of this directory, which may have ended; None when there was none."""
    try:
        document = json.loads((data_dir / INSTANCE_NAME).read_text(encoding="utf-8"))
        started_at = datetime.fromisoformat(document.pop("started_at")).astimezone(UTC)
        return Instance(**document | {"started_at": started_at, "data_dir": data_dir})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        # Written by another version, whose protocol is unknown.
        return None


def remove_instance(data_dir: Path) -> None:
    """Remove the instance file, if it exists."""
    (data_dir / INSTANCE_NAME).unlink(missing_ok=True)
