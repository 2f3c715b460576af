"""PostgreSQL is away for everybody: no worker loses an attempt by it, and callers are told soon."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from tests.conftest import Eventually
from tests.support.api_client import ApiClient, serve_api
from tests.support.harness import Harness, open_harness, quick_settings
from tests.support.patient_handler import Patient
from tests.support.schemas import make_schemas

from cograil.embedded.postgres_server import EmbeddedPostgres
from cograil.runners.context import Context
from cograil.verbs import tasks

LEASE = {"seconds": 2.0, "heartbeat_seconds": 0.4, "scan_seconds": 0.2}
ONE_ATTEMPT = "workflow_id: one\nnodes:\n  only: {handler: outlasting, retry: {max_attempts: 1}}\n"
SOON_SECONDS = 4.0  # 1.5 s, and what a busy machine takes


def everybody(server: EmbeddedPostgres) -> list[psutil.Process]:
    assert server.pid is not None
    postmaster = psutil.Process(server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


def send(server: EmbeddedPostgres, *signals: signal.Signals) -> None:
    """To all processes of the server, as if its machine had died or stopped."""
    processes = everybody(server)
    for number in signals:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path / "pg") as server:
        asyncio.run(make_schemas(server.conninfo))
        yield server


@pytest_asyncio.fixture
async def far(server: EmbeddedPostgres) -> AsyncIterator[Harness]:
    async with open_harness(server.conninfo, quick_settings(lease=LEASE)) as harness:
        yield harness


@pytest.fixture
def patient(far: Harness) -> Iterator[Patient]:
    patient = Patient()

    async def outlasting(ctx: Context) -> dict[str, object]:
        return await patient(ctx)

    far.registry.register(outlasting, "outlasting")
    yield patient
    far.registry._specs.pop("outlasting")


async def test_an_outage_longer_than_the_lease_costs_no_attempt(
    server: EmbeddedPostgres, far: Harness, patient: Patient
) -> None:
    """The worker lets go in time, for it cannot know; it begins again, and that is not counted."""
    async with far.running():
        job = await far.submit(ONE_ATTEMPT)
        await patient.begun.wait()
        send(server, signal.SIGSTOP, signal.SIGKILL)
        went_at = time.monotonic()
        await patient.stopped.wait()
        patient.begun.clear()
        await asyncio.sleep(max(0.0, went_at + 1.5 * LEASE["seconds"] - time.monotonic()))
        server.stop()
        server.start()
        await asyncio.wait_for(patient.begun.wait(), 30)
        patient.go_on.set()
        ended = await far.ended(job)
    assert (ended["status"], patient.reason, patient.runs) == ("completed", "lost", 2)
    lost = await far.rows("select lost from cograil.nodes where node_id = 'only'")
    assert lost == [(0,)]


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
async def test_callers_are_told_soon(
    server: EmbeddedPostgres, far: Harness, blow: signal.Signals, eventually: Eventually
) -> None:
    async with serve_api(far, server.conninfo) as api:
        assert (await api.get("/api/v1/jobs")).status == 200
        assert (await api.post("/api/v1/workflows", {"source": ONE_ATTEMPT})).status == 201
        send(server, signal.SIGSTOP, blow)
        try:
            for request in (_list(api), _submit(api), _list(api)):
                began = time.monotonic()
                assert await request == (503, "database_unavailable", "1")
                assert time.monotonic() - began < SOON_SECONDS
        finally:
            send(server, signal.SIGCONT) if blow is signal.SIGSTOP else server.stop()
        if blow is signal.SIGKILL:
            server.start()

        async def is_back() -> bool:
            return (await api.get("/api/v1/jobs")).status == 200

        await eventually(is_back)


async def _list(api: ApiClient) -> tuple[int, str, str]:
    answer = await api.get("/api/v1/jobs")
    return answer.status, answer.code, answer.headers["retry-after"]


async def _submit(api: ApiClient) -> tuple[int, str, str]:
    answer = await api.post("/api/v1/jobs", {"workflow_id": "one"})
    return answer.status, answer.code, answer.headers["retry-after"]


OVER = "select count(*) from cograil.processes where kind = 'worker' and lease_until < clock_timestamp()"


async def silent(harness: Harness, eventually: Eventually) -> None:
    """A worker whose lease is over, with a task."""
    await harness.tick()  # has seen this server
    await harness.submit("workflow_id: one\nnodes:\n  only: {handler: x}\n")
    worker = await harness.manual_worker(lease_seconds=0.2)
    await worker.claim_one()

    async def is_over() -> bool:
        return await harness.rows(OVER) == [(1,)]

    await eventually(is_over)


async def test_for_a_lease_after_the_start_of_the_server_nobody_is_lost(
    harness: Harness, eventually: Eventually
) -> None:
    await silent(harness, eventually)
    await harness.rows("update cograil.server set started_at = started_at - interval '1 hour' returning 1")
    tick = await harness.tick()
    assert (tick.dead, tick.rescued) == (0, 0)
    await harness.rows("update cograil.server set since = since - interval '2 hours' returning 1")
    tick = await harness.tick()
    assert (tick.dead, tick.rescued) == (1, 1)


async def test_an_orchestrator_that_was_cut_off_takes_nobody_for_lost(
    harness: Harness, eventually: Eventually
) -> None:
    await silent(harness, eventually)
    assert harness.ticker is not None
    for is_steady, dead in ((False, 0), (True, 1)):
        async with harness.db.single("tick") as tx:
            assert (
                await tasks.tick_orchestrator(tx, harness.ticker, 3600, 60, is_steady=is_steady)
            ).dead == dead
