"""Several who die in one run, and one that only seemed to. `test_company_crash_points` kills one anywhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.apps.companies.company_site import until
from tests.apps.companies.forked_site import EACH_ONCE, Case, ForkedSite, open_forked_site, port_of
from tests.apps.companies.registers import INPI, RCS, RECHERCHE, http_response
from tests.support.api_client import ApiClient
from tests.torture.forked_processes import Child


@pytest.fixture
def companies() -> dict[str, Any]:
    return {"sync_seconds": 0, "sweep_seconds": 0.5}


async def test_a_failure_is_reported_once_though_workers_die(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    """The failure of a source is noted by the worker after it, which may die as well."""
    async with open_forked_site(dsn, tmp_path, companies) as forked, forked.site.lab.orchestrator():
        forked.site.registers.answer(INPI, http_response(404))
        siren = forked.siren()
        victim = await forked.fork(fault="companies.note.commit.after:1:kill9")
        id = await forked.site.request_company(siren)
        await asyncio.wait_for(victim.ended.wait(), 30)
        await forked.expire_leases()
        heir = await forked.fork()
        await forked.site.over(id)
        await heir.kill()
        assert (await forked.site.look(id))["request"]["enrichment_status"] == "PARTIAL"
        assert await forked.count_events(siren) == EACH_ONCE


async def test_a_run_survives_the_death_of_all_processes(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with open_forked_site(dsn, tmp_path, companies) as forked:
        siren = forked.siren()
        orchestrator = await forked.fork("orchestrator")
        victim = await forked.fork(fault="companies.note_source:2:kill9")
        id = await forked.site.request_company(siren)
        await asyncio.wait_for(victim.ended.wait(), 30)
        await orchestrator.kill()
        assert await forked.site.state(siren) == "RUNNING"
        await forked.expire_leases()
        parts = [await forked.fork("orchestrator"), await forked.fork()]
        await forked.site.over(id)
        for part in parts:
            await part.kill()
        assert (await forked.site.look(id))["request"]["enrichment_status"] == "SUCCESS"
        assert await forked.count_events(siren) == EACH_ONCE


async def test_a_worker_that_slept_through_its_lock_changes_nothing_any_more(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with (
        open_forked_site(dsn, tmp_path, companies | {"sweep_seconds": 600}) as forked,
        forked.site.lab.orchestrator(),
    ):
        siren = forked.siren()
        sleeper = await forked.fork(fault="companies.heartbeat.heartbeat_lease:2:stop")
        id = await forked.site.request_company(siren)
        await asyncio.wait_for(sleeper.stopped.wait(), 30)
        await forked.site.expire()
        seen = await forked.site.look(id)  # which ends what was left, and begins the next attempt
        assert seen["request"]["enrichment_status"] == "PARTIAL"
        assert seen["request"]["enrichment_error"] == "INPI_RNE:-:INTERNAL_ERROR"
        assert seen["enrichment_running"]
        sleeper.resume()
        await until(lambda: _since(sleeper, "companies.heartbeat.commit.after"))
        await forked.site.over(id)
        assert (await forked.site.look(id))["request"]["enrichment_status"] == "SUCCESS"
        runs = "select attempt, is_abnormal, status from cograil_companies.company_runs order by created_at"
        assert await forked.site.lab.rows(runs) == [(1, True, "PARTIAL"), (2, False, "SUCCESS")]
        assert forked.site.registers.calls() == {RECHERCHE: 2, INPI: 1, RCS: 1}, "the first asked no more"
        twice = Counter({name: 2 for name in EACH_ONCE} | {"Requested": 2, f"SourceFetched{RCS}": 1})
        assert await forked.count_events(siren) == twice
        await sleeper.kill()


# -- who ends what was left --------------------------------------------------------------------------------


async def left_run(forked: ForkedSite) -> Case:
    """A run whose worker died at its second source, and whose orchestrator is gone; its lock is over."""
    siren = forked.siren()
    async with forked.site.lab.orchestrator():
        victim = await forked.fork(fault="companies.note_source:2:kill9")
        case = Case(siren, await forked.site.request_company(siren))
        await asyncio.wait_for(victim.ended.wait(), 30)
    await forked.expire_leases()
    await forked.site.expire()
    return case


async def end_it(forked: ForkedSite, role: str, case: Case, fault: str | None = None) -> Child:
    """The sweeper of a worker, or a server that is asked for it; it has ended the run, or died of it."""
    child = await forked.fork(role, fault=fault)
    if role == "server":
        api = ApiClient(forked.site.lab, forked.site.api.context, await port_of(child))
        with contextlib.suppress(Exception):
            await api.get(f"/v1/requests/{case.id}")
        return child
    await until(lambda: child.ended.is_set() or has_verdict(forked, case))
    return child


async def has_verdict(forked: ForkedSite, case: Case) -> bool:
    return await forked.site.state(case.siren) != "RUNNING"


async def strike_ender(forked: ForkedSite, role: str, point: str) -> None:
    """Kill who ends a run there: it is ended wholly or not at all, by an heir in the end, and told once."""
    case = await left_run(forked)
    ender = await end_it(forked, role, case, f"{point}:kill9")
    await asyncio.wait_for(ender.ended.wait(), 30)
    counts = await forked.count_events(case.siren)
    is_done = await has_verdict(forked, case)
    assert counts["Completed"] == (1 if is_done else 0), (point, counts)
    assert not is_done or "commit.after" in point or ".submit." not in point, point
    await finish(forked, case)
    runs = await forked.site.lab.rows(RUNS, siren=case.siren)
    assert runs[0] == (1, True, "PARTIAL"), (point, runs)
    assert runs[1:] in ([], [(2, False, "SUCCESS")]), (point, runs)
    events = Counter(await forked.site.lab.rows(EVENTS, siren=case.siren))
    assert set(events.values()) == {1}, (point, events)
    assert (await forked.count_events(case.siren))["Completed"] == len(runs), point
    name = "select legal_name from cograil_companies.companies where siren = %(siren)s"
    assert await forked.site.lab.rows(name, siren=case.siren) == [("DANONE",)], point


async def finish(forked: ForkedSite, case: Case) -> None:
    """Others come, and whatever is under way ends."""
    heirs = [await forked.fork("orchestrator"), await forked.fork()]
    await forked.site.over(case.id)
    for heir in heirs:
        await heir.kill()
    await forked.expire_leases()


RUNS = """
select attempt, is_abnormal, status from cograil_companies.company_runs where siren = %(siren)s order by created_at
"""
EVENTS = """
select job_id, data ->> 'event_type', data ->> 'source_api' from cograil.outbox
where subject = %(siren)s and type like 'companies.%%'
"""
ENDERS = {"worker": "companies.settle.", "server": "companies.submit."}


async def test_another_sweeper_ends_the_run_of_a_killed_sweeper(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    """Nobody looks, and no orchestrator lives: only the sweeper of a worker sees that the lock is over."""
    async with open_forked_site(dsn, tmp_path, companies) as forked:
        await strike_ender(forked, "worker", "companies.settle.end_run:1")


async def test_another_server_ends_the_run_of_a_killed_server(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with open_forked_site(dsn, tmp_path, companies) as forked:
        await strike_ender(forked, "server", "companies.submit.commit.before:1")


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("role", ENDERS)
async def test_a_run_is_ended_though_its_ender_dies_at_any_point(
    dsn: str, tmp_path: Path, companies: dict[str, Any], role: str
) -> None:
    async with open_forked_site(dsn, tmp_path, companies) as forked:
        case = await left_run(forked)
        ender = await end_it(forked, role, case)
        await ender.kill()
        await finish(forked, case)
        visits = Counter(name for name in ender.points() if name.startswith(ENDERS[role]))
        assert len(visits) >= 12
        for name, count in visits.items():
            for number in range(1, count + 1):
                await strike_ender(forked, role, f"{name}:{number}")


def _since(child: Child, point: str) -> int:
    """How often it passed this point since the fault struck it."""
    points = child.points()
    struck = next(place for place, name in enumerate(points) if name.startswith("!"))
    return points[struck:].count(point)
