"""Pictures and archives as the world has them: every page of them is in the PDF, or it is said why not."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pikepdf
import pytest
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile
from tests.apps.documents import rar_streams, sample_documents
from tests.apps.documents.prepared_pictures import prepared, sized, widths

from cograil.apps.documents import ocr, prep
from cograil.apps.documents.archive_pages import extract_pages
from cograil.apps.documents.ocr_background import whitened
from cograil.apps.documents.prep import BadDocument
from cograil.apps.documents.stage_log import log_stage
from cograil.workspace import WorkspaceError

ROTATED = 6  # a quarter, as EXIF says it
ORIENTATION = 0x112


def picture(width: int, height: int = 40) -> Image.Image:
    return Image.new("L", (width, height), 255)


def test_every_page_of_a_tiff_is_one(tmp_path: Path) -> None:
    """Scanners write them so: only the first page of each was taken once."""
    first, *others = (picture(width) for width in (101, 102, 103))
    first.save(tmp_path / "scan.tif", save_all=True, append_images=others)
    assert prepared(tmp_path / "scan.tif", tmp_path / "room") == 3
    assert widths(tmp_path / "room/raw.pdf") == [101, 102, 103]


def test_a_smaller_copy_in_a_tiff_is_no_page(tmp_path: Path) -> None:
    small = picture(50)
    small.encoderinfo = {"tiffinfo": {254: 1}}
    picture(101).save(tmp_path / "scan.tif", save_all=True, append_images=[small])
    with Image.open(tmp_path / "scan.tif") as written:
        written.seek(1)
        assert isinstance(written, TiffImageFile)
        assert written.tag_v2[254] == 1
    assert prepared(tmp_path / "scan.tif", tmp_path / "room") == 1


def test_a_tiff_of_too_many_points_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow counts those of the first page only."""
    picture(10, 10).save(tmp_path / "scan.tif", save_all=True, append_images=[picture(400, 400)])
    monkeypatch.setattr(prep, "MAX_PIXELS", 100_000)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # PREP sets it for its process
    with pytest.raises(BadDocument, match="160,000 points"):
        prepared(tmp_path / "scan.tif", tmp_path / "room")


def test_a_page_that_does_not_know_its_size_has_a_usual_one(tmp_path: Path) -> None:
    picture(960, 480).save(tmp_path / "a.tif")
    prepared(tmp_path / "a.tif", tmp_path / "room")
    with pikepdf.open(tmp_path / "room/raw.pdf") as pdf:
        assert [round(float(side)) for side in pdf.pages[0].mediabox] == [0, 0, 720, 360]


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_a_picture_is_upright(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = ROTATED
    picture(300, 100).save(tmp_path / "a.jpg", kind, exif=exif)
    prepared(tmp_path / "a.jpg", tmp_path / "room")
    with pikepdf.open(tmp_path / "room/raw.pdf") as pdf:
        _, _, width, height = (float(side) for side in pdf.pages[0].mediabox)
        is_turned = pdf.pages[0].get("/Rotate", 0) in (90, 270)
    assert (height < width) == is_turned


def test_a_program_that_is_named_like_a_picture_is_not_run(tmp_path: Path) -> None:
    """Pillow hands PostScript to Ghostscript, whatever its name is."""
    written = io.BytesIO()
    Image.new("RGB", (100, 100)).save(written, "EPS")
    archive = sample_documents.comic(tmp_path / "a.cbz", {"1.png": written.getvalue()})
    with pytest.raises(BadDocument) as refused:
        prepared(archive, tmp_path / "room")
    assert refused.value.code == "bad_image"


@pytest.mark.parametrize(
    "content", [sized(300)[:-40], sample_documents.dot()[:30], b"\x89PNG\r\n\x1a\n", picture(1, 1).tobytes()]
)
def test_a_picture_that_can_never_be_a_page_fails_at_once(tmp_path: Path, content: bytes) -> None:
    archive = sample_documents.comic(tmp_path / "a.cbz", {"1.png": content})
    with pytest.raises(BadDocument) as refused:
        prepared(archive, tmp_path / "room")
    assert refused.value.code == "bad_image"


def test_a_full_disk_is_no_bad_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.webp").write_bytes(sized(100, "WEBP"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match="No space left"):
        prepared(tmp_path / "a.webp", tmp_path / "room")


def test_names_of_other_countries_are_pages_too(tmp_path: Path) -> None:
    """A packer on Windows writes é as one byte, and does not say so. Such pages were left out once."""
    archive = sample_documents.comic(tmp_path / "a.cbz", {"Xt2.png": sized(102), "Xt1.png": sized(101)})
    archive.write_bytes(archive.read_bytes().replace(b"Xt", b"\x82t"))
    assert prepared(archive, tmp_path / "room") == 2
    assert widths(tmp_path / "room/raw.pdf") == [101, 102]


@pytest.mark.parametrize("language", ["C", "POSIX", "C.UTF-8"])
def test_names_are_read_whatever_the_language_of_the_system(tmp_path: Path, language: str) -> None:
    archive = sample_documents.comic(
        tmp_path / "a.cbz", {"é/日本2.png": sized(102), "é/日本1.png": sized(101)}
    )
    program = (
        "import sys; from pathlib import Path; from cograil.apps.documents.archive_pages import extract_pages;"
        "print([page.name for page in extract_pages(Path(sys.argv[1]), Path(sys.argv[2])).pages])"
    )
    (tmp_path / "pages").mkdir()
    process = subprocess.run(
        [sys.executable, "-c", program, archive, tmp_path / "pages"],
        env=os.environ | {"LC_ALL": language},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == "['000002.png', '000001.png']"


@pytest.mark.parametrize("member", [rar_streams.RAR4_NORMAL, rar_streams.RAR4_BEST, rar_streams.RAR5_NORMAL])
def test_a_rar_of_a_real_packer_is_unpacked(tmp_path: Path, member: rar_streams.RarStream) -> None:
    assert len(member.stream) != len(member.content)
    archive = sample_documents.packed_rar(tmp_path / "a.cbr", {"2.png": member, "1.png": member})
    (tmp_path / "pages").mkdir()
    taken = extract_pages(archive, tmp_path / "pages")
    assert [page.name for page in taken.pages] == ["000002.png", "000001.png"]
    assert [page.read_bytes() for page in taken.pages] == [member.content] * 2

    damaged = bytearray(archive.read_bytes())
    damaged[damaged.index(member.stream) + len(member.stream) // 2] ^= 0xFF
    archive.write_bytes(damaged)
    (tmp_path / "damaged").mkdir()
    with pytest.raises(WorkspaceError) as refused:
        extract_pages(archive, tmp_path / "damaged")
    assert refused.value.code == "archive_corrupt"


def test_paper_becomes_white_and_what_is_on_it_stays(tmp_path: Path) -> None:
    page = Image.new("L", (800, 400), 190)
    page.paste(20, (100, 100, 400, 104))
    page.paste(30, (500, 0, 800, 400))  # a dark picture, not paper
    shown: Any = whitened(page)
    assert shown.getpixel((50, 300)) > 245
    assert shown.getpixel((200, 102)) < 110
    assert shown.getpixel((700, 200)) == 30
    assert whitened(page.convert("RGB")).getpixel((50, 300)) == (shown.getpixel((50, 300)),) * 3
    assert whitened(page.convert("1")).mode == "1"


def test_the_background_is_removed_by_real_ocr(tmp_path: Path) -> None:
    """ocrmypdf has an option for it that raises."""
    with Image.open(io.BytesIO(sample_documents.page(sample_documents.ENGLISH))) as page:
        grey = page.point([min(shade, 200) for shade in range(256)])
    grey.save(tmp_path / "a.png", dpi=(150, 150))
    prepared(tmp_path / "a.png", tmp_path)
    order = {"lang": "eng", "options": {"remove_background": True, "fast_mode": True}}
    options: dict[str, Any] = {"run": "1", "jobs": 1, "min_bytes": 100, "is_resumed": False}
    pages: list[tuple[int, int | None, str]] = []
    done = ocr.recognise(
        tmp_path / "raw.pdf", tmp_path, order, progress=lambda *count: pages.append(count), **options
    )
    assert done.words >= 8
    counted = [count for count in pages if count[2] == "OCR"]
    assert (counted[0], counted[-1]) == ((0, 1, "OCR"), (1, 1, "OCR"))
    with pikepdf.open(tmp_path / "final.pdf") as pdf:
        (shown,) = pdf.pages[0].get_images().values()
        assert isinstance(shown, pikepdf.Stream)
        colours = pikepdf.PdfImage(shown).as_pil_image().convert("L").histogram()
    assert sum(colours[245:]) > sum(colours[:245])


def test_a_stage_leaves_a_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with log_stage(tmp_path / "prep.log"):
        logging.getLogger("ocrmypdf.of.page").warning("few words on %s", "a page")
    assert caplog.records == []  # a page that has few words is nothing for the log of a worker
    with pytest.raises(BadDocument), log_stage(tmp_path / "prep.log"):
        raise BadDocument("no_pages", "it has no picture")
    first, warning, done, _, failed = (tmp_path / "prep.log").read_text().splitlines()
    assert first.endswith("INFO begins")
    assert warning.endswith("WARNING few words on a page")
    assert done.endswith("INFO done")
    assert failed.endswith("ERROR failed: BadDocument: it has no picture")
    with log_stage(tmp_path / "nowhere/prep.log"):
        pass  # one that cannot be written ends nothing
