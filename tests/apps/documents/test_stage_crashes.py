"""kill -9 inside PREP, OCR and their services: files are whole, and the next process ends the work.

The victims are forked. What recognises pages is played here, so that nothing but the renames takes time.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tests.apps.documents import sample_documents
from tests.apps.documents.crash_forks import killed_at
from tests.apps.documents.prepared_pictures import prepared
from tests.apps.documents.stage_services import ended, service
from tests.conftest import Eventually

from cograil.apps.documents import atomic_files, ocr, prep, services
from cograil.apps.documents.service_client import ask
from cograil.apps.documents.services import Service
from cograil.apps.documents.settings import DocumentSettings

PROFILE = {"lang": "eng", "options": {"sidecar_txt": True}}


def recognised(room: Path, run: str) -> ocr.Recognised:
    return ocr.recognise(
        room / "raw.pdf",
        room,
        PROFILE,
        run=run,
        jobs=1,
        min_bytes=100,
        is_resumed=True,
        progress=lambda *_: None,
    )


def played(raw: Path, written: Path, text: Path, *_: Any) -> None:
    shutil.copy(raw, written)
    text.write_text("[OCR skipped on page(s) 1]")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_prep_that_is_killed_at_its_rename_is_done_again_or_used(tmp_path: Path, moment: str) -> None:
    source, room = sample_documents.tiny(tmp_path / "a.cbz"), tmp_path / "room"
    content = source.read_bytes()
    work = partial(prepared, source, room, run="1")
    assert killed_at(f"documents.raw.{moment}", work)
    assert source.read_bytes() == content
    assert (room / "raw.pdf").exists() == (moment == "after")
    again = prep.prepare(source, room, run="2", dpi=None, is_resumed=True, progress=lambda *_: None)
    assert (again.pages, again.is_reused) == (1, moment == "after")
    assert [path.name for path in room.iterdir()] == ["raw.pdf"]  # and nothing of the one that died


@pytest.mark.parametrize("what", ["sidecar", "final"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_ocr_that_is_killed_at_its_renames_is_done_again_or_used(
    tmp_path: Path, what: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(sample_documents.tiny(tmp_path / "a.cbz"), tmp_path)
    monkeypatch.setattr(ocr, "_run", played)
    assert killed_at(f"documents.{what}.{moment}", partial(recognised, tmp_path, "1"))
    is_there = (what, moment) == ("final", "after")
    assert (tmp_path / "final.pdf").exists() == is_there
    assert recognised(tmp_path, "2").is_reused == is_there
    assert ocr.validate(tmp_path / "final.pdf", 100, 1) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cbz", "final.pdf", "final.txt", "raw.pdf"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have services run this shell script as their stage."""

    def play(script: str) -> None:
        program = tmp_path / "stage.sh"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(services, "sys", SimpleNamespace(executable=str(program)))

    return play


def order(root: Path, job_id: str = "one") -> dict[str, str]:
    return {"jobId": job_id, "inputPath": str(root / "a.cbz"), "workDir": str(root / "work")}


async def until_over(root: Path) -> None:
    stage_service = Service("prep", root, DocumentSettings())
    async with stage_service.running():
        stage_service.take(order(root))
        while (stage_service.find("one") or {}).get("state") != "DONE":  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "point",
    [
        "documents.write.before",
        "documents.write.after",
        "documents.service_claim.before",
        "documents.service_claim.after",
        "documents.requeue.before",
        "documents.requeue.after",
    ],
)
def test_a_service_that_is_killed_at_a_rename_ends_its_job_when_it_is_back(
    tmp_path: Path, stage: Callable[[str], None], point: str
) -> None:
    stage("""read order; echo '{"progress": [1, 1, "pages"]}'; echo '{"done": {"artifacts": {}}}'""")
    if "requeue" in point:  # somebody died before
        assert killed_at("documents.service_claim.after", lambda: asyncio.run(until_over(tmp_path)))
    assert killed_at(point, lambda: asyncio.run(until_over(tmp_path)))
    asyncio.run(until_over(tmp_path))
    records = {name: atomic_files.read_json(tmp_path / f"prep/{name}/one.json") for name in services.STATES}
    assert [name for name, record in records.items() if record] == ["done"]


async def test_processes_that_a_stage_started_end_with_it(
    tmp_path: Path, stage: Callable[[str], None], eventually: Eventually
) -> None:
    """When its time is up, and when the service stops."""
    sample_documents.tiny(tmp_path / "a.cbz")
    started = tmp_path / "started"
    stage(f"sleep 600 & echo $! >> {started}; wait")

    def is_gone() -> bool:
        pid = int(started.read_text().split()[-1])
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    async with service("prep", tmp_path, stage_timeout_seconds=2) as url:
        await ask(url, "POST", "/jobs/prep", order(tmp_path))
        assert (await ended(url, "one", eventually))["error"]["type"] == "timeout"
        await eventually(is_gone)
    started.unlink()
    async with service("prep", tmp_path) as url:
        assert (await ask(url, "POST", "/jobs/prep", order(tmp_path)))[
            0
        ] == 202  # an id that ended runs again
        await eventually(lambda: started.exists() and started.read_text().strip())
        assert not is_gone()
    await eventually(is_gone)
    assert (tmp_path / "prep/running/one.json").exists()  # and is queued again at the next start


async def test_a_second_service_leaves_to_the_first_what_it_runs(
    tmp_path: Path, stage: Callable[[str], None], eventually: Eventually
) -> None:
    sample_documents.tiny(tmp_path / "a.cbz")
    stage(f"echo x >> {tmp_path}/begun; sleep 600")
    begun = tmp_path / "begun"
    async with service("prep", tmp_path) as url:
        await ask(url, "POST", "/jobs/prep", order(tmp_path))
        await eventually(begun.exists)
        async with service("prep", tmp_path) as other:
            await ask(other, "POST", "/jobs/prep", order(tmp_path, "two"))
            await eventually(lambda: begun.read_text() == "x\nx\n")
            assert (await ask(other, "GET", "/jobs/one"))[1]["state"] == "RUNNING"
    async with service("prep", tmp_path):
        await eventually(lambda: begun.read_text() == "x\nx\nx\n")
