"""kill -9 of each process at each step of a run: nothing is lost, nothing is told twice, nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bureau import Bureau, open_bureau, until
from doors import Api
from receivers import HERE
from registers import INPI, RCS, RECHERCHE, said
from tests.torture.nursery import Child, Nursery, open_nursery

from cograil.setting_parts import OutboundSettings
from cograil.verbs.callbacks import Receiver as Destination
from cograil.verbs.outbox import subscribe

# One for each way in which a run may be cut: between two statements, before and after the commit of a node.
A_FEW = [
    "companies.note_source:1",
    "handler.commit.before:3",
    "companies.end_run:1",
    "handler.commit.after:6",
]
OURS = ("companies.", "handler.commit")


@pytest.fixture
def companies() -> dict[str, Any]:
    return {"sync_seconds": 0, "sweep_seconds": 0.5}


class Scene:
    """A door and an orchestrator here, workers that are forked, and somebody who wants to hear of it all."""

    def __init__(self, bureau: Bureau, nursery: Nursery, dsn: str, own: dict[str, Any]) -> None:
        self.bureau = bureau
        self.nursery = nursery
        self.dsn = dsn
        self.own = own
        self._sirens = iter(range(100_000_001, 999_999_999))

    async def fork(self, role: str = "worker", fault: str | None = None) -> Child:
        return await self.nursery.fork(role, self.dsn, fault=fault, settings={"companies": self.own})

    def siren(self) -> str:
        return str(next(self._sirens))

    async def bury(self) -> None:
        """Nobody who is dead holds anything any longer: their leases end now, and not in 20 seconds."""
        await self.bureau.lab.rows(
            "update cograil.processes set lease_until = now() - interval '1 s' where kind = 'worker'"
        )

    async def told(self, siren: str) -> Counter[str]:
        """How often each event is in the outbox."""
        rows = await self.bureau.lab.rows(
            "select data ->> 'event_type', coalesce(data ->> 'source_api', '') from cograil.outbox"
            " where type like 'companies.%%' and subject = %(siren)s",
            siren=siren,
        )
        return Counter(kind.removeprefix("CompanyEnrichment") + source for kind, source in rows)


@contextlib.asynccontextmanager
async def open_scene(dsn: str, directory: Path, companies: dict[str, Any]) -> AsyncIterator[Scene]:
    async with open_bureau(dsn, **companies) as bureau, open_nursery(directory) as nursery:
        async with bureau.lab.db.transaction("subscribe") as tx:
            policy = OutboundSettings(**HERE)  # type: ignore[arg-type]
            await subscribe(tx, "default", Destination("http://127.0.0.1:9999/"), policy)
        yield Scene(bureau, nursery, dsn, bureau.registers.settings(**companies))
        assert [str(finding) for finding in await bureau.lab.findings()] == []


EACH_ONCE = Counter(
    {
        "Requested": 1,
        "Started": 1,
        f"SourceFetched{RECHERCHE}": 1,
        f"SourceFetched{INPI}": 1,
        f"SourceFetched{RCS}": 1,
        "Completed": 1,
    }
)


async def points_of_a_run(scene: Scene) -> list[str]:
    """Every statement and commit of the app that one run passes in its worker."""
    worker = await scene.fork()
    await scene.bureau.over(await scene.bureau.asked(scene.siren()))
    await worker.kill()
    counts: Counter[str] = Counter()
    found = []
    for name in worker.points():
        counts[name] += 1
        if name.startswith(OURS) and not name.startswith(("companies.stale", "companies.left")):
            found.append(f"{name}:{counts[name]}")
    return found


async def strike(scene: Scene, point: str) -> None:
    """Kill the worker there; another one ends what it began."""
    siren = scene.siren()
    victim = await scene.fork(fault=f"{point}:kill9")
    id = await scene.bureau.asked(siren)
    await asyncio.wait_for(victim.ended.wait(), 30)
    await scene.bury()
    heir = await scene.fork()
    await scene.bureau.over(id)
    await heir.kill()
    shown = await scene.bureau.look(id)
    assert shown["request"]["enrichment_status"] == "SUCCESS", (point, shown)
    assert len(shown["documents"]) == 3, point
    assert await scene.told(siren) == EACH_ONCE, point
    assert max(scene.bureau.registers.calls().values()) <= 2, point


async def test_a_worker_that_dies_in_a_run_has_an_heir(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with open_scene(dsn, tmp_path, companies) as scene, scene.bureau.lab.orchestrator():
        for point in A_FEW:
            scene.bureau.registers.asked.clear()
            await strike(scene, point)


@pytest.mark.torture
@pytest.mark.timeout(1800)
async def test_a_worker_that_dies_at_any_point_of_a_run_has_an_heir(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    async with open_scene(dsn, tmp_path, companies) as scene, scene.bureau.lab.orchestrator():
        points = await points_of_a_run(scene)
        assert len(points) > 30
        for point in points:
            scene.bureau.registers.asked.clear()
            await strike(scene, point)


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


OF_A_POST = ("open_record", "begin_run", "add_request", "tell_world")
SERVER_POINTS = [f"{name}:1" for name in OF_A_POST] + ["commit.before:2", "commit.after:2"]


async def strike_servers(dsn: str, directory: Path, companies: dict[str, Any], points: list[str]) -> None:
    async with open_scene(dsn, directory, companies) as scene, scene.bureau.lab.orchestrator():
        worker = await scene.fork()
        for point in points:
            await strike_server(scene, point)
        await worker.kill()


async def test_a_server_that_dies_has_made_the_request_wholly_or_not_at_all(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    await strike_servers(dsn, tmp_path, companies, SERVER_POINTS[-3:])


@pytest.mark.torture
async def test_a_server_that_dies_at_any_statement_has_too(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    await strike_servers(dsn, tmp_path, companies, SERVER_POINTS)


async def strike_server(scene: Scene, point: str) -> None:
    """Kill the server there; who asks again under the same key has one request in the end."""
    siren = scene.siren()
    headers, of = {"idempotency-key": siren}, "from cograil.company_requests where siren = %(siren)s"
    server = await scene.fork("server", fault=f"companies.submit.{point}:kill9")
    api = Api(scene.bureau.lab, scene.bureau.api.instance, await _port_of(server))
    with contextlib.suppress(Exception):
        await api.post("/v1/requests", {"siren": siren}, headers=headers)
    await asyncio.wait_for(server.ended.wait(), 20)
    made = len(await scene.bureau.lab.rows(f"select 1 {of}", siren=siren))
    assert made == (await scene.told(siren))["Requested"] == (1 if "after" in point else 0), point
    id = await scene.bureau.asked(siren, headers=headers)
    await scene.bureau.over(id)
    assert await scene.told(siren) == EACH_ONCE, point
    assert len(await scene.bureau.lab.rows(f"select 1 {of}", siren=siren)) == 1, point


ORCHESTRATOR_POINTS = ["admit.commit.after:1", "advance.commit.before:2", "advance.commit.after:4"]


async def test_an_orchestrator_that_dies_in_a_run_has_an_heir(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    await strike_orchestrators(dsn, tmp_path, companies, ORCHESTRATOR_POINTS[-1:])


@pytest.mark.torture
async def test_an_orchestrator_that_dies_elsewhere_has_one_too(
    dsn: str, tmp_path: Path, companies: dict[str, Any]
) -> None:
    await strike_orchestrators(dsn, tmp_path, companies, ORCHESTRATOR_POINTS[:-1])


async def strike_orchestrators(
    dsn: str, directory: Path, companies: dict[str, Any], points: list[str]
) -> None:
    async with open_scene(dsn, directory, companies) as scene:
        worker = await scene.fork()
        for point in points:
            siren = scene.siren()
            victim = await scene.fork("orchestrator", fault=f"{point}:kill9")
            id = await scene.bureau.asked(siren)
            await asyncio.wait_for(victim.ended.wait(), 30)
            heir = await scene.fork("orchestrator")
            await scene.bureau.over(id)
            await heir.kill()
            assert await scene.told(siren) == EACH_ONCE, point
        await worker.kill()


def _since(child: Child, point: str) -> int:
    """How often it passed this point since the fault struck it."""
    points = child.points()
    struck = next(place for place, name in enumerate(points) if name.startswith("!"))
    return points[struck:].count(point)


async def _port_of(server: Child) -> int:
    await until(Path(server.answer).exists)
    return int(json.loads(Path(server.answer).read_text()))
