"""From `in` to a verdict: take what has arrived, look at it, and bring it where it belongs. It blocks."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from cograil.apps.documents import admission, arrival, duplicates, files
from cograil.apps.documents.admission import Refusal, Refused
from cograil.apps.documents.core import make_job_key, now_text
from cograil.apps.documents.jobs import Arrived
from cograil.apps.documents.layout import Folder
from cograil.setting_documents import DocumentSettings

log = structlog.get_logger("documents")


@dataclass(slots=True)
class Batch:
    """Files in staging that this watcher works on; it holds their locks until it closes the batch."""

    locks: ExitStack
    arrived: list[Arrived] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)  # and brought to `error`

    @property
    def is_empty(self) -> bool:
        return not self.arrived and not self.refused


def take_arrivals(folder: Folder, quiet: arrival.Quiet, most: int) -> int:
    """Take up to so many files into staging; how many that were."""
    files.remove_left(folder.arrivals, f"{files.GONE}*")
    arrival.bring_left_claims(folder)
    taken = 0
    for path in arrival.arrived(folder, quiet):
        if taken >= most:
            break
        try:
            taken += arrival.take(path, folder) is not None
        except OSError as error:
            log.warning("a file cannot be taken", file=files.cleaned(path.name), error=str(error))
    return taken


def look_at_staged(
    folder: Folder, place: str, profile: Mapping[str, Any], settings: DocumentSettings, most: int
) -> Batch:
    """Look at what is in staging and nobody else works on; what is refused is moved away."""
    files.remove_left(folder.staging, f"{files.GONE}*")
    with ExitStack() as locks:
        batch = Batch(locks)
        for staged in arrival.waiting(folder):
            if len(batch.arrived) + len(batch.refused) >= most:
                break
            try:
                with ExitStack() as lock:
                    if lock.enter_context(arrival.held(staged)) and _is_ready(staged, folder):
                        _look(folder, place, staged, profile, settings, batch)
                        locks.enter_context(lock.pop_all())
            except OSError as error:  # of this file: the others must not wait for it
                log.warning(
                    "a file in staging cannot be looked at", file=files.cleaned(staged.name), error=str(error)
                )
        batch.locks = locks.pop_all()
    return batch


def _is_ready(staged: Path, folder: Folder) -> bool:
    """Whether all of it is there, and nobody opened it for writing while it was taken."""
    kind = staged.lstat().st_mode
    parts = [staged] if stat.S_ISREG(kind) else files.files_below(staged) if stat.S_ISDIR(kind) else []
    return arrival.is_whole(staged, folder) and not any(map(arrival.has_writer_open, parts))


def _look(
    folder: Folder,
    place: str,
    staged: Path,
    profile: Mapping[str, Any],
    settings: DocumentSettings,
    batch: Batch,
) -> None:
    name = arrival.name_of(staged)
    refusal = _refusal(staged, name, settings)
    if refusal is None:
        _, key = make_job_key(files.hash_of(staged), profile)
        if nonce := admission.nonce_of(name):
            key = f"{key}__f{nonce}"
        if admission.has_room(staged, folder.work, settings.disk_free_factor):
            size = files.size_of(staged)
            batch.arrived.append(Arrived(place, folder.name, staged.name, name, size, key, dict(profile)))
            return
        refusal = Refusal(Refused.DISK, "there is not enough room on the disk for it")
    refuse(folder, staged, name, refusal)
    batch.refused.append(refusal.reason)


def _refusal(staged: Path, name: str, settings: DocumentSettings) -> Refusal | None:
    kind = staged.lstat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        return Refusal(Refused.IRREGULAR, "it is neither a file nor a directory; links are not followed")
    return admission.refusal_of(staged, max_mb=settings.max_input_size_mb, name=name)


def refuse(folder: Folder, path: Path, name: str, refusal: Refusal) -> Path:
    """Move it to `error` and say why; where it is now."""
    size = files.size_of(path)
    place = files.move_to_free(path, folder.error / name, "refuse")
    told = {
        "fileName": name,
        "path": str(place),
        "sizeBytes": size,
        "reason": refusal.reason.value,
        "message": refusal.message,
        "rejectedAt": now_text(),
    }
    files.write_json(folder.rejections / files.fitted_name(f"{place.name}.json", 255), told)
    log.warning(
        "document refused",
        name=name,
        reason=refusal.reason.value,
        error=refusal.message,
        user=folder.user or None,
    )
    return place


def place_inputs(folder: Folder, arrived: list[Arrived]) -> None:
    """Bring the files of jobs that were just made to their directories; their first node may be quicker."""
    for one in arrived:
        folder.room(one.key).mkdir(parents=True, exist_ok=True)
        try:
            files.finish_move(folder.staging / one.staged, folder.source(one.key, one.name), "place")
        except FileNotFoundError:
            continue  # it is done, and the document perhaps as well


def hold_duplicate(folder: Folder, one: Arrived, existing: Mapping[str, Any]) -> None:
    """Hold a file that came before."""
    staged, stamp = folder.staging / one.staged, arrival.stamp_of(one.staged)
    duplicates.hold(folder, one.key, staged, one.name, existing, one.profile, stamp)
