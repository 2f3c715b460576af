"""OCR: `raw.pdf` becomes `final.pdf`, with the text that is seen on its pages behind them.

One at a time in a process, which must be one that can be killed: ocrmypdf starts others.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cograil.apps.documents import atomic_files
from cograil.apps.documents.layout import FINAL_PDF, SIDECAR
from cograil.apps.documents.prep import BadDocument, Progress, pages_of, remove_left

PROGRESS = "cograil.apps.documents.ocr_progress"
WHITENING = "cograil.apps.documents.ocr_background"
SCRATCH = "tmp/*", "final.tmp.*"  # what a try writes beside its result
HOPELESS = {  # exit codes of ocrmypdf that another try does not change
    1: "bad_options",
    2: "bad_pdf",
    3: "language_missing",
    8: "encrypted",
    9: "bad_options",
}


class InvalidPdf(Exception):
    """What came out is no PDF that anybody should get."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """What OCR came to."""

    pages: int
    words: int = 0
    is_reused: bool = False


def recognise(
    raw: Path,
    room: Path,
    profile: Mapping[str, Any],
    *,
    run: str,
    jobs: int,
    min_bytes: int,
    is_resumed: bool,
    progress: Progress,
) -> Recognised:
    """Make `final.pdf` in this directory as the profile says. Raises BadDocument or InvalidPdf."""
    final = room / FINAL_PDF
    if is_resumed and final.exists():
        try:
            before = Recognised(validate(final, min_bytes, pages_of(raw)), is_reused=True)
            remove_left(room, run, *SCRATCH)
            return before
        except InvalidPdf:
            pass
    atomic_files.remove(final)
    written, text = room / f"final.tmp.{run}.pdf", room / f"final.tmp.{run}.txt"
    place = room / "tmp" / run
    atomic_files.remove(place)
    place.mkdir(parents=True)
    try:
        _run(raw, written, text, place, profile, jobs, progress)
        found = text.read_text("utf-8", errors="replace") if text.exists() else ""
        words = len(_words(found))
        pages = validate(written, min_bytes, pages_of(raw), has_text=words > 0)
        atomic_files.sync(written)
        if profile.get("options", {}).get("sidecar_txt") and text.exists():
            atomic_files.replace(text, room / SIDECAR, "sidecar")
        atomic_files.replace(written, final, "final")
    finally:
        for left in (written, text, place):
            atomic_files.remove(left)
        atomic_files.remove_if_empty(room / "tmp")
    remove_left(room, run, *SCRATCH)
    return Recognised(pages, words)


def _run(
    raw: Path,
    written: Path,
    text: Path,
    place: Path,
    profile: Mapping[str, Any],
    jobs: int,
    progress: Progress,
) -> None:
    import ocrmypdf  # noqa: PLC0415  takes half a second
    from ocrmypdf.exceptions import ExitCodeException  # noqa: PLC0415

    from cograil.apps.documents import ocr_progress  # noqa: PLC0415

    os.environ.setdefault("OMP_THREAD_LIMIT", "1")
    before, tempfile.tempdir = tempfile.tempdir, str(place)
    try:
        with ocr_progress.told(progress):
            code = ocrmypdf.ocr(
                raw,
                written,
                sidecar=text,
                jobs=jobs,
                plugins=plugins_of(profile),
                progress_bar=True,
                **options_of(profile),
            )
    except ExitCodeException as error:
        hopeless = HOPELESS.get(int(error.exit_code))
        if hopeless:
            raise BadDocument(hopeless, f"ocrmypdf: {error}") from error
        raise
    finally:
        tempfile.tempdir = before
    if int(code):
        raise RuntimeError(f"ocrmypdf ended with code {int(code)}")


def options_of(profile: Mapping[str, Any]) -> dict[str, Any]:
    """What ocrmypdf is told; a page that has text already keeps it."""
    options = profile.get("options", {})
    told: dict[str, Any] = {
        "language": profile["lang"].split("+"),
        "output_type": "pdf",
        "rotate_pages": bool(profile.get("rotatePages", True)),
        "deskew": bool(profile.get("deskew", True)),
        "optimize": int(profile.get("optimize", 1)),
        "skip_text": True,
    }
    if options.get("fast_mode"):
        told |= {"rotate_pages": False, "deskew": False, "optimize": 0}
    if options.get("remove_background"):
        told["deskew"] = True  # pages are drawn anew only then, see ocr_whitening
    if options.get("dpi"):
        told["oversample"] = int(options["dpi"])
    return told


def plugins_of(profile: Mapping[str, Any]) -> list[str]:
    """What of ours takes part."""
    is_whitened = profile.get("options", {}).get("remove_background")
    return [PROGRESS, WHITENING] if is_whitened else [PROGRESS]


def _words(text: str) -> list[str]:
    """What was recognised, without what ocrmypdf says of pages that it left alone."""
    return re.findall(r"\w{2,}", re.sub(r"\[OCR skipped on page\(s\)[^]]*\]", "", text))


def validate(pdf: Path, min_bytes: int, pages: int, *, has_text: bool = False) -> int:
    """How many pages this PDF has. Raises InvalidPdf unless it is whole, and has its text if there is any."""
    import pikepdf  # noqa: PLC0415

    try:
        with pdf.open("rb") as file:
            head = file.read(5)
        size = pdf.stat().st_size
        if head != b"%PDF-":
            raise InvalidPdf("it does not begin like a PDF")
        if size < min_bytes:
            raise InvalidPdf(f"it has {size} bytes, and should have {min_bytes} at least")
        with pikepdf.open(pdf) as opened:
            found = len(opened.pages)
            has_layer = any(_has_text(page) for page in opened.pages) if has_text else True
    except (OSError, pikepdf.PdfError) as error:
        raise InvalidPdf(f"it cannot be opened: {error}") from error
    if found != pages:
        raise InvalidPdf(f"it has {found} pages instead of {pages}")
    if not has_layer:
        raise InvalidPdf("text was recognised, and none is in it")
    return found


def _has_text(page: Any, depth: int = 0) -> bool:
    """Whether a page, or a form on it, has a font."""
    resources = page.get("/Resources", {})
    if resources.get("/Font"):
        return True
    forms = [one for one in resources.get("/XObject", {}).values() if one.get("/Subtype") == "/Form"]
    return depth < 3 and any(_has_text(form, depth + 1) for form in forms)
