"""A worker that the database does not answer lets go of its tasks before somebody else may have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.database_proxy import DatabaseProxy, open_database_proxy
from tests.support.harness import Harness, quick_settings
from tests.support.one_node import one
from tests.support.patient_handler import Patient

from cograil.runners.context import Context
from cograil.store.database import Database
from cograil.worker.worker_loop import Worker

LEASE = {"seconds": 3.0, "heartbeat_seconds": 1.0, "scan_seconds": 0.2}
IS_HELD = "select lease_until > clock_timestamp() from cograil.processes where name = 'far'"
OUTLIVED = "select 1 from cograil.processes where name = 'far' and pulsed_at > started_at + interval '4 s'"


@pytest.fixture
async def proxy(dsn: str) -> AsyncIterator[DatabaseProxy]:
    async with open_database_proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
def patient(harness: Harness) -> Patient:
    patient = Patient()

    async def wait(ctx: Context) -> dict[str, Any]:
        return await patient(ctx)

    harness.registry.register(wait, "patient")
    return patient


@pytest.fixture
async def far(harness: Harness, proxy: DatabaseProxy, patient: Patient) -> AsyncIterator[Worker]:
    """A worker whose database is at the other end of a wire."""
    settings = quick_settings(lease=LEASE, worker={"grace_seconds": 0.5})
    async with Database(proxy.dsn, settings.database) as db:
        worker = Worker(db, settings, harness.registry, "far")
        running = asyncio.create_task(worker.run())
        yield worker
        await proxy.restore()
        patient.go_on.set()
        worker.stop()
        await running


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "frozen"])
async def test_a_worker_stops_its_tasks_while_the_lease_is_still_its_own(
    harness: Harness, proxy: DatabaseProxy, far: Worker, patient: Patient, is_cut: bool
) -> None:
    job = await harness.submit(one("patient"))
    async with harness.orchestrator():
        await patient.begun.wait()
        await proxy.cut() if is_cut else proxy.freeze()
        async with asyncio.timeout(10):
            await patient.stopped.wait()
        assert await harness.rows(IS_HELD) == [(True,)], "nobody else could have begun before"
        assert patient.reason == "lost"
        patient.go_on.set()
        await proxy.restore()
        assert (await harness.ended(job))["status"] == "completed"
    assert patient.runs == 2


async def test_a_worker_keeps_its_tasks_while_its_heartbeats_arrive(
    harness: Harness, far: Worker, patient: Patient, eventually: Any
) -> None:
    job = await harness.submit(one("patient"))
    async with harness.orchestrator():
        await patient.begun.wait()
        later = (
            "select 1 from cograil.processes where name = 'far' and pulsed_at > started_at + interval '4 s'"
        )
        await eventually(lambda: harness.rows(later), 15)
        patient.go_on.set()
        assert (await harness.ended(job))["status"] == "completed"
    assert (patient.runs, patient.stopped.is_set()) == (1, False)


async def test_a_worker_keeps_its_tasks_while_postgresql_is_starting(
    harness: Harness, proxy: DatabaseProxy, far: Worker, patient: Patient
) -> None:
    """Then nobody can take it; from its start on orchestrators wait for a lease."""
    job = await harness.submit(one("patient"))
    await patient.begun.wait()
    await proxy.refuse_as_starting()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(patient.stopped.wait(), 1.5 * LEASE["seconds"])
    await proxy.restore()
    patient.go_on.set()
    async with harness.orchestrator():
        assert (await harness.ended(job))["status"] == "completed"
    assert patient.runs == 1
