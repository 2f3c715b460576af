"""One job with costly expressions does not hold up the others, and ends itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from lab import Hand, Lab

from cograil.model.budget import MAX_NODE_STEPS, Budget
from cograil.model.job import Bounds
from cograil.verbs.advance import advance_due, due_jobs

SAME = " and ".join(["inputs.a == nodes.numbers.output.b"] * 60)
MALICIOUS = f"""
workflow_id: malicious
nodes:
  numbers: {{handler: numbers, next: check}}
  check: {{handler: echo, when: "{SAME}"}}
"""
HARMLESS = """
workflow_id: harmless
nodes:
  split:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: is_known, params: {known: "{{ item in inputs.names }}"}}
    next: gather
  gather: {type: fan_in, aggregation: sum}
"""
MAX_STEPS_OF_PASS = 2 * MAX_NODE_STEPS  # of all jobs of one pass
SMALL = "{workflow_id: small, nodes: {one: {handler: echo, params: {x: '{{ inputs.x }}'}}}}"


@pytest.fixture(autouse=True)
def _handlers(lab: Lab) -> None:
    async def numbers() -> dict[str, Any]:
        return {"b": list(range(490_000))}

    async def is_known(known: bool) -> dict[str, Any]:
        return {"known": 1 if known else 0}

    lab.registry.register(numbers)
    lab.registry.register(is_known)


async def longest_small_job(lab: Lab, other: str) -> float:
    """How long small jobs take, one after the other, until the other job has ended."""
    longest = 0.0
    while (await lab.job(other))["completed_at"] is None:
        began_at = time.monotonic()
        await lab.ended(await lab.submit(SMALL, {"x": 1}))
        longest = max(longest, time.monotonic() - began_at)
    return longest


async def test_a_costly_condition_fails_its_job_and_no_other_waits_for_it(lab: Lab) -> None:
    async with lab.running():
        job = await lab.submit(MALICIOUS, {"a": list(range(490_000))})
        async with asyncio.timeout(60):
            longest = await longest_small_job(lab, job)
    nodes = await lab.nodes(job)
    assert (await lab.job(job))["status"] == "failed"
    assert nodes["check"]["error"]["code"] == "expression_too_costly"
    assert "node check: `inputs.a == nodes.numbers" in nodes["check"]["error"]["message"]
    assert longest < 10


async def test_a_fan_out_with_a_lookup_for_each_item_ends_soon(lab: Lab) -> None:
    names = [f"name-{index}" for index in range(10_000)]
    async with lab.running():
        job = await lab.submit(HARMLESS, {"items": names[1000:4000], "names": names})
        async with asyncio.timeout(60):
            longest = await longest_small_job(lab, job)
    ended = await lab.job(job)
    assert (ended["status"], ended["result"]["gather"]["total"]) == ("completed", 3000), ended["error"]
    assert longest < 10


PAIR = "{workflow_id: pair, nodes: {first: {handler: echo, next: second}, second: {handler: echo}}}"
MAX_PASSES = 400


@pytest.fixture
def steps_of_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The last item counts the steps of expressions; a test appends one for each pass."""
    counts = [0]
    spend = Budget.spend

    def count(budget: Budget, steps: int) -> None:
        counts[-1] += steps
        spend(budget, steps)

    monkeypatch.setattr(Budget, "spend", count)
    return counts


async def advance_beside(lab: Lab, hand: Hand, job: str, steps: list[int]) -> int:
    """Pass after pass until the costly job has no more to decide; how many there were.

    Before each pass another job has news. The pass must advance it, whatever it evaluates of the costly one.
    """
    for count in range(MAX_PASSES):
        small = await lab.submit(PAIR)
        (item,) = [item for item in await hand.claim(1, handlers=["echo"]) if item.job_id == small]
        await hand.report(item, {})
        steps.append(0)
        async with lab.db.transaction("advance") as tx:
            await advance_due(tx, lab.decider, lab.settings.orchestrator.batch)
        assert (await lab.statuses(small))["second"] == "dispatched", (
            f"pass {count} left the other job behind"
        )
        (second,) = await hand.claim(1, handlers=["echo"])
        assert second.job_id == small
        await hand.report(second, {})
        if (await lab.job(job))["completed_at"] or not await due_again(lab, job):
            return count + 1
    raise AssertionError(f"the costly job is not decided after {MAX_PASSES} passes")


async def due_again(lab: Lab, job: str) -> bool:
    """Whether another pass would take this job."""
    async with lab.db.single("test") as tx:
        return job in await due_jobs(tx, 1000)


async def test_every_pass_beside_a_costly_condition_advances_other_jobs(
    lab: Lab, steps_of_passes: list[int]
) -> None:
    hand = await lab.hand()
    job = await lab.submit(MALICIOUS, {"a": list(range(490_000))})
    (item,) = await hand.claim(1, handlers=["numbers"])
    await hand.report(item, {"b": list(range(490_000))})
    passes = await advance_beside(lab, hand, job, steps_of_passes)
    assert (await lab.nodes(job))["check"]["error"]["code"] == "expression_too_costly"
    assert passes <= 5
    assert max(steps_of_passes) <= MAX_STEPS_OF_PASS


async def test_every_pass_beside_a_costly_fan_out_advances_other_jobs(
    lab: Lab, steps_of_passes: list[int]
) -> None:
    hand = await lab.hand()
    names = [f"name-{index}" for index in range(10_000)]
    job = await lab.submit(HARMLESS, {"items": names[1000:4000], "names": names})
    await advance_beside(lab, hand, job, steps_of_passes)
    dispatched = "select count(*) from cograil.tasks where job_id = %(job)s::uuid"
    assert await lab.rows(dispatched, job=job) == [(3000,)]
    assert max(steps_of_passes) <= MAX_STEPS_OF_PASS
    assert sum(steps_of_passes) < 10 * 3000 * 100, "each item is compared with all names again"


async def test_a_submit_leaves_costly_expressions_to_an_orchestrator(lab: Lab) -> None:
    text = """
workflow_id: first
nodes:
  check: {handler: echo, when: "{{ inputs.a == inputs.b }}"}
"""
    numbers = list(range(100_000))
    job = await lab.submit(text, {"a": numbers, "b": numbers})
    assert (await lab.statuses(job)) == {"check": "pending"}
    await lab.advance()
    assert (await lab.statuses(job)) == {"check": "dispatched"}


async def test_costly_jobs_take_turns(lab: Lab) -> None:
    """Each pass evaluates one of them at length; small jobs of the same pass are not held back."""
    text = """
workflow_id: turns
nodes:
  begin: {type: wait, wait: {seconds: 0.01}, next: check}
  check: {handler: echo, when: "{{ inputs.a == inputs.b and inputs.a == inputs.b }}"}
"""
    rows = [[index] for index in range(20_000)]
    lab.decider.bounds = Bounds(node_steps=150_000)
    costly = await lab.submit_many(text, [{"a": rows, "b": rows}] * 5)
    small = await lab.submit(
        "{workflow_id: quick, nodes: {w: {type: wait, wait: {seconds: 0.01}, next: e}, e: {handler: echo}}}"
    )
    await asyncio.sleep(0.05)
    await lab.tick()
    async with lab.db.transaction("advance") as tx:
        await advance_due(tx, lab.decider, 400)
    begun = [job for job in costly if (await lab.statuses(job))["check"] == "dispatched"]
    assert 1 <= len(begun) < 5
    assert (await lab.statuses(small))["e"] == "dispatched"
    await lab.advance()
    assert {(await lab.statuses(job))["check"] for job in costly} == {"dispatched"}


async def test_a_chain_that_reads_one_output_after_the_other_goes_on_over_several_passes(lab: Lab) -> None:
    tasks = "\n".join(f"  t{i}: {{handler: echo, params: {{x: {i}}}, next: join}}" for i in range(8))
    links = "\n".join(
        f"  c{i}: {{type: conditional, depends_on: [{f'c{i - 1}' if i else 'join'}], "
        f'condition: "{{{{ nodes.t{i}.output.echoed_params.x == {i} }}}}", '
        f"branches: {{true: [], false: []}}}}"
        for i in range(8)
    )
    text = f"workflow_id: links\nnodes:\n{tasks}\n  join: {{handler: echo, next: c0}}\n{links}\n"
    async with lab.running():
        job = await lab.submit(text)
        assert (await lab.ended(job))["status"] == "completed"
    taken = {
        name: view.get("taken_branch") for name, view in (await lab.nodes(job)).items() if name[0] == "c"
    }
    assert set(taken.values()) <= {"true", None}
