"""Lines in front of limits: who waits in them, how long they may be, and how one gets out of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.support.harness import Harness, open_harness, quick_settings
from tests.support.index_reads import entries
from tests.support.task_rows import let_go, states

from cograil.errors import InvalidInput
from cograil.verbs import limits
from cograil.verbs.submit import Submission, submit_each

NODE = "workflow_id: {name}\nnodes:\n  a: {{handler: echo, limits: {limits}}}\n"
WORKFLOW = "workflow_id: {name}\nlimits: {limits}\nnodes:\n  a: {{handler: echo}}\n"
BY_WHO = '{concurrency: 1, key: "{{ inputs.who }}"}'
PARENT = """
workflow_id: parent
nodes:
  part: {type: subworkflow, subworkflow: {workflow_id: keyed, inputs: {who: "{{ inputs.who }}"}}}
"""
each_kind = pytest.mark.parametrize("text", [NODE, WORKFLOW], ids=["node", "workflow"])
NO_KEYS: list[Any] = [["a", "list"], "x" * 300]


async def let_all_go(harness: Harness) -> int:
    """As an orchestrator does: on from where it stopped, until it has seen all limits."""
    total, after = 0, ""
    while True:
        async with harness.db.transaction("admit") as tx:
            free = await limits.find_free(tx, after)
            admission = await limits.admit(tx, free.keys) if free.keys else limits.Admission()
        total += admission.admitted
        if not admission.may_be_more:
            if free.after is None:
                return total
            after = free.after


# -- keys that are none -----------------------------------------------------------------------------------


each_none = pytest.mark.parametrize("who", NO_KEYS, ids=["list", "long"])


@each_none
async def test_a_child_whose_key_is_none_fails_its_node_and_not_the_pass(harness: Harness, who: Any) -> None:
    await harness.publish(WORKFLOW.format(name="keyed", limits=BY_WHO))
    job = await harness.submit(PARENT, {"who": who})
    async with harness.running():
        assert (await harness.ended(job))["status"] == "failed"
    assert (await harness.nodes(job))["part"]["error"]["code"] == "invalid_input"


@each_none
async def test_a_job_from_sql_whose_key_is_none_fails(harness: Harness, who: Any) -> None:
    await harness.publish(WORKFLOW.format(name="keyed", limits=BY_WHO))
    inputs = orjson.dumps({"who": who}).decode()
    ((job,),) = await harness.rows("select cograil.submit('keyed', %(inputs)s::jsonb)::text", inputs=inputs)
    async with harness.running():
        ended = await harness.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "invalid_input")
    assert await harness.rows("select 1 from cograil.admissions") == []


async def test_a_submit_of_many_jobs_refuses_only_the_one_without_a_key(harness: Harness) -> None:
    await harness.publish(WORKFLOW.format(name="keyed", limits=BY_WHO))
    submissions = [Submission("keyed", {"who": who}) for who in ("a", ["no", "key"], "b")]
    async with harness.db.transaction("submit") as tx:
        first, second, third = await submit_each(tx, harness.engine_context, submissions)
    assert isinstance(second, InvalidInput)
    assert second.problems[0].pointer == "/limits/key"
    assert {first.job_id, third.job_id} == {  # type: ignore[union-attr]
        job_id for (job_id,) in await harness.rows("select job_id::text from cograil.admissions")
    }


async def test_a_retry_whose_inputs_make_no_key_is_refused_before_anything_is_made(harness: Harness) -> None:
    job = await harness.submit(WORKFLOW.format(name="keyed", limits=BY_WHO), {"who": "a"})
    await harness.cancel(job)
    with pytest.raises(InvalidInput, match="key of a limit"):
        await harness.retry(job, inputs={"who": ["no", "key"]})


# -- many limits, long lines ------------------------------------------------------------------------------


@each_kind
async def test_many_limits_are_looked_at_in_several_transactions(
    harness: Harness, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server has a few thousand locks for all: with all names in one transaction nothing would ever go."""
    monkeypatch.setattr(limits, "MAX_KEYS", 5)
    await harness.submit_many(
        text.format(name="keyed", limits=BY_WHO), [{"who": str(n)} for n in range(12)] * 2
    )
    async with harness.db.transaction("admit") as tx:
        free = await limits.find_free(tx)
        admission = await limits.admit(tx, free.keys)
        locks = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        ((count,),) = await (await tx.connection.execute(locks.encode())).fetchall()
    assert (admission.admitted, count) == (5, 5)
    assert free.after is not None
    assert await let_all_go(harness) == 7
    assert await let_all_go(harness) == 0


async def test_limits_that_are_full_are_not_locked(harness: Harness) -> None:
    await harness.submit_many(NODE.format(name="keyed", limits=BY_WHO), [{"who": "a"}] * 2)
    await let_all_go(harness)
    async with harness.db.single("admit") as tx:
        assert await limits.find_free(tx) == limits.FreeLimits(())


async def test_places_are_taken_at_once_also_when_they_are_more_than_one_transaction_fills(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would ask again before the first of them ends, or a tick."""
    monkeypatch.setattr(limits, "MAX_ADMITTED", 2)
    await harness.submit_many(NODE.format(name="wide", limits="{concurrency: 5}"), [{}] * 7)
    assert await let_all_go(harness) == 5
    assert await states(harness) == {"ready": 5, "held": 2}


@pytest.mark.parametrize(
    ("text", "index"), [(NODE, "tasks_held"), (WORKFLOW, "admissions_waiting")], ids=["node", "workflow"]
)
async def test_to_let_go_one_of_a_long_line_is_no_more_work_than_of_a_short_one(
    dsn: str, text: str, index: str
) -> None:
    settings = quick_settings(database={"allow_unsafe": True, "pool_size": 1})
    async with open_harness(dsn, settings) as harness:
        jobs = await harness.submit_many(text.format(name="line", limits="{concurrency: 2}"), [{}] * 1_000)
        await let_all_go(harness)
        for job in jobs[:2]:
            await harness.cancel(job)
        before = await entries(harness, index)
        assert await let_all_go(harness) == 2
        assert await entries(harness, index) - before < 50


# -- versions that differ ---------------------------------------------------------------------------------


@each_kind
async def test_the_first_in_line_goes_by_the_rate_it_was_made_with(harness: Harness, text: str) -> None:
    """Never by a rate that no version has, as 2 of one and per second of another."""
    await harness.submit_many(text.format(name="v", limits="{rate: 2/h}"), [{}] * 3)
    await harness.submit_many(text.format(name="v", limits="{rate: 100/s}"), [{}] * 3)
    admission = await let_go(harness)
    assert admission.admitted == 2
    assert admission.wait_seconds is not None
    assert admission.wait_seconds > 1_000


@each_kind
async def test_jobs_under_another_limit_wait_until_they_are_the_first(harness: Harness, text: str) -> None:
    first = await harness.submit_many(text.format(name="v", limits="{concurrency: 3}"), [{}] * 2)
    await harness.submit_many(text.format(name="v", limits="{concurrency: 1}"), [{}] * 2)
    assert await let_all_go(harness) == 2
    for job in first:
        assert await let_all_go(harness) == 0
        await harness.cancel(job)
    assert await let_all_go(harness) == 1


# -- out of the line --------------------------------------------------------------------------------------


async def test_a_job_that_ends_leaves_the_line_and_its_place_at_once(harness: Harness) -> None:
    text = WORKFLOW.format(name="few", limits="{concurrency: 2}")
    jobs = await harness.submit_many(text, [{}] * 3)
    await let_all_go(harness)
    await harness.advance()
    worker = await harness.manual_worker()
    for item in await worker.claim(2):
        await worker.report(item, {})
    await harness.cancel(jobs[2])
    await harness.advance()
    assert await harness.rows("select 1 from cograil.admissions") == []


@each_kind
async def test_a_cancelled_job_makes_room_for_the_next_without_a_tick(
    dsn: str, text: str, eventually: Any
) -> None:
    settings = quick_settings(lease={"seconds": 600.0, "heartbeat_seconds": 200.0, "scan_seconds": 300.0})
    async with open_harness(dsn, settings) as harness, harness.orchestrator():
        first, second = await harness.submit_many(
            text.format(name="one", limits="{concurrency: 1}"), [{}] * 2
        )
        await eventually(lambda: _is_ready(harness, first))
        await harness.cancel(first)
        await eventually(lambda: _is_ready(harness, second))


async def _is_ready(harness: Harness, job: str) -> bool:
    query = "select 1 from cograil.tasks where job_id = %(job)s::uuid and state = 'ready'"
    return bool(await harness.rows(query, job=job))
