"""What people are told of documents: log lines, plain names, ignored files, and the list."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually

from cograil import logs
from cograil.apps.documents import atomic_files, finalize
from cograil.apps.documents.cli import documents
from cograil.apps.documents.duplicates import ExistingDocument, apply_decision, decide, hold
from cograil.apps.documents.layout import OUT_NAME, Folder
from cograil.apps.documents.one_shot import Conversion, Item
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.status_files import indexed


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with logs.service_name("orchestrator"):
        logs.configure("info", "json", stream)
        yield stream
    logs.configure("info", "auto")


def lines(log: io.StringIO) -> dict[str, dict[str, Any]]:
    log_lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return {line["message"]: line for line in log_lines}


async def test_the_log_says_which_file_and_when_it_is_done(
    site: DocumentSite, eventually: Eventually, log_stream: io.StringIO
) -> None:
    path = site.drop("letter.cbz")
    await site.prepare_results(path)
    async with site.working():
        await eventually(lambda: "document done" in lines(log_stream), timeout=30)
    logged = lines(log_stream)
    assert logged["document taken"]["file"] == "letter.cbz"
    done = logged["document done"]
    assert (done["file"], done["pages"], done["level"]) == ("letter.cbz", 1, "info")
    assert done["out"] == site.names("out")[0]
    assert done["seconds"] >= 0


async def test_a_file_that_is_not_taken_is_warned_of_once(
    site: DocumentSite, log_stream: io.StringIO
) -> None:
    for name in ("notes.txt", "half.cbz.part", ".hidden.txt", "~lock.docx"):
        (site.folder.arrivals / name).touch()
    os.utime(site.folder.arrivals / "notes.txt", (1, 1))
    await site.look(3)
    warned = [json.loads(line) for line in log_stream.getvalue().splitlines() if "file ignored" in line]
    assert [(line["file"], line["level"]) for line in warned] == [("notes.txt", "warning")]
    assert "ends with none of" in warned[0]["reason"]
    assert site.read("index/metrics.json")["ignored"] == 1


async def test_plain_names_of_pdfs_get_a_number_where_they_are_taken(
    site: DocumentSite, eventually: Eventually
) -> None:
    (site.root / "out/letter.pdf").write_text("of somebody else")
    changed = site.settings.section(DocumentSettings).model_copy(update={"plain_names": True})
    settings = site.settings.model_copy(update={"documents": changed})
    path = site.drop("letter.cbz")
    await site.prepare_results(path)
    async with site.working(settings):
        await eventually(lambda: site.names("archive") == ["letter.cbz"], timeout=30)
    assert site.names("out") == ["letter (2).pdf", "letter.pdf"]
    (document,) = await site.documents()
    assert document.out_pdf == "letter (2).pdf"


def plain_folder(tmp_path: Path) -> tuple[Folder, str]:
    folder, key = Folder(tmp_path, has_plain_names=True), f"{'a' * 64}__{'b' * 64}"
    folder.make()
    folder.work_dir(key).mkdir(parents=True)
    (folder.work_dir(key) / "final.pdf").write_text("made")
    (folder.work_dir(key) / "final.txt").write_text("text")
    return folder, key


@pytest.mark.parametrize("died", ["before the move", "after the move"])
def test_a_resumed_delivery_finds_the_chosen_plain_name(tmp_path: Path, died: str) -> None:
    folder, key = plain_folder(tmp_path)
    if died == "before the move":
        atomic_files.write_bytes(folder.work_dir(key) / OUT_NAME, b"x.pdf")
    else:
        finalize.bring_out(folder, key, "x.cbz")
    for _ in range(2):
        assert finalize.bring_out(folder, key, "x.cbz") == (folder.out / "x.pdf", "")
        assert sorted(path.name for path in folder.out.iterdir()) == ["x.pdf", "x.txt"]


def test_a_plain_name_that_somebody_else_took_meanwhile_is_left_to_him(tmp_path: Path) -> None:
    folder, key = plain_folder(tmp_path)
    atomic_files.write_bytes(folder.work_dir(key) / OUT_NAME, b"x.pdf")
    (folder.work_dir(key) / "final.txt").unlink()
    (folder.out / "x.pdf").write_text("his")
    assert finalize.bring_out(folder, key, "x.cbz")[0].name == "x (2).pdf"
    assert (folder.out / "x.pdf").read_text() == "his"


def test_the_existing_pdf_of_a_duplicate_gets_a_plain_name_too(tmp_path: Path) -> None:
    folder, key = plain_folder(tmp_path)
    (folder.out / "y.pdf").write_text("another")
    made = folder.out / "x.pdf"
    made.write_text("made")
    incoming = tmp_path / "in/y.cbz"
    incoming.touch()
    hold(folder, key, incoming, "y.cbz", {}, {})
    decide(folder, key, "USE_EXISTING_RESULT")
    assert apply_decision(folder, key, ExistingDocument({}, pdf=made))
    assert (folder.out / "y (2).pdf").read_text() == "made"
    assert not replace(folder, has_plain_names=False).pdf("y.cbz", key).exists()


async def test_documents_list_shows_files_states_and_what_is_ignored(
    site: DocumentSite, eventually: Eventually
) -> None:
    path = site.drop("letter.cbz")
    await site.prepare_results(path)
    (site.folder.arrivals / "notes.txt").touch()
    async with site.working():
        await eventually(lambda: "DONE" in str(indexed(site.folder)), timeout=30)
    done = CliRunner().invoke(documents, ["list", "--data", str(site.root)], terminal_width=200)
    assert done.exit_code == 0, done.output
    assert "letter.cbz" in done.output
    assert "DONE" in done.output
    assert "notes.txt" in done.output
    listed = CliRunner().invoke(documents, ["list", "--data", str(site.root), "--json"])
    assert json.loads(listed.stdout)[0]["inputName"] == "letter.cbz"


def test_errors_of_convert_name_the_file_and_no_path_of_ours(tmp_path: Path) -> None:
    folder, key = Folder(tmp_path / ".cograil-convert-x"), f"{'a' * 64}__{'b' * 64}"
    item = Item(Path("scans/letter.pdf"), 1)
    conversion = Conversion(folder, tmp_path, [item], 500)
    message = f"cannot open {folder.source(key, item.alias)}: {folder.work_dir(key)}/raw.pdf is bad"
    assert conversion._readable(message, item, key) == "cannot open letter.pdf: raw.pdf is bad"
