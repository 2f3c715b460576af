"""One run at a time for each company: who joins it, what becomes of one that was left, what is shared."""

from __future__ import annotations

import asyncio
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.apps.companies.company_site import CompanySite, company_events, until, working
from tests.apps.companies.registers import (
    DANONE,
    INPI,
    OTHER,
    RCS,
    RECHERCHE,
    SIRET,
    RegisterRequest,
    http_response,
    silence,
)

from cograil import logs
from cograil.apps.companies.company_search import find_companies
from cograil.apps.companies.enrichment import EnrichmentContext
from cograil.apps.companies.handlers import Tools, register
from cograil.apps.companies.queries import CompanyKey
from cograil.apps.companies.serializers import company_page
from cograil.apps.companies.settings import CompanySettings
from cograil.apps.companies.sweeper import sweep, sweep_for_ever
from cograil.apps.companies.workflow import FETCH
from cograil.model.ids import new_id
from cograil.runners.context import Fail
from cograil.runners.handler_registry import Registry

ONE_EACH = {RECHERCHE: 1, INPI: 1, RCS: 1}


async def test_two_hundred_requests_at_once_make_one_set_of_calls(site: CompanySite) -> None:
    async with site.hearing() as receiver:
        answers = await asyncio.gather(*(site.ask(metadata={"n": n}) for n in range(200)))
        assert {answer.status for answer in answers} <= {201, 202}
        ids = {answer.body["request"]["id"] for answer in answers}
        assert len(ids) == 200
        await site.ended(answers[0].body["request"]["id"])
        assert site.registers.calls() == ONE_EACH
        assert len(await site.lab.rows("select 1 from cograil_companies.company_runs")) == 1
        await until(lambda: len(company_events(receiver)) >= 205, 60)
    assert {event["request_id"] for event in company_events(receiver, "CompanyEnrichmentRequested")} == ids
    assert len(company_events(receiver, "CompanyEnrichmentStarted")) == 1
    assert len(company_events(receiver, "CompanyEnrichmentSourceFetched")) == 3
    assert len(company_events(receiver, "CompanyEnrichmentCompleted")) == 1


async def test_many_reads_of_stale_data_begin_one_run(site: CompanySite) -> None:
    id = await site.request_company()
    await site.age(40)
    site.registers.requests.clear()
    seen = await asyncio.gather(*(site.look(id) for _ in range(50)))
    assert {page["company"]["legal_name"] for page in seen} == {"DANONE"}
    await site.ended(id)
    assert site.registers.calls() == ONE_EACH


async def test_a_second_request_joins_the_run_that_is_under_way(site: CompanySite) -> None:
    gate = asyncio.Event()

    async def later(request: RegisterRequest) -> bytes:
        await gate.wait()
        return http_response(404)

    site.registers.answer(RCS, later)
    first = asyncio.create_task(site.ask())
    await until(lambda: site.registers.count(RCS))
    second = asyncio.create_task(site.ask(None, siret=SIRET))
    await until(lambda: site.lab.rows("select 1 from cograil_companies.company_requests offset 1"))
    gate.set()
    answers = await asyncio.gather(first, second)
    assert [answer.body["request"]["enrichment_status"] for answer in answers] == ["PARTIAL", "PARTIAL"]
    assert len(await site.lab.rows("select 1 from cograil.jobs")) == 1


class TestSlowSources:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"sync_seconds": 0.4}

    async def test_the_first_request_waits_a_short_while_for_its_run(self, site: CompanySite) -> None:
        gate = asyncio.Event()

        async def later(request: RegisterRequest) -> bytes:
            await gate.wait()
            return http_response(404)

        site.registers.answer(RCS, later)
        began = asyncio.get_running_loop().time()
        answer = await site.ask()
        took = asyncio.get_running_loop().time() - began
        assert (answer.status, answer.body["enrichment_running"]) == (202, True)
        assert answer.body["request"]["enrichment_status"] in ("PENDING", "RUNNING")
        assert took >= 0.4
        gate.set()
        id = answer.body["request"]["id"]
        assert answer.headers["location"] == f"/v1/requests/{id}"
        assert (await site.ended(id))["request"]["enrichment_status"] == "PARTIAL"


async def test_the_same_key_is_the_same_request(site: CompanySite) -> None:
    headers = {"idempotency-key": "k-1"}
    first = await site.ask(headers=headers)
    again = await site.ask(headers=headers)
    assert again.body["request"]["id"] == first.body["request"]["id"]
    assert (first.status, again.status) == (201, 201)
    other = await site.ask(OTHER, headers=headers)
    assert (other.status, other.body["error"], other.body["code"]) == (409, "conflict", "CONFLICT")
    assert len(await site.lab.rows("select 1 from cograil_companies.company_requests")) == 1


def stop_at(site: CompanySite, source: str) -> asyncio.Event:
    """This source never answers any more; set once it was asked."""
    blocked = asyncio.Event()

    async def stop_there(request: RegisterRequest) -> bytes:
        blocked.set()
        return await silence(request)

    site.registers.answer(source, stop_there)
    return blocked


async def has_failed(site: CompanySite) -> bool:
    return await site.state() == "FAILED"


class TestLostLock:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"sync_seconds": 0}

    async def test_a_run_whose_lock_expired_is_resumed_with_the_next_attempt(
        self, idle_site: CompanySite
    ) -> None:
        """All that works is gone in the middle of a run, and comes back after the lock."""
        blocked = stop_at(idle_site, INPI)
        id = await idle_site.request_company()
        async with working(idle_site):
            await asyncio.wait_for(blocked.wait(), 10)
        assert await idle_site.state() == "RUNNING"
        await idle_site.expire()
        idle_site.registers.heal()
        seen = await idle_site.look(id)  # nobody works, and yet it is not RUNNING for longer than its lock
        assert seen["request"]["enrichment_status"] != "RUNNING"
        assert seen["company"]["legal_name"] == "DANONE", "what was found is not lost"
        async with working(idle_site):
            assert (await idle_site.ask()).status == 202
            shown = await idle_site.ended(id)
        assert shown["request"]["enrichment_status"] == "SUCCESS"
        attempts = await idle_site.lab.rows(
            "select attempt, is_abnormal, status from cograil_companies.company_runs order by created_at"
        )
        assert attempts[:2] == [(1, True, "PARTIAL"), (2, False, "SUCCESS")]
        assert await idle_site.lab.rows("select status from cograil.jobs order by id limit 1") == [
            ("cancelled",)
        ]

    async def test_the_sweeper_wakes_when_a_lock_ends(self, idle_site: CompanySite) -> None:
        """What is RUNNING is not so for longer than its lock, though nobody looks."""
        blocked = stop_at(idle_site, RECHERCHE)
        await idle_site.request_company()
        async with working(idle_site):
            await asyncio.wait_for(blocked.wait(), 10)
        await idle_site.lab.rows(
            "update cograil.leases set lease_until = clock_timestamp() + interval '1 second'"
        )
        settings = idle_site.lab.settings.section(CompanySettings).model_copy(
            update={"sweep_seconds": 3600.0}
        )
        sweeping = asyncio.create_task(
            sweep_for_ever(idle_site.lab.db, EnrichmentContext(idle_site.lab.engine_context, settings))
        )
        await until(lambda: has_failed(idle_site))
        sweeping.cancel()

    async def test_the_sweeper_ends_a_run_whose_lock_expired(self, idle_site: CompanySite) -> None:
        blocked = stop_at(idle_site, RECHERCHE)
        async with idle_site.hearing() as receiver:
            await idle_site.request_company()
            async with working(idle_site):
                await asyncio.wait_for(blocked.wait(), 10)
            house = EnrichmentContext(
                idle_site.lab.engine_context, idle_site.lab.settings.section(CompanySettings)
            )
            stream = io.StringIO()
            logs.configure("info", "json", stream)
            assert await sweep(idle_site.lab.db, house) == 0, "it has its lock"
            await idle_site.expire()
            assert await sweep(idle_site.lab.db, house) == 1
            assert await idle_site.state() == "FAILED"
            await until(lambda: company_events(receiver, "CompanyEnrichmentCompleted"))
        (error,) = await idle_site.lab.rows("select error from cograil_companies.company_enrichments")
        assert error == ("API_RECHERCHE_ENTREPRISES:-:INTERNAL_ERROR",)
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        heard = {line["event"]: line for line in lines if line["logger"] == "companies"}
        assert heard["source given up"]["error_code"] == "INTERNAL_ERROR"
        assert heard["run was left"]["job_id"] == heard["source given up"]["job_id"]
        assert len(company_events(receiver, "CompanyEnrichmentSourceFetched")) == 1


async def test_a_run_that_was_cancelled_before_it_began_is_begun_again(idle_site: CompanySite) -> None:
    answer = asyncio.create_task(idle_site.ask(None, siret=SIRET))
    jobs = await until(lambda: idle_site.lab.rows("select id::text from cograil.jobs"))
    await idle_site.lab.cancel(jobs[0][0])
    async with working(idle_site):
        id = (await answer).body["request"]["id"]
        assert (await idle_site.ended(id))["request"]["enrichment_status"] == "SUCCESS"
    attempts = await idle_site.lab.rows(
        "select attempt, is_abnormal from cograil_companies.company_runs order by created_at"
    )
    assert attempts == [(1, True), (2, False)]
    assert idle_site.registers.requests[0].query["q"] == SIRET, "still what was asked for"


async def test_a_run_cancelled_in_its_middle_has_a_verdict(site: CompanySite) -> None:
    site.registers.answer(INPI, silence)
    answer = asyncio.create_task(site.ask())
    await until(lambda: site.registers.count(INPI))
    ((job_id,),) = await site.lab.rows("select id::text from cograil.jobs")
    await site.lab.cancel(job_id)
    id = (await answer).body["request"]["id"]
    shown = await site.ended(id)
    assert shown["request"]["enrichment_status"] == "PARTIAL"
    assert shown["request"]["enrichment_error"] == "INPI_RNE:-:INTERNAL_ERROR"
    assert shown["company"]["legal_name"] == "DANONE"


async def test_a_worker_that_lost_the_lock_does_not_overwrite_the_next_run(site: CompanySite) -> None:
    await site.request_company()
    registry, lab = Registry(), site.lab
    register(
        registry,
        Tools(lab.db, EnrichmentContext(lab.engine_context, lab.settings.section(CompanySettings)), {}),
    )
    late = SimpleNamespace(tenant_id="default", job_id=new_id(), correlation_id="late", attempt=1)
    ended = [{"source": RECHERCHE, "status": "failed", "error": {"code": "RATE_LIMIT", "message": "m"}}]
    fetch = registry.get(FETCH)
    assert fetch is not None
    for fence in (1, 2):
        with pytest.raises(Fail, match="is lost"):
            await fetch.call(ctx=late, source=INPI, siren=DANONE, fence=fence, ended=ended)
    noted = "select last_status from cograil_companies.company_source_retrievals order by source_api"
    assert await lab.rows(noted) == [("SUCCESS",)] * 3


class TestPace:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"recherche_per_second": 5, "inpi_password": None, "rcs_token": None}

    async def test_all_workers_together_keep_the_rate_limit_of_a_register(
        self, idle_site: CompanySite
    ) -> None:
        sirens = [f"{552032534 + n}" for n in range(12)]
        async with working(idle_site), idle_site.lab.worker("second"):
            answers = await asyncio.gather(*(idle_site.ask(siren) for siren in sirens))
            for answer in answers:
                await idle_site.ended(answer.body["request"]["id"])
        times = sorted(request.at for request in idle_site.registers.requests)
        assert len(times) == 12
        assert times[-1] - times[0] >= (12 - 1) / 5 - 0.1
        in_a_second = [sum(at <= time < at + 1 for time in times) for at in times]
        assert max(in_a_second) <= 5, "also in the first one"


async def test_company_events_have_all_common_fields_and_come_in_order(site: CompanySite) -> None:
    site.registers.answer(RECHERCHE, http_response(404))
    site.registers.answer(RCS, http_response(429))
    async with site.hearing() as receiver:
        id = await site.request_company(headers={"x-correlation-id": "corr-1"})
        await site.ended(id)
        await until(lambda: company_events(receiver, "CompanyEnrichmentCompleted"))
    events = company_events(receiver)
    assert [event["event_type"].removeprefix("CompanyEnrichment") for event in events] == [
        *("Requested", "Started", "SourceFetched", "SourceFetched", "SourceFetched", "Completed")
    ]
    always = {"tenant_id": "default", "correlation_id": "corr-1", "producer": "M3"}
    assert all(event.items() >= always.items() and event["occurred_at"].endswith("Z") for event in events)
    requested, started, *fetched, completed = events
    assert (requested["request_id"], requested["trigger"]) == (id, "REQUEST_CREATED")
    assert (requested["company_siren"], requested["company_siret"]) == (DANONE, None)
    assert (started["attempt"], started["job_id"]) == (1, completed["job_id"])
    seen = [
        (event["source_api"], event["status"], event["http_status"], event["error_code"]) for event in fetched
    ]
    assert seen == [
        (RECHERCHE, "FAILED", 404, "NOT_FOUND"),
        (INPI, "SUCCESS", 200, None),
        (RCS, "FAILED", 429, "RATE_LIMIT"),
    ]
    assert all(event["duration_ms"] >= 0 for event in fetched)
    counts = {name: completed[name] for name in completed if name.endswith(("count", "present", "status"))}
    assert counts == {
        "enrichment_status": "FAILED",
        "sources_success_count": 1,
        "sources_failed_count": 2,
        "core_identity_present": True,
        "required_sources_failed_count": 1,
        "optional_sources_failed_count": 1,
    }
    kinds = {
        request.event["type"]
        for request in receiver.requests
        if request.event["type"].startswith("companies.")
    }
    assert "companies.CompanyEnrichmentStarted" in kinds


async def test_the_company_page_shows_the_run_and_its_documents(site: CompanySite) -> None:
    id = await site.request_company()
    async with site.lab.db.transaction("test") as tx:
        page = await company_page(tx, CompanyKey("default", DANONE))
        listed = (await find_companies(tx, "default")).companies
        assert await company_page(tx, CompanyKey("default", OTHER)) is None
    assert page is not None
    assert (page["enrichment_status"], page["latest_request_id"]) == ("SUCCESS", id)
    assert page["company"]["fields"]["legal_name"]["source_api"] == RECHERCHE
    assert [entry["trigger"] for entry in page["history"]] == ["REQUEST_CREATED"]
    assert len(page["documents"]) == len(page["source_retrievals"]) == 3
    assert [(company["siren"], company["legal_name"]) for company in listed] == [(DANONE, "DANONE")]
