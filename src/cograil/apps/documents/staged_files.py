"""From `in` to admission: claim arrived files, check them, and move them where they belong. Blocking."""

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

from cograil.apps.documents import admission, atomic_files, duplicates, file_claims
from cograil.apps.documents.admission import InputRefusal, RefusalReason
from cograil.apps.documents.core import make_job_key, now_text
from cograil.apps.documents.jobs import ArrivedFile
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.safe_rename import is_reserved
from cograil.apps.documents.settings import DocumentSettings

log = structlog.get_logger("documents")
LINK_SECONDS = 60.0  # far longer than a link and an unlink take


@dataclass(frozen=True, slots=True)
class Rejected:
    """A staged file that is refused and reported, but not yet moved to `error`."""

    staged: Path
    name: str
    refusal: InputRefusal


@dataclass(slots=True)
class StagedBatch:
    """Staged files that this watcher works on; `locks` holds their locks until it is closed."""

    locks: ExitStack
    arrived: list[ArrivedFile] = field(default_factory=list)
    refused: list[Rejected] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.arrived and not self.refused


def take_arrivals(folder: Folder, quiet: file_claims.QuietTracker, limit: int) -> int:
    """Claim up to `limit` files into staging; return how many."""
    atomic_files.remove_left(folder.arrivals, f"{atomic_files.GONE}*")
    linked = {path for path in _visible(folder) if _has_names(path) and _is_linked(path, folder)}
    if not linked:
        file_claims.bring_left_claims(folder)
    taken = 0
    for path in file_claims.arrived(folder, quiet):
        if taken >= limit:
            break
        try:
            if path not in linked:
                atomic_files.require_readable(path)
                taken += file_claims.take(path, folder) is not None
        except OSError as error:
            log.warning("a file cannot be taken", file=atomic_files.cleaned(path.name), error=str(error))
    return taken


def _visible(folder: Folder) -> list[Path]:
    return [path for path in folder.arrivals.iterdir() if not path.name.startswith(".")]


def _is_linked(path: Path, folder: Folder) -> bool:
    """Whether another process is claiming this file. If it died, the claim counts: the old name is removed.

    Where a rename is a link and an unlink, both names exist in between.
    """
    name, claims = _staged_name(path), folder.arrivals.glob(f"{file_claims.CLAIM}*")
    others = (
        other for other in chain(file_claims.waiting(folder), claims) if file_claims.name_of(other) == name
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
    """Whether this file has another hard link."""
    with suppress(FileNotFoundError):
        info = path.lstat()
        return stat.S_ISREG(info.st_mode) and info.st_nlink > 1
    return False


def _has_twin(path: Path, others: Iterable[Path]) -> bool:
    """Whether one of these is a hard link to this file."""
    info = path.lstat()
    for other in others if _has_names(path) else ():
        with suppress(FileNotFoundError):
            if os.path.samestat(info, other.lstat()):
                return True
    return False


def look_at_staged(
    folder: Folder, folder_id: str, profile: Mapping[str, Any], settings: DocumentSettings, limit: int
) -> StagedBatch:
    """Check the staged files that no other process holds; refused ones are reported."""
    atomic_files.remove_left(folder.staging, f"{atomic_files.GONE}*")
    with ExitStack() as locks:
        batch = StagedBatch(locks)
        for staged in file_claims.waiting(folder):
            if len(batch.arrived) + len(batch.refused) >= limit:
                break
            try:
                if is_reserved(staged):
                    continue
                with ExitStack() as lock:
                    if lock.enter_context(file_claims.locked(staged)) and _is_ready(staged, folder):
                        _look(folder, folder_id, staged, profile, settings, batch)
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
    """Whether a staged file is complete, and was not opened for writing while it was claimed."""
    kind = staged.lstat().st_mode
    parts = [staged] if stat.S_ISREG(kind) else atomic_files.files_below(staged) if stat.S_ISDIR(kind) else []
    name = file_claims.name_of(staged)
    if _has_twin(staged, (visible for visible in _visible(folder) if _staged_name(visible) == name)):
        return False
    return file_claims.is_whole(staged, folder) and not any(map(file_claims.has_writer_open, parts))


def _look(
    folder: Folder,
    folder_id: str,
    staged: Path,
    profile: Mapping[str, Any],
    settings: DocumentSettings,
    batch: StagedBatch,
) -> None:
    name = file_claims.name_of(staged)
    refusal = _earlier_refusal(folder, staged) or _refusal(staged, name, settings)
    if refusal is None:
        _, key = make_job_key(atomic_files.hash_of(staged), profile)
        if nonce := admission.nonce_of(name):
            key = f"{key}__f{nonce}"
        if admission.has_disk_space(staged, folder.work, settings.disk_free_factor):
            size = atomic_files.size_of(staged)
            batch.arrived.append(
                ArrivedFile(folder_id, folder.name, staged.name, name, size, key, dict(profile))
            )
            return
        refusal = InputRefusal(RefusalReason.DISK, "there is not enough free disk space for it")
    if _earlier_refusal(folder, staged) is None:
        _report(folder, staged, name, refusal)
    batch.refused.append(Rejected(staged, name, refusal))


def _refusal(staged: Path, name: str, settings: DocumentSettings) -> InputRefusal | None:
    kind = staged.lstat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        return InputRefusal(
            RefusalReason.IRREGULAR, "it is neither a file nor a directory; links are not followed"
        )
    return admission.refusal_of(staged, max_mb=settings.max_input_size_mb, name=name)


def _report_of(folder: Folder, staged: Path) -> Path:
    """The path of the rejection report of a staged file, whose name is unique."""
    return folder.rejections / atomic_files.fitted_name(f"{staged.name}.json", atomic_files.MAX_NAME)


def _earlier_refusal(folder: Folder, staged: Path) -> InputRefusal | None:
    """An earlier refusal of this file, whose move failed: it stands even if there is disk space now."""
    content = atomic_files.read_json(_report_of(folder, staged))
    with suppress(KeyError, TypeError, ValueError):
        return InputRefusal(RefusalReason(content["reason"]), str(content["message"]))
    return None


def _report(folder: Folder, staged: Path, name: str, refusal: InputRefusal) -> None:
    """Write the report: why the file is refused, and where it will be."""
    free_paths = (path for path in atomic_files.names_like(folder.error / name) if not os.path.lexists(path))
    content = {
        "fileName": name,
        "path": str(next(free_paths)),
        "sizeBytes": atomic_files.size_of(staged),
        "reason": refusal.reason.value,
        "message": refusal.message,
        "rejectedAt": now_text(),
    }
    atomic_files.write_json(_report_of(folder, staged), content)


def bring_refused(folder: Folder, rejections: list[Rejected]) -> list[Rejected]:
    """Move reported and counted files to `error`; return those that were moved. The others stay in staging."""
    moved = []
    for rejected in rejections:
        try:
            target = atomic_files.move_to_free(rejected.staged, folder.error / rejected.name, "refuse")
        except OSError as error:  # of this file: the others must not wait for it
            log.warning(
                "a refused file cannot be moved", file=atomic_files.cleaned(rejected.name), error=str(error)
            )
            continue
        moved.append(rejected)
        _correct(_report_of(folder, rejected.staged), target)
        log.warning(
            "document refused",
            file=rejected.name,
            reason=rejected.refusal.reason.value,
            error=rejected.refusal.message,
            user=folder.user or None,
        )
    return moved


def _correct(report: Path, path: Path) -> None:
    """Correct the path in a report if the intended name was taken."""
    content = atomic_files.read_json(report)
    if isinstance(content, dict) and content.get("path") != str(path):
        with suppress(OSError):
            atomic_files.write_json(report, content | {"path": str(path)})


def place_inputs(folder: Folder, files: list[ArrivedFile]) -> None:
    """Move the files of new jobs to their work directories, unless their first node was quicker."""
    for file in files:
        folder.work_dir(file.key).mkdir(parents=True, exist_ok=True)
        try:
            atomic_files.finish_move(
                folder.staging / file.staged, folder.source(file.key, file.name), "place"
            )
        except FileNotFoundError:
            continue  # moved by its job already


def hold_duplicate(folder: Folder, file: ArrivedFile, existing: Mapping[str, Any]) -> None:
    """Hold a file whose key exists."""
    staged, stamp = folder.staging / file.staged, file_claims.stamp_of(file.staged)
    duplicates.hold(folder, file.key, staged, file.name, existing, file.profile, stamp)
