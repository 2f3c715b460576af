"""PREP: convert an archive, a PDF, a picture or a folder of pictures to `raw.pdf`, one picture per page."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cograil.apps.documents import atomic_files
from cograil.apps.documents.admission import Kind, kind_of
from cograil.apps.documents.archive_pages import PAGE_BOUNDS, extract_pages, is_picture, order_of
from cograil.apps.documents.layout import RAW_PDF
from cograil.workspace import WorkspaceError

Progress = Callable[[int, int | None, str], None]
PLAIN = frozenset({"1", "L", "RGB", "P", "CMYK"})  # modes that img2pdf stores without loss
FORMATS = ("JPEG", "JPEG2000", "PNG", "WEBP", "TIFF", "BMP", "GIF")  # other formats run programs
MIN_DPI = 30  # a smaller value in a picture is not a real resolution
SMALLER_COPY = 254, 1  # the NewSubfileType tag of a TIFF, and its bit for a reduced copy of another page
MAX_PIXELS = 300_000_000
SCRATCH = "pages/*", "raw.tmp.*"  # temporary files of an attempt
NUMBER_OF_TRY = re.compile(r"(?:^|\.)([0-9]{1,9})(?:\.pdf|\.txt)?$")


class BadDocument(Exception):
    """This document can never become a PDF; retrying does not help. `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of PREP."""

    pages: int
    skipped: tuple[str, ...] = ()
    is_reused: bool = False


def prepare(
    source: Path, work_dir: Path, *, run: str, dpi: int | None, is_resumed: bool, progress: Progress
) -> Prepared:
    """Make `raw.pdf` in this directory; `run` identifies this attempt. Raises BadDocument.

    With `is_resumed`, a valid `raw.pdf` of an earlier attempt is used again.
    """
    raw = work_dir / RAW_PDF
    if is_resumed and (pages := pages_of(raw)):
        remove_left(work_dir, run, *SCRATCH)
        return Prepared(pages, is_reused=True)
    atomic_files.remove(raw)
    written = work_dir / f"raw.tmp.{run}.pdf"
    pictures = work_dir / "pages" / run
    atomic_files.remove(pictures)
    pictures.mkdir(parents=True)
    try:
        skipped = _make(source, pictures, written, dpi, progress)
        pages = pages_of(written)
        if not pages:
            raise BadDocument("no_pages", "the document has no pages")
        atomic_files.sync(written)
        atomic_files.replace(written, raw, "raw")
    finally:
        atomic_files.remove(pictures)
        atomic_files.remove_if_empty(work_dir / "pages")
        atomic_files.remove(written)
    remove_left(work_dir, run, *SCRATCH)
    return Prepared(pages, tuple(skipped))


def remove_left(work_dir: Path, run: str, *patterns: str) -> None:
    """Remove the leftovers of this attempt and earlier ones, by the numbers in their names; later ones may run."""
    own_number = NUMBER_OF_TRY.search(run)
    for leftover in [path for pattern in patterns for path in work_dir.glob(pattern)]:
        number = NUMBER_OF_TRY.search(leftover.name)
        if own_number and number and int(number[1]) <= int(own_number[1]):
            atomic_files.remove_left(leftover.parent, leftover.name)
            if leftover.parent != work_dir:
                atomic_files.remove_if_empty(leftover.parent)


def _make(source: Path, pictures: Path, written: Path, dpi: int | None, progress: Progress) -> list[str]:
    """Make the PDF; return the names of skipped entries."""
    kind = kind_of(source)
    try:
        if kind is Kind.PDF:
            _take_pdf(source, written)
            return []
        if kind is Kind.ARCHIVE:
            extracted = extract_pages(source, pictures)
            pages, skipped = extracted.pages, extracted.skipped
        else:
            pages, skipped = _pictures_of(source, kind), []
    except WorkspaceError as error:
        raise BadDocument(error.code, str(error)) from error
    if not pages:
        raise BadDocument("no_pages", "the document contains no pictures")
    _join(pages, pictures, written, dpi, progress)
    return skipped


def _pictures_of(source: Path, kind: Kind | None) -> list[Path]:
    if kind is Kind.IMAGE:
        return [source]
    if kind is not Kind.FOLDER:
        raise BadDocument("invalid_signature", "this type of document is not supported")
    named_paths = [(path.relative_to(source).as_posix(), path) for path in atomic_files.files_below(source)]
    return [
        path for name, path in sorted(named_paths, key=lambda pair: order_of(pair[0])) if is_picture(name)
    ]


def _take_pdf(source: Path, written: Path) -> None:
    """Copy a PDF unchanged. Raises BadDocument if it cannot be opened without a password."""
    import pikepdf  # noqa: PLC0415

    try:
        with pikepdf.open(source):
            pass
    except pikepdf.PasswordError as error:
        raise BadDocument("encrypted", "the PDF asks for a password") from error
    except pikepdf.PdfError as error:
        raise BadDocument("bad_pdf", f"the PDF cannot be read: {error}") from error
    shutil.copyfile(source, written)


def _join(pages: list[Path], work_dir: Path, written: Path, dpi: int | None, progress: Progress) -> None:
    """Join all pictures to one PDF. JPEGs are embedded unchanged, others without loss."""
    import img2pdf  # noqa: PLC0415

    pictures: list[str] = []
    for number, page in enumerate(pages, 1):
        pictures += [str(picture) for picture in _fit(page, work_dir / f"fit-{number:06}")]
        if len(pictures) > PAGE_BOUNDS.entries:
            raise BadDocument("too_many_pages", f"the document has more than {PAGE_BOUNDS.entries:,} pages")
        progress(number, len(pages), "pages")
    layout: dict[str, Any] = {"rotation": img2pdf.Rotation.ifvalid}
    if dpi:
        layout["layout_fun"] = img2pdf.get_fixed_dpi_layout_fun((dpi, dpi))
    try:
        with written.open("wb") as file:
            img2pdf.convert(pictures, outputstream=file, **layout)
    except _refusals(img2pdf) as error:
        if getattr(error, "errno", None):
            raise  # an error of the disk, not of a picture
        raise BadDocument("bad_image", f"the pictures do not make a PDF: {error}") from error


def _refusals(img2pdf: Any) -> tuple[type[Exception], ...]:
    """The exceptions of img2pdf and Pillow for pictures that they do not accept."""
    own = (img2pdf.ImageOpenError, img2pdf.PdfTooLargeError, img2pdf.UnsupportedColorspaceError)
    return OSError, ValueError, SyntaxError, *own


def _fit(page: Path, target: Path) -> list[Path]:
    """The picture, or PNGs converted from one that img2pdf does not accept. Raises BadDocument."""
    import img2pdf  # noqa: PLC0415
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # over twice of it Pillow refuses
    try:
        with Image.open(page, formats=FORMATS) as image:
            is_plain = image.format in ("JPEG", "PNG") and image.mode in PLAIN
            if is_plain and "transparency" not in image.info and _is_taken(page, img2pdf):
                return [page]
            return [
                _converted(frame, target.with_name(f"{target.name}-{number}.png"))
                for number, frame in enumerate(_frames(image), 1)
            ]
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        if getattr(error, "errno", None):
            raise
        raise BadDocument("bad_image", f"{page.name} cannot be read as a picture: {error}") from error


def _frames(image: Any) -> Iterator[Any]:
    """The pages of a TIFF, each once; of an animation, the first picture."""
    if image.format != "TIFF":
        yield image
        return
    tag, bit = SMALLER_COPY
    for number in range(getattr(image, "n_frames", 1)):
        image.seek(number)
        if number and int(image.tag_v2.get(tag, 0)) & bit:
            continue
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"page {number + 1} has {image.width * image.height:,} points")
        yield image


def _is_taken(page: Path, img2pdf: Any) -> bool:
    """Whether img2pdf accepts it unchanged; for JPEG that is tried, which is cheap."""
    if page.suffix.lower() not in (".jpg", ".jpeg"):
        return page.suffix.lower() == ".png"
    try:
        img2pdf.convert(str(page), outputstream=io.BytesIO(), rotation=img2pdf.Rotation.ifvalid)
    except Exception:  # Pillow may be able to read it
        return False
    return True


def _converted(image: Any, target: Path) -> Path:
    """Save this picture as PNG: upright, and on white where it is transparent."""
    from PIL import Image, ImageOps  # noqa: PLC0415

    dpi = image.info.get("dpi")
    image = ImageOps.exif_transpose(image)
    if image.mode not in ("1", "L", "RGB"):
        transparent = image.convert("RGBA")
        image = Image.new("RGB", transparent.size, "white")
        image.paste(transparent, mask=transparent.getchannel("A"))
    save_options = {"dpi": dpi} if dpi and min(dpi) >= MIN_DPI else {}
    image.save(target, "PNG", compress_level=1, **save_options)
    return target


def pages_of(pdf: Path) -> int:
    """The page count of a PDF; 0 for a file that cannot be opened as one."""
    import pikepdf  # noqa: PLC0415

    try:
        with pikepdf.open(pdf) as document:
            return len(document.pages)
    except (OSError, pikepdf.PdfError):
        return 0
