"""Runs that wait, and runs that were left in their middle: lock, verdict, and what comes after."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from bureau import Bureau, told, until, working
from registers import DANONE, INPI, OTHER, RCS, RECHERCHE, Asked, extract, result, results, said, silence
from tests.support.page_client import PageClient

from cograil.apps.companies.enrichment import House, cache_key
from cograil.apps.companies.queries import Of, find_left, list_held, lock_company
from cograil.apps.companies.sweeper import end_left
from cograil.apps.companies.worker_lifespan import running_companies
from cograil.apps.companies.workflow import QUEUE
from cograil.cli import main
from cograil.verbs import idempotency
from cograil.verbs.pause import pause_queue, resume_queue

RUNS = "select trigger, attempt, is_abnormal, status from cograil.company_runs order by created_at"
FOUND = said(200, results(result()))


@pytest.fixture
def companies() -> dict[str, Any]:
    return {"sync_seconds": 0, "sweep_seconds": 600}


def and_then_nobody(bureau: Bureau, answer: bytes) -> Callable[[Asked], Awaitable[bytes]]:
    """This answer; what comes after it finds no worker, for the queue is paused."""

    async def answered(asked: Asked) -> bytes:
        async with bureau.lab.db.transaction("pause") as tx:
            await pause_queue(tx, QUEUE)
        return answer

    return answered


async def waits(bureau: Bureau, node: str) -> None:
    """Returns when the task of this node waits for a worker."""
    query = "select 1 from cograil.tasks where state = 'ready' and node_id = %(node)s"
    await until(lambda: bureau.lab.rows(query, node=node))


async def left_at(bureau: Bureau, node: str) -> str:
    """The request of a run whose workers are gone before this node, and whose lock is over."""
    id = await bureau.asked()
    async with working(bureau):
        await waits(bureau, node)
    assert await bureau.state() == "RUNNING"
    await bureau.expire()
    return id


class TestWaiting:
    @pytest.fixture
    def companies(self, companies: dict[str, Any]) -> dict[str, Any]:
        return companies | {"lock_seconds": 8, "timeout_seconds": 2}

    async def test_a_run_that_waits_for_a_worker_keeps_its_lock(self, closed: Bureau) -> None:
        """All workers may be busy for longer than a lock lasts."""
        closed.registers.answer(RECHERCHE, and_then_nobody(closed, FOUND))
        id = await closed.asked()
        async with working(closed):
            await waits(closed, "inpi")
            ((ends_at,),) = await closed.lab.rows("select lease_until from cograil.leases")
            longer = "select 1 from cograil.leases where lease_until > %(then)s"
            await until(lambda: closed.lab.rows(longer, then=ends_at))
            async with closed.lab.db.transaction("resume") as tx:
                await resume_queue(tx, QUEUE)
            assert (await closed.ended(id))["request"]["enrichment_status"] == "SUCCESS"
        assert await closed.lab.rows(RUNS) == [("REQUEST_CREATED", 1, False, "SUCCESS")]

    async def test_one_that_waits_for_an_orchestrator_loses_it(self, closed: Bureau) -> None:
        """Nobody knows whether one ever comes: what is RUNNING must not stay so."""
        await closed.asked()
        async with closed.lab.orchestrator():
            await until(lambda: closed.lab.rows("select 1 from cograil.tasks"))
        async with running_companies(closed.lab.registry, closed.lab.db, closed.lab.settings):
            async with closed.lab.worker():
                await until(lambda: closed.lab.rows("select 1 from cograil.leases"))
            async with closed.lab.db.single("test") as tx:
                assert await list_held(tx) == []


async def test_a_run_that_was_left_after_its_last_source_is_a_success_and_no_other_begins(
    closed: Bureau,
) -> None:
    closed.registers.answer(RCS, and_then_nobody(closed, said(200, extract())))
    id = await left_at(closed, "merge")
    seen = await closed.look(id)
    assert (seen["request"]["enrichment_status"], seen["enrichment_running"]) == ("SUCCESS", False)
    assert seen["company"]["registry"]["city"] == "PARIS", "also what nobody had put together yet"
    assert await closed.lab.rows(RUNS) == [("REQUEST_CREATED", 1, True, "SUCCESS")]
    assert await closed.lab.rows("select status from cograil.jobs") == [("cancelled",)]


async def test_what_failed_before_a_run_was_left_keeps_its_code(closed: Bureau) -> None:
    closed.registers.answer(RECHERCHE, and_then_nobody(closed, said(404)))
    async with closed.hearing() as receiver:
        id = await left_at(closed, "inpi")
        seen = await closed.look(id)
        await until(lambda: told(receiver, "CompanyEnrichmentCompleted"))
    error = "API_RECHERCHE_ENTREPRISES:404:NOT_FOUND|INPI_RNE:-:INTERNAL_ERROR"
    assert (seen["request"]["enrichment_status"], seen["request"]["enrichment_error"]) == ("FAILED", error)
    fetched = told(receiver, "CompanyEnrichmentSourceFetched")
    assert [(one["source_api"], one["http_status"]) for one in fetched] == [(RECHERCHE, 404), (INPI, None)]


class TestWithoutCredentials:
    @pytest.fixture
    def companies(self, companies: dict[str, Any]) -> dict[str, Any]:
        return companies | {"inpi_password": None, "rcs_token": None}

    async def test_what_could_not_be_asked_does_not_count_when_a_run_is_left(self, closed: Bureau) -> None:
        closed.registers.answer(RECHERCHE, and_then_nobody(closed, FOUND))
        seen = await closed.look(await left_at(closed, "merge"))
        assert (seen["request"]["enrichment_status"], seen["request"]["enrichment_error"]) == (
            "SUCCESS",
            None,
        )
        assert [one["source_api"] for one in seen["source_retrievals"]] == [RECHERCHE]


async def test_a_refresh_that_was_cancelled_before_it_began_is_begun_again_by_who_looks(
    closed: Bureau,
) -> None:
    async with working(closed):
        id = await closed.asked()
        await closed.over(id)
    assert (await closed.refresh(id)).status == 202
    ((job_id,),) = await closed.lab.rows("select job_id::text from cograil.company_enrichments")
    await closed.lab.cancel(job_id)
    assert (await closed.look(id))["enrichment_running"]
    async with working(closed):
        await closed.over(id)
    assert await closed.lab.rows(RUNS) == [
        ("REQUEST_CREATED", 1, False, "SUCCESS"),
        ("MANUAL_REFRESH", 1, True, None),
        ("MANUAL_REFRESH", 2, False, "SUCCESS"),
    ]


async def test_what_a_request_calls_old_is_asked_for_though_the_cache_calls_it_fresh(bureau: Bureau) -> None:
    """The setting was longer for the cache than when the company was found."""
    id = await bureau.asked()
    await bureau.over(id)
    await bureau.lab.rows("update cograil.company_enrichments set fresh_until = now() - interval '1 day'")
    assert (await bureau.look(id))["enrichment_running"]
    await bureau.over(id)
    assert await bureau.state(DANONE) == "SUCCESS"
    assert bureau.registers.count(RECHERCHE) == 2


async def test_who_joins_a_run_waits_for_nobody(closed: Bureau) -> None:
    """Of hundreds who ask at once each would keep a connection waiting, and everybody else with it."""
    await closed.asked()
    async with closed.lab.db.transaction("test") as tx:
        await idempotency.lock(tx, cache_key(Of("default", DANONE)))
        await lock_company(tx, Of("default", DANONE))
        joined = await asyncio.wait_for(closed.ask(), 20)
    assert (joined.status, joined.body["enrichment_running"]) == (202, True)
    assert len(await closed.lab.rows(RUNS)) == 1


async def test_many_who_find_a_run_that_was_left_begin_one(closed: Bureau) -> None:
    closed.registers.answer(RECHERCHE, and_then_nobody(closed, FOUND))
    id = await left_at(closed, "inpi")
    closed.registers.heal()
    async with closed.lab.db.transaction("resume") as tx:
        await resume_queue(tx, QUEUE)
    await asyncio.gather(*(closed.look(id) for _ in range(20)))
    assert len(await closed.lab.rows(RUNS)) == 2
    async with working(closed):
        await closed.over(id)
    assert await closed.lab.rows(RUNS) == [
        ("REQUEST_CREATED", 1, True, "PARTIAL"),
        ("REQUEST_OPENED", 2, False, "SUCCESS"),
    ]


POISON = f"""
create function refuse() returns trigger language plpgsql as $$ begin raise exception 'poison'; end $$;
create trigger poison before update on cograil.company_enrichments
for each row when (new.siren = '{DANONE}') execute function refuse()
"""


async def test_one_that_cannot_be_ended_keeps_no_other_from_it(closed: Bureau) -> None:
    closed.registers.answer(RECHERCHE, silence)
    for siren in (DANONE, OTHER):
        await closed.asked(siren)
    async with working(closed):
        await until(lambda: closed.registers.count(RECHERCHE) == 2)
    await closed.expire()
    await closed.lab.rows(POISON)
    house = House(closed.lab.engine_context, closed.lab.settings.companies)
    assert (await end_left(closed.lab.db, house))[0] == 1
    assert [await closed.state(siren) for siren in (DANONE, OTHER)] == ["RUNNING", "FAILED"]
    await closed.lab.rows("drop trigger poison on cograil.company_enrichments")
    assert (await end_left(closed.lab.db, house))[0] == 1


async def test_who_ends_as_many_as_it_looks_for_looks_again_at_once(closed: Bureau) -> None:
    closed.registers.answer(RECHERCHE, silence)
    for siren in (DANONE, OTHER):
        await closed.asked(siren)
    async with working(closed):
        await until(lambda: closed.registers.count(RECHERCHE) == 2)
    await closed.expire()
    async with closed.lab.db.single("test") as tx:
        assert await find_left(tx, limit=1) == ([Of("default", DANONE)], 0.0)
    house = House(closed.lab.engine_context, closed.lab.settings.companies)
    assert await end_left(closed.lab.db, house) == (2, math.inf)


class TestNobodyWorks:
    """All workers are gone, and with them who sweeps: whoever looks sees that the run is over."""

    @pytest.fixture(autouse=True)
    async def left(self, closed: Bureau) -> None:
        closed.registers.answer(RECHERCHE, and_then_nobody(closed, FOUND))
        await left_at(closed, "inpi")

    async def test_a_page_shows_no_run_that_lost_its_lock(self, closed: Bureau) -> None:
        page = await PageClient(closed.api).get(f"/ui/companies/{DANONE}")
        assert b'<span class="badge waiting">PARTIAL</span>' in page.raw
        assert b"worker lost" in page.raw
        assert await closed.lab.rows(RUNS) == [("REQUEST_CREATED", 1, True, "PARTIAL")], "nothing begins"

    async def test_nor_does_the_command(
        self, closed: Bureau, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)
        assert await asyncio.to_thread(main, ["companies", "show", DANONE]) == 0
        assert f"{DANONE}  PARTIAL" in capsys.readouterr().out
