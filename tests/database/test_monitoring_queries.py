"""What people see of all jobs: nodes, tasks, queues, processes, numbers, and who did what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.support.api_client import ApiClient
from tests.support.harness import Harness

from cograil.store import monitoring_queries
from cograil.store.retention_queries import first_id_at

HELLO = "workflow_id: hello\nnodes: {a: {handler: echo, next: b}, b: {handler: echo, queue: slow}}"
FAILING = """
workflow_id: failing
nodes:
  a: {handler: fail, params: {error_message: no}, retry: {max_attempts: 2, initial_delay_seconds: 0}}
  b: {handler: echo, depends_on: {all_of: [a]}}
"""
SPREAD = """
workflow_id: spread
nodes:
  many: {type: fan_out, source: "{{ [1, 2, 3] }}", task: {handler: echo}, next: all}
  all: {type: fan_in}
"""


@pytest.fixture
async def shop(api: ApiClient) -> ApiClient:
    for text in (HELLO, FAILING, SPREAD):
        answer = await api.post("/api/v1/workflows", {"source": text})
        assert answer.status == 201, answer.raw
    return api


async def run(shop: ApiClient, *names: str) -> list[str]:
    """These jobs, to their ends."""
    async with shop.harness.running():
        jobs = [await shop.submit(name) for name in names]
        for job in jobs:
            await shop.harness.ended(job)
    return jobs


async def pages(shop: ApiClient, path: str, field: str) -> list[Any]:
    """All pages of a list, one after the other."""
    entries: list[Any] = []
    cursor = ""
    while True:
        body = (await shop.get(path + cursor)).body
        entries += body[field]
        if body["next_cursor"] is None:
            return entries
        cursor = f"&cursor={body['next_cursor']}"


# -- nodes and tasks ------------------------------------------------------------------------------------


async def test_nodes_are_listed_across_jobs_newest_first(shop: ApiClient) -> None:
    first, second = await run(shop, "hello", "failing")
    third = await shop.submit("hello")
    nodes = (await shop.get("/api/v1/nodes")).body["nodes"]
    listed = [(node["job_id"], node["node_id"], node["status"]) for node in nodes]
    assert listed == [
        (third, "a", "dispatched"),
        (second, "a", "failed"),
        (second, "b", "skipped"),
        (first, "a", "completed"),
        (first, "b", "completed"),
    ]
    assert nodes[0]["handler"] == "echo"
    assert nodes[1]["error"]["code"]


async def test_nodes_can_be_asked_for_by_status_and_workflow(shop: ApiClient) -> None:
    _, second = await run(shop, "hello", "failing")
    failed = (await shop.get("/api/v1/nodes?status=failed")).body["nodes"]
    assert [(node["job_id"], node["node_id"]) for node in failed] == [(second, "a")]
    assert (await shop.get("/api/v1/nodes?status=failed&workflow_id=hello")).body["nodes"] == []
    assert len((await shop.get("/api/v1/nodes?workflow_id=hello")).body["nodes"]) == 2
    assert (await shop.get("/api/v1/nodes?status=nonsense")).code == "invalid_parameter"


async def test_a_node_that_a_worker_has_is_shown_as_running(shop: ApiClient) -> None:
    job = await shop.submit("hello")
    manual_worker = await shop.harness.manual_worker("one")
    item = await manual_worker.claim_one()
    (node,) = (await shop.get("/api/v1/nodes?status=running")).body["nodes"]
    assert (node["job_id"], node["worker"]) == (job, "one")
    (task,) = (await shop.get("/api/v1/tasks?state=running")).body["tasks"]
    for state_filter, count in (("", 1), ("&state=running", 1), ("&state=ready", 0)):
        of_worker = (await shop.get(f"/api/v1/tasks?worker={task['worker']}{state_filter}")).body["tasks"]
        assert len(of_worker) == count, state_filter
    assert (task["task_id"], task["worker"], task["queue"]) == (f"{item.task_id}.{job}", "one", "default")
    assert task["age_seconds"] >= 0
    await manual_worker.release(item)


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_of_nodes_join_though_each_looks_through_few_jobs(
    shop: ApiClient, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring_queries, "MAX_JOBS_SCANNED", 2)
    jobs = await run(shop, *["hello"] * 5, "failing")
    nodes = await pages(shop, f"/api/v1/nodes?limit={limit}", "nodes")
    expected = [(job, name) for job in reversed(jobs) for name in ("a", "b")]
    assert [(node["job_id"], node["node_id"]) for node in nodes] == expected
    nodes = await pages(shop, f"/api/v1/nodes?limit={limit}&status=skipped", "nodes")
    assert [(node["job_id"], node["node_id"]) for node in nodes] == [(jobs[-1], "b")]


async def test_pages_of_tasks_join_though_each_looks_through_few(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring_queries, "MAX_TASKS_SCANNED", 2)
    jobs = [await shop.submit("hello") for _ in range(5)] + [await shop.submit("spread")]
    tasks = await pages(shop, "/api/v1/tasks?limit=3", "tasks")
    assert len(tasks) == 8
    assert [task["job_id"] for task in tasks[3:]] == jobs[4::-1]
    tasks = await pages(shop, "/api/v1/tasks?limit=1&handler=echo&queue=default&state=ready", "tasks")
    assert len(tasks) == 8
    assert await pages(shop, "/api/v1/tasks?limit=1&handler=none", "tasks") == []
    assert await pages(shop, "/api/v1/tasks?limit=1&worker=none", "tasks") == []
    assert (await shop.get("/api/v1/tasks?cursor=x")).code == "invalid_cursor"


async def test_another_tenant_sees_none_of_it(shop: ApiClient) -> None:
    await run(shop, "hello")
    await shop.submit("hello")
    key = await shop.make_key("admin", "globex")
    for path, field in (
        ("nodes", "nodes"),
        ("tasks", "tasks"),
        ("queues/status", "queues"),
        ("metrics/workflows", "workflows"),
        ("metrics/failures", "failures"),
        ("audit", "entries"),
    ):
        assert (await shop.get(f"/api/v1/{path}", key=key)).body[field] == [], path
    buckets = (await shop.get("/api/v1/metrics/throughput", key=key)).body["buckets"]
    assert sum(bucket["jobs_submitted"] for bucket in buckets) == 0
    assert (await shop.get("/api/v1/metrics/workflows/hello/nodes", key=key)).status == 404


# -- queues and processes -------------------------------------------------------------------------------


async def test_a_queue_tells_what_waits_and_who_paused_it(shop: ApiClient) -> None:
    for _ in range(3):
        await shop.submit("hello")
    manual_worker = await shop.harness.manual_worker()
    item = await manual_worker.claim_one()
    paused = await shop.post("/api/v1/queues/default/pause", {"reason": "too hot"})
    assert (paused.status, paused.body) == (200, {"queue": "default", "is_paused": True})
    (queue,) = (await shop.get("/api/v1/queues/status")).body["queues"]
    assert (queue["queue"], queue["depth"], queue["running"], queue["workers"]) == ("default", 2, 1, 1)
    assert queue["oldest_seconds"] > 0
    assert queue["paused"]["reason"] == "too hot"
    assert (await shop.post("/api/v1/queues/default/pause")).status == 409
    assert await manual_worker.claim() == []
    assert (await shop.post("/api/v1/queues/default/resume")).body["is_paused"] is False
    assert (await shop.post("/api/v1/queues/default/resume")).status == 409
    assert len(await manual_worker.claim()) == 1
    actions = [entry["action"] for entry in (await shop.get("/api/v1/audit")).body["entries"]]
    assert actions[:2] == ["resume queue", "pause queue"]
    del item


async def test_a_queue_that_is_served_and_idle_is_shown(shop: ApiClient) -> None:
    assert (await shop.get("/api/v1/queues/status")).body["queues"] == []
    async with shop.harness.running():
        (queue,) = (await shop.get("/api/v1/queues/status")).body["queues"]
    assert (queue["queue"], queue["depth"], queue["running"], queue["workers"]) == ("default", 0, 0, 1)


async def test_a_long_queue_is_counted_as_far_as_is_quickly_done(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring_queries, "MAX_TASKS_COUNTED", 2)
    for _ in range(3):
        await shop.submit("hello")
    (queue,) = (await shop.get("/api/v1/queues/status")).body["queues"]
    assert (queue["depth"], queue["depth_truncated"]) == (2, True)


async def test_processes_are_shown_with_their_heartbeats(shop: ApiClient) -> None:
    assert (await shop.get("/api/v1/orchestrator/status")).body["status"] == "none"
    async with shop.harness.running():
        (worker,) = (await shop.get("/api/v1/workers")).body["workers"]
        status = (await shop.get("/api/v1/orchestrator/status")).body
    assert worker["is_live"]
    assert "echo" in worker["handlers"]
    assert status["status"] == "active"
    assert status["orchestrators"][0]["is_live"]


# -- numbers --------------------------------------------------------------------------------------------


async def test_workflows_are_measured(shop: ApiClient) -> None:
    await run(shop, "hello", "hello", "failing")
    await shop.submit("hello")
    measured = (await shop.get("/api/v1/metrics/workflows")).body["workflows"]
    hello, failing = measured
    assert hello["workflow_id"] == "hello"
    counted = {name: hello[name] for name in ("total_jobs", "completed", "failed", "active", "success_rate")}
    assert counted == {"total_jobs": 3, "completed": 2, "failed": 0, "active": 1, "success_rate": 1.0}
    assert 0 < hello["p50_duration"] <= hello["p95_duration"]
    assert hello["avg_duration"] == pytest.approx(hello["p50_duration"], rel=0.01)  # of two the middle
    assert hello["common_failures"] == []
    assert (failing["success_rate"], failing["failed"]) == (0.0, 1)
    assert [failure["count"] for failure in failing["common_failures"]] == [1]
    assert "no" in failing["common_failures"][0]["error_message"]
    (only,) = (await shop.get("/api/v1/metrics/workflows?workflow_id=failing&days=1")).body["workflows"]
    assert only == failing


async def test_numbers_say_when_not_all_was_read(shop: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(shop, "hello", "hello", "hello")
    (all_of_them,) = (await shop.get("/api/v1/metrics/workflows")).body["workflows"]
    assert (all_of_them["total_jobs"], all_of_them["complete_since"]) == (3, None)
    monkeypatch.setattr(monitoring_queries, "MAX_JOBS_COUNTED", 2)
    (some,) = (await shop.get("/api/v1/metrics/workflows")).body["workflows"]
    assert some["total_jobs"] == 2
    assert some["complete_since"] is not None
    buckets = (await shop.get("/api/v1/metrics/throughput")).body["buckets"]
    assert not any(bucket["is_complete"] for bucket in buckets)


async def test_nodes_are_measured(shop: ApiClient) -> None:
    await run(shop, "failing", "failing", "spread")
    a, b = (await shop.get("/api/v1/metrics/workflows/failing/nodes")).body["nodes"]
    assert (a["node_id"], a["total_executions"], a["failed"], a["total_retries"]) == ("a", 2, 2, 2)
    assert (a["success_rate"], b["success_rate"]) == (0.0, None)
    assert (b["total_executions"], b["skipped"]) == (0, 2)
    spread = (await shop.get("/api/v1/metrics/workflows/spread/nodes")).body["nodes"]
    children = next(node for node in spread if node["is_child"])
    assert (children["node_id"], children["total_executions"], children["completed"]) == ("many", 3, 3)
    assert (await shop.get("/api/v1/metrics/workflows/hello/nodes")).body["nodes"] == []
    unknown = await shop.get("/api/v1/metrics/workflows/nothing/nodes")
    assert (unknown.status, unknown.code) == (404, "workflow_not_found")


async def test_failures_are_grouped(shop: ApiClient) -> None:
    jobs = await run(shop, "failing", "failing", "hello")
    (failure,) = (await shop.get("/api/v1/metrics/failures")).body["failures"]
    assert (failure["workflow_id"], failure["node_id"], failure["occurrences"]) == ("failing", "a", 2)
    assert failure["last_job_id"] == jobs[1]
    assert (await shop.get("/api/v1/metrics/failures?workflow_id=hello")).body["failures"] == []


OTHER = """
workflow_id: other
inputs: {why: {type: string}}
nodes: {a: {handler: fail, params: {error_message: "{{ inputs.why }}"}, retry: {max_attempts: 1}}}
"""


async def run_other(shop: ApiClient, *reasons: str) -> None:
    """Jobs that fail for these reasons."""
    await shop.post("/api/v1/workflows", {"source": OTHER})
    async with shop.harness.running():
        for why in reasons:
            await shop.harness.ended(await shop.submit("other", input_params={"why": why}))


async def test_failures_say_when_they_are_not_all(shop: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(shop, "failing", "hello")
    await run_other(shop, "other")
    path = "/api/v1/metrics/failures"
    all_of_them = (await shop.get(path)).body
    assert (len(all_of_them["failures"]), all_of_them["has_more"], all_of_them["truncated"]) == (
        2,
        False,
        False,
    )
    first = (await shop.get(f"{path}?limit=1")).body
    assert (len(first["failures"]), first["has_more"], first["truncated"]) == (1, True, False)
    exactly = (await shop.get(f"{path}?limit=2")).body
    assert (len(exactly["failures"]), exactly["has_more"]) == (2, False)
    for name in ("MAX_JOBS_COUNTED", "MAX_FAILED_JOBS", "MAX_NODES_COUNTED"):
        with monkeypatch.context() as patch:
            patch.setattr(monitoring_queries, name, 1)
            assert (await shop.get(path)).body["truncated"], name
            none_failed = (await shop.get(f"{path}?workflow_id=hello")).body
            assert (none_failed["failures"], none_failed["truncated"]) == ([], name == "MAX_JOBS_COUNTED")


async def test_common_failures_say_when_there_are_more(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_other(shop, "one", "two", "two")
    monkeypatch.setattr(monitoring_queries, "COMMON_FAILURES", 2)
    (other,) = (await shop.get("/api/v1/metrics/workflows")).body["workflows"]
    assert ([failure["count"] for failure in other["common_failures"]], other["has_more_failures"]) == (
        [2, 1],
        False,
    )
    monkeypatch.setattr(monitoring_queries, "COMMON_FAILURES", 1)
    (other,) = (await shop.get("/api/v1/metrics/workflows")).body["workflows"]
    assert ([failure["count"] for failure in other["common_failures"]], other["has_more_failures"]) == (
        [2],
        True,
    )


async def test_throughput_has_no_gaps(shop: ApiClient) -> None:
    await run(shop, "hello", "hello", "failing")
    body = (await shop.get("/api/v1/metrics/throughput?hours=6&bucket_minutes=30")).body
    starts = [datetime.fromisoformat(bucket["bucket_start"]) for bucket in body["buckets"]]
    assert len(starts) in (12, 13)
    assert {later - earlier for earlier, later in pairwise(starts)} == {timedelta(minutes=30)}
    assert sum(bucket["jobs_completed"] for bucket in body["buckets"]) == 2
    assert sum(bucket["jobs_failed"] for bucket in body["buckets"]) == 1
    assert sum(bucket["jobs_submitted"] for bucket in body["buckets"][-2:]) == 3
    assert all(bucket["is_complete"] for bucket in body["buckets"])
    refused = await shop.get("/api/v1/metrics/throughput?hours=744&bucket_minutes=1")
    assert (refused.status, refused.code) == (422, "out_of_range")


async def test_the_days_before_do_not_count(shop: ApiClient) -> None:
    """A job is as old as its id."""
    await run(shop, "hello")
    async with shop.harness.db.transaction("test") as tx:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        assert await monitoring_queries.workflow_metrics(tx, "default", tomorrow, None) == []
        metrics = await monitoring_queries.failure_metrics(tx, "default", tomorrow, None, 10)
        assert metrics == {"failures": [], "has_more": False, "truncated": False}
    assert first_id_at(datetime.fromtimestamp(0, UTC)) == "00000000-0000-0000-0000-000000000000"


# -- plans ----------------------------------------------------------------------------------------------

FILL = """
insert into cograil.workflows (workflow_id, version, digest, document)
  values ('w', 1, 'd', '{}'), ('rare', 1, 'd', '{}');
insert into cograil.jobs
  (id, definition_id, workflow_id, workflow_version, status, input, started_at, finished_at)
  select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint - 100000 + g), 12, '0') || '70008000'
          || lpad(to_hex(g), 12, '0'))::uuid, 1, 'w', 1, 'completed', '{}', now(), now()
  from generate_series(1, 20000) g;
analyze cograil.jobs;
"""


@pytest.mark.parametrize(
    "name", ["workflow_metrics", "workflow_failures", "failure_metrics", "throughput_metrics", "nodes_across"]
)
async def test_a_workflow_is_found_by_its_index_though_there_are_statistics(
    harness: Harness, name: str
) -> None:
    """Measured: with an equality the planner walks all jobs by their ids to find the few of one workflow."""
    await harness.rows(FILL)
    values = {
        "tenant": "'default'",
        "workflow": "'rare'",
        "low": f"'{first_id_at(datetime.now(UTC) - timedelta(days=7))}'",
        "job": f"'{monitoring_queries.NEWEST_JOB}'",
        "first": "(now() - interval '1 day')",
        "width": "interval '1 hour'",
        "status": "null",
        "node": "''",
        "idx": "-1",
        "name": "null",
        "children": "true",
    }
    text = monitoring_queries.__dict__[name.upper()].text
    for word, value in values.items():
        text = text.replace(f"%({word})s", value)
    for word in ("max_failed", "max_nodes", "max_jobs", "window", "limit", "kinds"):
        text = text.replace(f"%({word})s", "1000")
    plan = "\n".join(line for (line,) in await harness.rows(f"explain {text}"))
    await harness.rows("delete from cograil.jobs")
    assert "jobs_workflow" in plan
    assert "jobs_pkey" not in plan


# -- the same under other names -------------------------------------------------------------------------


async def test_the_names_of_the_first_design_are_the_same_functions(shop: ApiClient) -> None:
    submitted = await shop.post("/api/dag/submit", {"workflow_id": "hello"})
    job_id = submitted.body["job_id"]
    assert submitted.status == 202
    shown = (await shop.get(f"/api/dag/jobs/{job_id}")).body
    assert shown == (await shop.get(f"/api/v1/jobs/{job_id}")).body
    nodes = (await shop.get(f"/api/dag/jobs/{job_id}/nodes")).body
    assert nodes == (await shop.get(f"/api/v1/jobs/{job_id}/nodes")).body
    assert (await shop.post(f"/api/dag/jobs/{job_id}/cancel")).body["status"] == "cancelled"
    assert (await shop.post(f"/api/dag/jobs/{job_id}/cancel")).code == "already_terminal"


async def test_the_audit_log_has_pages(shop: ApiClient) -> None:
    for _ in range(3):
        await shop.submit("hello")
    entries = await pages(shop, "/api/v1/audit?limit=2", "entries")
    assert [entry["action"] for entry in entries] == ["submit"] * 3 + ["publish"] * 3
    assert (await shop.get("/api/v1/audit", key=await shop.make_key("operator"))).status == 403
