"""PREP: what goes in, in which order, and what is refused. OCR: what came out is a PDF, or is not taken."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.apps.documents import sample_documents
from tests.apps.documents.prepared_pictures import prepared, sized, widths

from cograil.apps.documents import ocr, prep, stage_heartbeat
from cograil.apps.documents.archive_pages import PAGE_BOUNDS, extract_pages, order_of
from cograil.apps.documents.prep import BadDocument
from cograil.apps.documents.rar_checksums import sums_of
from cograil.workspace import ArchiveBounds, WorkspaceError


def test_pages_are_in_the_order_in_which_people_count(tmp_path: Path) -> None:
    names = ["2/b10.png", "2/b9.png", "10/a.png", "1/z.PNG", "cover.png", "Cover2.png"]
    assert sorted(names, key=order_of) == [
        "1/z.PNG",
        "2/b9.png",
        "2/b10.png",
        "10/a.png",
        "cover.png",
        "Cover2.png",
    ]


def test_junk_is_left_out_and_folders_are_in_order(tmp_path: Path) -> None:
    junk = {
        "__MACOSX/1.png": b"x",
        "Thumbs.db": b"x",
        ".DS_Store": b"x",
        "read me.txt": b"x",
        "a/._2.png": b"x",
    }
    pages = {"b/1.png": sized(103), "a/10.png": sized(102), "a/9.png": sized(101)}
    assert prepared(sample_documents.comic(tmp_path / "a.cbz", pages | junk), tmp_path / "room") == 3
    assert widths(tmp_path / "room/raw.pdf") == [101, 102, 103]
    assert [path.name for path in (tmp_path / "room").iterdir()] == ["raw.pdf"]


@pytest.mark.parametrize("pack", [sample_documents.rar4, sample_documents.rar5])
def test_rar_is_read(tmp_path: Path, pack: Any) -> None:
    archive = pack(tmp_path / "a.cbr", {"p2.png": sized(102), "p1.jpg": sized(101, "JPEG")})
    assert prepared(archive, tmp_path / "room") == 2
    assert widths(tmp_path / "room/raw.pdf") == [101, 102]


@pytest.mark.parametrize(
    ("name", "kind", "mode"),
    [
        ("a.webp", "WEBP", "RGB"),
        ("a.bmp", "BMP", "RGB"),
        ("a.gif", "GIF", "P"),
        ("a.tif", "TIFF", "CMYK"),
        ("a.png", "PNG", "RGBA"),
        ("a.png", "PNG", "I;16"),
        ("a.jpg", "JPEG", "CMYK"),
    ],
)
def test_odd_pictures_become_pages(tmp_path: Path, name: str, kind: str, mode: str) -> None:
    assert (
        prepared(
            sample_documents.comic(tmp_path / "a.cbz", {name: sized(123, kind, mode)}), tmp_path / "room"
        )
        == 1
    )
    assert widths(tmp_path / "room/raw.pdf") == [123]


def test_a_folder_a_picture_and_a_pdf_are_documents_too(tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    (folder / "part 2").mkdir(parents=True)
    (folder / "part 2/1.png").write_bytes(sized(102))
    (folder / "1.png").write_bytes(sized(101))
    (folder / "link.png").symlink_to("/etc/passwd")
    assert prepared(folder, tmp_path / "one") == 2
    assert prepared(folder / "1.png", tmp_path / "two") == 1
    assert prepared(tmp_path / "one/raw.pdf", tmp_path / "three") == 2


def test_a_valid_raw_pdf_is_used_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    source, room = sample_documents.tiny(tmp_path / "a.cbz"), tmp_path / "room"
    prepared(source, room)
    again = prep.prepare(source, room, run="2", dpi=None, is_resumed=True, progress=lambda *_: None)
    assert again.is_reused
    (room / "raw.pdf").write_bytes((room / "raw.pdf").read_bytes()[:200])
    again = prep.prepare(source, room, run="3", dpi=None, is_resumed=True, progress=lambda *_: None)
    assert not again.is_reused


@pytest.mark.parametrize(
    "name", ["../out.png", "/etc/out.png", "a/../../out.png", "..\\out.png", "C:/out.png"]
)
def test_an_archive_that_tries_to_get_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadDocument) as refused:
        prepared(
            sample_documents.comic(
                tmp_path / "a.cbz", {name: sample_documents.dot(), "1.png": sample_documents.dot()}
            ),
            tmp_path / "room",
        )
    assert refused.value.code == "unsafe_path"
    assert not (tmp_path / "out.png").exists()


def test_links_in_an_archive_are_left_out(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("2.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    link.create_system = 3
    with zipfile.ZipFile(tmp_path / "a.cbz", "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("1.png", sample_documents.dot())
    (tmp_path / "pages").mkdir()
    taken = extract_pages(tmp_path / "a.cbz", tmp_path / "pages")
    assert [page.name for page in taken.pages] == ["000002.png"]
    assert taken.skipped == ["'2.png'"]


def test_bombs_are_refused_before_they_fill_the_disk(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.cbz", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("1.png", b"\0" * (80 * 1024 * 1024))
    (tmp_path / "pages").mkdir()
    with pytest.raises(WorkspaceError) as refused:
        extract_pages(tmp_path / "a.cbz", tmp_path / "pages", PAGE_BOUNDS)
    assert refused.value.code == "archive_bomb"
    many = sample_documents.comic(tmp_path / "b.cbz", {f"{number}.txt": b"" for number in range(30)})
    with pytest.raises(WorkspaceError) as refused:
        extract_pages(many, tmp_path / "pages", ArchiveBounds(entries=20))
    assert refused.value.code == "archive_too_many_entries"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"PK\x03\x04" + b"\0" * 100, "archive_corrupt"),
        (b"Rar!\x1a\x07\x01\x00" + b"\xff" * 50, "archive_corrupt"),
        (b"Rar!\x1a\x07\x00" + b"\xff" * 50, "archive_corrupt"),
        (b"%PDF-1.7 nothing", "bad_pdf"),
        (b"\x89PNG\r\n\x1a\n nothing", "bad_image"),
        (b"nothing", "invalid_signature"),
    ],
)
def test_a_damaged_archive_is_reported_as_damaged(tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "a.cbz").write_bytes(content)
    with pytest.raises(BadDocument) as refused:
        prepared(tmp_path / "a.cbz", tmp_path / "room")
    assert refused.value.code == code
    assert list((tmp_path / "room").iterdir()) == []


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_page_that_is_not_what_was_packed_is_damaged(tmp_path: Path, method: int) -> None:
    """A picture may be shown all the same, and nobody would know."""
    page = sample_documents.page("x", "BMP", (900, 700))
    with zipfile.ZipFile(tmp_path / "a.cbz", "w", method) as archive:
        archive.writestr("1.bmp", page)
    packed = bytearray((tmp_path / "a.cbz").read_bytes())
    for head, checksum in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        packed[packed.index(head) + checksum] ^= 1
    (tmp_path / "a.cbz").write_bytes(packed)
    with pytest.raises(BadDocument) as refused:
        prepared(tmp_path / "a.cbz", tmp_path / "room")
    assert refused.value.code == "archive_corrupt"


@pytest.mark.parametrize(
    "pack", [sample_documents.rar4, sample_documents.rar4_with_comment, sample_documents.rar5]
)
def test_a_stored_page_of_a_rar_that_changed_is_damaged(tmp_path: Path, pack: Any) -> None:
    """libarchive looks at the checksums of what is compressed, and comics are stored."""
    pages = {f"{number}.bmp": sample_documents.page(f"{number}", "BMP") for number in range(3)}
    packed = bytearray(pack(tmp_path / "a.cbr", pages).read_bytes())
    assert prepared(tmp_path / "a.cbr", tmp_path / "room") == 3
    packed[packed.index(pages["1.bmp"]) + 5000] ^= 1
    (tmp_path / "a.cbr").write_bytes(packed)
    with pytest.raises(BadDocument, match="does not match its checksum") as refused:
        prepared(tmp_path / "a.cbr", tmp_path / "room")
    assert refused.value.code == "archive_corrupt"


@pytest.mark.parametrize("pack", [sample_documents.rar4, sample_documents.rar5])
def test_the_checksums_of_half_a_rar_end(tmp_path: Path, pack: Any) -> None:
    whole = pack(tmp_path / "a.cbr", {f"{number}.png": sample_documents.dot(number) for number in range(3)})
    content = whole.read_bytes()
    assert len(list(sums_of(whole))) == 3
    for length in range(len(content)):
        whole.write_bytes(content[:length])
        assert len(list(sums_of(whole))) <= 3
    for rest in (b"\xff" * 5000, b"\0" * 5000, b"\0\0\0\0\x0c\1\2" + b"\xff" * 9 + b"\x7f" + b"\0" * 99):
        whole.write_bytes(content[:8] + rest)
        assert list(sums_of(whole)) == []


def test_an_archive_cut_short_is_damaged(tmp_path: Path) -> None:
    whole = sample_documents.comic(
        tmp_path / "a.cbz", {"1.png": sample_documents.page("x"), "2.png": sample_documents.page("y")}
    ).read_bytes()
    (tmp_path / "b.cbz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadDocument):
        prepared(tmp_path / "b.cbz", tmp_path / "room")


def test_an_archive_without_pictures_has_no_pages(tmp_path: Path) -> None:
    with pytest.raises(BadDocument) as refused:
        prepared(sample_documents.comic(tmp_path / "a.cbz", {"a.txt": b"x"}), tmp_path / "room")
    assert refused.value.code == "no_pages"


# --- what is a PDF


def raw(room: Path) -> Path:
    prepared(sample_documents.tiny(room / "a.cbz"), room)
    return room / "raw.pdf"


def test_only_a_whole_pdf_is_valid(tmp_path: Path) -> None:
    pdf = raw(tmp_path)
    assert ocr.validate(pdf, 100, 1) == 1
    for wrong, least, pages in ((pdf, 10**6, 1), (pdf, 100, 2), (tmp_path / "none.pdf", 0, 1)):
        with pytest.raises(ocr.InvalidPdf):
            ocr.validate(wrong, least, pages)
    with pytest.raises(ocr.InvalidPdf, match="no text layer"):
        ocr.validate(pdf, 100, 1, has_text=True)
    (tmp_path / "cut.pdf").write_bytes(b"XPDF-" + pdf.read_bytes())
    with pytest.raises(ocr.InvalidPdf, match="begin"):
        ocr.validate(tmp_path / "cut.pdf", 100, 1)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_try_that_ends_late_leaves_later_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_resumed: bool
) -> None:
    """Of the one before it nothing is left; names are those of workers, of services and of others."""

    def played(raw: Path, written: Path, *_: Any) -> None:
        written.write_bytes(raw.read_bytes())

    monkeypatch.setattr(ocr, "_run", played)
    source, runs = sample_documents.tiny(tmp_path / "a.cbz"), ("1", "k.j.1", "3", "k.j.12", "other")
    for place, run in [(place, run) for place in ("pages", "tmp") for run in runs]:
        (tmp_path / place / run).mkdir(parents=True)
        (tmp_path / f"{'raw' if place == 'pages' else 'final'}.tmp.{run}.pdf").touch()
    options: dict[str, Any] = {"run": "k.j.2", "is_resumed": is_resumed, "progress": lambda *_: None}
    for _ in range(2):
        prep.prepare(source, tmp_path, dpi=None, **options)
        ocr.recognise(tmp_path / "raw.pdf", tmp_path, {"lang": "eng"}, jobs=1, min_bytes=100, **options)
    later = {"3", "k.j.12", "other"}
    for place, name in (("pages", "raw"), ("tmp", "final")):
        assert {path.name for path in (tmp_path / place).iterdir()} == later
        assert {path.name for path in tmp_path.glob(f"{name}.tmp.*")} == {
            f"{name}.tmp.{run}.pdf" for run in later
        }


def test_options_of_ocrmypdf_follow_the_order() -> None:
    options = ocr.options_of({"lang": "eng+fra", "rotatePages": True, "deskew": True, "optimize": 1})
    assert options == {
        "language": ["eng", "fra"],
        "output_type": "pdf",
        "rotate_pages": True,
        "deskew": True,
        "optimize": 1,
        "skip_text": True,
    }
    fast = ocr.options_of({"lang": "eng", "options": {"fast_mode": True, "dpi": 300}})
    assert (fast["deskew"], fast["optimize"], fast["oversample"]) == (False, 0, 300)


# --- the heart


def alone(script: str, path: Path) -> None:
    """In a process of its own: a heart that stops ends all that its process has started, of whatever test."""
    beginning = "import subprocess, sys, threading, time\nfrom pathlib import Path\n"
    beginning += (
        "from cograil.apps.documents.stage_heartbeat import StageHeartbeat\npath = Path(sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", beginning + script, str(path)], check=True, timeout=60)


def test_a_stage_that_moves_is_not_called_dead_and_one_that_does_not_is_stopped(tmp_path: Path) -> None:
    """The stage here is a process that was started and sleeps; it is killed, and the stage hears of it."""
    script = """
heart = StageHeartbeat(path, 0.05, 0.5)
with heart.beating():
    until = time.monotonic() + 1.0
    while time.monotonic() < until:  # busy for twice the timeout
        sum(range(1000))
    assert not heart.is_stuck
    sleeper = subprocess.Popen(["sleep", "60"])
    assert sleeper.wait(timeout=20) == -9
assert heart.is_stuck
"""
    alone(script, tmp_path / "ocr.heartbeat")
    assert (tmp_path / "ocr.heartbeat").exists()


def test_a_stage_that_stands_still_as_a_whole_is_ended_from_outside(tmp_path: Path) -> None:
    """Its heart stands still too; what it started is ended with it. Others and later ones are left alone."""
    path, script = tmp_path / "ocr.heartbeat", "import subprocess, sys, time\nfrom pathlib import Path\n"
    script += "from cograil.apps.documents.stage_heartbeat import StageHeartbeat\n"
    script += "with StageHeartbeat(Path(sys.argv[1]), 0.05, 60).beating():\n"
    script += "    print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n    time.sleep(600)\n"
    stage = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert stage.stdout is not None
    started = psutil.Process(int(stage.stdout.readline()))
    stage.send_signal(signal.SIGSTOP)
    name, watch = path.read_text(), stage_heartbeat.StallDetector()
    assert not watch.end(path)
    other = name.replace(f"{stage.pid} ", f"{stage.pid} 1")
    for wrong in ("", "x", "1 2 3 4", f"1{name}", other, name.rpartition(" ")[0]):
        path.write_text(wrong)
        os.utime(path, (1, 1))
        assert (watch.end(path), stage_heartbeat._still(path)) == (False, (0, 0.0)), wrong
    path.write_text(name)
    os.utime(path, (1, 1))
    assert not watch.end(path)  # a machine that slept: it may beat yet
    until = time.monotonic() + 30
    while not watch.end(path):
        assert time.monotonic() < until
    assert stage.wait(10) == -signal.SIGKILL
    stage.stdout.close()
    assert not started.is_running() or started.status() == psutil.STATUS_ZOMBIE or started.wait(10) is None
    assert not watch.end(path)


def test_an_ended_heartbeat_names_no_process(tmp_path: Path) -> None:
    path = tmp_path / "prep.heartbeat"
    with stage_heartbeat.StageHeartbeat(path, 1, 60).beating():
        assert path.read_text().startswith(f"{os.getpid()} ")
    assert path.read_text() == ""


def test_progress_is_a_beat_too(tmp_path: Path) -> None:
    script = """
heart = StageHeartbeat(path, 0.05, 0.3)
with heart.beating():
    done = threading.Event()
    until = time.monotonic() + 0.9
    while time.monotonic() < until:
        heart.beat()
        done.wait(0.05)
assert not heart.is_stuck
"""
    alone(script, tmp_path / "prep.heartbeat")


def test_processes_that_were_started_are_found() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        assert sleeper.pid in stage_heartbeat.started()
        assert os.getpid() not in stage_heartbeat.started()
    finally:
        sleeper.kill()
        sleeper.wait()
