"""Attempts that have ended, and what else lists say of jobs and workflows."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest
from tests.support.api_client import ApiClient
from tests.support.harness import Harness

from cograil.store import monitoring_queries

HELLO = "workflow_id: hello\nnodes: {a: {handler: echo, next: b}, b: {handler: echo}}"
FAILING = """
workflow_id: failing
nodes: {a: {handler: fail, params: {error_message: no}, retry: {max_attempts: 2, initial_delay_seconds: 0}}}
"""


async def publish_both(api: ApiClient) -> None:
    for text in (HELLO, FAILING):
        assert (await api.post("/api/v1/workflows", {"source": text})).status == 201


async def run_jobs(api: ApiClient) -> tuple[str, str]:
    """A job that completes and one that fails, one after the other."""
    async with api.harness.running():
        first = await api.submit("hello")
        await api.harness.ended(first)
        second = await api.submit("failing")
        await api.harness.ended(second)
    return first, second


@pytest.mark.parametrize("window", [1, 200])
async def test_ended_attempts_are_listed_page_by_page(
    api: ApiClient, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring_queries, "MAX_JOBS_WITH_ATTEMPTS", window)
    await publish_both(api)
    first, second = await run_jobs(api)
    await api.submit("hello")  # queued: it is not among them
    tasks: list[Any] = []
    path = "/api/v1/tasks?state=ended&limit=2"
    cursor: str | None = ""
    while cursor is not None:
        body = (await api.get(path + (f"&cursor={cursor}" if cursor else ""))).body
        assert len(body["tasks"]) <= 2
        tasks += body["tasks"]
        cursor = body["next_cursor"]
    assert [(task["job_id"], task["node_id"], task["attempt"], task["state"]) for task in tasks] == [
        (second, "a", 2, "failed"),
        (second, "a", 1, "failed"),
        (first, "b", 1, "completed"),
        (first, "a", 1, "completed"),
    ]
    assert all(task["worker"] and task["started_at"] <= task["ended_at"] for task in tasks)
    assert (tasks[0]["error"]["message"], tasks[2]["error"]) == ("no", None)
    assert len({task["task_id"] for task in tasks}) == 4


async def test_ended_attempts_are_of_one_tenant_and_found_by_worker(api: ApiClient) -> None:
    await publish_both(api)
    await run_jobs(api)
    whole = (await api.get("/api/v1/tasks?state=ended")).body["tasks"]
    worker = whole[0]["worker"]
    assert (await api.get(f"/api/v1/tasks?state=ended&worker={worker}")).body["tasks"] == whole
    assert (await api.get("/api/v1/tasks?state=ended&worker=none")).body["tasks"] == []
    refused = await api.get("/api/v1/tasks?state=ended&queue=default")
    assert (refused.status, "by worker only" in refused.body["detail"]) == (422, True)
    key = await api.make_key("viewer", "acme")
    assert (await api.get("/api/v1/tasks?state=ended", key=key)).body["tasks"] == []


async def test_a_job_says_when_its_orchestrator_was_heard_of(api: ApiClient) -> None:
    await publish_both(api)
    first, _ = await run_jobs(api)
    job = (await api.get(f"/api/v1/jobs/{first}")).body["job"]
    assert (job["owner_id"] is None) == (job["owner_heartbeat_at"] is None)
    await api.harness.rows("update cograil.jobs set owner_id = (select min(id) from cograil.processes)")
    job = (await api.get(f"/api/v1/jobs/{first}")).body["job"]
    assert job["owner_id"]
    assert job["owner_heartbeat_at"] >= job["created_at"][:10]


async def test_workflows_are_listed_with_their_numbers_of_nodes(api: ApiClient, dsn: str) -> None:
    await publish_both(api)
    listed = (await api.get("/api/v1/workflows")).body["workflows"]
    assert [(workflow["workflow_id"], workflow["node_count"]) for workflow in listed] == [
        ("failing", 1),
        ("hello", 2),
    ]
    out = await cograil(dsn, "workflows")
    assert "nodes" in out.splitlines()[0]


async def test_a_task_that_waits_for_a_worker_is_listed_as_queued(harness: Harness, dsn: str) -> None:
    job = await harness.submit(HELLO)
    shown = await cograil(dsn, "show", job)
    assert "queued" in shown
    assert "dispatched" not in shown
    assert "queued" in await cograil(dsn, "show", job, "--node", "a")


async def cograil(dsn: str, *words: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "cograil", *words),
        env=kept | {"COGRAIL_DATABASE_URL": dsn},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()
