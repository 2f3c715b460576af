"""What ran when its job was cut short had begun, and the job's history says so."""

from __future__ import annotations

import pytest
from tests.support.harness import Harness

from cograil.model.outcome import Failed
from cograil.verbs.job_cache import JobCache

PAIR = """
workflow_id: pair
fail_fast: true
timeout_seconds: 3600
nodes:
  a: {handler: echo, retry: {max_attempts: 1}}
  b: {handler: echo}
  c: {handler: echo, depends_on: [a, b]}
"""
FAN = """
workflow_id: fan
fail_fast: true
timeout_seconds: 3600
nodes:
  a: {handler: echo, retry: {max_attempts: 1}}
  split: {type: fan_out, source: [0, 1, 2], task: {handler: echo}, next: join}
  join: {type: fan_in}
"""


async def cut_short(harness: Harness, job: str, how: str) -> None:
    """A worker has all that can run; the job ends before its heartbeat has told of it."""
    worker = await harness.manual_worker("w")
    items = {item.node_id: item for item in await worker.claim(10)}
    if how == "cancel":
        await harness.cancel(job)
    elif how == "deadline":
        await harness.rows("update cograil.jobs set deadline = now(), wake_at = now()")
        await harness.advance()
    else:
        await worker.report(items["a"], Failed("oops", "no"))
        await harness.advance()


@pytest.mark.parametrize("how", ["cancel", "deadline", "fail_fast"])
@pytest.mark.parametrize("memory", [None, JobCache()], ids=["loaded", "remembered"])
@pytest.mark.parametrize(("text", "node_id"), [(PAIR, "b"), (FAN, "split__1")], ids=["node", "child"])
async def test_a_running_node_is_known_to_have_started(
    harness: Harness, how: str, memory: JobCache | None, text: str, node_id: str
) -> None:
    harness.engine_context.job_cache = memory
    job = await harness.submit(text)
    await cut_short(harness, job, how)
    assert (await harness.job(job))["status"] == ("cancelled" if how == "cancel" else "failed")
    node = (await harness.nodes(job))[node_id]
    assert node["status"] == "cancelled"
    assert node["started_at"] is not None
    (started,) = [
        event["data"]
        for event in await harness.events(job)
        if (event["event_type"], event["node_id"]) == ("node_started", node_id)
    ]
    assert (started["attempt"], started["worker"]) == (1, "w")
    assert await harness.findings() == []


async def test_a_node_that_nobody_had_taken_has_not_started(harness: Harness) -> None:
    job = await harness.submit(PAIR)
    await harness.cancel(job)
    assert "node_started" not in await harness.event_types(job)
    assert {node["started_at"] for node in (await harness.nodes(job)).values()} == {None}


async def test_a_start_that_was_told_before_is_not_told_again(harness: Harness) -> None:
    job = await harness.submit(PAIR)
    worker = await harness.manual_worker("w")
    await worker.claim(10)
    await harness.rows("update cograil.tasks set started_at = now() - interval '10 s'")
    await worker.heartbeat()
    await harness.cancel(job)
    assert (await harness.event_types(job)).count("node_started") == 2
