"""How long a worker over HTTP holds what it claimed: as long as it speaks of it, whatever else it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive
from tests.support.api_client import ApiClient
from tests.support.http_worker import RESULT, TWO, claim_tasks, result_body

from cograil.http.routes import worker_routes
from cograil.http.server.timeouts import wait_for_disconnect

END_LEASE = """
update cograil.processes p set lease_until = now() - interval '1 s'
from cograil.tasks t where t.worker_id = p.id and t.id = split_part(%(task)s, '.', 1)::bigint
"""


@pytest.fixture
async def desk(api: ApiClient) -> ApiClient:
    assert (await api.post("/api/v1/workflows", {"source": TWO})).status == 201
    return api


async def lease_of(desk: ApiClient, task: dict[str, Any]) -> Any:
    """Until when this attempt is held."""
    query = "select p.lease_until from cograil.tasks t join cograil.processes p on p.id = t.worker_id"
    number = int(task["task_id"].partition(".")[0])
    return (await desk.harness.rows(f"{query} where t.id = {number}"))[0][0]


async def test_a_task_that_a_worker_does_not_know_it_claimed_comes_again(desk: ApiClient) -> None:
    """The answer to a claim was lost, or it was started anew under its name: it claims and heartbeats others."""
    await desk.submit("two")
    (lost,) = await claim_tasks(desk)
    held_until = await lease_of(desk, lost)
    assert await claim_tasks(desk) == []
    await desk.submit("two")
    (other,) = await claim_tasks(desk)
    heartbeat = f"/api/v1/tasks/{other['task_id']}/pulse"
    assert (await desk.post(heartbeat, {"fence": other["fence"]})).status == 200
    assert await lease_of(desk, lost) == held_until < await lease_of(desk, other)
    await desk.harness.rows(END_LEASE, task=lost["task_id"])
    await desk.harness.tick()
    await desk.harness.advance()
    (again,) = await claim_tasks(desk)
    assert (again["job_id"], again["retry_count"]) == (lost["job_id"], 1)
    assert (await desk.post(RESULT, result_body(lost))).code == "stale_attempt"
    assert (await desk.post(RESULT, result_body(other))).status == 202


async def test_a_word_on_one_of_the_tasks_of_a_claim_keeps_them_all(desk: ApiClient) -> None:
    for _ in range(2):
        await desk.submit("two")
    first, second = await claim_tasks(desk)
    held_until = await lease_of(desk, second)
    assert (await desk.post(f"/api/v1/tasks/{first['task_id']}/pulse", {"fence": 1})).status == 200
    assert await lease_of(desk, second) > held_until


async def test_a_worker_is_one_however_many_claims_it_holds(desk: ApiClient) -> None:
    """And what it holds no more makes room for the next claim: it does not grow."""
    for _ in range(3):
        await desk.submit("two")
        (task,) = await claim_tasks(desk)
        assert (await desk.post(RESULT, result_body(task))).status == 202
    held = []
    for _ in range(3):
        await desk.submit("two")
        held += await claim_tasks(desk)
    assert len(await desk.harness.rows("select 1 from cograil.processes where name = 'w1'")) == 3
    assert [worker["name"] for worker in (await desk.get("/api/v1/workers")).body["workers"]] == ["w1"]
    (queue,) = (await desk.get("/api/v1/queues/status")).body["queues"]
    assert (queue["running"], queue["workers"]) == (3, 1)
    job_id = await desk.submit("two")
    assert "1 workers can run it" in str((await desk.get(f"/api/v1/jobs/{job_id}/explain")).body)
    for task in held:
        assert (await desk.post(RESULT, result_body(task))).status == 202


async def test_a_claim_of_a_caller_that_has_gone_takes_nothing(
    desk: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung up while it waited for something to do: else that would wait for the end of its lease."""
    is_waiting, has_gone, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait_for_tasks(seconds: float) -> bool:
        is_waiting.set()
        await go_on.wait()
        return True

    async def notice(receive: Receive) -> None:
        await wait_for_disconnect(receive)
        has_gone.set()

    monkeypatch.setattr(desk.context.job_end_listener, "wait_for_tasks", wait_for_tasks)
    monkeypatch.setattr(worker_routes, "wait_for_disconnect", notice)
    async with asyncio.timeout(20):
        waiting = asyncio.create_task(claim_tasks(desk, "gone", wait_seconds=20))
        await is_waiting.wait()
        waiting.cancel()
        await has_gone.wait()
        await desk.submit("two")
        go_on.set()
        (task,) = await claim_tasks(desk, "other")
    assert task["retry_count"] == 0


async def test_an_exclusive_task_is_not_claimed_beside_anything_else(desk: ApiClient) -> None:
    await desk.submit("two")
    (held,) = await claim_tasks(desk)
    await desk.submit("two")
    await desk.harness.rows("update cograil.tasks set is_alone = true where state = 'ready'")
    assert await claim_tasks(desk) == []
    assert (await desk.post(RESULT, result_body(held))).status == 202
    (alone,) = await claim_tasks(desk)
    await desk.submit("two")
    assert await claim_tasks(desk) == []
    assert (await desk.post(RESULT, result_body(alone))).status == 202
    assert len(await claim_tasks(desk)) == 1
