"""A document through its nodes: what is where in the end, what fails, and what goes on where it stopped."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually

from cograil.apps.documents import atomic_files, cleanup, finalize, handlers, ocr
from cograil.apps.documents.file_claims import locked
from cograil.apps.documents.folder_id import folder_id_of
from cograil.apps.documents.jobs import Document, ending_of
from cograil.apps.documents.layout import folder_of
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.status_files import state_of
from cograil.runners.context import Fail


async def test_a_document_that_is_done_is_archived_and_shown(
    site: DocumentSite, eventually: Eventually
) -> None:
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    key = await site.key_of(dropped)
    async with site.working():
        await eventually(lambda: site.names("archive") == ["a.cbz"], timeout=30)
        await eventually(lambda: site.read("index/metrics.json")["done"] == 1)
    assert site.names("out") == [f"a__job-{key}.pdf"]
    assert site.read("index/jobs.json")["jobs"][key]["outPdf"] == f"a__job-{key}.pdf"
    state = site.read(f"work/{key}/state.json")
    assert (state["state"], state["attempt"]) == ("DONE", 1)
    metrics = site.read("index/metrics.json")
    assert (metrics["prep_skipped"], metrics["ocr_skipped"], metrics["running"], metrics["queued"]) == (
        1,
        1,
        0,
        0,
    )
    assert {"prep.heartbeat", "ocr.heartbeat", "raw.pdf"} <= set(site.names(f"work/{key}"))


@pytest.mark.parametrize("document_settings", [{"keep_work_dir_days": 0}])
async def test_the_work_directory_goes_after_the_input_is_archived(
    site: DocumentSite, eventually: Eventually
) -> None:
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    async with site.working():
        await eventually(lambda: site.names("archive") == ["a.cbz"], timeout=30)
        await eventually(lambda: site.names("work") == ["_staging"])
    assert len(site.names("out")) == 1


async def test_a_document_of_a_user_stays_with_the_user(site: DocumentSite, eventually: Eventually) -> None:
    ada = folder_of(site.root, "users/ada")
    dropped = site.drop("a.cbz", folder=ada)
    await site.prepare_results(dropped, folder=ada)
    async with site.working():
        await eventually(lambda: site.names("archive", ada) == ["a.cbz"], timeout=30)
    assert len(site.names("out", ada)) == 1
    assert site.names("out") == site.names("archive") == []


async def test_a_document_that_cannot_be_prepared_goes_to_error_at_once(
    site: DocumentSite, eventually: Eventually
) -> None:
    sample_documents.comic(site.folder.arrivals / "a.cbz", {"../1.png": sample_documents.dot()})
    async with site.working():
        await eventually(lambda: site.names("error") == ["a.cbz"], timeout=30)
        await eventually(lambda: site.read("index/metrics.json")["error"] == 1)
    (document,) = await site.documents()
    assert document.state == "ERROR_PREP"
    assert "[unsafe_path]" in document.message
    nodes = await site.lab.nodes(document.job_id)
    assert nodes["prep"]["attempt"] == 1
    assert site.read("index/jobs.json")["jobs"][document.key]["state"] == "ERROR_PREP"
    assert site.read(f"work/{document.key}/state.json")["state"] == "ERROR"


async def test_a_temporary_failure_is_tried_three_times_and_goes_to_error(
    site: DocumentSite, eventually: Eventually
) -> None:
    """The room cannot be written to: a directory is where raw.pdf should be."""
    dropped = site.drop("a.cbz")
    room = site.folder.work_dir(await site.key_of(dropped))
    (room / "ocr.heartbeat").mkdir(parents=True)
    (room / "final.pdf" / "in the way").mkdir(parents=True)
    (room / "tmp").touch()
    async with site.working():
        await eventually(lambda: site.names("error") == ["a.cbz"], timeout=40)
    (document,) = await site.documents()
    assert document.state == "ERROR_OCR"
    assert (await site.lab.nodes(document.job_id))["ocr"]["attempt"] == 3


async def test_a_job_that_is_cancelled_gives_its_input_back(
    site: DocumentSite, eventually: Eventually
) -> None:
    site.drop("a.cbz")
    await site.look()
    (document,) = await site.documents()
    await site.lab.cancel(document.job_id)
    await site.look()
    (document,) = await site.documents()
    assert (document.state, document.message) == ("ERROR", "cancelled")
    assert site.names("error") == ["a.cbz"]


async def test_other_numbers_are_another_version(site: DocumentSite) -> None:
    site.drop("a.cbz", 1)
    await site.look()
    site.watcher = site.another_watcher(
        site.settings.model_copy(
            update={
                "documents": site.settings.section(DocumentSettings).model_copy(update={"ocr_concurrency": 4})
            }
        )
    )
    site.drop("b.cbz", 2)
    await site.look()
    versions = await site.lab.rows("select version from cograil.workflows order by version")
    assert versions == [(1,), (2,)]


async def test_files_elsewhere_cannot_be_had_by_submitting_a_job(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(handlers.ROOT_VARIABLE, str(site.root))
    key = f"{'0' * 64}__{'0' * 64}"
    for folder, wrong, name in (
        ("..", key, "a"),
        ("/etc", key, "a"),
        ("", "../../etc", "passwd"),
        ("", key, "../x"),
        ("", key, "/etc/passwd"),
    ):
        with pytest.raises(Fail):
            handlers.make_work_dir(handlers.folder_here(folder), wrong, name)
    here = handlers.folder_here("")
    with pytest.raises(Fail, match="gone"):
        handlers.place_input(here, key, "a", "../../../etc/passwd")


async def test_bringing_out_can_be_done_again_at_any_point(site: DocumentSite) -> None:
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    key = await site.key_of(dropped)
    dropped.rename(site.folder.work_dir(key) / "a.cbz")
    first = finalize.bring_out(site.folder, key, "a.cbz")
    assert finalize.bring_out(site.folder, key, "a.cbz")[0] == first[0]
    assert site.names("archive") == ["a.cbz"]
    assert len(site.names("out")) == 1


async def test_a_late_final_pdf_of_an_attempt_that_was_given_up_changes_nothing(site: DocumentSite) -> None:
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    key = await site.key_of(dropped)
    dropped.rename(site.folder.work_dir(key) / "a.cbz")
    pdf, _ = finalize.bring_out(site.folder, key, "a.cbz")
    before = pdf.read_bytes()
    (site.folder.work_dir(key) / "final.pdf").write_bytes(before + b"\n% another one")
    assert finalize.bring_out(site.folder, key, "a.cbz") == (pdf, "")
    assert pdf.read_bytes() == before
    assert len(site.names("out")) == 1


async def given_up(site: DocumentSite, status: str = "failed") -> Document:
    """A document with its PDFs made, whose job ended before its last node did."""
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    await site.look()
    (document,) = await site.documents()
    made = {"status": "completed", "attempt": 1, "output": {"pages": 1, "is_reused": True, "pdf_invalid": 2}}
    return document._replace(job_status=status, nodes={"prep": made, "ocr": made})


@pytest.mark.parametrize("left", ["nothing", "the PDF", "a copy of the input"])
async def test_a_pdf_that_was_made_is_brought_out_though_its_job_was_given_up(
    site: DocumentSite, left: str
) -> None:
    document = await given_up(site)
    room, here = site.folder.work_dir(document.key), site.folder
    if left != "nothing":
        atomic_files.move(room / "final.pdf", here.pdf("a.cbz", document.key))
    if left == "a copy of the input":
        (here.archive / "a.cbz").symlink_to(room / "a.cbz")  # a name that is taken by something else
        atomic_files.copy(room / "a.cbz", here.archive / "a (2).cbz")
    ending = finalize.end(here, document)
    assert (ending.state, ending.pages, ending.pdf_invalid, ending.ocr_skipped) == ("DONE", 1, 2, True)
    assert state_of(document)["state"] == "OCR_DONE"
    assert site.names("out") == [ending.out_pdf]
    assert site.names("error") == site.names("in") == []
    assert not (room / "a.cbz").exists()


@pytest.mark.parametrize(("is_out", "place"), [(True, "archive"), (False, "error")])
async def test_a_cancelled_document_is_finished_only_where_its_end_was_begun(
    site: DocumentSite, is_out: bool, place: str
) -> None:
    document = await given_up(site, "cancelled")
    if is_out:
        atomic_files.move(
            site.folder.work_dir(document.key) / "final.pdf", site.folder.pdf("a.cbz", document.key)
        )
    assert finalize.end(site.folder, document).state == ("DONE" if is_out else "ERROR")
    assert site.names(place) == ["a.cbz"]
    assert (site.names("archive") + site.names("error")) == ["a.cbz"]


async def test_an_input_that_somebody_moves_is_left_to_him(site: DocumentSite) -> None:
    document = await given_up(site)
    with locked(site.folder.source(document.key, "a.cbz")) as is_mine:
        assert is_mine
        with pytest.raises(BlockingIOError):
            finalize.end(site.folder, document)
        with pytest.raises(BlockingIOError):
            finalize.bring_to_error(site.folder, document.key, "a.cbz", document.staged)
    assert finalize.end(site.folder, document).state == "DONE"


async def test_a_pdf_that_cannot_be_brought_out_fails_its_document(site: DocumentSite) -> None:
    """Its last node tried for long; the input goes where somebody sees it."""
    document = await given_up(site)
    site.folder.out.rmdir()
    site.folder.out.write_bytes(b"no directory")
    failed = {"status": "failed", "error": {"code": "x", "message": "no room"}}
    document.nodes["finish"] = failed
    assert (state_of(document)["state"], state_of(document)["message"]) == ("OCR_DONE", "no room")
    assert finalize.end(site.folder, document).message == "no room [x]"
    assert site.names("error") == ["a.cbz"]


async def test_an_old_room_is_tidied_only_when_its_document_is_done(
    site: DocumentSite, eventually: Eventually
) -> None:
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    async with site.working():
        await eventually(lambda: site.names("archive") == ["a.cbz"], timeout=30)
        (document,) = await site.documents()
        await eventually(lambda: site.read(f"work/{document.key}/state.json")["state"] == "DONE")
    place = folder_id_of(site.folder)
    assert await cleanup.tidy(site.lab.db, site.folder, place, 7) == []
    assert await cleanup.tidy(site.lab.db, site.folder, place, 0) == [document.key]


def test_words_that_ocrmypdf_says_itself_are_no_text() -> None:
    assert ocr._words("[OCR skipped on page(s) 1-3]") == []
    assert ocr._words("Une vache") == ["Une", "vache"]


def test_an_error_says_which_stage(tmp_path: Any) -> None:
    blank = dict.fromkeys(Document._fields)
    failed = {"status": "failed", "error": {"code": "timeout", "message": "late", "details": None}}
    document = Document(**blank | {"nodes": {"prep": {"status": "completed"}, "ocr": failed}})  # type: ignore[arg-type]
    assert ending_of(document).state == "ERROR_OCR"


@pytest.mark.parametrize(
    "document_settings", [{"stage_timeout_seconds": 0.01, "max_attempts_prep": 2, "max_attempts_ocr": 2}]
)
async def test_a_stage_that_takes_too_long_is_ended_by_the_engine(
    site: DocumentSite, eventually: Eventually
) -> None:
    site.drop("a.cbz")
    async with site.working():
        await eventually(lambda: site.names("error") == ["a.cbz"], timeout=40)
        await eventually(lambda: site.read("index/metrics.json")["error"] == 1)
    (document,) = await site.documents()
    assert document.message.endswith("[timeout]")
    failed = "ocr" if document.state == "ERROR_OCR" else "prep"  # a quick PREP is used by its next attempt
    assert (await site.lab.nodes(document.job_id))[failed]["attempt"] == document.attempt == 2


async def test_a_stage_that_is_frozen_is_ended_and_tried_again(
    site: DocumentSite, eventually: Eventually
) -> None:
    """Nobody in it can see that the time is up: here its heartbeat is made to be old."""
    dropped = site.drop("a.cbz")
    path = site.folder.work_dir(await site.key_of(dropped)) / "ocr.heartbeat"
    async with site.working():
        await eventually(lambda: path.exists() and path.read_text(), timeout=30)
        frozen = int(path.read_text().split()[0])
        os.kill(frozen, signal.SIGSTOP)
        os.utime(path, (1, 1))
        await eventually(lambda: site.names("archive") == ["a.cbz"], timeout=60)
        await eventually(lambda: site.read("index/metrics.json")["done"] == 1)
    (document,) = await site.documents()
    assert (document.state, document.attempt) == ("DONE", 2)
