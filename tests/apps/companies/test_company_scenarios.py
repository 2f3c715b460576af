"""S01 to S12 of the contract, each as a caller sees it."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from tests.apps.companies.company_site import CompanySite, company_events, envelope, until
from tests.apps.companies.registers import DANONE, INPI, OTHER, RCS, RECHERCHE, SIRET, http_response, silence

from cograil import logs

ALL_ONCE = {RECHERCHE: 1, INPI: 1, RCS: 1}
NONE_AT_ALL = {RECHERCHE: 0, INPI: 0, RCS: 0}


REFUSED: list[tuple[Any, int, str, str, list[str]]] = [
    ({}, 400, "validation_error", "MISSING_COMPANY_IDENTIFIER", ["siren"]),
    ({"siren": None, "siret": None}, 400, "validation_error", "MISSING_COMPANY_IDENTIFIER", ["siren"]),
    ({"siren": "12345678"}, 400, "validation_error", "INVALID_SIREN_FORMAT", ["siren"]),
    ({"siren": "1234567890"}, 400, "validation_error", "INVALID_SIREN_FORMAT", ["siren"]),
    ({"siren": "55203253A"}, 400, "validation_error", "INVALID_SIREN_FORMAT", ["siren"]),
    ({"siren": "٥٥٢٠٣٢٥٣٤"}, 400, "validation_error", "INVALID_SIREN_FORMAT", ["siren"]),
    ({"siren": 552032534}, 400, "validation_error", "INVALID_SIREN_FORMAT", ["siren"]),
    ({"siren": ""}, 400, "validation_error", "INVALID_SIREN_FORMAT", ["siren"]),
    ({"siret": "5520325340064"}, 400, "validation_error", "INVALID_SIRET_FORMAT", ["siret"]),
    ({"siren": DANONE, "siret": "x"}, 400, "validation_error", "INVALID_SIRET_FORMAT", ["siret"]),
    ({"siren": "x", "siret": "x"}, 400, "validation_error", "INVALID_SIREN_FORMAT", ["siren", "siret"]),
    ({"siren": OTHER, "siret": SIRET}, 422, "business_rule_failed", "SIREN_SIRET_MISMATCH", ["siret"]),
    ({"siren": DANONE, "colour": 1}, 400, "validation_error", "UNKNOWN_FIELD", ["colour"]),
    ({"siren": DANONE, "metadata": [1]}, 400, "validation_error", "INVALID_METADATA", ["metadata"]),
    ({"siren": DANONE, "metadata": {"a": "\0"}}, 400, "validation_error", "VALIDATION_ERROR", ["metadata/a"]),
    ([], 400, "validation_error", "VALIDATION_ERROR", []),
]


async def test_s01_to_s04_what_is_no_company_is_refused_with_its_code(idle_site: CompanySite) -> None:
    for body, status, error, code, fields in REFUSED:
        answer = await idle_site.api.post("/v1/requests", body, headers={"x-correlation-id": "mine-7"})
        refusal = envelope(answer)
        assert (answer.status, refusal["error"], refusal["code"]) == (status, error, code), body
        assert [detail["field"] for detail in refusal["details"]] == fields, body
        assert all(detail["reason"] for detail in refusal["details"])
        assert (refusal["correlation_id"], refusal["request_id"]) == ("mine-7", None)
    assert await idle_site.lab.rows("select 1 from cograil_companies.company_requests") == []


async def test_s05_what_is_fresh_is_answered_at_once_and_no_source_is_asked(site: CompanySite) -> None:
    await site.request_company()
    site.registers.requests.clear()
    answer = await site.ask()
    assert (answer.status, answer.body["request"]["enrichment_status"]) == (201, "SUCCESS")
    assert answer.body["company"]["legal_name"] == "DANONE"
    assert not answer.body["enrichment_running"]
    assert site.registers.calls() == NONE_AT_ALL


async def test_s06_three_sources_that_answer_make_a_success(site: CompanySite) -> None:
    answer = await site.ask(metadata={"ticket": 7})
    assert answer.status == 201, answer.raw
    body = answer.body
    assert site.registers.calls() == ALL_ONCE
    request = body["request"]
    assert request.keys() >= {"id", "created_at", "siren", "siret", "company_siren"}
    assert (request["enrichment_status"], request["enrichment_error"]) == ("SUCCESS", None)
    assert request["enrichment_last_run_at"] is not None
    company = body["company"]
    assert (company["siren"], company["legal_name"], company["trade_name"]) == (
        DANONE,
        "DANONE",
        "DANONE (DANONE)",
    )
    assert company["address"] == {
        "line1": "59 RUE LA FAYETTE 75009 PARIS",
        "line2": "17 BD HAUSSMANN",
        "postal_code": "75009",
        "city": "PARIS",
        "country_code": "FR",
    }
    assert company["registry"] == {"city": "PARIS", "name": "Greffe de PARIS"}
    assert (company["creation_date"], company["brand_name"]) == ("1908-02-02", "BSN")
    assert company["finances"]["2023"]["ca"] == 27619000000
    assert "complements" in company
    shown = await site.look(request["id"])
    assert {document["doc_type"] for document in shown["documents"]} == {
        "ENTERPRISE_SEARCH",
        "RNE_FORMALITY",
        "RCS_EXTRACT",
    }
    assert [retrieval["source_api"] for retrieval in shown["source_retrievals"]] == [RECHERCHE, INPI, RCS]
    assert {retrieval["last_status"] for retrieval in shown["source_retrievals"]} == {"SUCCESS"}
    assert shown["request"]["metadata"] == {"ticket": 7}


async def test_s07_an_optional_source_that_is_busy_makes_a_partial(site: CompanySite) -> None:
    site.registers.answer(RCS, http_response(429))
    id = await site.request_company()
    shown = await site.ended(id)
    assert shown["request"]["enrichment_status"] == "PARTIAL"
    assert shown["request"]["enrichment_error"] == "API_ENTREPRISE_RCS:429:RATE_LIMIT"
    assert site.registers.calls() == {RECHERCHE: 1, INPI: 1, RCS: 3}, "two tries more"
    assert shown["company"]["legal_name"] == "DANONE"
    first, second, third = [request.at for request in site.registers.requests if request.source == RCS]
    assert second - first >= 0.25
    assert third - second >= 0.5


async def test_s08_when_all_fail_the_run_has_failed_and_says_why(site: CompanySite) -> None:
    for source, status in ((RECHERCHE, 503), (INPI, 403), (RCS, 401)):
        site.registers.answer(source, http_response(status))
    shown = await site.ended(await site.request_company())
    assert shown["request"]["enrichment_status"] == "FAILED"
    assert shown["request"]["enrichment_error"] == (
        "API_RECHERCHE_ENTREPRISES:503:UPSTREAM_5XX|INPI_RNE:403:FORBIDDEN|API_ENTREPRISE_RCS:401:AUTH_ERROR"
    )
    assert site.registers.calls() == {RECHERCHE: 3, INPI: 1, RCS: 1}
    assert shown["company"] is None


async def test_s09_a_look_at_what_is_stale_shows_it_and_refreshes_it(site: CompanySite) -> None:
    id = await site.request_company()
    await site.age(31)
    gate = asyncio.Event()

    async def later(_: Any) -> bytes:
        await gate.wait()
        return http_response(503)

    site.registers.answer(RECHERCHE, later)
    seen = await site.look(id)
    assert (seen["request"]["enrichment_status"], seen["enrichment_running"]) == ("STALE", True)
    assert seen["company"]["legal_name"] == "DANONE"

    async def is_running() -> bool:
        return bool((await site.look(id))["request"]["enrichment_status"] == "RUNNING")

    await until(is_running)
    gate.set()
    site.registers.heal()
    assert (await site.ended(id))["request"]["enrichment_status"] == "SUCCESS"
    triggers = await site.lab.rows("select trigger from cograil_companies.company_runs order by created_at")
    assert triggers == [("REQUEST_CREATED",), ("REQUEST_OPENED",)]


async def test_s10_two_at_once_have_one_lock_and_one_job(site: CompanySite) -> None:
    first, second = await asyncio.gather(site.ask(), site.ask(None, siret=SIRET))
    assert {first.status, second.status} == {201}
    assert first.body["request"]["id"] != second.body["request"]["id"]
    assert second.body["request"]["siret"] == SIRET
    assert site.registers.calls() == ALL_ONCE
    assert len(await site.lab.rows("select 1 from cograil_companies.company_runs")) == 1
    assert await site.lab.rows("select fence, holder from cograil.leases") == [(1, None)]


async def test_s11_a_second_refresh_within_the_cooldown_is_refused(site: CompanySite) -> None:
    id = await site.request_company()
    answer = await site.refresh(id)
    assert (answer.status, answer.body["enrichment_running"]) == (202, True)
    await site.ended(id)
    assert site.registers.calls() == {RECHERCHE: 2, INPI: 2, RCS: 2}
    refused = await site.refresh(id)
    body = envelope(refused)
    assert (refused.status, body["error"], body["code"]) == (409, "conflict", "REFRESH_COOLDOWN")
    assert body["request_id"] == id
    assert 0 < int(refused.headers["retry-after"]) <= 60
    await site.lab.rows(
        "update cograil_companies.company_enrichments set refresh_asked_at = refresh_asked_at - interval '61 s'"
    )
    assert (await site.refresh(id)).status == 202
    assert (await site.ended(id))["request"]["enrichment_status"] == "SUCCESS"


FIELDS = {
    *("timestamp", "level", "correlation_id", "tenant_id", "request_id", "job_id", "company_siren"),
    *("source_api", "event_type", "http_status", "error_code", "error_message", "duration_ms"),
}


class TestS12:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"timeout_seconds": 0.1}

    async def test_the_line_of_a_timeout_has_all_thirteen_fields_and_so_has_every_other(
        self, site: CompanySite
    ) -> None:
        site.registers.answer(INPI, silence)
        stream = io.StringIO()
        logs.configure("info", "json", stream)
        async with site.hearing() as receiver:
            id = await site.request_company(headers={"x-correlation-id": "corr-12"})
            shown = await site.ended(id)
            await until(lambda: company_events(receiver, "CompanyEnrichmentCompleted"))
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        own = [line for line in lines if line["logger"] == "companies"]
        assert all(line.keys() >= FIELDS for line in own), own
        assert {line["correlation_id"] for line in own} == {"corr-12"}
        assert {line["request_id"] for line in own} == {id}
        of_jobs = [line for line in lines if "job_id" in line]
        assert {line["logger"] for line in of_jobs} == {"companies", "handler", "worker"}
        assert all(line.keys() >= FIELDS for line in of_jobs), "also what the engine says of an attempt"
        assert all(line["event_type"].startswith("CompanyEnrichment") for line in of_jobs)
        (failed, *_) = [line for line in lines if line["event"] == "attempt failed"]
        told_of = (failed["company_siren"], failed["source_api"], failed["error_code"])
        assert told_of == (DANONE, INPI, "TIMEOUT")
        assert failed["error_message"] == "request timed out after 0.1 s"
        assert failed["duration_ms"] >= 100
        slow = [line for line in own if line["event"] == "source failed"]
        assert len(slow) == 3, "each of the three tries"
        (given_up,) = [line for line in own if line["event"] == "source given up"]
        assert (given_up["error_code"], given_up["source_api"]) == ("TIMEOUT", INPI)
        assert {(line["source_api"], line["http_status"], line["level"]) for line in slow} == {
            (INPI, None, "warning")
        }
        assert all(line["duration_ms"] >= 100 and line["error_message"] for line in slow)
        assert shown["request"]["enrichment_error"] == "INPI_RNE:-:TIMEOUT"
        kept = await site.lab.rows("select node_id, attempt from cograil.task_logs order by attempt")
        assert kept == [("inpi", 1), ("inpi", 2), ("inpi", 3)], "for `cograil logs`"
        (event,) = [
            event_data for event_data in company_events(receiver) if event_data.get("source_api") == INPI
        ]
        assert (event["status"], event["error_code"], event["http_status"]) == ("FAILED", "TIMEOUT", None)
