"""The end of a document: its PDF in `out` and its input in `archive`, or its input in `error`.

Its last node brings it there. A watcher does for one whose job ended otherwise, and goes on from what is in
its place already. Whoever moves an input holds its lock: it comes to one place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cograil.apps.documents import atomic_files, prep
from cograil.apps.documents.file_claiming import held
from cograil.apps.documents.jobs import Document, Ending, ending_of
from cograil.apps.documents.layout import FINAL_PDF, OUT_NAME, SIDECAR, Folder

MAX_NAMES = 100_000  # that are tried


class PdfGone(Exception):
    """There is no PDF to bring out."""


def end(folder: Folder, document: Document) -> Ending:
    """Bring one whose job failed, was cancelled or is gone to where it belongs; how it ended. Raises OSError.

    A PDF that was made is not lost because whoever should bring it out kept dying.
    """
    if _is_made(folder, document):
        try:
            pdf, _ = bring_out(folder, document.key, document.name)
        except BlockingIOError:
            raise
        except (PdfGone, OSError):
            if made_pdf(folder, document.key, document.name).exists():
                raise  # only its input has not come to its place yet
        else:
            return Ending.of_outputs(pdf.name, *(_output(document, stage) for stage in ("prep", "ocr")))
    bring_to_error(folder, document.key, document.name, document.staged)
    return ending_of(document)


def _is_made(folder: Folder, document: Document) -> bool:
    """Whether only the end was left to do. What was cancelled is not begun, but what was begun is ended."""
    ocr = document.nodes.get("ocr", {}).get("status")
    if document.job_status == "failed":
        return bool(ocr == "completed")
    return ocr in ("completed", None) and made_pdf(folder, document.key, document.name).exists()


def made_pdf(folder: Folder, key: str, name: str) -> Path:
    """Where the PDF of this document is once it is out: under the plain name that was chosen, if one was."""
    try:
        chosen = (folder.room(key) / OUT_NAME).read_text().strip()
    except OSError:
        chosen = ""
    return folder.out / Path(chosen).name if chosen else folder.pdf(name, key)


def _output(document: Document, stage: str) -> dict[str, object]:
    return document.nodes.get(stage, {}).get("output") or {}


def bring_out(folder: Folder, key: str, name: str) -> tuple[Path, str]:
    """Move what was made and what it was made of; also if somebody died half-way. Raises PdfGone."""
    room, pdf, source = folder.room(key), made_pdf(folder, key, name), folder.source(key, name)
    final = room / FINAL_PDF
    atomic_files.remove_left(room, f"{atomic_files.GONE}*")
    with _alone_with(source) as is_there:
        if not final.exists() and not pdf.exists():
            raise PdfGone("the PDF is gone")
        if folder.has_plain_names and final.exists():
            pdf = _bring_plain(folder, room, name, pdf)
        else:
            _bring_text(room, pdf)
            pdf = _bring_pdf(final, pdf)
        if not is_there:
            return pdf, ""
        return pdf, atomic_files.move_to_free(source, folder.archive / name, "archive").name


def _bring_text(room: Path, pdf: Path) -> None:
    if (room / SIDECAR).exists():
        atomic_files.finish_move(room / SIDECAR, pdf.with_suffix(".txt"), "out_text")


def _bring_plain(folder: Folder, room: Path, name: str, chosen: Path) -> Path:
    """Where the PDF is in the end: the plain name that is written down, or the next one that is free.

    The name is written down before the move, so whoever goes on after a crash finds the PDF again.
    """
    is_chosen = (room / OUT_NAME).exists()
    for place in ([chosen] if is_chosen else []) + list(
        islice(atomic_files.names_like(folder.plain_pdf(name)), MAX_NAMES)
    ):
        is_free = not place.exists() and not place.with_suffix(".txt").exists()
        if is_free or (is_chosen and place == chosen):
            atomic_files.write_bytes(room / OUT_NAME, place.name.encode())
            try:
                _bring_text(room, place)
                atomic_files.finish_move(room / FINAL_PDF, place, "out")
            except FileExistsError:
                continue
            return place
    raise FileExistsError(f"no name like {folder.plain_pdf(name).name} is free")


def _bring_pdf(final: Path, pdf: Path) -> Path:
    """Where the PDF is in the end. One that is there is this one, perhaps by an attempt that was given up."""
    try:
        atomic_files.finish_move(final, pdf, "out")
    except FileExistsError:
        if prep.pages_of(pdf) != prep.pages_of(final):
            return atomic_files.move_to_free(final, pdf, "out")
        atomic_files.remove(final)
    return pdf


def bring_to_error(folder: Folder, key: str, name: str, staged: str) -> None:
    """Move the input of a document that failed to `error`, wherever it is; if it is not there yet."""
    places = [folder.source(key, name), *([folder.staging / staged] if staged else [])]
    for room in {path.parent for path in places}:
        atomic_files.remove_left(room, f"{atomic_files.GONE}*")
    for path in places:
        with _alone_with(path) as is_there:
            if is_there:
                atomic_files.move_to_free(path, folder.error / name, "error")
                return


@contextlib.contextmanager
def _alone_with(path: Path) -> Iterator[bool]:
    """Whether it is there, and then nobody else moves it. Raises BlockingIOError while somebody does."""
    with held(path) as is_mine:
        if not is_mine and path.exists():
            raise BlockingIOError(f"somebody is about to move {path.name}")
        yield is_mine
