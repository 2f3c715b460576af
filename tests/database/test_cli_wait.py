"""Waiting for a job, whatever happens to the connection meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio
from tests.support.harness import Harness, open_harness

from cograil.cli.backends.database_backend import DatabaseBackend
from cograil.cli.display.job_progress import LineProgress, SilentProgress
from cograil.cli.instance_client import InstanceClient
from cograil.cli.job_wait import CliJobEndListener, wait_for_end
from cograil.errors import Conflict, JobNotFound, UsageError, WaitTimeout
from cograil.store.job_progress_queries import load_progress, resolve_job

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world}\n"
WIDE = """
workflow_id: wide
nodes:
  split: {type: fan_out, source: "{{ inputs.items }}", task: {handler: echo}, next: gather}
  gather: {type: fan_in}
"""


@pytest_asyncio.fixture
async def harness(dsn: str) -> AsyncIterator[Harness]:
    async with open_harness(dsn) as harness:
        yield harness


@pytest.fixture
def client(harness: Harness) -> DatabaseBackend:
    return DatabaseBackend(InstanceClient(harness.db, harness.settings, harness.engine_context))


async def test_the_end_of_a_job_is_heard_and_not_only_found_by_looking(
    harness: Harness, client: DatabaseBackend
) -> None:
    class Patient(SilentProgress):
        pause = 60.0

    job_id = await harness.submit(HELLO)
    async with client.job_ends() as listener, harness.running():
        seen = await asyncio.wait_for(wait_for_end(client, listener, job_id, Patient()), 20)
    assert seen.status == "completed"


async def test_the_end_of_a_job_is_found_when_no_notice_arrives(
    harness: Harness, client: DatabaseBackend
) -> None:
    job_id = await harness.submit(HELLO)
    async with harness.running():
        seen = await asyncio.wait_for(wait_for_end(client, CliJobEndListener(), job_id, SilentProgress()), 20)
    assert seen.status == "completed"


async def test_waiting_outlives_lost_connections(harness: Harness, client: DatabaseBackend, dsn: str) -> None:
    looks = asyncio.Event()

    class Eager(SilentProgress):
        pause = 0.01

        def update(self, *_: object) -> None:
            looks.set()

    job_id = await harness.submit(HELLO)
    async with client.job_ends() as listener:
        waiting = asyncio.create_task(wait_for_end(client, listener, job_id, Eager()))
        await looks.wait()
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as admin:
            await admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        looks.clear()
        await looks.wait()
        async with harness.running():
            assert (await asyncio.wait_for(waiting, 30)).status == "completed"


async def test_waiting_ends_in_time_and_says_where_to_look(harness: Harness, client: DatabaseBackend) -> None:
    job_id = await harness.submit(HELLO)
    with pytest.raises(WaitTimeout, match=f"explain {job_id}"):
        await wait_for_end(client, CliJobEndListener(), job_id, SilentProgress(), timeout=0.05)


async def test_waiting_for_what_does_not_exist_ends_at_once(client: DatabaseBackend) -> None:
    with pytest.raises(JobNotFound):
        await wait_for_end(
            client, CliJobEndListener(), "00000000-0000-7000-8000-000000000000", SilentProgress()
        )


async def test_a_wide_fan_out_is_a_few_lines(
    harness: Harness, client: DatabaseBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = await harness.submit(WIDE, {"items": list(range(300))})
    async with harness.running():
        await wait_for_end(client, CliJobEndListener(), job_id, LineProgress())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 10
    assert any("split  started with 300 children" in line for line in lines)
    assert lines[-1].split()[2:4] == ["job", "completed"]


async def test_a_glance_counts_children_and_those_that_wait_for_another_attempt(harness: Harness) -> None:
    text = WIDE.replace("{handler: echo}", "{handler: fail, retry: {initial_delay_seconds: 600}}")
    job_id = await harness.submit(text, {"items": [1, 2, 3]})
    async with harness.running():
        async with asyncio.timeout(20):
            while True:
                async with harness.db.transaction("test") as tx:
                    split = (await load_progress(tx, job_id)).nodes["split"]
                if split.backing_off == 3:
                    break
                await asyncio.sleep(0.01)
    assert (split.total, split.ended, split.status) == (3, 0, "running")


async def test_a_job_is_found_by_the_beginning_of_its_id(harness: Harness) -> None:
    job_id = await harness.submit(HELLO)
    async with harness.db.transaction("test") as tx:
        assert await resolve_job(tx, job_id) == job_id
        assert await resolve_job(tx, f" {job_id.upper()} ") == job_id
        assert await resolve_job(tx, job_id[:8]) == job_id
        for text in ("zzzzzzzz", "", "ffffffff", job_id + "0"):
            with pytest.raises(JobNotFound):
                await resolve_job(tx, text)
        with pytest.raises(UsageError, match="at least 8"):
            await resolve_job(tx, job_id[:7])
    other = job_id[:-1] + ("0" if job_id[-1] != "0" else "1")
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute(
            f"create temp table twin as select * from cograil.jobs where id = '{job_id}'".encode()
        )
        await tx.connection.execute(f"update twin set id = '{other}'".encode())
        await tx.connection.execute("insert into cograil.jobs select * from twin")
        with pytest.raises(Conflict, match="several jobs begin with"):
            await resolve_job(tx, job_id[:8])
