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
from tests.conftest import Eventually
from tests.documents.house import House

from cograil import logs
from cograil.apps.documents import atomic_files, finalize
from cograil.apps.documents.cli import documents
from cograil.apps.documents.duplicates import ExistingDocument, apply_decision, decide, hold
from cograil.apps.documents.layout import OUT_NAME, Folder
from cograil.apps.documents.one_shot import Conversion, Item
from cograil.apps.documents.status_files import indexed


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with logs.service_name("orchestrator"):
        logs.configure("info", "json", stream)
        yield stream
    logs.configure("info", "auto")


def lines(said: io.StringIO) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in said.getvalue().splitlines()]
    return {one["message"]: one for one in found}


async def test_the_log_says_which_file_and_when_it_is_done(
    house: House, eventually: Eventually, said: io.StringIO
) -> None:
    path = house.drop("letter.cbz")
    await house.prepare_results(path)
    async with house.working():
        await eventually(lambda: "document done" in lines(said), timeout=30)
    told = lines(said)
    assert told["document taken"]["file"] == "letter.cbz"
    done = told["document done"]
    assert (done["file"], done["pages"], done["level"]) == ("letter.cbz", 1, "info")
    assert done["out"] == house.names("out")[0]
    assert done["seconds"] >= 0


async def test_a_file_that_is_not_taken_is_warned_of_once(house: House, said: io.StringIO) -> None:
    for name in ("notes.txt", "half.cbz.part", ".hidden.txt", "~lock.docx"):
        (house.folder.arrivals / name).touch()
    os.utime(house.folder.arrivals / "notes.txt", (1, 1))
    await house.look(3)
    warned = [json.loads(line) for line in said.getvalue().splitlines() if "file ignored" in line]
    assert [(one["file"], one["level"]) for one in warned] == [("notes.txt", "warning")]
    assert "ends with none of" in warned[0]["reason"]
    assert house.read("index/metrics.json")["ignored"] == 1


async def test_plain_names_of_pdfs_get_a_number_where_they_are_taken(
    house: House, eventually: Eventually
) -> None:
    (house.root / "out/letter.pdf").write_text("of somebody else")
    changed = house.settings.documents.model_copy(update={"plain_names": True})
    settings = house.settings.model_copy(update={"documents": changed})
    path = house.drop("letter.cbz")
    await house.prepare_results(path)
    async with house.working(settings):
        await eventually(lambda: house.names("archive") == ["letter.cbz"], timeout=30)
    assert house.names("out") == ["letter (2).pdf", "letter.pdf"]
    (document,) = await house.documents()
    assert document.out_pdf == "letter (2).pdf"


def plain_folder(tmp_path: Path) -> tuple[Folder, str]:
    folder, key = Folder(tmp_path, has_plain_names=True), f"{'a' * 64}__{'b' * 64}"
    folder.make()
    folder.work_dir(key).mkdir(parents=True)
    (folder.work_dir(key) / "final.pdf").write_text("made")
    (folder.work_dir(key) / "final.txt").write_text("text")
    return folder, key


@pytest.mark.parametrize("died", ["before the move", "after the move"])
def test_whoever_goes_on_finds_the_plain_name_that_was_chosen(tmp_path: Path, died: str) -> None:
    folder, key = plain_folder(tmp_path)
    if died == "before the move":
        atomic_files.write_bytes(folder.work_dir(key) / OUT_NAME, b"x.pdf")
    else:
        finalize.bring_out(folder, key, "x.cbz")
    for _ in range(2):
        assert finalize.bring_out(folder, key, "x.cbz") == (folder.out / "x.pdf", "")
        assert sorted(one.name for one in folder.out.iterdir()) == ["x.pdf", "x.txt"]


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
    house: House, eventually: Eventually
) -> None:
    path = house.drop("letter.cbz")
    await house.prepare_results(path)
    (house.folder.arrivals / "notes.txt").touch()
    async with house.working():
        await eventually(lambda: "DONE" in str(indexed(house.folder)), timeout=30)
    done = CliRunner().invoke(documents, ["list", "--data", str(house.root)], terminal_width=200)
    assert done.exit_code == 0, done.output
    assert "letter.cbz" in done.output
    assert "DONE" in done.output
    assert "notes.txt" in done.output
    found = CliRunner().invoke(documents, ["list", "--data", str(house.root), "--json"])
    assert json.loads(found.stdout)[0]["inputName"] == "letter.cbz"


def test_errors_of_convert_name_the_file_and_no_path_of_ours(tmp_path: Path) -> None:
    folder, key = Folder(tmp_path / ".cograil-convert-x"), f"{'a' * 64}__{'b' * 64}"
    item = Item(Path("scans/letter.pdf"), 1)
    conversion = Conversion(folder, tmp_path, [item], 500)
    message = f"cannot open {folder.source(key, item.alias)}: {folder.work_dir(key)}/raw.pdf is bad"
    assert conversion._readable(message, item, key) == "cannot open letter.pdf: raw.pdf is bad"
