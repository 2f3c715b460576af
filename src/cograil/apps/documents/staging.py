"""From `in` to a verdict: take what has arrived, look at it, and bring it where it belongs. It blocks."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import structlog

from cograil.apps.documents import admission, atomic_files, duplicates, file_claiming
from cograil.apps.documents.admission import Refusal, Refused
from cograil.apps.documents.core import make_job_key, now_text
from cograil.apps.documents.jobs import Arrived
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.safe_rename import is_reserved
from cograil.apps.documents.settings import DocumentSettings

log = structlog.get_logger("documents")
LINK_SECONDS = 60.0  # nobody needs that long from a link to an unlink


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file in staging that is refused, and reported; it has not come to `error` yet."""

    staged: Path
    name: str
    refusal: Refusal


@dataclass(slots=True)
class Batch:
    """Files in staging that this watcher works on; it holds their locks until it closes the batch."""

    locks: ExitStack
    arrived: list[Arrived] = field(default_factory=list)
    refused: list[Rejected] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.arrived and not self.refused


def take_arrivals(folder: Folder, quiet: file_claiming.Quiet, most: int) -> int:
    """Take up to so many files into staging; how many that were."""
    atomic_files.remove_left(folder.arrivals, f"{atomic_files.GONE}*")
    linked = {path for path in _visible(folder) if _has_names(path) and _is_linked(path, folder)}
    if not linked:
        file_claiming.bring_left_claims(folder)
    taken = 0
    for path in file_claiming.arrived(folder, quiet):
        if taken >= most:
            break
        try:
            if path not in linked:
                atomic_files.require_readable(path)
                taken += file_claiming.take(path, folder) is not None
        except OSError as error:
            log.warning("a file cannot be taken", file=atomic_files.cleaned(path.name), error=str(error))
    return taken


def _visible(folder: Folder) -> list[Path]:
    return [path for path in folder.arrivals.iterdir() if not path.name.startswith(".")]


def _is_linked(path: Path, folder: Folder) -> bool:
    """Whether somebody is about to take it. If he died at that, he had: its old name is removed.

    Where a rename is a link and an unlink, both names are there in between.
    """
    name, claims = _staged_name(path), folder.arrivals.glob(f"{file_claiming.CLAIM}*")
    others = (
        one for one in chain(file_claiming.waiting(folder), claims) if file_claiming.name_of(one) == name
    )
    with suppress(FileNotFoundError):
        if not _has_twin(path, others):
            return False
        if time.time() - path.lstat().st_ctime <= LINK_SECONDS:
            return True
        path.unlink()
    return False


def _staged_name(path: Path) -> str:
    return atomic_files.fitted_name(atomic_files.cleaned(path.name), atomic_files.MAX_INPUT)


def _has_names(path: Path) -> bool:
    """Whether this is a file that has another name somewhere."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_nlink > 1
    return False


def _has_twin(path: Path, others: Iterable[Path]) -> bool:
    """Whether one of these is another name of this file."""
    found = path.lstat()
    for one in others if _has_names(path) else ():
        with suppress(FileNotFoundError):
            if os.path.samestat(found, one.lstat()):
                return True
    return False


def look_at_staged(
    folder: Folder, place: str, profile: Mapping[str, Any], settings: DocumentSettings, most: int
) -> Batch:
    """Look at what is in staging and nobody else works on; what is refused is reported."""
    atomic_files.remove_left(folder.staging, f"{atomic_files.GONE}*")
    with ExitStack() as locks:
        batch = Batch(locks)
        for staged in file_claiming.waiting(folder):
            if len(batch.arrived) + len(batch.refused) >= most:
                break
            try:
                if is_reserved(staged):
                    continue
                with ExitStack() as lock:
                    if lock.enter_context(file_claiming.held(staged)) and _is_ready(staged, folder):
                        _look(folder, place, staged, profile, settings, batch)
                        locks.enter_context(lock.pop_all())
            except OSError as error:  # of this file: the others must not wait for it
                log.warning(
                    "a file in staging cannot be looked at",
                    file=atomic_files.cleaned(staged.name),
                    error=str(error),
                )
        batch.locks = locks.pop_all()
    return batch


def _is_ready(staged: Path, folder: Folder) -> bool:
    """Whether all of it is there, and nobody opened it for writing while it was taken."""
    kind = staged.lstat().st_mode
    parts = [staged] if stat.S_ISREG(kind) else atomic_files.files_below(staged) if stat.S_ISDIR(kind) else []
    name = file_claiming.name_of(staged)
    if _has_twin(staged, (one for one in _visible(folder) if _staged_name(one) == name)):
        return False
    return file_claiming.is_whole(staged, folder) and not any(map(file_claiming.has_writer_open, parts))


def _look(
    folder: Folder,
    place: str,
    staged: Path,
    profile: Mapping[str, Any],
    settings: DocumentSettings,
    batch: Batch,
) -> None:
    name = file_claiming.name_of(staged)
    refusal = _told_before(folder, staged) or _refusal(staged, name, settings)
    if refusal is None:
        _, key = make_job_key(atomic_files.hash_of(staged), profile)
        if nonce := admission.nonce_of(name):
            key = f"{key}__f{nonce}"
        if admission.has_room(staged, folder.work, settings.disk_free_factor):
            size = atomic_files.size_of(staged)
            batch.arrived.append(Arrived(place, folder.name, staged.name, name, size, key, dict(profile)))
            return
        refusal = Refusal(Refused.DISK, "there is not enough room on the disk for it")
    if _told_before(folder, staged) is None:
        _report(folder, staged, name, refusal)
    batch.refused.append(Rejected(staged, name, refusal))


def _refusal(staged: Path, name: str, settings: DocumentSettings) -> Refusal | None:
    kind = staged.lstat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        return Refusal(Refused.IRREGULAR, "it is neither a file nor a directory; links are not followed")
    return admission.refusal_of(staged, max_mb=settings.max_input_size_mb, name=name)


def _report_of(folder: Folder, staged: Path) -> Path:
    """Where it is said why this is refused. Its name in staging is given once."""
    return folder.rejections / atomic_files.fitted_name(f"{staged.name}.json", atomic_files.MAX_NAME)


def _told_before(folder: Folder, staged: Path) -> Refusal | None:
    """What somebody said of it who died, or could not move it: that stays so, though there be room now."""
    told = atomic_files.read_json(_report_of(folder, staged))
    with suppress(KeyError, TypeError, ValueError):
        return Refusal(Refused(told["reason"]), str(told["message"]))
    return None


def _report(folder: Folder, staged: Path, name: str, refusal: Refusal) -> None:
    """Say why it is refused, and where it will be."""
    free = (place for place in atomic_files.names_like(folder.error / name) if not os.path.lexists(place))
    told = {
        "fileName": name,
        "path": str(next(free)),
        "sizeBytes": atomic_files.size_of(staged),
        "reason": refusal.reason.value,
        "message": refusal.message,
        "rejectedAt": now_text(),
    }
    atomic_files.write_json(_report_of(folder, staged), told)


def bring_refused(folder: Folder, refused: list[Rejected]) -> list[Rejected]:
    """Move what was reported and counted to `error`; those that are there now. The others wait in staging."""
    moved = []
    for one in refused:
        try:
            place = atomic_files.move_to_free(one.staged, folder.error / one.name, "refuse")
        except OSError as error:  # of this file: the others must not wait for it
            log.warning(
                "a refused file cannot be moved", file=atomic_files.cleaned(one.name), error=str(error)
            )
            continue
        moved.append(one)
        _correct(_report_of(folder, one.staged), place)
        log.warning(
            "document refused",
            file=one.name,
            reason=one.refusal.reason.value,
            error=one.refusal.message,
            user=folder.user or None,
        )
    return moved


def _correct(report: Path, place: Path) -> None:
    """Somebody else may have had the name that it was to get."""
    told = atomic_files.read_json(report)
    if isinstance(told, dict) and told.get("path") != str(place):
        with suppress(OSError):
            atomic_files.write_json(report, told | {"path": str(place)})


def place_inputs(folder: Folder, arrived: list[Arrived]) -> None:
    """Bring the files of jobs that were just made to their directories; their first node may be quicker."""
    for one in arrived:
        folder.room(one.key).mkdir(parents=True, exist_ok=True)
        try:
            atomic_files.finish_move(folder.staging / one.staged, folder.source(one.key, one.name), "place")
        except FileNotFoundError:
            continue  # it is done, and the document perhaps as well


def hold_duplicate(folder: Folder, one: Arrived, existing: Mapping[str, Any]) -> None:
    """Hold a file that came before."""
    staged, stamp = folder.staging / one.staged, file_claiming.stamp_of(one.staged)
    duplicates.hold(folder, one.key, staged, one.name, existing, one.profile, stamp)
