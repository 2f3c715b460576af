"""Retry: a finished job again as a new one that keeps what is done; a failed node in place."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.counted_handlers import SIDE, Handlers, has_statuses
from tests.support.harness import Harness

from cograil.errors import Conflict, JobNotFound, NodeNotFound, NotFinished
from cograil.model.outcome import Failed
from cograil.verbs.pause import pause_workflow, resume_workflow

CHAIN = """
workflow_id: chain
inputs: {x: {type: integer, default: 7}}
nodes:
  a: {handler: count, params: {x: "{{ inputs.x }}"}, next: b}
  b: {handler: count, params: {x: "{{ nodes.a.output.x }}"}, next: c}
  c: {handler: count, params: {x: "{{ nodes.b.output.x }}"}}
"""

FAN = """
workflow_id: fan
nodes:
  make: {handler: count, params: {x: 1}, next: split}
  split:
    type: fan_out
    source: [0, 1, 2, 3]
    task:
      handler: count
      params: {x: "{{ item }}", first: "{{ nodes.make.output.x }}"}
      retry: {max_attempts: 1}
    next: gather
  gather: {type: fan_in, next: after}
  after: {handler: count, params: {x: "{{ nodes.gather.output.count }}"}}
"""


@pytest.fixture
def handlers(harness: Harness) -> Handlers:
    return Handlers(harness)


async def test_a_failed_job_is_run_again_as_a_new_one_that_keeps_what_is_done(
    harness: Harness, handlers: Handlers
) -> None:
    handlers.bad = {"b"}
    async with harness.running():
        old = await harness.submit(CHAIN, {"x": 8}, labels={"k": "v"}, correlation_id="c", priority=3)
        assert (await harness.ended(old))["status"] == "failed"
        before = await everything_of(harness, old)
        handlers.bad = set()
        new = await harness.retry(old, by="me")
        ended = await harness.ended(new)
    assert (ended["status"], ended["retry_of"], new != old) == ("completed", old, True)
    assert ended["result"]["c"] == {"x": 8}
    assert [ended[key] for key in ("labels", "correlation_id", "priority")] == [{"k": "v"}, "c", 3]
    assert handlers.runs == {"a": 1, "b": 2, "c": 1}
    assert await everything_of(harness, old) == before


async def everything_of(harness: Harness, job_id: str) -> list[Any]:
    """The job, its nodes and its events; its orchestrator's heartbeat goes on."""
    job = {name: value for name, value in (await harness.job(job_id)).items() if name != "owner_heartbeat_at"}
    return [job, await harness.nodes(job_id), await harness.events(job_id)]


async def test_only_the_failed_children_of_a_fan_out_run_again(harness: Harness, handlers: Handlers) -> None:
    handlers.bad = {"split__1", "split__3"}
    async with harness.running():
        old = await harness.submit(FAN)
        assert (await harness.ended(old))["status"] == "failed"
        handlers.bad = {"split__3"}
        middle = await harness.retry(old)
        assert (await harness.ended(middle))["status"] == "failed"
        handlers.bad = set()
        new = await harness.retry(middle)
        ended = await harness.ended(new)
    assert ended["status"] == "completed"
    assert [result["x"] for result in ended["result"]["gather"]["results"]] == [0, 1, 2, 3]
    assert handlers.runs == {
        "make": 1, "split__0": 1, "split__1": 2, "split__2": 1, "split__3": 3, "after": 1
    }  # fmt: skip


async def test_a_job_cancelled_in_the_middle_of_an_expansion_goes_on_from_there(harness: Harness) -> None:
    text = """
workflow_id: wide
nodes:
  split:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: chunk_processor, params: {chunk_id: "{{ item }}"}}
    next: gather
  gather: {type: fan_in}
"""
    old = await harness.submit(text, {"items": list(range(2300))})
    worker = await harness.manual_worker()
    done = await worker.claim(10)
    for item in done:
        await worker.report(item, {"chunk_id": item.params["chunk_id"]})
    await harness.cancel(old)
    children = (await harness.nodes(old))["split"]["children"]
    assert children["expanded"] == 1000
    async with harness.running():
        new = await harness.retry(old)
        ended = await harness.ended(new, 60)
    assert ended["status"] == "completed"
    assert [result["chunk_id"] for result in ended["result"]["gather"]["results"]] == list(range(2300))
    rerun = await harness.rows(
        "select count(*) from cograil.events where job_id = %(id)s and type = 'node_dispatched'", id=new
    )
    assert rerun == [(2300 - len(done),)]


async def test_a_completed_job_runs_again_from_the_node_that_is_named(
    harness: Harness, handlers: Handlers
) -> None:
    async with harness.running():
        old = await harness.submit(CHAIN)
        await harness.ended(old)
        new = await harness.retry(old, "b")
        assert (await harness.ended(new))["status"] == "completed"
    assert handlers.runs == {"a": 1, "b": 2, "c": 2}


async def test_a_completed_job_runs_again_from_one_child(harness: Harness, handlers: Handlers) -> None:
    async with harness.running():
        old = await harness.submit(FAN)
        await harness.ended(old)
        new = await harness.retry(old, "split__2")
        ended = await harness.ended(new)
        again = await harness.ended(await harness.retry(old, "split"))
    assert (ended["status"], again["status"]) == ("completed", "completed")
    assert handlers.runs == {
        "make": 1, "split__0": 2, "split__1": 2, "split__2": 3, "split__3": 2, "after": 3
    }  # fmt: skip


async def test_a_retried_job_keeps_the_branch_that_was_taken(harness: Harness, handlers: Handlers) -> None:
    text = """
workflow_id: cond
nodes:
  a: {handler: count, params: {x: 5}, next: choose}
  choose: {type: conditional, condition: "{{ output.x > 3 }}", branches: {true: yes_, false: no_}}
  yes_: {handler: count, params: {x: 1}}
  no_: {handler: count, params: {x: 2}}
"""
    handlers.bad = {"yes_"}
    async with harness.running():
        old = await harness.submit(text)
        await harness.ended(old)
        handlers.bad = set()
        new = await harness.retry(old)
        assert (await harness.ended(new))["status"] == "completed"
    assert await harness.statuses(new) == {
        "a": "completed",
        "choose": "completed",
        "yes_": "completed",
        "no_": "skipped",
    }
    assert handlers.runs == {"a": 1, "yes_": 2}


async def test_a_job_that_timed_out_has_its_whole_time_again(harness: Harness, handlers: Handlers) -> None:
    text = (
        "workflow_id: t\ntimeout_seconds: 1\nnodes:\n  a: {handler: count, next: b}\n  b: {handler: hold}\n"
    )
    async with harness.running():
        old = await harness.submit(text)
        ended = await harness.ended(old)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "job_timeout")
        handlers.held.set()
        new = await harness.ended(await harness.retry(old))
    assert (new["status"], handlers.runs) == ("completed", {"a": 1})


async def test_a_retry_in_a_paused_workflow_waits_like_a_new_job(
    harness: Harness, handlers: Handlers
) -> None:
    handlers.bad = {"b"}
    await harness.publish(CHAIN)
    async with harness.running():
        old = await harness.submit(CHAIN)
        assert (await harness.ended(old))["status"] == "failed"
        handlers.bad = set()
        async with harness.db.transaction("test") as tx:
            await pause_workflow(tx, "chain")
        new = await harness.retry(old)
        assert (await harness.job(new))["started_at"] is None
        assert await harness.rows(f"select 1 from cograil.tasks where job_id = '{new}'") == []
        async with harness.db.transaction("test") as tx:
            await resume_workflow(tx, "chain")
        assert (await harness.ended(new))["status"] == "completed"


# -- in place ---------------------------------------------------------------------------------------------


async def test_a_failed_node_of_a_running_job_is_tried_again_in_place(
    harness: Harness, handlers: Handlers, eventually: Any
) -> None:
    handlers.bad = {"b"}
    async with harness.running():
        job = await harness.submit(SIDE)
        await eventually(lambda: has_statuses(harness, job, d="skipped"))
        handlers.bad = set()
        assert await harness.retry(job, "b", by="me") == job
        await eventually(lambda: has_statuses(harness, job, d="completed"))
        handlers.held.set()
        ended = await harness.ended(job)
    assert ended["status"] == "completed"
    assert handlers.runs == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert (await harness.nodes(job))["b"]["attempt"] == 2


async def test_a_retry_in_place_has_a_new_budget_of_attempts(harness: Harness) -> None:
    text = """
workflow_id: budget
nodes:
  a: {handler: echo, retry: {max_attempts: 2, initial_delay_seconds: 0}}
  side: {handler: sleep}
"""
    job = await harness.submit(text)
    worker = await harness.manual_worker()

    async def fail_once() -> int:
        (item,) = await worker.claim(handlers=["echo"])
        await worker.report(item, Failed("oops", "no"))
        await harness.advance()
        return item.attempt

    assert [await fail_once(), await fail_once()] == [1, 2]
    assert (await harness.statuses(job))["a"] == "failed"
    await harness.retry(job, "a")
    await harness.advance()
    assert [await fail_once(), await fail_once()] == [3, 4]
    assert (await harness.statuses(job))["a"] == "failed"
    await harness.cancel(job)


async def test_a_failed_child_of_a_running_job_is_tried_again_in_place(
    harness: Harness, handlers: Handlers, eventually: Any
) -> None:
    handlers.bad = {"split__1", "split__2"}
    async with harness.running():
        job = await harness.submit(FAN + "  side: {handler: hold}\n")
        await eventually(lambda: has_statuses(harness, job, after="skipped", gather="failed"))
        handlers.bad = set()
        await harness.retry(job, "split__1")
        await eventually(lambda: has_statuses(harness, job, split__1="completed", gather="failed"))
        await harness.retry(job, "split__2")
        await eventually(lambda: has_statuses(harness, job, after="completed"))
        handlers.held.set()
        ended = await harness.ended(job)
    assert ended["status"] == "completed"
    assert [result["x"] for result in ended["result"]["gather"]["results"]] == [0, 1, 2, 3]


async def test_a_node_that_failed_before_it_was_dispatched_can_be_retried_in_place(
    harness: Harness, handlers: Handlers, eventually: Any
) -> None:
    """Its outputs must be loaded, for it is rendered now."""
    text = """
workflow_id: unrendered
nodes:
  a: {handler: count, params: {x: {y: 1}}, next: b}
  b: {handler: echo, params: {v: "{{ nodes.a.output.x.nothing }}"}, next: c}
  c: {handler: echo}
  side: {handler: hold}
"""
    async with harness.running():
        job = await harness.submit(text)
        await eventually(lambda: has_statuses(harness, job, b="failed", c="skipped"))
        await harness.retry(job, "b")
        await eventually(lambda: has_statuses(harness, job, b="failed", c="skipped"))
        handlers.held.set()
        ended = await harness.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "template_undefined")


# -- refusals ---------------------------------------------------------------------------------------------


async def test_a_retry_of_a_running_job_names_the_nodes_that_failed(harness: Harness) -> None:
    worker = await harness.manual_worker()
    text = (
        "workflow_id: two\nnodes: {bad: {handler: count, retry: {max_attempts: 1}}, slow: {handler: count}}"
    )
    running = await harness.submit(text)
    items = {item.node_id: item for item in await worker.claim(2)}
    await worker.report(items["bad"], Failed("x", "no"))
    await harness.advance()
    with pytest.raises(NotFinished, match=r"--from NODE .*failed nodes: bad$"):
        await harness.retry(running)
    with pytest.raises(Conflict, match=r"node 'slow' .* not failed; .*failed nodes: bad$"):
        await harness.retry(running, "slow")


async def test_an_impossible_retry_is_refused_and_changes_nothing(harness: Harness) -> None:
    worker = await harness.manual_worker()
    running = await harness.submit(CHAIN)
    (item,) = await worker.claim()
    before = await harness.events(running)
    with pytest.raises(NotFinished, match=r"still running.*none of its nodes has failed"):
        await harness.retry(running)
    for node, status in (("a", "queued"), ("c", "pending")):
        with pytest.raises(Conflict, match=status):
            await harness.retry(running, node)
    with pytest.raises(NodeNotFound):
        await harness.retry(running, "nobody")
    with pytest.raises(NodeNotFound):
        await harness.retry(running, "a__0")
    assert await harness.events(running) == before
    await worker.report(item, {"x": 1})
    for _ in range(2):
        await harness.advance()
        await worker.report(await worker.claim_one(), {"x": 1})
    await harness.advance()
    with pytest.raises(Conflict, match=r"is completed; .*--from NODE .*its nodes: a, b, c$"):
        await harness.retry(running)
    with pytest.raises(NodeNotFound, match=r"has no node 'bb'; did you mean 'b'\? its nodes: a, b, c$"):
        await harness.retry(running, "bb")
    with pytest.raises(JobNotFound):
        await harness.retry("01a1e3c1-ac60-766a-80be-62fc2b743b93")
    assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]
