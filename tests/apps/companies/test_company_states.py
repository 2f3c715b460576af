"""The seven invariants: the database refuses what breaks one, and no run leaves one broken."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.apps.companies.company_site import CompanySite, until
from tests.apps.companies.registers import DANONE, INPI, RCS, RECHERCHE, RegisterRequest, http_response

GOOD = {
    "status": "SUCCESS",
    "core_identity_present": True,
    "required_sources_failed_count": 0,
    "optional_sources_failed_count": 0,
    "error": None,
    "fresh_until": None,
    "stale_at": None,
    "fence": None,
    "job_id": None,
    "turn": None,
}
JOB = "00000000-0000-7000-8000-000000000001"
PAST, LATER = "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"


async def write(site: CompanySite, **facts: Any) -> None:
    row = {"siren": DANONE, **GOOD, **facts}
    names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    await site.lab.rows("delete from cograil_companies.company_enrichments")
    await site.lab.rows(
        f"insert into cograil_companies.company_enrichments ({names}) values ({values})", **row
    )


ALLOWED: list[dict[str, Any]] = [
    {},
    {"status": "PENDING", "core_identity_present": None},
    {"status": "RUNNING", "job_id": JOB, "turn": 1, "fence": 1},
    {"status": "PARTIAL", "optional_sources_failed_count": 1, "error": "x"},
    {"status": "FAILED", "required_sources_failed_count": 1, "error": "x"},
    {"status": "FAILED", "core_identity_present": False, "error": "x"},
    {"status": "STALE", "fresh_until": PAST, "stale_at": LATER},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"status": "RUNNING", "job_id": JOB, "turn": 1}, "running_has_a_lock"),
    ({"status": "RUNNING", "fence": 1}, "running_has_a_job"),
    ({"status": "SUCCESS", "fence": 1}, "running_has_a_lock"),
    ({"job_id": JOB}, "a_run_has_a_job_and_a_turn"),
    ({"core_identity_present": False}, "success_has_core_identity"),
    ({"core_identity_present": None}, "success_has_core_identity"),
    ({"required_sources_failed_count": 1}, "success_has_no_failed_source"),
    ({"optional_sources_failed_count": 1}, "success_has_no_failed_source"),
    ({"status": "PARTIAL"}, "partial_has_failed_optional_sources_only"),
    (
        {"status": "PARTIAL", "required_sources_failed_count": 1, "optional_sources_failed_count": 1},
        "partial_has_failed_optional_sources_only",
    ),
    ({"status": "FAILED", "error": "x"}, "failed_has_a_reason"),
    ({"status": "FAILED", "required_sources_failed_count": 1}, "failed_has_an_error"),
    ({"status": "FAILED", "core_identity_present": False, "error": ""}, "failed_has_an_error"),
    ({"status": "STALE"}, "stale_has_an_expired_snapshot"),
    ({"status": "STALE", "fresh_until": LATER, "stale_at": PAST}, "stale_has_an_expired_snapshot"),
    ({"status": "DONE"}, "company_enrichments_status_check"),
    ({"error": "x" * 2001}, "company_enrichments_error_check"),
]


async def test_each_state_can_be_written(idle_site: CompanySite) -> None:
    for facts in ALLOWED:
        await write(idle_site, **facts)
    await idle_site.lab.rows("delete from cograil_companies.company_enrichments")


async def test_the_database_refuses_what_breaks_an_invariant(idle_site: CompanySite) -> None:
    for facts, constraint in REFUSED:
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            await write(idle_site, **facts)
        assert refused.value.diag.constraint_name == constraint, facts


async def test_running_has_an_active_lock_until_the_verdict(site: CompanySite) -> None:
    """Seen from another session, at each call of a source."""
    seen: list[tuple[Any, ...]] = []

    async def look(request: RegisterRequest) -> bytes:
        seen.extend(
            await site.lab.rows(
                """select e.status, l.lease_until > clock_timestamp(), l.holder = e.job_id::text
                   from cograil_companies.company_enrichments e join cograil.leases l
                   on l.name = 'company_enrichment:' || e.siren and l.fence = e.fence"""
            )
        )
        return http_response(404)

    for source in (RECHERCHE, INPI, RCS):
        site.registers.answer(source, look)
    await site.ended(await site.request_company())
    assert seen == [("RUNNING", True, True)] * 3
    assert await site.lab.rows("select holder from cograil.leases") == [(None,)]


async def test_an_old_success_becomes_stale_by_itself(site: CompanySite) -> None:
    await site.request_company()
    await site.age(29.9)
    assert await site.state() == "SUCCESS"
    await site.age(0.2)

    async def is_stale() -> bool:
        return await site.state() == "STALE"

    await until(is_stale)
    assert site.registers.count(RECHERCHE) == 1, "nobody asked for it"


async def test_a_partial_becomes_stale_too_and_a_new_request_refreshes_it(site: CompanySite) -> None:
    site.registers.answer(RCS, http_response(404))
    await site.request_company()
    await site.age(31)
    site.registers.heal()
    answer = await site.ask()
    assert (answer.status, answer.body["request"]["enrichment_status"]) == (201, "SUCCESS")


async def test_a_failure_never_blocks_the_next_request(site: CompanySite) -> None:
    site.registers.answer(RECHERCHE, http_response(404))
    first = await site.request_company()
    assert (await site.ended(first))["request"]["enrichment_status"] == "FAILED"
    calls = site.registers.count(RECHERCHE)
    await site.look(first)
    assert site.registers.count(RECHERCHE) == calls, "to look again and again asks nobody"
    site.registers.heal()
    assert (await site.ask()).body["request"]["enrichment_status"] == "SUCCESS"
    assert (await site.look(first))["request"]["enrichment_status"] == "SUCCESS", "all requests for it"
