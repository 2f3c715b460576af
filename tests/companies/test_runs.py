"""One run at a time for each company: who joins it, what becomes of one that was left, what is shared."""

from __future__ import annotations

import asyncio
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from bureau import Bureau, told, until, working
from registers import DANONE, INPI, OTHER, RCS, RECHERCHE, SIRET, Asked, said, silence

from cograil import logs
from cograil.apps.companies.company_search import find_companies
from cograil.apps.companies.enrichment import EnrichmentContext
from cograil.apps.companies.handlers import Tools, register
from cograil.apps.companies.queries import CompanyKey
from cograil.apps.companies.serializers import company_page
from cograil.apps.companies.sweeper import sweep, sweep_for_ever
from cograil.apps.companies.workflow import FETCH
from cograil.model.ids import new_id
from cograil.runners.context import Fail
from cograil.runners.handler_registry import Registry

ONE_EACH = {RECHERCHE: 1, INPI: 1, RCS: 1}


async def test_two_hundred_at_once_make_one_set_of_calls(bureau: Bureau) -> None:
    async with bureau.hearing() as receiver:
        answers = await asyncio.gather(*(bureau.ask(metadata={"n": n}) for n in range(200)))
        assert {one.status for one in answers} <= {201, 202}
        ids = {one.body["request"]["id"] for one in answers}
        assert len(ids) == 200
        await bureau.ended(answers[0].body["request"]["id"])
        assert bureau.registers.calls() == ONE_EACH
        assert len(await bureau.lab.rows("select 1 from cograil.company_runs")) == 1
        await until(lambda: len(told(receiver)) >= 205, 60)
    assert {one["request_id"] for one in told(receiver, "CompanyEnrichmentRequested")} == ids
    assert len(told(receiver, "CompanyEnrichmentStarted")) == 1
    assert len(told(receiver, "CompanyEnrichmentSourceFetched")) == 3
    assert len(told(receiver, "CompanyEnrichmentCompleted")) == 1


async def test_many_who_look_at_what_is_stale_begin_one_run(bureau: Bureau) -> None:
    id = await bureau.asked()
    await bureau.age(40)
    bureau.registers.asked.clear()
    seen = await asyncio.gather(*(bureau.look(id) for _ in range(50)))
    assert {one["company"]["legal_name"] for one in seen} == {"DANONE"}
    await bureau.ended(id)
    assert bureau.registers.calls() == ONE_EACH


async def test_a_second_request_joins_the_run_that_is_under_way(bureau: Bureau) -> None:
    gate = asyncio.Event()

    async def later(asked: Asked) -> bytes:
        await gate.wait()
        return said(404)

    bureau.registers.answer(RCS, later)
    first = asyncio.create_task(bureau.ask())
    await until(lambda: bureau.registers.count(RCS))
    second = asyncio.create_task(bureau.ask(None, siret=SIRET))
    await until(lambda: bureau.lab.rows("select 1 from cograil.company_requests offset 1"))
    gate.set()
    answers = await asyncio.gather(first, second)
    assert [one.body["request"]["enrichment_status"] for one in answers] == ["PARTIAL", "PARTIAL"]
    assert len(await bureau.lab.rows("select 1 from cograil.jobs")) == 1


class TestSlowSources:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"sync_seconds": 0.4}

    async def test_whoever_comes_first_waits_a_short_while_and_comes_again(self, bureau: Bureau) -> None:
        gate = asyncio.Event()

        async def later(asked: Asked) -> bytes:
            await gate.wait()
            return said(404)

        bureau.registers.answer(RCS, later)
        began = asyncio.get_running_loop().time()
        answer = await bureau.ask()
        took = asyncio.get_running_loop().time() - began
        assert (answer.status, answer.body["enrichment_running"]) == (202, True)
        assert answer.body["request"]["enrichment_status"] in ("PENDING", "RUNNING")
        assert took >= 0.4
        gate.set()
        id = answer.body["request"]["id"]
        assert answer.headers["location"] == f"/v1/requests/{id}"
        assert (await bureau.ended(id))["request"]["enrichment_status"] == "PARTIAL"


async def test_the_same_key_is_the_same_request(bureau: Bureau) -> None:
    headers = {"idempotency-key": "k-1"}
    first = await bureau.ask(headers=headers)
    again = await bureau.ask(headers=headers)
    assert again.body["request"]["id"] == first.body["request"]["id"]
    assert (first.status, again.status) == (201, 201)
    other = await bureau.ask(OTHER, headers=headers)
    assert (other.status, other.body["error"], other.body["code"]) == (409, "conflict", "CONFLICT")
    assert len(await bureau.lab.rows("select 1 from cograil.company_requests")) == 1


def stop_at(bureau: Bureau, source: str) -> asyncio.Event:
    """This source never answers any more; set once it was asked."""
    blocked = asyncio.Event()

    async def stop_there(asked: Asked) -> bytes:
        blocked.set()
        return await silence(asked)

    bureau.registers.answer(source, stop_there)
    return blocked


async def has_failed(bureau: Bureau) -> bool:
    return await bureau.state() == "FAILED"


class TestLostLock:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"sync_seconds": 0}

    async def test_a_run_whose_lock_expired_is_resumed_with_the_next_attempt(self, closed: Bureau) -> None:
        """All that works is gone in the middle of a run, and comes back after the lock."""
        blocked = stop_at(closed, INPI)
        id = await closed.asked()
        async with working(closed):
            await asyncio.wait_for(blocked.wait(), 10)
        assert await closed.state() == "RUNNING"
        await closed.expire()
        closed.registers.heal()
        seen = await closed.look(id)  # nobody works, and yet it is not RUNNING for longer than its lock
        assert seen["request"]["enrichment_status"] != "RUNNING"
        assert seen["company"]["legal_name"] == "DANONE", "what was found is not lost"
        async with working(closed):
            assert (await closed.ask()).status == 202
            shown = await closed.ended(id)
        assert shown["request"]["enrichment_status"] == "SUCCESS"
        attempts = await closed.lab.rows(
            "select attempt, is_abnormal, status from cograil.company_runs order by created_at"
        )
        assert attempts[:2] == [(1, True, "PARTIAL"), (2, False, "SUCCESS")]
        assert await closed.lab.rows("select status from cograil.jobs order by id limit 1") == [
            ("cancelled",)
        ]

    async def test_the_sweeper_wakes_when_a_lock_ends(self, closed: Bureau) -> None:
        """What is RUNNING is not so for longer than its lock, though nobody looks."""
        blocked = stop_at(closed, RECHERCHE)
        await closed.asked()
        async with working(closed):
            await asyncio.wait_for(blocked.wait(), 10)
        await closed.lab.rows(
            "update cograil.leases set lease_until = clock_timestamp() + interval '1 second'"
        )
        settings = closed.lab.settings.companies.model_copy(update={"sweep_seconds": 3600.0})
        sweeping = asyncio.create_task(
            sweep_for_ever(closed.lab.db, EnrichmentContext(closed.lab.engine_context, settings))
        )
        await until(lambda: has_failed(closed))
        sweeping.cancel()

    async def test_the_sweeper_ends_it_too(self, closed: Bureau) -> None:
        blocked = stop_at(closed, RECHERCHE)
        async with closed.hearing() as receiver:
            await closed.asked()
            async with working(closed):
                await asyncio.wait_for(blocked.wait(), 10)
            house = EnrichmentContext(closed.lab.engine_context, closed.lab.settings.companies)
            stream = io.StringIO()
            logs.configure("info", "json", stream)
            assert await sweep(closed.lab.db, house) == 0, "it has its lock"
            await closed.expire()
            assert await sweep(closed.lab.db, house) == 1
            assert await closed.state() == "FAILED"
            await until(lambda: told(receiver, "CompanyEnrichmentCompleted"))
        (error,) = await closed.lab.rows("select error from cograil.company_enrichments")
        assert error == ("API_RECHERCHE_ENTREPRISES:-:INTERNAL_ERROR",)
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        heard = {line["event"]: line for line in lines if line["logger"] == "companies"}
        assert heard["source given up"]["error_code"] == "INTERNAL_ERROR"
        assert heard["run was left"]["job_id"] == heard["source given up"]["job_id"]
        assert len(told(receiver, "CompanyEnrichmentSourceFetched")) == 1


async def test_a_run_that_was_cancelled_before_it_began_is_begun_again(closed: Bureau) -> None:
    answer = asyncio.create_task(closed.ask(None, siret=SIRET))
    jobs = await until(lambda: closed.lab.rows("select id::text from cograil.jobs"))
    await closed.lab.cancel(jobs[0][0])
    async with working(closed):
        id = (await answer).body["request"]["id"]
        assert (await closed.ended(id))["request"]["enrichment_status"] == "SUCCESS"
    attempts = await closed.lab.rows(
        "select attempt, is_abnormal from cograil.company_runs order by created_at"
    )
    assert attempts == [(1, True), (2, False)]
    assert closed.registers.asked[0].query["q"] == SIRET, "still what was asked for"


async def test_one_that_was_cancelled_in_its_middle_has_a_verdict(bureau: Bureau) -> None:
    bureau.registers.answer(INPI, silence)
    answer = asyncio.create_task(bureau.ask())
    await until(lambda: bureau.registers.count(INPI))
    ((job_id,),) = await bureau.lab.rows("select id::text from cograil.jobs")
    await bureau.lab.cancel(job_id)
    id = (await answer).body["request"]["id"]
    shown = await bureau.ended(id)
    assert shown["request"]["enrichment_status"] == "PARTIAL"
    assert shown["request"]["enrichment_error"] == "INPI_RNE:-:INTERNAL_ERROR"
    assert shown["company"]["legal_name"] == "DANONE"


async def test_who_lost_the_lock_notes_no_failure_over_the_next_run(bureau: Bureau) -> None:
    await bureau.asked()
    registry, lab = Registry(), bureau.lab
    register(registry, Tools(lab.db, EnrichmentContext(lab.engine_context, lab.settings.companies), {}))
    late = SimpleNamespace(tenant_id="default", job_id=new_id(), correlation_id="late", attempt=1)
    ended = [{"source": RECHERCHE, "status": "failed", "error": {"code": "RATE_LIMIT", "message": "m"}}]
    fetch = registry.get(FETCH)
    assert fetch is not None
    for fence in (1, 2):
        with pytest.raises(Fail, match="is lost"):
            await fetch.call(ctx=late, source=INPI, siren=DANONE, fence=fence, ended=ended)
    noted = "select last_status from cograil.company_source_retrievals order by source_api"
    assert await lab.rows(noted) == [("SUCCESS",)] * 3


class TestPace:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"recherche_per_second": 5, "inpi_password": None, "rcs_token": None}

    async def test_all_workers_together_ask_so_often_and_no_more(self, closed: Bureau) -> None:
        sirens = [f"{552032534 + n}" for n in range(12)]
        async with working(closed), closed.lab.worker("second"):
            answers = await asyncio.gather(*(closed.ask(siren) for siren in sirens))
            for one in answers:
                await closed.ended(one.body["request"]["id"])
        times = sorted(one.at for one in closed.registers.asked)
        assert len(times) == 12
        assert times[-1] - times[0] >= (12 - 1) / 5 - 0.1
        in_a_second = [sum(at <= one < at + 1 for one in times) for at in times]
        assert max(in_a_second) <= 5, "also in the first one"


async def test_the_events_have_what_every_event_has_and_come_in_order(bureau: Bureau) -> None:
    bureau.registers.answer(RECHERCHE, said(404))
    bureau.registers.answer(RCS, said(429))
    async with bureau.hearing() as receiver:
        id = await bureau.asked(headers={"x-correlation-id": "corr-1"})
        await bureau.ended(id)
        await until(lambda: told(receiver, "CompanyEnrichmentCompleted"))
    events = told(receiver)
    assert [one["event_type"].removeprefix("CompanyEnrichment") for one in events] == [
        *("Requested", "Started", "SourceFetched", "SourceFetched", "SourceFetched", "Completed")
    ]
    always = {"tenant_id": "default", "correlation_id": "corr-1", "producer": "M3"}
    assert all(one.items() >= always.items() and one["occurred_at"].endswith("Z") for one in events)
    requested, started, *fetched, completed = events
    assert (requested["request_id"], requested["trigger"]) == (id, "REQUEST_CREATED")
    assert (requested["company_siren"], requested["company_siret"]) == (DANONE, None)
    assert (started["attempt"], started["job_id"]) == (1, completed["job_id"])
    seen = [(one["source_api"], one["status"], one["http_status"], one["error_code"]) for one in fetched]
    assert seen == [
        (RECHERCHE, "FAILED", 404, "NOT_FOUND"),
        (INPI, "SUCCESS", 200, None),
        (RCS, "FAILED", 429, "RATE_LIMIT"),
    ]
    assert all(one["duration_ms"] >= 0 for one in fetched)
    counts = {name: completed[name] for name in completed if name.endswith(("count", "present", "status"))}
    assert counts == {
        "enrichment_status": "FAILED",
        "sources_success_count": 1,
        "sources_failed_count": 2,
        "core_identity_present": True,
        "required_sources_failed_count": 1,
        "optional_sources_failed_count": 1,
    }
    kinds = {one.event["type"] for one in receiver.requests if one.event["type"].startswith("companies.")}
    assert "companies.CompanyEnrichmentStarted" in kinds


async def test_what_a_page_shows(bureau: Bureau) -> None:
    id = await bureau.asked()
    async with bureau.lab.db.transaction("test") as tx:
        page = await company_page(tx, CompanyKey("default", DANONE))
        listed = (await find_companies(tx, "default")).companies
        assert await company_page(tx, CompanyKey("default", OTHER)) is None
    assert page is not None
    assert (page["enrichment_status"], page["latest_request_id"]) == ("SUCCESS", id)
    assert page["company"]["fields"]["legal_name"]["source_api"] == RECHERCHE
    assert [one["trigger"] for one in page["history"]] == ["REQUEST_CREATED"]
    assert len(page["documents"]) == len(page["source_retrievals"]) == 3
    assert [(one["siren"], one["legal_name"]) for one in listed] == [(DANONE, "DANONE")]
