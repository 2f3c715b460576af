"""Several who die in one run, and one that only seemed to. `test_kills_everywhere` kills one anywhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bureau import until
from registers import INPI, RCS, RECHERCHE, said
from scene import EACH_ONCE, Case, Scene, open_scene, port_of
from tests.support.api_client import ApiClient
from tests.torture.nursery import Child


@pytest.fixture
def companies() -> dict[str, Any]:
    return {"sync_seconds": 0, "sweep_seconds": 0.5}


async def test_what_failed_is_told_once_though_workers_die(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    """A source that failed is noted by whoever comes after it: that one may die as well."""
    async with open_scene(dsn, tmp_path, companies) as scene, scene.bureau.lab.orchestrator():
        scene.bureau.registers.answer(INPI, said(404))
        siren = scene.siren()
        victim = await scene.fork(fault="companies.note.commit.after:1:kill9")
        id = await scene.bureau.asked(siren)
        await asyncio.wait_for(victim.ended.wait(), 30)
        await scene.bury()
        heir = await scene.fork()
        await scene.bureau.over(id)
        await heir.kill()
        assert (await scene.bureau.look(id))["request"]["enrichment_status"] == "PARTIAL"
        assert await scene.told(siren) == EACH_ONCE


async def test_all_that_works_dies_in_the_middle_of_a_run(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with open_scene(dsn, tmp_path, companies) as scene:
        siren = scene.siren()
        orchestrator = await scene.fork("orchestrator")
        victim = await scene.fork(fault="companies.note_source:2:kill9")
        id = await scene.bureau.asked(siren)
        await asyncio.wait_for(victim.ended.wait(), 30)
        await orchestrator.kill()
        assert await scene.bureau.state(siren) == "RUNNING"
        await scene.bury()
        parts = [await scene.fork("orchestrator"), await scene.fork()]
        await scene.bureau.over(id)
        for one in parts:
            await one.kill()
        assert (await scene.bureau.look(id))["request"]["enrichment_status"] == "SUCCESS"
        assert await scene.told(siren) == EACH_ONCE


async def test_a_worker_that_slept_through_its_lock_changes_nothing_any_more(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with (
        open_scene(dsn, tmp_path, companies | {"sweep_seconds": 600}) as scene,
        scene.bureau.lab.orchestrator(),
    ):
        siren = scene.siren()
        sleeper = await scene.fork(fault="companies.heartbeat.heartbeat_lease:2:stop")
        id = await scene.bureau.asked(siren)
        await asyncio.wait_for(sleeper.stopped.wait(), 30)
        await scene.bureau.expire()
        seen = await scene.bureau.look(id)  # which ends what was left, and begins the next attempt
        assert seen["request"]["enrichment_status"] == "PARTIAL"
        assert seen["request"]["enrichment_error"] == "INPI_RNE:-:INTERNAL_ERROR"
        assert seen["enrichment_running"]
        sleeper.resume()
        await until(lambda: _since(sleeper, "companies.heartbeat.commit.after"))
        await scene.bureau.over(id)
        assert (await scene.bureau.look(id))["request"]["enrichment_status"] == "SUCCESS"
        runs = "select attempt, is_abnormal, status from cograil.company_runs order by created_at"
        assert await scene.bureau.lab.rows(runs) == [(1, True, "PARTIAL"), (2, False, "SUCCESS")]
        assert scene.bureau.registers.calls() == {RECHERCHE: 2, INPI: 1, RCS: 1}, "the first asked no more"
        twice = Counter({name: 2 for name in EACH_ONCE} | {"Requested": 2, f"SourceFetched{RCS}": 1})
        assert await scene.told(siren) == twice
        await sleeper.kill()


# -- who ends what was left --------------------------------------------------------------------------------


async def left_run(scene: Scene) -> Case:
    """A run whose worker died at its second source, and whose orchestrator is gone; its lock is over."""
    siren = scene.siren()
    async with scene.bureau.lab.orchestrator():
        victim = await scene.fork(fault="companies.note_source:2:kill9")
        case = Case(siren, await scene.bureau.asked(siren))
        await asyncio.wait_for(victim.ended.wait(), 30)
    await scene.bury()
    await scene.bureau.expire()
    return case


async def end_it(scene: Scene, role: str, case: Case, fault: str | None = None) -> Child:
    """The sweeper of a worker, or a server that is asked for it; it has ended the run, or died of it."""
    one = await scene.fork(role, fault=fault)
    if role == "server":
        api = ApiClient(scene.bureau.lab, scene.bureau.api.context, await port_of(one))
        with contextlib.suppress(Exception):
            await api.get(f"/v1/requests/{case.id}")
        return one
    await until(lambda: one.ended.is_set() or has_verdict(scene, case))
    return one


async def has_verdict(scene: Scene, case: Case) -> bool:
    return await scene.bureau.state(case.siren) != "RUNNING"


async def strike_ender(scene: Scene, role: str, point: str) -> None:
    """Kill who ends a run there: it is ended wholly or not at all, by an heir in the end, and told once."""
    case = await left_run(scene)
    ender = await end_it(scene, role, case, f"{point}:kill9")
    await asyncio.wait_for(ender.ended.wait(), 30)
    told = await scene.told(case.siren)
    is_done = await has_verdict(scene, case)
    assert told["Completed"] == (1 if is_done else 0), (point, told)
    assert not is_done or "commit.after" in point or ".submit." not in point, point
    await finish(scene, case)
    runs = await scene.bureau.lab.rows(RUNS, siren=case.siren)
    assert runs[0] == (1, True, "PARTIAL"), (point, runs)
    assert runs[1:] in ([], [(2, False, "SUCCESS")]), (point, runs)
    events = Counter(await scene.bureau.lab.rows(EVENTS, siren=case.siren))
    assert set(events.values()) == {1}, (point, events)
    assert (await scene.told(case.siren))["Completed"] == len(runs), point
    name = "select legal_name from cograil.companies where siren = %(siren)s"
    assert await scene.bureau.lab.rows(name, siren=case.siren) == [("DANONE",)], point


async def finish(scene: Scene, case: Case) -> None:
    """Others come, and whatever is under way ends."""
    heirs = [await scene.fork("orchestrator"), await scene.fork()]
    await scene.bureau.over(case.id)
    for heir in heirs:
        await heir.kill()
    await scene.bury()


RUNS = """
select attempt, is_abnormal, status from cograil.company_runs where siren = %(siren)s order by created_at
"""
EVENTS = """
select job_id, data ->> 'event_type', data ->> 'source_api' from cograil.outbox
where subject = %(siren)s and type like 'companies.%%'
"""
ENDERS = {"worker": "companies.settle.", "server": "companies.submit."}


async def test_a_sweeper_that_dies_while_it_ends_a_run_has_an_heir(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    """Nobody looks, and no orchestrator lives: only the sweeper of a worker sees that the lock is over."""
    async with open_scene(dsn, tmp_path, companies) as scene:
        await strike_ender(scene, "worker", "companies.settle.end_run:1")


async def test_a_server_that_dies_while_it_ends_a_run_has_one_too(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with open_scene(dsn, tmp_path, companies) as scene:
        await strike_ender(scene, "server", "companies.submit.commit.before:1")


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("role", ENDERS)
async def test_so_has_whoever_dies_anywhere_while_it_ends_a_run(
    dsn: str, tmp_path: Path, companies: dict[str, Any], role: str
) -> None:
    async with open_scene(dsn, tmp_path, companies) as scene:
        case = await left_run(scene)
        ender = await end_it(scene, role, case)
        await ender.kill()
        await finish(scene, case)
        visits = Counter(name for name in ender.points() if name.startswith(ENDERS[role]))
        assert len(visits) >= 12
        for name, count in visits.items():
            for number in range(1, count + 1):
                await strike_ender(scene, role, f"{name}:{number}")


def _since(child: Child, point: str) -> int:
    """How often it passed this point since the fault struck it."""
    points = child.points()
    struck = next(place for place, name in enumerate(points) if name.startswith("!"))
    return points[struck:].count(point)
