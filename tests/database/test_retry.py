"""Retry: a finished job again as a new one that keeps what is done; a failed node in place."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from lab import Lab

from cograil.errors import Conflict, JobNotFound, NodeNotFound, NotFinished
from cograil.model.outcome import Failed
from cograil.runners.context import Context, Fail
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


class Handlers:
    """Counts executions by node; nodes in `bad` fail."""

    def __init__(self, lab: Lab) -> None:
        self.runs: Counter[str] = Counter()
        self.bad: set[str] = set()
        self.held = asyncio.Event()

        async def count(ctx: Context, x: Any = None, first: Any = None) -> dict[str, Any]:
            self.runs[ctx.node_id] += 1
            if ctx.node_id in self.bad:
                raise Fail(f"{ctx.node_id} is bad")
            return {"x": x}

        async def hold() -> dict[str, Any]:
            await self.held.wait()
            return {}

        lab.registry.register(count)
        lab.registry.register(hold)


@pytest.fixture
def handlers(lab: Lab) -> Handlers:
    return Handlers(lab)


async def test_a_failed_job_is_run_again_as_a_new_one_that_keeps_what_is_done(
    lab: Lab, handlers: Handlers
) -> None:
    handlers.bad = {"b"}
    async with lab.running():
        old = await lab.submit(CHAIN, {"x": 8}, labels={"k": "v"}, correlation_id="c", priority=3)
        assert (await lab.ended(old))["status"] == "failed"
        before = await everything_of(lab, old)
        handlers.bad = set()
        new = await lab.retry(old, by="me")
        ended = await lab.ended(new)
    assert (ended["status"], ended["retry_of"], new != old) == ("completed", old, True)
    assert ended["result"]["c"] == {"x": 8}
    assert [ended[key] for key in ("labels", "correlation_id", "priority")] == [{"k": "v"}, "c", 3]
    assert handlers.runs == {"a": 1, "b": 2, "c": 1}
    assert await everything_of(lab, old) == before


async def everything_of(lab: Lab, job_id: str) -> list[Any]:
    """The job, its nodes and its events; its orchestrator's heartbeat goes on."""
    job = {name: value for name, value in (await lab.job(job_id)).items() if name != "owner_heartbeat_at"}
    return [job, await lab.nodes(job_id), await lab.events(job_id)]


async def test_of_a_fan_out_only_the_children_that_failed_run_again(lab: Lab, handlers: Handlers) -> None:
    handlers.bad = {"split__1", "split__3"}
    async with lab.running():
        old = await lab.submit(FAN)
        assert (await lab.ended(old))["status"] == "failed"
        handlers.bad = {"split__3"}
        middle = await lab.retry(old)
        assert (await lab.ended(middle))["status"] == "failed"
        handlers.bad = set()
        new = await lab.retry(middle)
        ended = await lab.ended(new)
    assert ended["status"] == "completed"
    assert [result["x"] for result in ended["result"]["gather"]["results"]] == [0, 1, 2, 3]
    assert handlers.runs == {
        "make": 1, "split__0": 1, "split__1": 2, "split__2": 1, "split__3": 3, "after": 1
    }  # fmt: skip


async def test_a_job_cancelled_in_the_middle_of_an_expansion_goes_on_from_there(lab: Lab) -> None:
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
    old = await lab.submit(text, {"items": list(range(2300))})
    hand = await lab.hand()
    done = await hand.claim(10)
    for item in done:
        await hand.report(item, {"chunk_id": item.params["chunk_id"]})
    await lab.cancel(old)
    children = (await lab.nodes(old))["split"]["children"]
    assert children["expanded"] == 1000
    async with lab.running():
        new = await lab.retry(old)
        ended = await lab.ended(new, 60)
    assert ended["status"] == "completed"
    assert [result["chunk_id"] for result in ended["result"]["gather"]["results"]] == list(range(2300))
    rerun = await lab.rows(
        "select count(*) from cograil.events where job_id = %(id)s and type = 'node_dispatched'", id=new
    )
    assert rerun == [(2300 - len(done),)]


async def test_a_completed_job_runs_again_from_the_node_that_is_named(lab: Lab, handlers: Handlers) -> None:
    async with lab.running():
        old = await lab.submit(CHAIN)
        await lab.ended(old)
        new = await lab.retry(old, "b")
        assert (await lab.ended(new))["status"] == "completed"
    assert handlers.runs == {"a": 1, "b": 2, "c": 2}


async def test_a_completed_job_runs_again_from_one_child(lab: Lab, handlers: Handlers) -> None:
    async with lab.running():
        old = await lab.submit(FAN)
        await lab.ended(old)
        new = await lab.retry(old, "split__2")
        ended = await lab.ended(new)
        again = await lab.ended(await lab.retry(old, "split"))
    assert (ended["status"], again["status"]) == ("completed", "completed")
    assert handlers.runs == {
        "make": 1, "split__0": 2, "split__1": 2, "split__2": 3, "split__3": 2, "after": 3
    }  # fmt: skip


async def test_a_retried_job_keeps_the_branch_that_was_taken(lab: Lab, handlers: Handlers) -> None:
    text = """
workflow_id: cond
nodes:
  a: {handler: count, params: {x: 5}, next: choose}
  choose: {type: conditional, condition: "{{ output.x > 3 }}", branches: {true: yes_, false: no_}}
  yes_: {handler: count, params: {x: 1}}
  no_: {handler: count, params: {x: 2}}
"""
    handlers.bad = {"yes_"}
    async with lab.running():
        old = await lab.submit(text)
        await lab.ended(old)
        handlers.bad = set()
        new = await lab.retry(old)
        assert (await lab.ended(new))["status"] == "completed"
    assert await lab.statuses(new) == {
        "a": "completed",
        "choose": "completed",
        "yes_": "completed",
        "no_": "skipped",
    }
    assert handlers.runs == {"a": 1, "yes_": 2}


async def test_a_job_that_timed_out_has_its_whole_time_again(lab: Lab, handlers: Handlers) -> None:
    text = (
        "workflow_id: t\ntimeout_seconds: 1\nnodes:\n  a: {handler: count, next: b}\n  b: {handler: hold}\n"
    )
    async with lab.running():
        old = await lab.submit(text)
        ended = await lab.ended(old)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "job_timeout")
        handlers.held.set()
        new = await lab.ended(await lab.retry(old))
    assert (new["status"], handlers.runs) == ("completed", {"a": 1})


async def test_a_retry_in_a_paused_workflow_waits_like_a_new_job(lab: Lab, handlers: Handlers) -> None:
    handlers.bad = {"b"}
    await lab.publish(CHAIN)
    async with lab.running():
        old = await lab.submit(CHAIN)
        assert (await lab.ended(old))["status"] == "failed"
        handlers.bad = set()
        async with lab.db.transaction("test") as tx:
            await pause_workflow(tx, "chain")
        new = await lab.retry(old)
        assert (await lab.job(new))["started_at"] is None
        assert await lab.rows(f"select 1 from cograil.tasks where job_id = '{new}'") == []
        async with lab.db.transaction("test") as tx:
            await resume_workflow(tx, "chain")
        assert (await lab.ended(new))["status"] == "completed"


# -- in place ---------------------------------------------------------------------------------------------

SIDE = """
workflow_id: side
nodes:
  a: {handler: count, params: {x: 1}, next: b}
  b: {handler: count, params: {x: "{{ nodes.a.output.x }}"}, next: c}
  c: {handler: count, params: {x: "{{ nodes.b.output.x }}"}, next: d}
  d: {handler: count, params: {x: 1}}
  side: {handler: hold}
"""


async def test_a_failed_node_of_a_running_job_is_tried_again_in_place(
    lab: Lab, handlers: Handlers, eventually: Any
) -> None:
    handlers.bad = {"b"}
    async with lab.running():
        job = await lab.submit(SIDE)
        await eventually(lambda: _is(lab, job, d="skipped"))
        handlers.bad = set()
        assert await lab.retry(job, "b", by="me") == job
        await eventually(lambda: _is(lab, job, d="completed"))
        handlers.held.set()
        ended = await lab.ended(job)
    assert ended["status"] == "completed"
    assert handlers.runs == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert (await lab.nodes(job))["b"]["attempt"] == 2


async def test_a_retry_in_place_has_a_new_budget_of_attempts(lab: Lab) -> None:
    text = """
workflow_id: budget
nodes:
  a: {handler: echo, retry: {max_attempts: 2, initial_delay_seconds: 0}}
  side: {handler: sleep}
"""
    job = await lab.submit(text)
    hand = await lab.hand()

    async def fail_once() -> int:
        (item,) = await hand.claim(handlers=["echo"])
        await hand.report(item, Failed("oops", "no"))
        await lab.advance()
        return item.attempt

    assert [await fail_once(), await fail_once()] == [1, 2]
    assert (await lab.statuses(job))["a"] == "failed"
    await lab.retry(job, "a")
    await lab.advance()
    assert [await fail_once(), await fail_once()] == [3, 4]
    assert (await lab.statuses(job))["a"] == "failed"
    await lab.cancel(job)


async def test_a_failed_child_of_a_running_job_is_tried_again_in_place(
    lab: Lab, handlers: Handlers, eventually: Any
) -> None:
    handlers.bad = {"split__1", "split__2"}
    async with lab.running():
        job = await lab.submit(FAN + "  side: {handler: hold}\n")
        await eventually(lambda: _is(lab, job, after="skipped", gather="failed"))
        handlers.bad = set()
        await lab.retry(job, "split__1")
        await eventually(lambda: _is(lab, job, split__1="completed", gather="failed"))
        await lab.retry(job, "split__2")
        await eventually(lambda: _is(lab, job, after="completed"))
        handlers.held.set()
        ended = await lab.ended(job)
    assert ended["status"] == "completed"
    assert [result["x"] for result in ended["result"]["gather"]["results"]] == [0, 1, 2, 3]


async def test_a_node_that_failed_before_it_was_dispatched_can_be_retried_in_place(
    lab: Lab, handlers: Handlers, eventually: Any
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
    async with lab.running():
        job = await lab.submit(text)
        await eventually(lambda: _is(lab, job, b="failed", c="skipped"))
        await lab.retry(job, "b")
        await eventually(lambda: _is(lab, job, b="failed", c="skipped"))
        handlers.held.set()
        ended = await lab.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "template_undefined")


async def _is(lab: Lab, job: str, **expected: str) -> bool:
    statuses = await lab.statuses(job)
    return {name: statuses.get(name) for name in expected} == expected


# -- refusals ---------------------------------------------------------------------------------------------


async def test_a_retry_of_a_running_job_names_the_nodes_that_failed(lab: Lab) -> None:
    hand = await lab.hand()
    text = (
        "workflow_id: two\nnodes: {bad: {handler: count, retry: {max_attempts: 1}}, slow: {handler: count}}"
    )
    running = await lab.submit(text)
    items = {item.node_id: item for item in await hand.claim(2)}
    await hand.report(items["bad"], Failed("x", "no"))
    await lab.advance()
    with pytest.raises(NotFinished, match=r"--from NODE .*failed nodes: bad$"):
        await lab.retry(running)
    with pytest.raises(Conflict, match=r"node 'slow' .* not failed; .*failed nodes: bad$"):
        await lab.retry(running, "slow")


async def test_what_cannot_be_retried_is_refused_and_changes_nothing(lab: Lab) -> None:
    hand = await lab.hand()
    running = await lab.submit(CHAIN)
    (item,) = await hand.claim()
    before = await lab.events(running)
    with pytest.raises(NotFinished, match=r"still running.*none of its nodes has failed"):
        await lab.retry(running)
    for node, status in (("a", "queued"), ("c", "pending")):
        with pytest.raises(Conflict, match=status):
            await lab.retry(running, node)
    with pytest.raises(NodeNotFound):
        await lab.retry(running, "nobody")
    with pytest.raises(NodeNotFound):
        await lab.retry(running, "a__0")
    assert await lab.events(running) == before
    await hand.report(item, {"x": 1})
    for _ in range(2):
        await lab.advance()
        await hand.report(await hand.claim_one(), {"x": 1})
    await lab.advance()
    with pytest.raises(Conflict, match=r"is completed; .*--from NODE .*its nodes: a, b, c$"):
        await lab.retry(running)
    with pytest.raises(NodeNotFound, match=r"has no node 'bb'; did you mean 'b'\? its nodes: a, b, c$"):
        await lab.retry(running, "bb")
    with pytest.raises(JobNotFound):
        await lab.retry("01a1e3c1-ac60-766a-80be-62fc2b743b93")
    assert await lab.rows("select count(*) from cograil.jobs") == [(1,)]
