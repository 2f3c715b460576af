"""Deliver a finished document: its PDF to `out` and its input to `archive`, or its input to `error`.

The last node of the job does that; a watcher does it for a job that ended otherwise, and continues a partial move.
An input is moved under its lock, so it is moved once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cograil.apps.documents import atomic_files, prep
from cograil.apps.documents.file_claims import locked
from cograil.apps.documents.jobs import Document, Ending, ending_of
from cograil.apps.documents.layout import FINAL_PDF, OUT_NAME, SIDECAR, Folder

MAX_NAMES = 100_000


class PdfMissing(Exception):
    """The PDF to deliver does not exist."""


def end(folder: Folder, document: Document) -> Ending:
    """Deliver a document whose job failed, was cancelled or is gone; return its ending. Raises OSError.

    A PDF that was made is delivered even if every attempt of the last node died.
    """
    if _is_made(folder, document):
        try:
            pdf, _ = bring_out(folder, document.key, document.name)
        except BlockingIOError:
            raise
        except (PdfMissing, OSError):
            if made_pdf(folder, document.key, document.name).exists():
                raise  # only its input has not come to its place yet
        else:
            return Ending.of_outputs(pdf.name, *(_output(document, stage) for stage in ("prep", "ocr")))
    bring_to_error(folder, document.key, document.name, document.staged)
    return ending_of(document)


def _is_made(folder: Folder, document: Document) -> bool:
    """Whether only the delivery is left. A cancelled document is delivered only if that has begun."""
    ocr = document.nodes.get("ocr", {}).get("status")
    if document.job_status == "failed":
        return bool(ocr == "completed")
    return ocr in ("completed", None) and made_pdf(folder, document.key, document.name).exists()


def made_pdf(folder: Folder, key: str, name: str) -> Path:
    """The path of this document's PDF in `out`: under its plain name if one was chosen."""
    try:
        chosen = (folder.work_dir(key) / OUT_NAME).read_text().strip()
    except OSError:
        chosen = ""
    return folder.out / Path(chosen).name if chosen else folder.pdf(name, key)


def _output(document: Document, stage: str) -> dict[str, object]:
    return document.nodes.get(stage, {}).get("output") or {}


def bring_out(folder: Folder, key: str, name: str) -> tuple[Path, str]:
    """Move the PDF to `out` and the input to `archive`, also after a crash half-way. Raises PdfMissing."""
    work_dir, pdf, source = folder.work_dir(key), made_pdf(folder, key, name), folder.source(key, name)
    final = work_dir / FINAL_PDF
    atomic_files.remove_left(work_dir, f"{atomic_files.GONE}*")
    with _alone_with(source) as is_there:
        if not final.exists() and not pdf.exists():
            raise PdfMissing("the PDF does not exist")
        if folder.has_plain_names and final.exists():
            pdf = _bring_plain(folder, work_dir, name, pdf)
        else:
            _bring_text(work_dir, pdf)
            pdf = _bring_pdf(final, pdf)
        if not is_there:
            return pdf, ""
        return pdf, atomic_files.move_to_free(source, folder.archive / name, "archive").name


def _bring_text(work_dir: Path, pdf: Path) -> None:
    if (work_dir / SIDECAR).exists():
        atomic_files.finish_move(work_dir / SIDECAR, pdf.with_suffix(".txt"), "out_text")


def _bring_plain(folder: Folder, work_dir: Path, name: str, chosen: Path) -> Path:
    """Move the PDF to its recorded plain name or to the next free one; return its path.

    The name is recorded before the move, so a process that continues after a crash finds the PDF again.
    """
    is_chosen = (work_dir / OUT_NAME).exists()
    for candidate in ([chosen] if is_chosen else []) + list(
        islice(atomic_files.names_like(folder.plain_pdf(name)), MAX_NAMES)
    ):
        is_free = not candidate.exists() and not candidate.with_suffix(".txt").exists()
        if is_free or (is_chosen and candidate == chosen):
            atomic_files.write_bytes(work_dir / OUT_NAME, candidate.name.encode())
            try:
                _bring_text(work_dir, candidate)
                atomic_files.finish_move(work_dir / FINAL_PDF, candidate, "out")
            except FileExistsError:
                continue
            return candidate
    raise FileExistsError(f"no name like {folder.plain_pdf(name).name} is free")


def _bring_pdf(final: Path, pdf: Path) -> Path:
    """Move the PDF to `out`; return its path. An equal one there is this one, from an abandoned attempt."""
    try:
        atomic_files.finish_move(final, pdf, "out")
    except FileExistsError:
        if prep.pages_of(pdf) != prep.pages_of(final):
            return atomic_files.move_to_free(final, pdf, "out")
        atomic_files.remove(final)
    return pdf


def bring_to_error(folder: Folder, key: str, name: str, staged: str) -> None:
    """Move the input of a failed document to `error`, wherever it is, unless that was done."""
    places = [folder.source(key, name), *([folder.staging / staged] if staged else [])]
    for work_dir in {path.parent for path in places}:
        atomic_files.remove_left(work_dir, f"{atomic_files.GONE}*")
    for path in places:
        with _alone_with(path) as is_there:
            if is_there:
                atomic_files.move_to_free(path, folder.error / name, "error")
                return


@contextlib.contextmanager
def _alone_with(path: Path) -> Iterator[bool]:
    """Lock an input; yields whether it exists. Raises BlockingIOError while another process moves it."""
    with locked(path) as is_mine:
        if not is_mine and path.exists():
            raise BlockingIOError(f"another process is moving {path.name}")
        yield is_mine
