"""The id of a folder in the database, and the lock that ties a folder to one database.

The id stays when the directory is mounted elsewhere. Two databases on one folder would each know half of its
documents, and both would write the same status files.
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


def folder_id_of(folder: Folder) -> str:
    """The id of this folder in the database."""
    return f"{_id_of(folder.root)}/{folder.name}"


@cache
def _id_of(root: Path) -> str:
    """The id of a data directory; the first call creates it."""
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


def lock_for_database(root: Path, database: str) -> int:
    """Lock the folder for watchers of this database, as long as the returned descriptor is open.

    Raises Conflict while a watcher of another database holds it; the lock ends with its process. Raises OSError
    where the file system has no locks.
    """
    root.mkdir(parents=True, exist_ok=True)
    own = root / f"{WATCHED}{database}"
    lock = os.open(own, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if any(_is_locked(other) for other in root.glob(f"{WATCHED}*") if other != own):
            raise Conflict(
                f"a watcher of another database uses {root}: stop it, or have both use one database"
            )
    except BaseException:
        os.close(lock)
        raise
    return lock


def _is_locked(path: Path) -> bool:
    with contextlib.ExitStack() as stack:
        return not locks.lock(stack, path, may_be_beside=False)
