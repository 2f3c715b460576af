"""`fail_fast` and `when`: what is not wanted any more, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.model.outcome import Failed
from cograil.verbs import advance

FAST = """
workflow_id: fast
fail_fast: true
nodes:
  good: {handler: echo, next: after}
  bad: {handler: echo, retry: {max_attempts: 1}}
  after: {handler: echo}
"""
FAN = """
workflow_id: fan
fail_fast: true
nodes:
  split: {type: fan_out, source: [0, 1, 2], task: {handler: echo, retry: {max_attempts: 1}}, next: join}
  join: {type: fan_in}
"""
WHEN = """
workflow_id: when
inputs:
  go: {type: boolean}
nodes:
  a: {handler: echo, when: "inputs.go", next: b}
  b: {handler: echo, next: c}
  c: {handler: echo, depends_on: {all_of: [b, d]}}
  d: {handler: echo}
"""


async def claim_all(harness: Harness) -> tuple[Any, dict[str, Any]]:
    worker = await harness.manual_worker()
    return worker, {item.node_id: item for item in await worker.claim(10)}


async def test_the_first_failure_cancels_the_rest(harness: Harness) -> None:
    job = await harness.submit(FAST)
    worker, items = await claim_all(harness)
    await worker.report(items["bad"], Failed("oops", "no"))
    await harness.advance()
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"], ended["error"]["node_id"]) == ("failed", "oops", "bad")
    assert await harness.statuses(job) == {"good": "cancelled", "bad": "failed", "after": "cancelled"}
    assert (await worker.heartbeat()).task_ids == frozenset()
    assert not await worker.report(items["good"], {})


async def test_a_result_reported_before_a_fail_fast_counts_though_it_was_unread(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two reports the first fails the job; the other is still in the inbox when that is decided."""
    job = await harness.submit(FAST)
    worker, items = await claim_all(harness)
    await worker.report(items["bad"], Failed("oops", "no"))
    await worker.report(items["good"], {"v": 1})
    monkeypatch.setattr(advance, "INPUTS_PER_PASS", 1)
    await harness.advance()
    assert await harness.statuses(job) == {"good": "completed", "bad": "failed", "after": "cancelled"}
    assert (await harness.job(job))["status"] == "failed"


async def test_a_failure_that_is_retried_is_none_yet(harness: Harness) -> None:
    job = await harness.submit(FAST.replace("max_attempts: 1", "max_attempts: 2, initial_delay_seconds: 0"))
    worker, items = await claim_all(harness)
    await worker.report(items["bad"], Failed("oops", "no"))
    await harness.advance()
    assert (await harness.job(job))["status"] == "running"
    await worker.report(await worker.claim_one(), Failed("oops", "no"))
    await harness.advance()
    assert (await harness.job(job))["status"] == "failed"


async def test_a_failure_that_is_not_required_cancels_nothing(harness: Harness) -> None:
    job = await harness.submit(FAST.replace("bad: {", "bad: {required: false, "))
    worker, items = await claim_all(harness)
    await worker.report(items["bad"], Failed("oops", "no"))
    await harness.advance()
    assert await harness.statuses(job) == {"good": "running", "bad": "failed", "after": "pending"}


async def test_a_failed_child_cancels_its_siblings(harness: Harness) -> None:
    job = await harness.submit(FAN)
    worker, items = await claim_all(harness)
    await worker.report(items["split__1"], Failed("oops", "no"))
    await harness.advance()
    ended = await harness.job(job)
    assert ended["error"] == {
        "code": "oops",
        "message": "no",
        "node_id": "split__1",
        "failed_nodes": ["split__1"],
    }
    wanted = {"split": "cancelled", "split__0": "cancelled", "split__1": "failed", "split__2": "cancelled"}
    assert await harness.statuses(job) == wanted | {"join": "cancelled"}


async def test_a_node_that_fails_before_it_is_handed_out_lets_nothing_begin(harness: Harness) -> None:
    text = FAST.replace("bad: {handler: echo,", 'bad: {handler: echo, params: {x: "{{ inputs.no }}"},')
    job = await harness.submit(text)
    assert (await harness.job(job))["error"]["node_id"] == "bad"
    assert await harness.statuses(job) == {"good": "cancelled", "bad": "failed", "after": "cancelled"}
    assert "node_dispatched" not in await harness.event_types(job)
    assert await harness.rows("select 1 from cograil.tasks") == []


@pytest.mark.parametrize("go", [True, False])
async def test_a_node_runs_when_it_is_wanted(harness: Harness, go: bool) -> None:
    job = await harness.submit(WHEN, {"go": go})
    async with harness.running():
        assert (await harness.ended(job))["status"] == "completed"
    nodes = await harness.nodes(job)
    statuses = {name: node["status"] for name, node in nodes.items()}
    if go:
        assert set(statuses.values()) == {"completed"}
    else:
        assert statuses == {"a": "skipped", "b": "skipped", "c": "completed", "d": "completed"}
        assert (nodes["a"]["skip_reason"], nodes["b"]["skip_reason"]) == ("when", "branch")


async def test_a_when_that_cannot_be_told_fails_the_node(harness: Harness) -> None:
    job = await harness.submit("workflow_id: w\nnodes:\n  a: {handler: echo, when: '{{ inputs.x.y }}'}\n")
    assert (await harness.statuses(job))["a"] == "failed"
    assert (await harness.job(job))["status"] == "failed"
