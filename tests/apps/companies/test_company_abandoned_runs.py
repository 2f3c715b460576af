"""Runs that wait, and runs that were left in their middle: lock, verdict, and what comes after."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.apps.companies.company_site import CompanySite, company_events, until, working
from tests.apps.companies.registers import (
    DANONE,
    INPI,
    OTHER,
    RCS,
    RECHERCHE,
    RegisterRequest,
    extract,
    http_response,
    result,
    results,
    silence,
)
from tests.support.page_client import PageClient

from cograil.apps.companies.enrichment import EnrichmentContext, cache_key
from cograil.apps.companies.queries import CompanyKey, find_left, list_held, lock_company
from cograil.apps.companies.settings import CompanySettings
from cograil.apps.companies.sweeper import end_left
from cograil.apps.companies.worker_lifespan import companies_on_worker
from cograil.apps.companies.workflow import QUEUE
from cograil.cli import main
from cograil.verbs import idempotency
from cograil.verbs.pause import pause_queue, resume_queue

RUNS = "select trigger, attempt, is_abnormal, status from cograil_companies.company_runs order by created_at"
FOUND = http_response(200, results(result()))


@pytest.fixture
def companies() -> dict[str, Any]:
    return {"sync_seconds": 0, "sweep_seconds": 600}


def and_then_nobody(site: CompanySite, answer: bytes) -> Callable[[RegisterRequest], Awaitable[bytes]]:
    """This answer; what comes after it finds no worker, for the queue is paused."""

    async def answered(request: RegisterRequest) -> bytes:
        async with site.lab.db.transaction("pause") as tx:
            await pause_queue(tx, QUEUE)
        return answer

    return answered


async def waits(site: CompanySite, node: str) -> None:
    """Returns when the task of this node waits for a worker."""
    query = "select 1 from cograil.tasks where state = 'ready' and node_id = %(node)s"
    await until(lambda: site.lab.rows(query, node=node))


async def left_at(site: CompanySite, node: str) -> str:
    """The request of a run whose workers are gone before this node, and whose lock is over."""
    id = await site.request_company()
    async with working(site):
        await waits(site, node)
    assert await site.state() == "RUNNING"
    await site.expire()
    return id


class TestWaiting:
    @pytest.fixture
    def companies(self, companies: dict[str, Any]) -> dict[str, Any]:
        return companies | {"lock_seconds": 8, "timeout_seconds": 2}

    async def test_a_run_that_waits_for_a_worker_keeps_its_lock(self, idle_site: CompanySite) -> None:
        """All workers may be busy for longer than a lock lasts."""
        idle_site.registers.answer(RECHERCHE, and_then_nobody(idle_site, FOUND))
        id = await idle_site.request_company()
        async with working(idle_site):
            await waits(idle_site, "inpi")
            ((ends_at,),) = await idle_site.lab.rows("select lease_until from cograil.leases")
            longer = "select 1 from cograil.leases where lease_until > %(then)s"
            await until(lambda: idle_site.lab.rows(longer, then=ends_at))
            async with idle_site.lab.db.transaction("resume") as tx:
                await resume_queue(tx, QUEUE)
            assert (await idle_site.ended(id))["request"]["enrichment_status"] == "SUCCESS"
        assert await idle_site.lab.rows(RUNS) == [("REQUEST_CREATED", 1, False, "SUCCESS")]

    async def test_a_run_that_waits_for_an_orchestrator_loses_its_lock(self, idle_site: CompanySite) -> None:
        """Nobody knows whether one ever comes: what is RUNNING must not stay so."""
        await idle_site.request_company()
        async with idle_site.lab.orchestrator():
            await until(lambda: idle_site.lab.rows("select 1 from cograil.tasks"))
        async with companies_on_worker(idle_site.lab.registry, idle_site.lab.db, idle_site.lab.settings):
            async with idle_site.lab.worker():
                await until(lambda: idle_site.lab.rows("select 1 from cograil.leases"))
            async with idle_site.lab.db.single("test") as tx:
                assert await list_held(tx) == []


async def test_a_run_that_was_left_after_its_last_source_is_a_success_and_no_other_begins(
    idle_site: CompanySite,
) -> None:
    idle_site.registers.answer(RCS, and_then_nobody(idle_site, http_response(200, extract())))
    id = await left_at(idle_site, "merge")
    seen = await idle_site.look(id)
    assert (seen["request"]["enrichment_status"], seen["enrichment_running"]) == ("SUCCESS", False)
    assert seen["company"]["registry"]["city"] == "PARIS", "also what nobody had put together yet"
    assert await idle_site.lab.rows(RUNS) == [("REQUEST_CREATED", 1, True, "SUCCESS")]
    assert await idle_site.lab.rows("select status from cograil.jobs") == [("cancelled",)]


async def test_a_failure_before_a_run_was_abandoned_keeps_its_code(idle_site: CompanySite) -> None:
    idle_site.registers.answer(RECHERCHE, and_then_nobody(idle_site, http_response(404)))
    async with idle_site.hearing() as receiver:
        id = await left_at(idle_site, "inpi")
        seen = await idle_site.look(id)
        await until(lambda: company_events(receiver, "CompanyEnrichmentCompleted"))
    error = "API_RECHERCHE_ENTREPRISES:404:NOT_FOUND|INPI_RNE:-:INTERNAL_ERROR"
    assert (seen["request"]["enrichment_status"], seen["request"]["enrichment_error"]) == ("FAILED", error)
    fetched = company_events(receiver, "CompanyEnrichmentSourceFetched")
    assert [(event["source_api"], event["http_status"]) for event in fetched] == [
        (RECHERCHE, 404),
        (INPI, None),
    ]


class TestWithoutCredentials:
    @pytest.fixture
    def companies(self, companies: dict[str, Any]) -> dict[str, Any]:
        return companies | {"inpi_password": None, "rcs_token": None}

    async def test_sources_that_were_not_asked_do_not_count_in_an_abandoned_run(
        self, idle_site: CompanySite
    ) -> None:
        idle_site.registers.answer(RECHERCHE, and_then_nobody(idle_site, FOUND))
        seen = await idle_site.look(await left_at(idle_site, "merge"))
        assert (seen["request"]["enrichment_status"], seen["request"]["enrichment_error"]) == (
            "SUCCESS",
            None,
        )
        assert [retrieval["source_api"] for retrieval in seen["source_retrievals"]] == [RECHERCHE]


async def test_a_refresh_that_was_cancelled_before_it_began_is_begun_again_by_who_looks(
    idle_site: CompanySite,
) -> None:
    async with working(idle_site):
        id = await idle_site.request_company()
        await idle_site.over(id)
    assert (await idle_site.refresh(id)).status == 202
    ((job_id,),) = await idle_site.lab.rows("select job_id::text from cograil_companies.company_enrichments")
    await idle_site.lab.cancel(job_id)
    assert (await idle_site.look(id))["enrichment_running"]
    async with working(idle_site):
        await idle_site.over(id)
    assert await idle_site.lab.rows(RUNS) == [
        ("REQUEST_CREATED", 1, False, "SUCCESS"),
        ("MANUAL_REFRESH", 1, True, None),
        ("MANUAL_REFRESH", 2, False, "SUCCESS"),
    ]


async def test_a_request_with_a_shorter_age_refreshes_cached_data(
    site: CompanySite,
) -> None:
    """The setting was longer for the cache than when the company was found."""
    id = await site.request_company()
    await site.over(id)
    await site.lab.rows(
        "update cograil_companies.company_enrichments set fresh_until = now() - interval '1 day'"
    )
    assert (await site.look(id))["enrichment_running"]
    await site.over(id)
    assert await site.state(DANONE) == "SUCCESS"
    assert site.registers.count(RECHERCHE) == 2


async def test_a_request_that_joins_a_run_does_not_wait(idle_site: CompanySite) -> None:
    """Of hundreds who ask at once each would keep a connection waiting, and everybody else with it."""
    await idle_site.request_company()
    async with idle_site.lab.db.transaction("test") as tx:
        await idempotency.lock(tx, cache_key(CompanyKey("default", DANONE)))
        await lock_company(tx, CompanyKey("default", DANONE))
        joined = await asyncio.wait_for(idle_site.ask(), 20)
    assert (joined.status, joined.body["enrichment_running"]) == (202, True)
    assert len(await idle_site.lab.rows(RUNS)) == 1


async def test_many_requests_that_find_an_abandoned_run_begin_one(idle_site: CompanySite) -> None:
    idle_site.registers.answer(RECHERCHE, and_then_nobody(idle_site, FOUND))
    id = await left_at(idle_site, "inpi")
    idle_site.registers.heal()
    async with idle_site.lab.db.transaction("resume") as tx:
        await resume_queue(tx, QUEUE)
    await asyncio.gather(*(idle_site.look(id) for _ in range(20)))
    assert len(await idle_site.lab.rows(RUNS)) == 2
    async with working(idle_site):
        await idle_site.over(id)
    assert await idle_site.lab.rows(RUNS) == [
        ("REQUEST_CREATED", 1, True, "PARTIAL"),
        ("REQUEST_OPENED", 2, False, "SUCCESS"),
    ]


POISON = f"""
create function refuse() returns trigger language plpgsql as $$ begin raise exception 'poison'; end $$;
create trigger poison before update on cograil_companies.company_enrichments
for each row when (new.siren = '{DANONE}') execute function refuse()
"""


async def test_a_run_that_cannot_be_ended_does_not_block_others(idle_site: CompanySite) -> None:
    idle_site.registers.answer(RECHERCHE, silence)
    for siren in (DANONE, OTHER):
        await idle_site.request_company(siren)
    async with working(idle_site):
        await until(lambda: idle_site.registers.count(RECHERCHE) == 2)
    await idle_site.expire()
    await idle_site.lab.rows(POISON)
    house = EnrichmentContext(idle_site.lab.engine_context, idle_site.lab.settings.section(CompanySettings))
    assert (await end_left(idle_site.lab.db, house))[0] == 1
    assert [await idle_site.state(siren) for siren in (DANONE, OTHER)] == ["RUNNING", "FAILED"]
    await idle_site.lab.rows("drop trigger poison on cograil_companies.company_enrichments")
    assert (await end_left(idle_site.lab.db, house))[0] == 1


async def test_a_sweeper_with_a_full_batch_looks_again_at_once(idle_site: CompanySite) -> None:
    idle_site.registers.answer(RECHERCHE, silence)
    for siren in (DANONE, OTHER):
        await idle_site.request_company(siren)
    async with working(idle_site):
        await until(lambda: idle_site.registers.count(RECHERCHE) == 2)
    await idle_site.expire()
    async with idle_site.lab.db.single("test") as tx:
        assert await find_left(tx, limit=1) == ([CompanyKey("default", DANONE)], 0.0)
    house = EnrichmentContext(idle_site.lab.engine_context, idle_site.lab.settings.section(CompanySettings))
    assert await end_left(idle_site.lab.db, house) == (2, math.inf)


class TestNobodyWorks:
    """All workers are gone, and the sweeper with them: a reader sees that the run is over."""

    @pytest.fixture(autouse=True)
    async def left(self, idle_site: CompanySite) -> None:
        idle_site.registers.answer(RECHERCHE, and_then_nobody(idle_site, FOUND))
        await left_at(idle_site, "inpi")

    async def test_a_page_shows_no_run_that_lost_its_lock(self, idle_site: CompanySite) -> None:
        page = await PageClient(idle_site.api).get(f"/ui/companies/{DANONE}")
        assert b'<span class="badge waiting">PARTIAL</span>' in page.raw
        assert b"worker lost" in page.raw
        assert await idle_site.lab.rows(RUNS) == [("REQUEST_CREATED", 1, True, "PARTIAL")], "nothing begins"

    async def test_the_command_shows_no_run_that_lost_its_lock(
        self,
        idle_site: CompanySite,
        dsn: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)
        assert await asyncio.to_thread(main, ["companies", "show", DANONE]) == 0
        assert f"{DANONE}  PARTIAL" in capsys.readouterr().out
