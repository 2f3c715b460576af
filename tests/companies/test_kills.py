"""Several who die in one run, and one that only seemed to. `test_kills_everywhere` kills one anywhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bureau import until
from registers import INPI, RCS, RECHERCHE, said
from scene import EACH_ONCE, open_scene
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
        sleeper = await scene.fork(fault="companies.pulse.pulse_lease:2:stop")
        id = await scene.bureau.asked(siren)
        await asyncio.wait_for(sleeper.stopped.wait(), 30)
        await scene.bureau.expire()
        seen = await scene.bureau.look(id)  # which ends what was left, and begins the next attempt
        assert seen["request"]["enrichment_status"] == "PARTIAL"
        assert seen["request"]["enrichment_error"] == "INPI_RNE:-:INTERNAL_ERROR"
        assert seen["enrichment_running"]
        sleeper.resume()
        await until(lambda: _since(sleeper, "companies.pulse.commit.after"))
        await scene.bureau.over(id)
        assert (await scene.bureau.look(id))["request"]["enrichment_status"] == "SUCCESS"
        runs = "select attempt, is_abnormal, status from cograil.company_runs order by created_at"
        assert await scene.bureau.lab.rows(runs) == [(1, True, "PARTIAL"), (2, False, "SUCCESS")]
        assert scene.bureau.registers.calls() == {RECHERCHE: 2, INPI: 1, RCS: 1}, "the first asked no more"
        twice = Counter({name: 2 for name in EACH_ONCE} | {"Requested": 2, f"SourceFetched{RCS}": 1})
        assert await scene.told(siren) == twice
        await sleeper.kill()


async def test_a_sweeper_that_dies_while_it_ends_a_run_has_an_heir(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    """Nobody looks, and no orchestrator lives: only the sweeper of a worker sees that the lock is over."""
    async with open_scene(dsn, tmp_path, companies) as scene:
        siren = scene.siren()
        async with scene.bureau.lab.orchestrator():
            victim = await scene.fork(fault="companies.note_source:2:kill9")
            id = await scene.bureau.asked(siren)
            await asyncio.wait_for(victim.ended.wait(), 30)
        await scene.bureau.expire()
        sweeper = await scene.fork(fault="companies.settle.end_run:1:kill9")
        await asyncio.wait_for(sweeper.ended.wait(), 30)
        assert await scene.bureau.state(siren) == "RUNNING"
        heir = await scene.fork()
        await scene.bureau.over(id)
        await heir.kill()
        assert await scene.bureau.state(siren) == "PARTIAL"
        assert await scene.told(siren) == EACH_ONCE - Counter([f"SourceFetched{RCS}"])


def _since(child: Child, point: str) -> int:
    """How often it passed this point since the fault struck it."""
    points = child.points()
    struck = next(place for place, name in enumerate(points) if name.startswith("!"))
    return points[struck:].count(point)
