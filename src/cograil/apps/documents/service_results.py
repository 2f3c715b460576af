"""Results of PREP and OCR services: where a service writes, and how its PDF reaches the document.

A service writes below `workDir/<jobId>`, as the services of the original do. Each attempt has a job id of
its own, so an attempt that was given up cannot change the files of the next one.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from cograil.apps.documents import atomic_files
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF, SIDECAR, is_service_job

RESULTS = {"prep": ("rawPdf", RAW_PDF), "ocr": ("finalPdf", FINAL_PDF)}


class ForeignArtifact(Exception):
    """The service names a file that is not in the work directory of the document."""


def heartbeats(room: Path, kind: str) -> list[Path]:
    """The heartbeat files of this stage: of workers in the work directory, of services one level below."""
    name = f"{kind}.heartbeat"
    below = [one / name for one in room.iterdir() if is_service_job(one.name)] if room.is_dir() else []
    return [path for path in (room / name, *below) if path.is_file() and not path.is_symlink()]


def remove_result(room: Path, kind: str) -> None:
    """Remove the PDF of an earlier attempt, so that nobody takes it for the result of this one."""
    atomic_files.remove(room / RESULTS[kind][1])


def collect(room: Path, job_id: str, kind: str, record: dict[str, Any]) -> None:
    """Move what the service made into the work directory of the document, and remove its own directory.

    Raises ForeignArtifact when the service names a file elsewhere.
    """
    own = room / job_id
    made = _made_pdf(room, own, kind, record)
    target = room / RESULTS[kind][1]
    sidecar = made.with_name(SIDECAR) if made else None
    if made and sidecar and made != target:
        if kind == "ocr" and sidecar.is_file() and not sidecar.is_symlink():
            atomic_files.replace(sidecar, room / SIDECAR, "collect_text")
        atomic_files.replace(made, target, "collect")
    discard(room, job_id, kind)


def discard(room: Path, job_id: str, kind: str) -> None:
    """Remove the directory of a service's job; its log is appended to the log of the document."""
    own = room / job_id
    with contextlib.suppress(OSError):
        source = own / f"{kind}.log"
        if source.is_file() and not source.is_symlink():
            with source.open("rb") as lines, (room / source.name).open("ab") as kept:
                shutil.copyfileobj(lines, kept)
    atomic_files.remove(own)


def _made_pdf(room: Path, own: Path, kind: str, record: dict[str, Any]) -> Path | None:
    """The PDF that this record names, or the one at the usual place; None when there is no such file."""
    field, name = RESULTS[kind]
    artifacts = record.get("artifacts")
    named = artifacts.get(field) if isinstance(artifacts, dict) else None
    if named is not None and not isinstance(named, str):
        raise ForeignArtifact(f"the service answers artifacts.{field} = {str(named)[:100]!a}, not a path")
    places = [Path(named)] if named else [own / name, room / name]
    for place in places:
        if not _is_inside(place, room):
            raise ForeignArtifact(
                f"the service answers artifacts.{field} = {named!a:.300}, "
                "which is not in the work directory of this document"
            )
        if place.is_file():
            return place
    return None


def _is_inside(path: Path, room: Path) -> bool:
    try:
        return path.resolve().is_relative_to(room.resolve()) and not path.is_symlink()
    except (OSError, RuntimeError, ValueError):
        return False
