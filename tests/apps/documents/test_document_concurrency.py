"""How many documents are worked on at a time: stages that wait for the test, counted as they begin."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually
from tests.support.api_client import serve_api

from cograil.apps.documents.workflow import FINISH, OCR, PREP
from cograil.runners.handler_registry import Registry

COUNTS = """
select (select count(*) from cograil.admissions a join cograil.jobs j on j.id = a.job_id
        where a.admitted_at is not null and j.finished_at is null),
       (select count(*) from cograil.jobs where finished_at is null and is_held),
       (select count(*) from cograil.tasks where state = 'held' and handler = 'documents.prep'),
       (select count(*) from cograil.tasks where state = 'held' and handler = 'documents.ocr')
"""


class Stages:
    """Stages that end when the test lets them; the worker has places for many more than may run."""

    def __init__(self, site: DocumentSite) -> None:
        self.site = site
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.ended = 0
        self._may_end = {"prep": asyncio.Semaphore(0), "ocr": asyncio.Semaphore(0)}

    def let_end(self, stage: str, count: int = 1) -> None:
        for _ in range(count):
            self._may_end[stage].release()

    async def counts(self) -> tuple[int, int, int, int, int, int]:
        """Running PREPs and OCRs, jobs that were admitted, and what waits: jobs, PREPs, OCRs."""
        (counts,) = await self.site.lab.rows(COUNTS)
        self.most["jobs"] = max(self.most["jobs"], counts[0])
        return self.running["prep"], self.running["ocr"], *counts

    @contextlib.asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        registry = Registry()

        async def prep(**_: Any) -> dict[str, Any]:
            return await self._play("prep")

        async def ocr(**_: Any) -> dict[str, Any]:
            return await self._play("ocr")

        async def finish(**_: Any) -> dict[str, Any]:
            await self.counts()
            self.ended += 1
            return {}

        for handler, name in ((prep, PREP), (ocr, OCR), (finish, FINISH)):
            registry.register(handler, name)
        async with self.site.lab.orchestrator(), self.site.lab.worker(registry=registry):
            yield

    async def _play(self, stage: str) -> dict[str, Any]:
        self.running[stage] += 1
        self.most[stage] = max(self.most[stage], self.running[stage])
        try:
            await self.counts()
            await self._may_end[stage].acquire()
        finally:
            self.running[stage] -= 1
        return {"pages": 1}


@pytest.mark.parametrize(
    "document_settings", [{"max_jobs_in_flight": 3, "prep_concurrency": 2, "ocr_concurrency": 1}]
)
async def test_no_more_documents_than_configured_are_worked_on(
    site: DocumentSite, dsn: str, eventually: Eventually
) -> None:
    """Whatever could begin more waits: it is seen there before anything ends."""
    stages = Stages(site)

    async def seen(*wanted: int) -> None:
        async def look() -> bool:
            return await stages.counts() == wanted

        try:
            await eventually(look)
        except AssertionError:
            pytest.fail(f"{await stages.counts()} instead of {wanted}")

    for number in range(5):
        site.drop(f"{number}.cbz", number)
    await site.look()
    async with stages.playing():
        await seen(2, 0, 3, 2, 1, 0)  # two are prepared, the third of three waits, two are not admitted
        stages.let_end("prep", 2)
        await seen(1, 1, 3, 2, 0, 1)  # one is recognised, another waits for that
        stages.let_end("prep")
        await seen(0, 1, 3, 2, 0, 2)
        stages.let_end("ocr")
        await seen(1, 1, 3, 1, 0, 1)  # one is done, the next is admitted
        stages.let_end("prep")
        stages.let_end("ocr", 2)
        await seen(1, 1, 2, 0, 0, 0)
        stages.let_end("prep")
        stages.let_end("ocr", 2)
        await eventually(lambda: stages.ended == 5)
        await seen(0, 0, 0, 0, 0, 0)
        assert stages.most == {"prep": 2, "ocr": 1, "jobs": 3}

        stages.most.clear()
        async with serve_api(site.lab, dsn, site.settings) as api:
            config = {"prep_concurrency": 1, "ocr_concurrency": 2}
            answer = await api.call("POST", "/apps/documents/config", config)
            assert (answer.status, answer.body) == (200, {"applied": config})
        for number in range(5, 10):
            site.drop(f"{number}.cbz", number)
        await site.look()
        await seen(1, 0, 3, 2, 2, 0)
        stages.let_end("prep", 3)
        await seen(0, 2, 3, 2, 0, 1)
        stages.let_end("prep", 2)
        stages.let_end("ocr", 5)
        await eventually(lambda: stages.ended == 10)
        await seen(0, 0, 0, 0, 0, 0)
    assert stages.most == {"prep": 1, "ocr": 2, "jobs": 3}
