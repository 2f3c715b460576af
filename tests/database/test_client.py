"""The Python client, both of it, against a served API."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from tests.support.api_client import ApiClient

from cograil.client import ApiError, AsyncClient, Client, Unreachable
from cograil.client.models import NewJob

HELLO = """
workflow_id: hello
inputs: {name: {type: string, default: World}}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
ELSEWHERE = "workflow_id: far\nnodes: {a: {handler: elsewhere}}"


def url(api: ApiClient) -> str:
    return f"http://127.0.0.1:{api.port}"


async def test_a_job_from_its_submit_to_its_result(api: ApiClient) -> None:
    async with AsyncClient(url(api)) as cograil, api.harness.running():
        assert (await cograil.publish(HELLO))["is_new"]
        job = await cograil.submit("hello", {"name": "Ada"}, wait=20, labels={"a": "b"})
        assert (job["status"], job["labels"]) == ("completed", {"a": "b"})
        shown = await cograil.job(job["job_id"])
        assert shown["nodes"][0]["output"] == {"message": "Hello, Ada!"}
        assert (await cograil.events(job["job_id"]))[0]["seq"] == 1
        assert (await cograil.progress(job["job_id"]))["overall_percent"] == 100.0
        assert (await cograil.explain(job["job_id"]))["blockers"] == []
        assert [workflow["workflow_id"] for workflow in await cograil.workflows()] == ["hello"]
        assert (await cograil.workflow("hello"))["source"] == HELLO


async def test_many_jobs_are_submitted_and_walked(api: ApiClient) -> None:
    async with AsyncClient(url(api)) as cograil:
        await cograil.publish(HELLO)
        wanted: list[NewJob] = [{"workflow_id": "hello"}, {"workflow_id": "nobody"}, {"workflow_id": "hello"}]
        results = await cograil.submit_many(wanted)
        assert [result["status"] for result in results] == [202, 404, 202]
        assert await cograil.submit_many(wanted[:1], idempotency_key="once") == await cograil.submit_many(
            wanted[:1], idempotency_key="once"
        )
        seen = [job["job_id"] async for job in cograil.all_jobs(workflow_id="hello")][1:]
        assert seen == [results[2]["job_id"], results[0]["job_id"]]


async def test_a_refusal_says_what_and_where(api: ApiClient) -> None:
    async with AsyncClient(url(api)) as cograil:
        await cograil.publish(HELLO)
        with pytest.raises(ApiError, match="unknown_field") as refused:
            await cograil.submit("hello", odd=1)  # type: ignore[call-arg]
        assert (refused.value.status, refused.value.pointer) == (422, "/odd")
        with pytest.raises(ApiError) as missing:
            await cograil.job("no such job/..")
        assert missing.value.status == 404


async def test_nobody_there_is_said_so() -> None:
    async with AsyncClient("http://127.0.0.1:9", timeout=2) as cograil:
        with pytest.raises(Unreachable, match="does not answer"):
            await cograil.workflows()


async def test_a_worker_in_a_few_lines(api: ApiClient) -> None:
    async with AsyncClient(url(api)) as cograil, api.harness.orchestrator():
        await cograil.publish(ELSEWHERE)
        job_id = (await cograil.submit("far"))["job_id"]
        (task,) = await cograil.claim("w", wait_seconds=10)
        assert await cograil.heartbeat(task)
        await cograil.tell_progress(task, 1, 2)
        await cograil.checkpoint(task, {"row": 1})
        await cograil.complete(task, {"done": True})
        assert (await api.harness.ended(job_id))["result"]["a"] == {"done": True}


async def test_a_job_in_the_callers_own_transaction(api: ApiClient, dsn: str) -> None:
    async with AsyncClient(url(api)) as cograil:
        await cograil.publish(HELLO)
        async with await psycopg.AsyncConnection.connect(dsn) as mine:
            job = await cograil.submit("hello", {"name": "x"}, connection=mine, priority=2)
            assert (await cograil.jobs())["jobs"] == []
            await mine.commit()
        assert (await cograil.job(job["job_id"]))["job"]["priority"] == 2


async def test_the_client_that_waits_does_the_same(api: ApiClient, dsn: str) -> None:
    def work() -> Any:
        with Client(url(api)) as cograil, psycopg.connect(dsn) as mine:
            cograil.publish(HELLO)
            own = cograil.submit("hello", connection=mine)
            mine.commit()
            job = cograil.submit("hello", {"name": "Eve"}, wait=20)
            ids = [listed["job_id"] for listed in cograil.all_jobs()]
            return job["result"], own["job_id"] in ids

    async with api.harness.running():
        result, has_own = await asyncio.to_thread(work)
    assert result["greet"] == {"message": "Hello, Eve!"}
    assert has_own
