"""The janitor: work directories that nobody needs any more. One with an input in it is never removed."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from cograil.apps.documents import atomic_files, duplicates, file_claiming
from cograil.apps.documents.jobs import needed_rooms
from cograil.apps.documents.layout import IS_KEY, Folder, is_artifact
from cograil.apps.documents.safe_rename import is_reserved
from cograil.store.database import Database

DAY = 86_400.0
HALF_WRITTEN = f"{atomic_files.HIDDEN}{'[0-9a-f]' * 16}"  # where hidden names of ours stay: marks and claims


async def tidy(db: Database, folder: Folder, place: str, keep_days: float) -> list[str]:
    """Remove the work directories of documents that were done so many days ago; their keys."""
    old = [room.name for room in rooms(folder) if is_old(room, keep_days) and is_spent(room)]
    if not old:
        return []
    async with db.single("documents_tidy") as tx:
        needed = await needed_rooms(tx, place, old, keep_days * DAY)
    gone = [key for key in old if key not in needed]
    for key in gone:
        with contextlib.suppress(FileNotFoundError):  # another janitor is at it
            atomic_files.remove(folder.room(key))
    return gone


def rooms(folder: Folder) -> list[Path]:
    """The work directories of documents; what begins with an underscore is something else."""
    with contextlib.suppress(FileNotFoundError):
        return [room for room in folder.work.iterdir() if IS_KEY(room.name) and room.is_dir()]
    return []


def is_old(room: Path, days: float) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - room.stat().st_mtime >= days * DAY
    return False


def is_spent(room: Path) -> bool:
    """Whether nothing is in it but what was made of an input."""
    with contextlib.suppress(FileNotFoundError):
        return all(is_artifact(one.name) for one in room.iterdir())
    return False


def sweep_hidden(folder: Folder) -> None:
    """Remove what whoever died left half-written a day ago, and places in which nothing is held.

    What he was about to remove goes at once.
    """
    held = [folder.held / key for key in duplicates.held_keys(folder)]
    written = (folder.staging, folder.out, folder.archive, folder.error, folder.index)
    places = (*written, folder.reports, folder.rejections, *held)
    left = [path for place in places for path in place.glob(f"{atomic_files.HIDDEN}*")]
    left += [path for place in (folder.root, folder.arrivals) for path in place.glob(HALF_WRITTEN)]
    for path in (*left, *_reserved(folder)):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.lstat().st_ctime > DAY:
                atomic_files.remove(path)
    for place in (folder.arrivals, folder.staging, *held, *rooms(folder)):
        atomic_files.remove_left(place, f"{atomic_files.GONE}*")
    for place in held:
        atomic_files.remove_if_empty(place)


def _reserved(folder: Folder) -> list[Path]:
    """Names in staging for which nothing came."""
    with contextlib.suppress(FileNotFoundError):
        return [path for path in file_claiming.waiting(folder) if is_reserved(path)]
    return []
