"""Remove work directories that are no longer needed. One with an input in it is never removed."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from cograil.apps.documents import atomic_files, duplicates, file_claims
from cograil.apps.documents.jobs import needed_work_dirs
from cograil.apps.documents.layout import IS_KEY, Folder, is_artifact
from cograil.apps.documents.safe_rename import is_reserved
from cograil.store.database import Database

DAY = 86_400.0
HALF_WRITTEN = f"{atomic_files.HIDDEN}{'[0-9a-f]' * 16}"  # our hidden names that stay: marks and claims


async def tidy(db: Database, folder: Folder, folder_id: str, keep_days: float) -> list[str]:
    """Remove the work directories of documents that ended `keep_days` ago; return their keys."""
    old_keys = [
        work_dir.name for work_dir in work_dirs(folder) if is_old(work_dir, keep_days) and is_spent(work_dir)
    ]
    if not old_keys:
        return []
    async with db.single("documents_tidy") as tx:
        needed = await needed_work_dirs(tx, folder_id, old_keys, keep_days * DAY)
    removable = [key for key in old_keys if key not in needed]
    for key in removable:
        with contextlib.suppress(FileNotFoundError):  # another watcher removes it at the same time
            atomic_files.remove(folder.work_dir(key))
    return removable


def work_dirs(folder: Folder) -> list[Path]:
    """The work directories of documents; names with a leading underscore are not."""
    with contextlib.suppress(FileNotFoundError):
        return [work_dir for work_dir in folder.work.iterdir() if IS_KEY(work_dir.name) and work_dir.is_dir()]
    return []


def is_old(work_dir: Path, days: float) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - work_dir.stat().st_mtime >= days * DAY
    return False


def is_spent(work_dir: Path) -> bool:
    """Whether the directory holds only artifacts, and no input."""
    with contextlib.suppress(FileNotFoundError):
        return all(is_artifact(entry.name) for entry in work_dir.iterdir())
    return False


def sweep_hidden(folder: Folder) -> None:
    """Remove half-written files that are a day old, and empty directories of held files.

    Files that were already marked for removal are removed at once.
    """
    held = [folder.held / key for key in duplicates.held_keys(folder)]
    written = (folder.staging, folder.out, folder.archive, folder.error, folder.index)
    directories = (*written, folder.reports, folder.rejections, *held)
    leftovers = [path for directory in directories for path in directory.glob(f"{atomic_files.HIDDEN}*")]
    leftovers += [
        path for directory in (folder.root, folder.arrivals) for path in directory.glob(HALF_WRITTEN)
    ]
    for path in (*leftovers, *_reserved(folder)):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.lstat().st_ctime > DAY:
                atomic_files.remove(path)
    for directory in (folder.arrivals, folder.staging, *held, *work_dirs(folder)):
        atomic_files.remove_left(directory, f"{atomic_files.GONE}*")
    for directory in held:
        atomic_files.remove_if_empty(directory)


def _reserved(folder: Folder) -> list[Path]:
    """Names in staging that were reserved and never filled."""
    with contextlib.suppress(FileNotFoundError):
        return [path for path in file_claims.waiting(folder) if is_reserved(path)]
    return []
