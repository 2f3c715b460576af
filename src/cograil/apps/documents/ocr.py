"""OCR: `raw.pdf` becomes `final.pdf`, with a text layer behind its pages.

One document at a time per process; the process must be killable, since ocrmypdf starts others.
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
SCRATCH = "tmp/*", "final.tmp.*"  # temporary files of an attempt
HOPELESS = {  # exit codes of ocrmypdf that another try does not change
    1: "bad_options",
    2: "bad_pdf",
    3: "language_missing",
    8: "encrypted",
    9: "bad_options",
}


class InvalidPdf(Exception):
    """The output is not a valid PDF."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """The result of OCR."""

    pages: int
    words: int = 0
    is_reused: bool = False


def recognise(
    raw: Path,
    work_dir: Path,
    profile: Mapping[str, Any],
    *,
    run: str,
    jobs: int,
    min_bytes: int,
    is_resumed: bool,
    progress: Progress,
) -> Recognised:
    """Make `final.pdf` in this directory as the profile says. Raises BadDocument or InvalidPdf."""
    final = work_dir / FINAL_PDF
    if is_resumed and final.exists():
        try:
            reused = Recognised(validate(final, min_bytes, pages_of(raw)), is_reused=True)
            remove_left(work_dir, run, *SCRATCH)
            return reused
        except InvalidPdf:
            pass
    atomic_files.remove(final)
    written, text = work_dir / f"final.tmp.{run}.pdf", work_dir / f"final.tmp.{run}.txt"
    scratch_dir = work_dir / "tmp" / run
    atomic_files.remove(scratch_dir)
    scratch_dir.mkdir(parents=True)
    try:
        _run(raw, written, text, scratch_dir, profile, jobs, progress)
        recognised_text = text.read_text("utf-8", errors="replace") if text.exists() else ""
        words = len(_words(recognised_text))
        pages = validate(written, min_bytes, pages_of(raw), has_text=words > 0)
        atomic_files.sync(written)
        if profile.get("options", {}).get("sidecar_txt") and text.exists():
            atomic_files.replace(text, work_dir / SIDECAR, "sidecar")
        atomic_files.replace(written, final, "final")
    finally:
        for leftover in (written, text, scratch_dir):
            atomic_files.remove(leftover)
        atomic_files.remove_if_empty(work_dir / "tmp")
    remove_left(work_dir, run, *SCRATCH)
    return Recognised(pages, words)


def _run(
    raw: Path,
    written: Path,
    text: Path,
    scratch_dir: Path,
    profile: Mapping[str, Any],
    jobs: int,
    progress: Progress,
) -> None:
    import ocrmypdf  # noqa: PLC0415  takes half a second
    from ocrmypdf.exceptions import ExitCodeException  # noqa: PLC0415

    from cograil.apps.documents import ocr_progress  # noqa: PLC0415

    os.environ.setdefault("OMP_THREAD_LIMIT", "1")
    previous_tempdir, tempfile.tempdir = tempfile.tempdir, str(scratch_dir)
    try:
        with ocr_progress.reporting_to(progress):
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
        tempfile.tempdir = previous_tempdir
    if int(code):
        raise RuntimeError(f"ocrmypdf ended with code {int(code)}")


def options_of(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ocrmypdf; a page that has text already keeps it."""
    options = profile.get("options", {})
    arguments: dict[str, Any] = {
        "language": profile["lang"].split("+"),
        "output_type": "pdf",
        "rotate_pages": bool(profile.get("rotatePages", True)),
        "deskew": bool(profile.get("deskew", True)),
        "optimize": int(profile.get("optimize", 1)),
        "skip_text": True,
    }
    if options.get("fast_mode"):
        arguments |= {"rotate_pages": False, "deskew": False, "optimize": 0}
    if options.get("remove_background"):
        arguments["deskew"] = True  # pages are rendered anew only then, see ocr_background
    if options.get("dpi"):
        arguments["oversample"] = int(options["dpi"])
    return arguments


def plugins_of(profile: Mapping[str, Any]) -> list[str]:
    """Our plugins of ocrmypdf for this profile."""
    is_whitened = profile.get("options", {}).get("remove_background")
    return [PROGRESS, WHITENING] if is_whitened else [PROGRESS]


def _words(text: str) -> list[str]:
    """The recognised words, without ocrmypdf's notes on skipped pages."""
    return re.findall(r"\w{2,}", re.sub(r"\[OCR skipped on page\(s\)[^]]*\]", "", text))


def validate(pdf: Path, min_bytes: int, pages: int, *, has_text: bool = False) -> int:
    """The page count of this PDF. Raises InvalidPdf unless it opens, has `pages` pages and the expected text."""
    import pikepdf  # noqa: PLC0415

    try:
        with pdf.open("rb") as file:
            head = file.read(5)
        size = pdf.stat().st_size
        if head != b"%PDF-":
            raise InvalidPdf("it does not begin with %PDF-")
        if size < min_bytes:
            raise InvalidPdf(f"it has {size} bytes, and should have {min_bytes} at least")
        with pikepdf.open(pdf) as document:
            page_count = len(document.pages)
            has_layer = any(_has_text(page) for page in document.pages) if has_text else True
    except (OSError, pikepdf.PdfError) as error:
        raise InvalidPdf(f"it cannot be opened: {error}") from error
    if page_count != pages:
        raise InvalidPdf(f"it has {page_count} pages instead of {pages}")
    if not has_layer:
        raise InvalidPdf("text was recognised, but the PDF has no text layer")
    return page_count


def _has_text(page: Any, depth: int = 0) -> bool:
    """Whether a page, or a form XObject on it, has a font."""
    resources = page.get("/Resources", {})
    if resources.get("/Font"):
        return True
    forms = [
        xobject for xobject in resources.get("/XObject", {}).values() if xobject.get("/Subtype") == "/Form"
    ]
    return depth < 3 and any(_has_text(form, depth + 1) for form in forms)
