"""A worker over HTTP alone: what it claims, keeps, reports; and what it may not any more."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from tests.conftest import Eventually
from tests.support.api_client import ApiClient, ApiResponse, serve_api
from tests.support.harness import Harness
from tests.support.http_worker import CLAIM, RESULT, TWO, claim_tasks, result_body

from cograil.store.gateway_queries import running_nodes


@pytest.fixture
async def desk(api: ApiClient) -> ApiClient:
    assert (await api.post("/api/v1/workflows", {"source": TWO})).status == 201
    return api


async def test_a_job_is_done_by_requests_alone(desk: ApiClient) -> None:
    job_id = await desk.submit("two")
    async with desk.harness.orchestrator():
        (first,) = await claim_tasks(desk)
        assert (first["handler"], first["params"], first["retry_count"]) == ("elsewhere", {"n": 1}, 0)
        assert (await desk.post(RESULT, result_body(first))).status == 202
        (second,) = await claim_tasks(desk, wait_seconds=10)
        assert second["params"] == {"seen": 7}
        assert (await desk.post(RESULT, result_body(second))).status == 202
        job = await desk.harness.ended(job_id)
    assert job["status"] == "completed"


async def test_a_claim_that_waits_gets_a_task_as_soon_as_there_is_one(desk: ApiClient) -> None:
    async def submit_later() -> None:
        await asyncio.sleep(0)
        await desk.submit("two")

    waiting = asyncio.create_task(claim_tasks(desk, wait_seconds=20, handlers=["elsewhere"]))
    await submit_later()
    assert len(await waiting) == 1


async def test_a_failed_attempt_is_tried_again_if_it_may_be(desk: ApiClient) -> None:
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    report = result_body(
        task, status="failed", error_message="no paper", error_code="out_of_paper", retryable=False
    )
    await desk.post(RESULT, report)
    await desk.harness.advance()
    job = await desk.harness.job(job_id)
    assert (job["status"], job["error"]["code"]) == ("failed", "out_of_paper")


async def test_a_second_result_is_refused_and_the_first_stays(desk: ApiClient) -> None:
    """B158."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    assert (await desk.post(RESULT, result_body(task))).status == 202
    again = await desk.post(RESULT, result_body(task, output={"made": 8}))
    assert (again.status, again.code) == (409, "stale_attempt")
    await desk.harness.advance()
    assert (await desk.harness.nodes(job_id))["first"]["output"] == {"made": 7}
    assert "warning" in await desk.harness.event_types(job_id)


@pytest.mark.parametrize("end", [{}, {"status": "failed", "error_message": "no paper", "retryable": False}])
async def test_a_result_whose_response_was_lost_may_be_sent_again(
    desk: ApiClient, end: dict[str, Any]
) -> None:
    """F16: while it is news, when the job has heard it, and when it has ended by it; nobody was late."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    report = result_body(task, worker_id="w1", **end)
    assert (await desk.post(RESULT, report)).status == 202
    assert (await desk.post(RESULT, report)).status == 200
    await desk.harness.advance()
    again = await desk.post(RESULT, report)
    assert (again.status, again.body) == (200, {"status": "accepted", "task_id": task["task_id"]})
    await desk.post(f"/api/v1/jobs/{job_id}/cancel")
    assert (await desk.post(RESULT, report)).status == 200
    for other in ({"output": {"made": 8}}, {"worker_id": "w2"}, {"status": "failed", "error_message": "x"}):
        answer = await desk.post(RESULT, result_body(task) | other)
        assert (answer.status, answer.code) in ((409, "already_terminal"), (409, "stale_attempt"))
    assert "warning" not in await desk.harness.event_types(job_id)


async def test_the_same_result_twice_at_the_same_moment_is_no_late_one(desk: ApiClient) -> None:
    """F16."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    answers = await asyncio.gather(*(desk.post(RESULT, result_body(task)) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [202]
    await desk.harness.advance()
    assert (await desk.harness.nodes(job_id))["first"]["output"] == {"made": 7}
    assert "warning" not in await desk.harness.event_types(job_id)


@pytest.mark.parametrize(
    "change", [{"fence": 9}, {"worker_id": "another"}, {"task_id": "999999.{job}"}, {"task_id": "x"}]
)
async def test_a_result_of_an_attempt_that_is_not_theirs_is_refused(
    desk: ApiClient, change: dict[str, Any]
) -> None:
    """B157."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    if "task_id" in change:
        change = {"task_id": str(change["task_id"]).format(job=job_id)}
    answer = await desk.post(RESULT, result_body(task, **change))
    assert (answer.status, answer.code) == (409, "stale_attempt")
    assert (await desk.post(RESULT, result_body(task))).status == 202


async def test_a_result_after_a_cancel_is_refused(desk: ApiClient) -> None:
    """B159; the heartbeat tells it before."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    path = f"/api/v1/tasks/{task['task_id']}/pulse"
    assert (await desk.post(path, {"fence": task["fence"]})).body["cancelled"] is False
    await desk.post(f"/api/v1/jobs/{job_id}/cancel")
    assert (await desk.post(path, {"fence": task["fence"]})).body["cancelled"] is True
    answer = await desk.post(RESULT, result_body(task))
    assert (answer.status, answer.code) == (409, "already_terminal")


async def test_a_worker_that_falls_silent_loses_its_task(desk: ApiClient) -> None:
    await desk.submit("two")
    (task,) = await claim_tasks(desk, "silent")
    await desk.harness.rows(
        "update cograil.processes set lease_until = now() - interval '1 hour' where name = 'silent'"
    )
    await desk.harness.tick()
    await desk.harness.advance()
    (again,) = await claim_tasks(desk, "other")
    assert (again["node_id"], again["retry_count"]) == ("first", 1)
    answer = await desk.post(RESULT, result_body(task))
    assert (answer.status, answer.code) == (409, "stale_attempt")


async def test_progress_and_checkpoint_are_kept_for_the_attempt(desk: ApiClient) -> None:
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    ids = {"task_id": task["task_id"], "fence": task["fence"]}
    progress = ids | {"progress_current": 3, "progress_total": 4, "progress_message": "nearly"}
    assert (await desk.post("/api/v1/callbacks/task-progress", progress)).status == 202
    kept = await desk.post(
        "/api/v1/callbacks/checkpoint", ids | {"phase_name": "cut", "state_data": {"row": 5}}
    )
    assert kept.status == 202
    shown = (await desk.get(f"/api/v1/jobs/{job_id}/nodes/first/progress")).body
    assert (shown["progress_percent"], shown["progress_message"]) == (75.0, "nearly")
    await desk.post(RESULT, result_body(task, status="failed", error_message="x"))
    await desk.harness.advance()
    await desk.harness.rows("update cograil.nodes set not_before = now()")
    await desk.harness.rows("update cograil.jobs set wake_at = now()")
    await desk.harness.advance()
    (again,) = await claim_tasks(desk)
    assert again["checkpoint"] == {"row": 5}


PROGRESS = "/api/v1/callbacks/task-progress"


async def tell_progress(desk: ApiClient, task: dict[str, Any], *numbers: int) -> None:
    for number in numbers:
        report = {"task_id": task["task_id"], "fence": task["fence"], "progress_current": number}
        assert (await desk.post(PROGRESS, report)).status == 202


async def progress_of(harness: Harness) -> list[float]:
    return [current for (current,) in await harness.rows("select current from cograil.progress")]


async def test_progress_is_written_once_a_second_at_most_and_the_last_in_the_end(
    desk: ApiClient, eventually: Eventually
) -> None:
    """B161; nothing more is said after the last one, and it comes all the same."""
    await desk.submit("two")
    (task,) = await claim_tasks(desk)
    seen = [await progress_of(desk.harness)]
    begun = time.monotonic()
    await tell_progress(desk, task, 0, 1, 2, 3, 4)

    async def is_last() -> bool:
        seen.append(await progress_of(desk.harness))
        return seen[-1] == [4.0]

    await eventually(is_last)
    assert time.monotonic() - begun > 0.9
    assert [step for step, _ in itertools.groupby(seen)] == [[], [0.0], [4.0]]


async def test_the_last_progress_comes_before_the_result(desk: ApiClient) -> None:
    await desk.submit("two")
    (task,) = await claim_tasks(desk)
    await tell_progress(desk, task, 1, 2)
    assert (await desk.post(RESULT, result_body(task))).status == 202
    assert await progress_of(desk.harness) == [2.0]


async def test_a_server_that_ends_writes_the_progress_that_it_kept(harness: Harness, dsn: str) -> None:
    async with serve_api(harness, dsn) as desk:
        await desk.post("/api/v1/workflows", {"source": TWO})
        await desk.submit("two")
        (task,) = await claim_tasks(desk)
        await tell_progress(desk, task, 1, 2)
    assert await progress_of(harness) == [2.0]


async def test_progress_that_was_held_back_does_not_undo_a_newer_one(harness: Harness, dsn: str) -> None:
    """Each server holds back its own: the word that was said last stays."""
    async with serve_api(harness, dsn) as other:
        async with serve_api(harness, dsn) as desk:
            await desk.post("/api/v1/workflows", {"source": TWO})
            await desk.submit("two")
            (task,) = await claim_tasks(desk)
            await tell_progress(desk, task, 1, 2)
            await tell_progress(other, task, 3)
        assert await progress_of(harness) == [3.0]


async def test_a_checkpoint_that_is_too_large_is_refused(desk: ApiClient) -> None:
    """B160."""
    await desk.submit("two")
    (task,) = await claim_tasks(desk)
    report = {"task_id": task["task_id"], "fence": task["fence"], "state_data": ["x" * 200_000] * 6}
    assert (await desk.post("/api/v1/callbacks/checkpoint", report)).status == 413


async def test_workers_claim_for_their_own_tenant(desk: ApiClient) -> None:
    admin, worker = await desk.make_key("admin", "acme"), await desk.make_key("worker", "globex")
    await desk.post("/api/v1/workflows", {"source": TWO}, key=admin)
    await desk.post("/api/v1/jobs", {"workflow_id": "two"}, key=admin)
    answer = await desk.post(CLAIM, {"worker_id": "w"}, key=worker)
    assert answer.body["tasks"] == []
    own = await desk.make_key("worker", "acme")
    assert len((await desk.post(CLAIM, {"worker_id": "w"}, key=own)).body["tasks"]) == 1


async def test_only_what_it_can_do_is_claimed(desk: ApiClient) -> None:
    await desk.submit("two")
    assert await claim_tasks(desk, handlers=["other"]) == []
    assert await claim_tasks(desk, queues=["other"]) == []
    assert len(await claim_tasks(desk, handlers=["elsewhere"], queues=["default"])) == 1


async def test_checkpoints_do_not_go_back_and_the_next_attempt_gets_the_last(desk: ApiClient) -> None:
    """B160, P7; the same phase again is the same one, with more in it."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)

    async def keep(phase_index: int, state: int) -> ApiResponse:
        report = {"task_id": task["task_id"], "fence": task["fence"], "total_phases": 3}
        report |= {"phase_index": phase_index, "state_data": {"row": state}}
        return await desk.post("/api/v1/callbacks/checkpoint", report)

    assert [(await keep(phase, phase * 10)).status for phase in (0, 2, 2)] == [202, 202, 202]
    back = await keep(1, 99)
    assert (back.status, back.code) == (409, "checkpoint_out_of_order")
    await try_again(desk, task)
    (task,) = await claim_tasks(desk)
    assert task["checkpoint"] == {"row": 20}
    back = await keep(1, 99)
    assert (back.status, back.code) == (409, "checkpoint_out_of_order")
    assert (await keep(3, 30)).status == 202
    assert "warning" not in await desk.harness.event_types(job_id)


async def try_again(desk: ApiClient, task: dict[str, Any]) -> None:
    """This attempt fails, and the next is there at once."""
    await desk.post(RESULT, result_body(task, status="failed", error_message="x"))
    await desk.harness.advance()
    await desk.harness.rows("update cograil.nodes set not_before = now()")
    await desk.harness.rows("update cograil.jobs set wake_at = now()")
    await desk.harness.advance()


async def late_results(desk: ApiClient, job_id: str) -> list[tuple[Any, ...]]:
    await desk.harness.advance()
    return [
        (event["node_id"], event["data"]["attempt"], event["data"]["worker"])
        for event in await desk.harness.events(job_id)
        if event["data"].get("code") == "late_result"
    ]


@pytest.mark.parametrize("report", [{}, {"node_id": "nosuchnode"}, {"node_id": "first", "worker_id": "liar"}])
async def test_a_late_result_is_noted_as_we_know_it_whatever_its_sender_says(
    desk: ApiClient, report: dict[str, Any]
) -> None:
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk, "w1")
    late = {"task_id": task["task_id"], "fence": task["fence"], "status": "completed"} | report
    assert (await desk.post(RESULT, result_body(task))).status == 202
    assert (await desk.post(RESULT, late)).code == "stale_attempt"
    assert await late_results(desk, job_id) == [("first", 1, "w1")]
    assert (await desk.post(RESULT, late)).code == "stale_attempt"
    assert await late_results(desk, job_id) == [("first", 1, "w1")] * 2


async def test_a_late_result_of_a_lost_attempt_is_noted_under_its_worker(desk: ApiClient) -> None:
    job_id = await desk.submit("two")
    (lost,) = await claim_tasks(desk, "silent")
    await desk.harness.rows("update cograil.processes set lease_until = now() - interval '1 hour'")
    await desk.harness.tick()
    await desk.harness.advance()
    (_,) = await claim_tasks(desk, "other")
    assert (await desk.post(RESULT, result_body(lost, node_id="second"))).code == "stale_attempt"
    assert await late_results(desk, job_id) == [("first", 1, "silent")]


async def test_a_result_under_a_wrong_fence_is_noted_of_nobody_and_one_of_no_task_is_not(
    desk: ApiClient,
) -> None:
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk, "w1")
    assert (await desk.post(RESULT, result_body(task, fence=9))).code == "stale_attempt"
    assert await late_results(desk, job_id) == [("first", 1, None)]
    assert (await desk.post(RESULT, result_body(task, task_id=f"999999.{job_id}"))).code == "stale_attempt"
    assert (await desk.post(RESULT, result_body(task, task_id="x"))).code == "stale_attempt"
    other = await desk.make_key("worker", "acme")
    assert (await desk.post(RESULT, result_body(task, fence=9), key=other)).code == "not_found"
    assert len(await late_results(desk, job_id)) == 1


async def test_a_worker_over_http_is_seen_by_its_own_tenant_only(desk: ApiClient) -> None:
    """P19: its name, queues and handlers are nobody else's business; ours serve everybody."""
    await desk.harness.manual_worker("ours")
    worker = await desk.make_key("worker", "acme")
    body = {"worker_id": "acme-secret", "queues": ["acme-queue"], "handlers": ["acme-handler"]}
    assert (await desk.post(CLAIM, body, key=worker)).status == 200

    async def seen(tenant: str) -> set[str]:
        key = await desk.make_key("operator", tenant)
        for path in ("/api/v1/queues/status", "/health"):
            if tenant != "acme":
                assert b"acme-" not in (await desk.get(path, key=key)).raw
        answer = await desk.get("/api/v1/workers", key=key)
        assert answer.status == 200
        return {worker["name"] for worker in answer.body["workers"]}

    assert await seen("acme") == {"ours", "acme-secret"}
    assert await seen("globex") == await seen("default") == {"ours"}
    # A worker of the same name of another tenant is another worker, and neither is in the other's way.
    other = await desk.make_key("worker", "globex")
    assert (await desk.post(CLAIM, {"worker_id": "acme-secret"}, key=other)).status == 200
    rows = await desk.harness.rows(
        "select tenant_id from cograil.processes where name = 'acme-secret' order by 1"
    )
    assert rows == [("acme",), ("globex",)]


async def test_a_task_has_one_id_wherever_it_is_shown(desk: ApiClient) -> None:
    """And by any of them its worker can speak of it."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    job = f"/api/v1/jobs/{job_id}"
    records = [
        *(await desk.get(f"{job}/nodes")).body["nodes"],
        *(await desk.get(f"{job}/events")).body["events"],
        *(await desk.get("/api/v1/nodes")).body["nodes"],
        *(await desk.get("/api/v1/tasks")).body["tasks"],
        *(await desk.get(f"{job}/progress")).body["current_tasks"],
    ]
    shown = [record["task_id"] for record in records if record.get("task_id") is not None]
    assert len(shown) >= 4
    assert set(shown) == {task["task_id"]}
    async with desk.harness.db.transaction("test") as tx:
        (running,) = await running_nodes(tx, "default", 5)
    assert running["task_id"] == task["task_id"]
    assert (await desk.post(RESULT, result_body(task, task_id=shown[-1]))).status == 202


async def test_workers_of_the_original_send_no_fence(desk: ApiClient) -> None:
    """Its bodies have fields that we do not keep; the task id names the attempt. Late ones are refused."""
    job_id = await desk.submit("two")
    (task,) = await claim_tasks(desk)
    usage = {"memory_usage_mb": 12.5, "disk_usage_mb": 3}
    ids = {name: task[name] for name in ("task_id", "job_id", "node_id")}
    progress = ids | usage | {"progress_current": 1, "progress_total": 2, "progress_message": "half"}
    assert (await desk.post("/api/v1/callbacks/task-progress", progress)).status == 202
    assert (await desk.post("/api/v1/callbacks/checkpoint", ids | {"state_data": {"page": 1}})).status == 202
    assert (await desk.post(f"/api/v1/tasks/{task['task_id']}/pulse", {})).status == 200
    report = ids | usage | {"status": "completed", "output": {"made": 7}}
    assert (await desk.post(RESULT, report)).status == 202
    assert (await desk.post(RESULT, report)).status == 200
    late = await desk.post(RESULT, report | {"output": {"made": 8}})
    assert (late.status, late.code) == (409, "stale_attempt")
    await desk.harness.advance()
    assert (await desk.harness.nodes(job_id))["first"]["output"] == {"made": 7}
