"""PREP and OCR as services: their HTTP API, their queue of files, and a watcher that uses them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.apps.documents.stage_services import ended, service
from tests.conftest import Eventually

from cograil.apps.documents import atomic_files, service_client, tools
from cograil.apps.documents.handlers import StageOptions
from cograil.apps.documents.prep import prepare
from cograil.apps.documents.service_client import ServiceDown, ServiceHeartbeat, ask, info_of
from cograil.apps.documents.services import InvalidOrder, Kind, Service
from cograil.apps.documents.settings import DocumentSettings
from cograil.http.server.port import bind, serving


async def test_a_page_in_a_browser_cannot_use_a_service_that_asks_for_no_key(tmp_path: Path) -> None:
    """Neither one that says where it comes from, nor one whose name was made to lead here."""
    async with service("prep", tmp_path) as url, httpx2.AsyncClient() as client:
        for headers, status in (
            ({}, 200),
            ({"Origin": url}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Host": "evil.example"}, 421),
        ):
            answer = await client.get(f"{url}/info", headers=headers)
            assert (answer.status_code, "detail" in answer.json()) == (status, status != 200)


async def test_prep_runs_a_job_over_http(tmp_path: Path, eventually: Eventually) -> None:
    source = sample_documents.tiny(tmp_path / "a.cbz")
    order = {"jobId": "one", "inputPath": str(source), "workDir": str(tmp_path / "work")}
    async with service("prep", tmp_path) as url:
        assert (await info_of(url))["versions"].keys() == {"7z", "img2pdf"}
        assert await ask(url, "POST", "/jobs/prep", order) == (
            202,
            {"jobId": "one", "statusUrl": "/jobs/one"},
        )
        assert (await ask(url, "POST", "/jobs/prep", order))[0] == 202
        record = await ended(url, "one", eventually)
        assert (record["state"], record["error"]) == ("DONE", None)
        assert record["artifacts"] == {"rawPdf": str(tmp_path / "work/one/raw.pdf")}
        assert await ask(url, "GET", "/jobs/two") == (404, {"detail": "job not found"})
        assert (tmp_path / "work/one/prep.heartbeat").exists()

        (tmp_path / "bad.cbz").write_bytes(b"PK\x03\x04nothing")
        await ask(url, "POST", "/jobs/prep", order | {"jobId": "bad", "inputPath": str(tmp_path / "bad.cbz")})
        record = await ended(url, "bad", eventually)
        assert (record["state"], record["error"]["type"]) == ("ERROR", "archive_corrupt")


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobId": "../x"},
        {"jobId": "a/b"},
        {"jobId": ""},
        {"inputPath": "/etc/passwd"},
        {"workDir": "/etc"},
        {"workDir": "relative"},
        {"inputPath": None},
        {"workDir": "ROOT/../.."},
    ],
)
async def test_orders_that_lead_elsewhere_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    order = {"jobId": "one", "inputPath": str(tmp_path / "a.cbz"), "workDir": str(tmp_path / "work")} | wrong
    order["workDir"] = str(order["workDir"]).replace("ROOT", str(tmp_path))
    async with service("prep", tmp_path) as url:
        assert (await ask(url, "POST", "/jobs/prep", order))[0] == 422
        assert (await ask(url, "POST", "/jobs/prep", {}))[0] == 422
        assert (await ask(url, "POST", "/jobs/prep", [1]))[0] == 422


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("prep", "work/raw.pdf"),
        ("prep", "work/../work/raw.pdf"),
        ("prep", "work/a link"),
        ("prep", "work/pages/1.png"),
        ("prep", "work"),
        ("prep", "."),
        ("ocr", "work/final.pdf"),
        ("ocr", "work/tmp/1/origin.pdf"),
    ],
)
async def test_a_stage_does_not_remove_what_it_is_given(tmp_path: Path, kind: Kind, source: str) -> None:
    """It would do so before it reads it."""
    room, name = tmp_path / "work", {"prep": "inputPath", "ocr": "rawPdfPath"}[kind]  # of the job `work`
    for file in ("pages/1.png", "tmp/1/origin.pdf", "raw.pdf", "final.pdf", "prep.cbz"):
        (room / file).parent.mkdir(parents=True, exist_ok=True)
        (room / file).touch()
    (room / "a link").symlink_to("raw.pdf")
    before = sorted(room.rglob("*"))
    stage_service = Service(kind, tmp_path, DocumentSettings())
    with pytest.raises(InvalidOrder, match="what this stage writes"):
        stage_service.take({"jobId": "work", name: f"{tmp_path}/{source}", "workDir": str(tmp_path)})
    assert sorted(room.rglob("*")) == before
    allowed = {"prep": "prep.cbz", "ocr": "raw.pdf"}[kind]
    assert (
        stage_service.take({"jobId": "work", name: f"{room}/{allowed}", "workDir": str(tmp_path)}) == "work"
    )


async def test_a_running_job_of_a_dead_service_is_queued_again(
    tmp_path: Path, eventually: Eventually
) -> None:
    source = sample_documents.tiny(tmp_path / "a.cbz")
    order = {"jobId": "one", "inputPath": str(source), "workDir": str(tmp_path / "work")}
    atomic_files.write_json(tmp_path / "prep/running/one.json", {"jobId": "one", "order": order})
    (tmp_path / "prep/running/notes.txt").touch()
    async with service("prep", tmp_path) as url:
        assert (await ended(url, "one", eventually))["state"] == "DONE"


async def test_a_stage_that_takes_too_long_is_killed_with_all_it_started(
    tmp_path: Path, eventually: Eventually
) -> None:
    source = sample_documents.tiny(tmp_path / "a.cbz")
    async with service("prep", tmp_path, stage_timeout_seconds=0.01) as url:
        await ask(
            url,
            "POST",
            "/jobs/prep",
            {"jobId": "one", "inputPath": str(source), "workDir": str(tmp_path / "w")},
        )
        assert (await ended(url, "one", eventually))["error"]["type"] == "timeout"


def test_a_pulse_is_that_of_this_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    path, terms = tmp_path / "ocr.heartbeat", StageOptions(pulse_seconds=1, timeout_seconds=60)
    old, silent = ServiceHeartbeat((path,), terms), ServiceHeartbeat((tmp_path / "none.heartbeat",), terms)
    path.touch()
    os.utime(path, (1, 1))  # of a try long ago
    seen = []
    for seconds in (0, 60, 5, 60, 10):
        now[0] += seconds
        seen.append((old.is_gone(), silent.is_gone()))
    assert seen == [(False, False), (False, False), (True, False), (True, False), (True, True)]
    path.touch()
    assert not old.is_gone()


async def test_a_service_that_is_down_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ServiceDown):
        await info_of("http://127.0.0.1:9")


async def test_a_document_by_services_that_come_late(
    site: DocumentSite, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken until both say who they are; the keys are those of in-process work.

    What an earlier try left is used without asking them: only the ticks have real OCR by a service.
    """
    monkeypatch.setattr(service_client, "POLL_SECONDS", 0.05)
    prep_port, ocr_port = (bind("127.0.0.1", 0) for _ in range(2))
    ports = [listener.getsockname()[1] for listener in (prep_port, ocr_port)]
    prep_port.close()
    ocr_port.close()
    urls = {"prep_url": f"http://127.0.0.1:{ports[0]}", "ocr_url": f"http://127.0.0.1:{ports[1]}"}
    settings = site.settings.model_copy(
        update={"documents": site.settings.section(DocumentSettings).model_copy(update=urls)}
    )
    path = site.drop("a.cbz")
    await site.prepare_results(path)
    key = await site.key_of(path)
    async with site.working(settings), service("prep", site.root, ports[0]):
        await eventually(lambda: site.names("in") == ["a.cbz"])
        async with service("ocr", site.root, ports[1]):
            await eventually(lambda: site.names("archive") == ["a.cbz"], timeout=60)
    assert site.names("out") == [f"a__job-{key}.pdf"]
    for kind in ("prep", "ocr"):
        assert list((site.root / kind / "done").iterdir()) == []


async def test_two_jobs_of_one_work_directory_do_not_meet(tmp_path: Path, eventually: Eventually) -> None:
    """As an orchestrator of the original asks: `workDir` is the same for all, `jobId` is the key."""
    work = tmp_path / "work"
    async with service("prep", tmp_path, service_concurrency=2) as prep_url:
        for job_id, shade in (("a", 10), ("b", 240)):
            (work / job_id).mkdir(parents=True)
            source = sample_documents.tiny(work / job_id / "comic.cbz", shade)
            order = {"jobId": job_id, "inputPath": str(source), "workDir": str(work)}
            assert (await ask(prep_url, "POST", "/jobs/prep", order))[0] == 202
        for job_id in ("a", "b"):
            record = await ended(prep_url, job_id, eventually)
            assert record["artifacts"] == {"rawPdf": str(work / job_id / "raw.pdf")}
            assert (work / job_id / "prep.heartbeat").exists()
    assert (work / "a/raw.pdf").read_bytes() != (work / "b/raw.pdf").read_bytes()
    assert sorted(path.name for path in work.iterdir()) == ["a", "b"]


class Original:
    """A service as the original has them: it writes below `workDir/<jobId>`, and names what it made."""

    def __init__(self, kind: Kind, where: str = "{work}/{job}/{name}") -> None:
        self.kind = kind
        self.orders: list[dict[str, Any]] = []
        self._where = where

    def _answer(self, order: dict[str, Any]) -> dict[str, Any]:
        name = {"prep": "raw.pdf", "ocr": "final.pdf"}[self.kind]
        path = Path(self._where.format(work=order["workDir"], job=order["jobId"], name=name))
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / f"{self.kind}.log").write_text(f"{self.kind} of the original\n")
        if self.kind == "prep":
            prepare(
                Path(order["inputPath"]),
                path.parent,
                run="0",
                dpi=None,
                is_resumed=False,
                progress=lambda *_: None,
            )
        else:
            shutil.copy(order["rawPdfPath"], path)
        field = {"prep": "rawPdf", "ocr": "finalPdf"}[self.kind]
        return {"state": "DONE", "artifacts": {field: str(path)}}

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        records: dict[str, Any] = {}

        async def answer(request: Request) -> JSONResponse:
            if request.url.path == "/info":
                return JSONResponse(tools.prep_info() if self.kind == "prep" else tools.ocr_info())
            if request.method == "GET":
                return JSONResponse(records[request.url.path.rpartition("/")[2]])
            order = await request.json()
            self.orders.append(order)
            records[order["jobId"]] = await asyncio.to_thread(self._answer, order)
            return JSONResponse({"jobId": order["jobId"]}, 202)

        app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
        listening = bind("127.0.0.1", 0)
        async with serving(app, listening):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def with_services(site: DocumentSite, prep_url: str, ocr_url: str) -> Any:
    urls = {"prep_url": prep_url, "ocr_url": ocr_url, "min_pdf_size_bytes": 100}
    return site.settings.model_copy(
        update={"documents": site.settings.section(DocumentSettings).model_copy(update=urls)}
    )


@pytest.mark.parametrize("where", ["{work}/{job}/{name}", "{work}/elsewhere/{name}"])
async def test_services_of_the_original_say_where_their_pdf_is(
    site: DocumentSite, eventually: Eventually, where: str
) -> None:
    path = site.drop("a.cbz")
    key = await site.key_of(path)
    prep_service, ocr_service = Original("prep"), Original("ocr", where)
    async with (
        prep_service.serving() as prep_url,
        ocr_service.serving() as ocr_url,
        site.working(with_services(site, prep_url, ocr_url)),
    ):
        await eventually(lambda: site.names("archive") == ["a.cbz"], timeout=30)
    assert site.names("out") == [f"a__job-{key}.pdf"]
    room = site.folder.work_dir(key)
    assert "prep of the original" in (room / "prep.log").read_text()
    assert not [path for path in room.iterdir() if path.name.startswith(key)]
    assert [len(stage_service.orders) for stage_service in (prep_service, ocr_service)] == [1, 1]


async def test_a_service_cannot_name_the_pdf_of_another_document(
    site: DocumentSite, eventually: Eventually
) -> None:
    site.drop("a.cbz")
    prep_service = Original("prep", str(site.root / "work/secret/raw.pdf"))
    async with (
        prep_service.serving() as prep_url,
        Original("ocr").serving() as ocr_url,
        site.working(with_services(site, prep_url, ocr_url)),
    ):
        await eventually(lambda: site.names("error") == ["a.cbz"], timeout=30)
    (document,) = await site.documents()
    assert "not in the work directory of this document [foreign_artifact]" in document.message
    assert (site.root / "work/secret/raw.pdf").exists()


async def test_a_document_for_a_removed_service_is_done_here(
    site: DocumentSite, eventually: Eventually
) -> None:
    path = site.drop("a.cbz")
    await site.prepare_results(path)
    services = Careless(tools.prep_info(), lambda room: None), Careless(tools.ocr_info(), lambda room: None)
    async with services[0].serving() as prep_url, services[1].serving() as ocr_url:
        urls = {"prep_url": prep_url, "ocr_url": ocr_url}
        changed = site.settings.section(DocumentSettings).model_copy(update=urls)
        site.watcher = site.another_watcher(site.settings.model_copy(update={"documents": changed}))
        await site.look()
    (document,) = await site.documents()
    assert (
        await site.lab.rows("select document -> 'nodes' -> 'ocr' ->> 'handler' from cograil.workflows")
    ) == [("documents.ocr_service",)]
    async with site.working():
        await eventually(lambda: site.names("archive") == ["a.cbz"], timeout=30)
    assert document.job_status == "pending"


async def test_an_invalid_record_blocks_no_other_job(tmp_path: Path, eventually: Eventually) -> None:
    source = sample_documents.tiny(tmp_path / "a.cbz")
    (tmp_path / "prep/queue").mkdir(parents=True)
    (tmp_path / "prep/queue/junk.json").write_text("[]")
    async with service("prep", tmp_path) as url:
        await eventually((tmp_path / "prep/error/junk.json").exists)
        assert (await ended(url, "junk", eventually))["error"]["type"] == "service_error"
        order = {"jobId": "one", "inputPath": str(source), "workDir": str(tmp_path / "work")}
        await ask(url, "POST", "/jobs/prep", order)
        assert (await ended(url, "one", eventually))["state"] == "DONE"
    assert (tmp_path / "work/one/prep.log").read_text().endswith("INFO done\n")


@pytest.mark.parametrize(
    "body", [b"[" * 60_000, b'{"jobId": "\\ud800"}', b"\xff", b"", b'{"jobId": 1, "jobId": 2}', b"NaN"]
)
async def test_a_body_that_is_no_order_is_refused(tmp_path: Path, body: bytes) -> None:
    async with service("prep", tmp_path) as url:

        def post() -> int:
            request = urllib.request.Request(f"{url}/jobs/prep", body)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            refused.value.close()
            return refused.value.code

        assert await asyncio.to_thread(post) == 422


class Careless:
    """A service of somebody else, that says it is done at once; `make` leaves what it made."""

    def __init__(self, info: dict[str, Any], make: Callable[[Path], None], **answer: Any) -> None:
        self._info = info
        self._make = make
        self._answer_fields = answer
        self.orders: list[dict[str, Any]] = []

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async def answer(request: Request) -> JSONResponse:
            if request.url.path == "/info":
                return JSONResponse(self._info)
            if request.method == "GET":
                return JSONResponse({"state": "DONE"} | self._answer_fields)
            order = await request.json()
            self.orders.append(order)
            await asyncio.to_thread(self._make, Path(order["workDir"]))
            return JSONResponse({"jobId": order["jobId"]}, 202)

        app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
        listening = bind("127.0.0.1", 0)
        async with serving(app, listening):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_the_files_of_a_service_are_checked(site: DocumentSite, eventually: Eventually) -> None:
    """It says that it is done, but its file is not a PDF: after three tries the input is in `error`."""
    ocr_service = Careless(
        tools.ocr_info(), lambda room: atomic_files.write_bytes(room / "final.pdf", b"%PDF-no")
    )
    site.drop("a.cbz")
    async with ocr_service.serving() as url:
        changed = site.settings.section(DocumentSettings).model_copy(update={"ocr_url": url})
        async with site.working(site.settings.model_copy(update={"documents": changed})):
            await eventually(lambda: site.names("error") == ["a.cbz"], timeout=40)
            await eventually(lambda: site.read("index/metrics.json")["pdf_invalid"] == 3)
    assert len({order["jobId"] for order in ocr_service.orders}) == 3
    assert site.names("out") == []
    (document,) = await site.documents()
    assert "[pdf_invalid]" in document.message


@pytest.mark.parametrize(
    ("answer", "place"), [({}, "archive"), ({"words": 0}, "archive"), ({"words": 7}, "error")]
)
async def test_words_that_a_service_found_must_be_in_its_pdf(
    site: DocumentSite, eventually: Eventually, answer: dict[str, Any], place: str
) -> None:
    """One that does not say how many it found is believed."""

    def without_text(room: Path) -> None:
        shutil.copy(room / "raw.pdf", room / "final.pdf")

    ocr_service = Careless(tools.ocr_info(), without_text, **answer)
    site.drop("a.cbz")
    async with ocr_service.serving() as url:
        changed = site.settings.section(DocumentSettings).model_copy(
            update={"ocr_url": url, "min_pdf_size_bytes": 100}
        )
        async with site.working(site.settings.model_copy(update={"documents": changed})):
            await eventually(lambda: site.names("archive") + site.names("error") == ["a.cbz"], timeout=40)
            await eventually(lambda: site.read("index/metrics.json")["queued"] == 0)
    assert site.names(place) == ["a.cbz"]
    (document,) = await site.documents()
    assert ("text was recognised, but the PDF has no text layer" in document.message) == (place == "error")


@pytest.mark.parametrize("answer", [(500, {"detail": "oh"}), (200, []), (200, {}), (200, {"state": "LOST"})])
async def test_an_answer_that_is_no_record_is_waited_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any]
) -> None:
    """It costs no attempt, as if nobody had answered."""
    monkeypatch.setattr(service_client, "POLL_SECONDS", 0)
    answers = [(202, {}), answer, (200, {"state": "DONE", "artifacts": {}})]

    async def played(*_: Any, **__: Any) -> tuple[int, Any]:
        return answers.pop(0)

    monkeypatch.setattr(service_client, "ask", played)
    warnings: list[str] = []
    log = SimpleNamespace(warning=lambda event, error: warnings.append(error))
    ctx: Any = SimpleNamespace(job_id="0" * 36, attempt=1, log=log)
    done = await service_client._run_order(ctx, "http://x", "prep", "key", tmp_path, {}, StageOptions())
    assert done["state"] == "DONE"
    assert "without the record of a job" in warnings[0]


async def test_a_service_that_loses_every_job_is_told_it_again_at_leisure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pause is twice the one before, until it says that it has the job."""
    queued, done = (200, {"state": "QUEUED"}), (200, {"state": "DONE"})
    answers = [*[(202, {}), (404, {})] * 6, (202, {}), queued, (404, {}), (202, {}), done]
    pauses: list[float] = []

    async def played(*_: Any, **__: Any) -> tuple[int, Any]:
        return answers.pop(0)

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(service_client, "ask", played)
    monkeypatch.setattr(asyncio, "sleep", slept)
    ctx: Any = SimpleNamespace(job_id="0" * 36, attempt=1)
    await service_client._run_order(ctx, "http://x", "prep", "key", tmp_path, {}, StageOptions())
    assert pauses == [2, 4, 8, 15, 15, 15, 1, 2]
    assert not answers
