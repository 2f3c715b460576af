"""PREP: an archive, a PDF, a picture or a folder of pictures becomes `raw.pdf`, one picture on each page."""

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
from cograil.apps.documents.archive_pages import PAGE_BOUNDS, is_picture, order_of, take_pages
from cograil.apps.documents.layout import RAW_PDF
from cograil.workspace import WorkspaceError

Progress = Callable[[int, int | None, str], None]
PLAIN = frozenset({"1", "L", "RGB", "P", "CMYK"})  # how a page may be stored without loss
FORMATS = ("JPEG", "JPEG2000", "PNG", "WEBP", "TIFF", "BMP", "GIF")  # others are programs, or start some
LEAST_DPI = 30  # what says less does not know
SMALLER_COPY = 254, 1  # the tag of a TIFF, and its bit for what shows another page once more
MAX_PIXELS = 300_000_000
SCRATCH = "pages/*", "raw.tmp.*"  # what a try writes beside its result
NUMBER_OF_TRY = re.compile(r"(?:^|\.)([0-9]{1,9})(?:\.pdf|\.txt)?$")


class BadDocument(Exception):
    """This document cannot become a PDF, however often one tries; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Prepared:
    """What PREP came to."""

    pages: int
    skipped: tuple[str, ...] = ()
    is_reused: bool = False


def prepare(
    source: Path, room: Path, *, run: str, dpi: int | None, is_resumed: bool, progress: Progress
) -> Prepared:
    """Make `raw.pdf` in this directory; `run` tells this try from others. Raises BadDocument.

    A valid one that is there already is used again, if that is wanted.
    """
    raw = room / RAW_PDF
    if is_resumed and (pages := pages_of(raw)):
        remove_left(room, run, *SCRATCH)
        return Prepared(pages, is_reused=True)
    atomic_files.remove(raw)
    written = room / f"raw.tmp.{run}.pdf"
    pictures = room / "pages" / run
    atomic_files.remove(pictures)
    pictures.mkdir(parents=True)
    try:
        skipped = _make(source, pictures, written, dpi, progress)
        pages = pages_of(written)
        if not pages:
            raise BadDocument("no_pages", "no page came out of it")
        atomic_files.sync(written)
        atomic_files.replace(written, raw, "raw")
    finally:
        atomic_files.remove(pictures)
        atomic_files.remove_if_empty(room / "pages")
        atomic_files.remove(written)
    remove_left(room, run, *SCRATCH)
    return Prepared(pages, tuple(skipped))


def remove_left(room: Path, run: str, *patterns: str) -> None:
    """Remove what this try and earlier ones left, by the numbers that end their names; later ones may run."""
    now = NUMBER_OF_TRY.search(run)
    for left in [path for pattern in patterns for path in room.glob(pattern)]:
        number = NUMBER_OF_TRY.search(left.name)
        if now and number and int(number[1]) <= int(now[1]):
            atomic_files.remove_left(left.parent, left.name)
            if left.parent != room:
                atomic_files.remove_if_empty(left.parent)


def _make(source: Path, pictures: Path, written: Path, dpi: int | None, progress: Progress) -> list[str]:
    """The PDF; what was not taken into it."""
    kind = kind_of(source)
    try:
        if kind is Kind.PDF:
            _take_pdf(source, written)
            return []
        if kind is Kind.ARCHIVE:
            taken = take_pages(source, pictures)
            pages, skipped = taken.pages, taken.skipped
        else:
            pages, skipped = _pictures_of(source, kind), []
    except WorkspaceError as error:
        raise BadDocument(error.code, str(error)) from error
    if not pages:
        raise BadDocument("no_pages", "there is no picture in it")
    _join(pages, pictures, written, dpi, progress)
    return skipped


def _pictures_of(source: Path, kind: Kind | None) -> list[Path]:
    if kind is Kind.IMAGE:
        return [source]
    if kind is not Kind.FOLDER:
        raise BadDocument("invalid_signature", "this is no document that we know")
    named = [(one.relative_to(source).as_posix(), one) for one in atomic_files.files_below(source)]
    return [one for name, one in sorted(named, key=lambda pair: order_of(pair[0])) if is_picture(name)]


def _take_pdf(source: Path, written: Path) -> None:
    """A PDF goes on as it is, if it can be opened without a password."""
    import pikepdf  # noqa: PLC0415

    try:
        with pikepdf.open(source):
            pass
    except pikepdf.PasswordError as error:
        raise BadDocument("encrypted", "the PDF asks for a password") from error
    except pikepdf.PdfError as error:
        raise BadDocument("bad_pdf", f"the PDF cannot be read: {error}") from error
    shutil.copyfile(source, written)


def _join(pages: list[Path], room: Path, written: Path, dpi: int | None, progress: Progress) -> None:
    """All pictures as one PDF. JPEGs go in as they are, others without loss."""
    import img2pdf  # noqa: PLC0415

    fit: list[str] = []
    for number, page in enumerate(pages, 1):
        fit += [str(one) for one in _fit(page, room / f"fit-{number:06}")]
        if len(fit) > PAGE_BOUNDS.entries:
            raise BadDocument("too_many_pages", "it has more pages than a document may have")
        progress(number, len(pages), "pages")
    layout: dict[str, Any] = {"rotation": img2pdf.Rotation.ifvalid}
    if dpi:
        layout["layout_fun"] = img2pdf.get_fixed_dpi_layout_fun((dpi, dpi))
    try:
        with written.open("wb") as file:
            img2pdf.convert(fit, outputstream=file, **layout)
    except _refusals(img2pdf) as error:
        if getattr(error, "errno", None):
            raise  # of the disk, not of a picture
        raise BadDocument("bad_image", f"the pictures do not make a PDF: {error}") from error


def _refusals(img2pdf: Any) -> tuple[type[Exception], ...]:
    """What img2pdf and Pillow raise for pictures that they do not take."""
    own = (img2pdf.ImageOpenError, img2pdf.PdfTooLargeError, img2pdf.UnsupportedColorspaceError)
    return OSError, ValueError, SyntaxError, *own


def _fit(page: Path, place: Path) -> list[Path]:
    """The picture, or what it was converted to because img2pdf does not take it. Raises BadDocument."""
    import img2pdf  # noqa: PLC0415
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # over twice of it Pillow refuses
    try:
        with Image.open(page, formats=FORMATS) as image:
            is_plain = image.format in ("JPEG", "PNG") and image.mode in PLAIN
            if is_plain and "transparency" not in image.info and _is_taken(page, img2pdf):
                return [page]
            return [
                _converted(frame, place.with_name(f"{place.name}-{number}.png"))
                for number, frame in enumerate(_frames(image), 1)
            ]
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        if getattr(error, "errno", None):
            raise
        raise BadDocument("bad_image", f"{page.name} is no picture that can be read: {error}") from error


def _frames(image: Any) -> Iterator[Any]:
    """The pages of a TIFF, each once; of what moves, the first picture."""
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
    """Whether img2pdf takes it as it is: it finds out by itself for JPEG, which costs nothing."""
    if page.suffix.lower() not in (".jpg", ".jpeg"):
        return page.suffix.lower() == ".png"
    try:
        img2pdf.convert(str(page), outputstream=io.BytesIO(), rotation=img2pdf.Rotation.ifvalid)
    except Exception:  # whatever it does not like, Pillow may
        return False
    return True


def _converted(image: Any, target: Path) -> Path:
    """This picture, upright, on white where it is transparent, without loss."""
    from PIL import Image, ImageOps  # noqa: PLC0415

    dpi = image.info.get("dpi")
    image = ImageOps.exif_transpose(image)
    if image.mode not in ("1", "L", "RGB"):
        shown = image.convert("RGBA")
        image = Image.new("RGB", shown.size, "white")
        image.paste(shown, mask=shown.getchannel("A"))
    known = {"dpi": dpi} if dpi and min(dpi) >= LEAST_DPI else {}
    image.save(target, "PNG", compress_level=1, **known)
    return target


def pages_of(pdf: Path) -> int:
    """How many pages it has; 0 for what is no PDF that can be opened."""
    import pikepdf  # noqa: PLC0415

    try:
        with pikepdf.open(pdf) as opened:
            return len(opened.pages)
    except (OSError, pikepdf.PdfError):
        return 0
