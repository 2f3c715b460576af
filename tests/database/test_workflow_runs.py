"""Whole jobs on the real database: conditions, joins, waits, deadlines; and what their events tell."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.harness import Harness, quick_settings

from cograil.model.states import EVENT_TYPES, NODE_TERMINAL
from cograil.runners.context import Fail


@pytest.fixture(autouse=True)
def _handlers(harness: Harness) -> None:
    async def give(value: Any = None) -> dict[str, Any]:
        if value == "fail":
            raise Fail("on purpose")
        return {"value": value}

    harness.registry.register(give)


async def run(
    harness: Harness, text: str, input: dict[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The job as it ended and the status of its nodes; its events are checked on the way."""
    async with harness.running():
        job = await harness.submit(text, input)
        ended = await harness.ended(job)
    check_events(await harness.events(job), await harness.nodes(job), ended)
    return ended, await harness.statuses(job)


REPLAYED = {
    "node_ready": "ready",
    "node_dispatched": "dispatched",
    "node_started": "running",
    "node_retry": "ready",
    "node_completed": "completed",
    "node_failed": "failed",
    "node_skipped": "skipped",
}


def check_events(events: list[dict[str, Any]], nodes: dict[str, Any], job: dict[str, Any]) -> None:
    """Numbered without a gap, of known types, and replayed they give the states."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["event_type"] for event in events} <= set(EVENT_TYPES)
    assert events[0]["event_type"] == "job_created"
    states: dict[str, str] = {}
    for event in events:
        if event["event_type"] in REPLAYED and event["node_id"]:
            states[event["node_id"]] = REPLAYED[event["event_type"]]
    if f"job_{job['status']}" in ("job_cancelled",) or (job["error"] or {}).get("code") == "job_timeout":
        states |= {name: "cancelled" for name in nodes if states.get(name) not in NODE_TERMINAL}
    assert states == {name: view["status"] for name, view in nodes.items()}
    last = [event["event_type"] for event in events if event["node_id"] is None][-1]
    assert last == f"job_{job['status']}"


ROUTE = """
workflow_id: route
nodes:
  first: {handler: give, params: {value: "{{ inputs.x }}"}, next: choose}
  choose:
    type: conditional
    condition_field: output.value
    branches:
      - {name: small, condition: "<= 10", next: little}
      - {name: middle, condition: "< 100", next: [some, more]}
      - {name: large, default: true, next: lots}
  little: {handler: give, next: last}
  some: {handler: give, next: last}
  more: {handler: give, next: last}
  lots: {handler: give, next: beyond}
  beyond: {handler: give, next: last}
  last: {handler: give, params: {value: "{{ nodes.choose.output.taken_branch }}"}}
"""


@pytest.mark.parametrize(
    ("x", "branch", "taken"),
    [(10, "small", {"little"}), (11, "middle", {"some", "more"}), (100, "large", {"lots", "beyond"})],
)
async def test_one_branch_runs_and_nodes_of_the_others_are_skipped(
    harness: Harness, x: int, branch: str, taken: set[str]
) -> None:
    ended, statuses = await run(harness, ROUTE, {"x": x})
    assert ended["result"]["last"] == {"value": branch}
    inner = {"little", "some", "more", "lots", "beyond"}
    assert {name for name in inner if statuses[name] == "completed"} == taken
    assert {name for name in inner if statuses[name] == "skipped"} == inner - taken
    assert not (inner - taken) & ended["result"].keys()


async def test_a_job_goes_on_when_one_of_any_is_done_and_still_waits_for_the_rest_to_end(
    harness: Harness,
) -> None:
    text = """
workflow_id: any
nodes:
  quick: {handler: give}
  slow: {type: wait, wait: {seconds: 0.5}}
  either: {handler: give, depends_on: {any_of: [quick, slow]}}
"""
    async with harness.running():
        job = await harness.submit(text)
        await _until(harness, job, either="completed")
        assert (await harness.statuses(job))["slow"] == "waiting"
        assert (await harness.job(job))["status"] == "running"
        assert (await harness.ended(job))["status"] == "completed"


async def _until(harness: Harness, job: str, **expected: str) -> None:
    async with asyncio.timeout(10):
        while True:
            statuses = await harness.statuses(job)
            if all(statuses[name] == status for name, status in expected.items()):
                return
            await asyncio.sleep(0.01)


async def test_a_skipped_node_does_not_satisfy_any_of(harness: Harness) -> None:
    text = """
workflow_id: any_skipped
nodes:
  first: {handler: give, params: {value: 1}, next: choose}
  choose: {type: conditional, condition: "{{ output.value == 2 }}", branches: {true: a, false: b}}
  a: {handler: give}
  b: {handler: give}
  either: {handler: give, depends_on: {any_of: [a]}}
  joined: {handler: give, depends_on: {all_of: [a, b]}}
"""
    ended, statuses = await run(harness, text)
    assert ended["status"] == "completed"
    assert statuses == {
        "first": "completed", "choose": "completed", "a": "skipped", "b": "completed",
        "either": "skipped", "joined": "completed",
    }  # fmt: skip


async def test_a_failed_node_ends_the_job_after_independent_branches_ran_on(harness: Harness) -> None:
    text = """
workflow_id: failing
nodes:
  bad: {handler: give, params: {value: fail}, next: needs}
  needs: {handler: give, next: too}
  too: {handler: give}
  other: {handler: give, next: free}
  free: {handler: give}
"""
    ended, statuses = await run(harness, text)
    assert (ended["status"], ended["error"]["node_id"], ended["error"]["failed_nodes"]) == (
        "failed",
        "bad",
        ["bad"],
    )
    assert statuses == {
        "bad": "failed",
        "needs": "skipped",
        "too": "skipped",
        "other": "completed",
        "free": "completed",
    }


async def test_a_node_that_is_not_required_may_fail(harness: Harness) -> None:
    text = """
workflow_id: optional
nodes:
  nice: {handler: give, params: {value: fail}, required: false, next: after}
  after: {handler: give, params: {value: "{{ nodes.nice.status }}"}}
"""
    ended, statuses = await run(harness, text)
    assert (ended["status"], ended["result"]["after"]) == ("completed", {"value": "failed"})
    assert statuses == {"nice": "failed", "after": "completed"}


async def test_a_missing_value_fails_the_node_before_it_is_dispatched(harness: Harness) -> None:
    text = """
workflow_id: m
nodes:
  a: {handler: give, next: b}
  b: {handler: give, params: {value: "{{ nodes.a.output.nope }}"}}
"""
    ended, statuses = await run(harness, text)
    assert (ended["error"]["code"], statuses["b"]) == ("template_undefined", "failed")
    events = [e["event_type"] for e in await harness.events(ended["job_id"]) if e["node_id"] == "b"]
    assert events == ["node_ready", "node_failed"]


async def test_waits_take_their_time(harness: Harness) -> None:
    text = """
workflow_id: waits
nodes:
  a: {type: wait, wait: {seconds: "{{ inputs.s }}"}, next: b}
  b: {type: wait, wait: {until: "{{ inputs.t }}"}, next: c}
  c: {type: wait, wait: {until: "2001-01-01T00:00:00Z"}, next: d}
  d: {handler: give}
"""
    until = datetime.now(UTC) + timedelta(seconds=0.6)
    ended, _ = await run(harness, text, {"s": 0.2, "t": until.isoformat()})
    nodes = await harness.nodes(ended["job_id"])
    assert nodes["a"]["completed_at"] - nodes["a"]["started_at"] >= timedelta(seconds=0.2)
    assert nodes["b"]["completed_at"] >= until
    assert ended["status"] == "completed"


async def test_a_job_over_its_time_fails_and_takes_everything_with_it(harness: Harness) -> None:
    stopped = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    harness.registry.register(endless)
    text = """
workflow_id: t
timeout_seconds: 0.5
nodes:
  a: {handler: give, next: b}
  b: {handler: endless, next: c}
  c: {handler: give}
"""
    async with harness.running():
        job = await harness.submit(text)
        ended = await harness.ended(job)
        await asyncio.wait_for(stopped.wait(), 5)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "job_timeout")
    assert await harness.statuses(job) == {"a": "completed", "b": "cancelled", "c": "cancelled"}
    check_events(await harness.events(job), await harness.nodes(job), ended)
    assert await harness.rows("select 1 from cograil.tasks") == []


async def test_a_result_that_came_before_the_deadline_was_seen_counts(
    harness: Harness, eventually: Any
) -> None:
    job = await harness.submit("workflow_id: t\ntimeout_seconds: 0.1\nnodes:\n  a: {handler: give}\n")
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), {"value": 1})
    await eventually(lambda: harness.rows("select 1 from cograil.jobs where deadline < now()"))
    await harness.advance()
    assert (await harness.job(job))["status"] == "completed"


async def test_the_events_of_a_job_with_retries_replay_to_its_states(harness: Harness) -> None:
    count = 0

    async def flaky() -> dict[str, Any]:
        nonlocal count
        count += 1
        if count < 3:
            raise ValueError("not yet")
        return {}

    harness.registry.register(flaky)
    text = "workflow_id: r\nnodes:\n  a: {handler: flaky, retry: {initial_delay_seconds: 0}}\n"
    ended, _ = await run(harness, text)
    assert ended["status"] == "completed"
    dispatched = [
        e["data"]["attempt"]
        for e in await harness.events(ended["job_id"])
        if e["event_type"] == "node_dispatched"
    ]
    assert dispatched == [1, 2, 3]


async def test_a_long_task_is_announced_before_it_ends(harness: Harness, eventually: Any) -> None:
    go_on = asyncio.Event()

    async def long() -> dict[str, Any]:
        await go_on.wait()
        return {}

    harness.registry.register(long)
    async with harness.orchestrator(), harness.worker(settings=quick_settings()):
        job = await harness.submit("workflow_id: l\nnodes:\n  a: {handler: long}\n")
        await eventually(lambda: harness.rows("select 1 from cograil.events where type = 'node_started'"))
        go_on.set()
        ended = await harness.ended(job)
    assert (await harness.event_types(job, "a")).count("node_started") == 1
    check_events(await harness.events(job), await harness.nodes(job), ended)
