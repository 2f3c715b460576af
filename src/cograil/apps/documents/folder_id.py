"""What the database calls a folder: an id that stays when the directory is mounted elsewhere.

And which database looks after it: of two, each would know half of what came before, and both would write the
same files for others to read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from functools import cache
from pathlib import Path
from uuid import UUID, uuid4

from cograil.apps.documents import atomic_files, locks
from cograil.apps.documents.layout import Folder
from cograil.errors import Conflict

MARK = ".cograil-folder"
WATCHED = ".cograil-watched-by-"


def place_of(folder: Folder) -> str:
    """The name of this folder for the database."""
    return f"{_id_of(folder.root)}/{folder.name}"


@cache
def _id_of(root: Path) -> str:
    """The id of a data directory; whoever comes first gives it one."""
    mark = root / MARK
    if not mark.exists():
        root.mkdir(parents=True, exist_ok=True)
        hidden = mark.with_name(atomic_files.hidden_name())
        try:
            hidden.write_text(f"{uuid4()}\n")
            atomic_files.sync(hidden)
            with contextlib.suppress(FileExistsError):
                atomic_files.move(hidden, mark, "mark")
        finally:
            atomic_files.remove(hidden)
    return str(UUID(mark.read_text().strip()))


def look_after(root: Path, database: str) -> int:
    """Say that somebody of this database looks after the folder, as long as this descriptor is open.

    Raises Conflict while somebody of another one does: the lock of whoever dies is gone with him. Where there
    are no locks it raises OSError.
    """
    root.mkdir(parents=True, exist_ok=True)
    own = root / f"{WATCHED}{database}"
    lock = os.open(own, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if any(_is_locked(other) for other in root.glob(f"{WATCHED}*") if other != own):
            raise Conflict(
                f"another database looks after {root}: stop that watcher, or have both use one database"
            )
    except BaseException:
        os.close(lock)
        raise
    return lock


def _is_locked(path: Path) -> bool:
    with contextlib.ExitStack() as stack:
        return not locks.lock(stack, path, may_be_beside=False)
