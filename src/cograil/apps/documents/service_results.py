"""Results of PREP and OCR services: where a service writes, and how its PDF reaches the document.

A service writes below `workDir/<jobId>`. Each attempt has a job id of its own, so an abandoned attempt cannot
change the files of the next one.
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


def heartbeats(work_dir: Path, kind: str) -> list[Path]:
    """The heartbeat files of this stage: of workers in the work directory, of services one level below."""
    name = f"{kind}.heartbeat"
    service_paths = (
        [directory / name for directory in work_dir.iterdir() if is_service_job(directory.name)]
        if work_dir.is_dir()
        else []
    )
    return [path for path in (work_dir / name, *service_paths) if path.is_file() and not path.is_symlink()]


def remove_result(work_dir: Path, kind: str) -> None:
    """Remove the PDF of an earlier attempt, so that it is not taken for the result of this one."""
    atomic_files.remove(work_dir / RESULTS[kind][1])


def collect(work_dir: Path, job_id: str, kind: str, record: dict[str, Any]) -> None:
    """Move the service's result into the work directory of the document, and remove its own directory.

    Raises ForeignArtifact when the service names a file elsewhere.
    """
    own = work_dir / job_id
    pdf = _made_pdf(work_dir, own, kind, record)
    target = work_dir / RESULTS[kind][1]
    sidecar = pdf.with_name(SIDECAR) if pdf else None
    if pdf and sidecar and pdf != target:
        if kind == "ocr" and sidecar.is_file() and not sidecar.is_symlink():
            atomic_files.replace(sidecar, work_dir / SIDECAR, "collect_text")
        atomic_files.replace(pdf, target, "collect")
    discard(work_dir, job_id, kind)


def discard(work_dir: Path, job_id: str, kind: str) -> None:
    """Remove the directory of a service's job; its log is appended to the log of the document."""
    own = work_dir / job_id
    with contextlib.suppress(OSError):
        source = own / f"{kind}.log"
        if source.is_file() and not source.is_symlink():
            with source.open("rb") as lines, (work_dir / source.name).open("ab") as target:
                shutil.copyfileobj(lines, target)
    atomic_files.remove(own)


def _made_pdf(work_dir: Path, own: Path, kind: str, record: dict[str, Any]) -> Path | None:
    """The PDF that this record names, or the one at the usual path; None if the file does not exist."""
    field, name = RESULTS[kind]
    artifacts = record.get("artifacts")
    named_path = artifacts.get(field) if isinstance(artifacts, dict) else None
    if named_path is not None and not isinstance(named_path, str):
        raise ForeignArtifact(
            f"the service answers artifacts.{field} = {str(named_path)[:100]!a}, not a path"
        )
    candidates = [Path(named_path)] if named_path else [own / name, work_dir / name]
    for candidate in candidates:
        if not _is_inside(candidate, work_dir):
            raise ForeignArtifact(
                f"the service answers artifacts.{field} = {named_path!a:.300}, "
                "which is not in the work directory of this document"
            )
        if candidate.is_file():
            return candidate
    return None


def _is_inside(path: Path, work_dir: Path) -> bool:
    try:
        return path.resolve().is_relative_to(work_dir.resolve()) and not path.is_symlink()
    except (OSError, RuntimeError, ValueError):
        return False
