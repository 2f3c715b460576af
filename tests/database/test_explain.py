"""Explain: what stands between a job and its end, the most fundamental first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.one_node import one

from cograil.cli.display.job_description import show_job, show_node
from cograil.definitions import read_workflow
from cograil.errors import JobNotFound
from cograil.model.outcome import Failed
from cograil.store.http_worker_queries import join_remote_worker
from cograil.store.task_queries import note_worker_error
from cograil.verbs import pause
from cograil.verbs.explain import ORDER, JobBlocker
from cograil.verbs.publish import publish
from cograil.verbs.tasks import register_process

CHAIN = "workflow_id: chain\nnodes:\n  a: {handler: %s, queue: %s, next: b}\n  b: {handler: echo}\n"
FAN_OF_TWO = "workflow_id: fan\nnodes:\n  split: {type: fan_out, source: [0, 1], task: {handler: echo}}\n"
SILENT = (
    "update cograil.processes set pulsed_at = now() - %(ago)s * interval '1 second',"
    " lease_until = now() + %(left)s * interval '1 second' where name = %(name)s"
)


async def blockers(harness: Harness, job: str) -> list[JobBlocker]:
    """Its blockers, in the order of the list."""
    blockers_found = (await harness.explain(job)).blockers
    assert [ORDER.index(blocker.kind) for blocker in blockers_found] == sorted(
        ORDER.index(b.kind) for b in blockers_found
    )
    return list(blockers_found)


async def test_with_nothing_running_the_orchestrator_comes_first(harness: Harness) -> None:
    job = await harness.submit(CHAIN % ("echo", "default"))
    blockers_found = await blockers(harness, job)
    assert [blocker.kind for blocker in blockers_found] == ["no_orchestrator", "no_worker", "dependency"]
    assert "no worker is running" in blockers_found[1].message
    assert (blockers_found[2].node_id, blockers_found[2].data) == ("b", {"nodes": ["a"]})
    assert "b waits for a (queued)" in blockers_found[2].message


async def test_an_orchestrator_that_fell_silent_does_not_count(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit(one())
    assert "no_orchestrator" not in [blocker.kind for blocker in await blockers(harness, job)]
    await harness.rows("update cograil.processes set lease_until = now() - interval '1 s'")
    assert "no_orchestrator" in [blocker.kind for blocker in await blockers(harness, job)]


async def test_a_queue_that_nobody_serves(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker(queues=["light"])
    job = await harness.submit(CHAIN % ("echo", "heavy"))
    first = (await blockers(harness, job))[0]
    assert (first.kind, first.node_id) == ("no_worker", "a")
    assert (
        "no worker serves the queue 'heavy'; start one with `cograil worker --queue heavy`" in first.message
    )
    assert first.data == {"queue": "heavy", "handler": "echo", "tasks": 1}


async def test_a_handler_that_nobody_has(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker()
    job = await harness.submit(CHAIN % ("unheard_of", "default"))
    first = (await blockers(harness, job))[0]
    assert first.kind == "no_worker"
    assert "no worker has the handler 'unheard_of'" in first.message


async def test_a_worker_that_drains_or_died_is_none(harness: Harness) -> None:
    job = await harness.submit(one())
    for state in ("draining", "dead", "stopped"):
        await harness.manual_worker()
        await harness.rows(f"update cograil.processes set state = '{state}' where kind = 'worker'")
        assert "no worker is running" in [blocker.message for blocker in await blockers(harness, job)][1]


async def test_a_worker_that_could_not_start_is_told_with_its_error(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit(one())
    (process,) = (await harness.rows("select id from cograil.processes where kind = 'orchestrator'"))[0]
    error = "the app 'handlers' cannot be imported: SyntaxError: invalid syntax (handlers.py, line 3)"
    async with harness.db.single("test") as tx:
        await note_worker_error(tx, process, error)
    message = (await blockers(harness, job))[0].message
    assert message == (
        f"a is queued: no worker is running: it could not start: {error}; "
        "correct the module, and the worker starts again"
    )
    await harness.tick()  # a heartbeat keeps it
    assert error in (await blockers(harness, job))[0].message
    async with harness.db.single("test") as tx:
        await note_worker_error(tx, process, None)
    assert "no worker is running; start one" in (await blockers(harness, job))[0].message


async def test_a_task_that_waits_for_its_turn(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker()
    await harness.submit_many(one(), [{}] * 3)
    await harness.submit(one(), priority=5)
    job = await harness.submit(one())
    blocker, place = await blockers(harness, job)
    assert (blocker.kind, blocker.data["ahead"]) == ("queued", 4)
    assert "behind 4 tasks; 1 workers can run it" in blocker.message
    assert place.kind == "priority"


async def test_a_task_knows_its_place_among_those_of_its_handler(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker()
    await harness.submit_many(one(), [{}] * 3)
    await harness.submit(one("sleep"), priority=9)
    await harness.submit_many(one(), [{}] * 2, priority=5)
    job = await harness.submit(one(), priority=2)
    by_kind = {blocker.kind: blocker for blocker in await blockers(harness, job)}
    place = by_kind["priority"]
    assert place.data["position"] == 3, "those of a lower priority and of other handlers do not count"
    assert (place.data["ahead_by_priority"], place.data["priority"], place.node_id) == (2, 2, "a")
    assert by_kind["queued"].data["ahead"] == 3
    assert "number 3 for 'echo', after 2 of a higher priority and 0 older ones" in place.message
    later = await harness.submit(one(), priority=2)
    assert (await blockers(harness, later))[1].data["position"] == 4
    first = await harness.submit(one(), priority=10)
    assert [blocker.kind for blocker in await blockers(harness, first)] == ["queued"], "nobody is before it"


async def test_a_task_that_nobody_can_run_has_its_place_too(harness: Harness) -> None:
    await harness.tick()
    await harness.submit(one("rare"))
    job = await harness.submit(one("rare"))
    assert [blocker.kind for blocker in await blockers(harness, job)] == ["no_worker", "priority"]


async def test_a_deadline_is_told_last_with_its_moment(harness: Harness) -> None:
    await harness.tick()
    text = (
        "workflow_id: t\ntimeout_seconds: 90\nnodes:\n  a: {handler: echo, next: b}\n  b: {handler: echo}\n"
    )
    job = await harness.submit(text)
    blocker = (await blockers(harness, job))[-1]
    assert (blocker.kind, blocker.node_id, blocker.until) == (
        "deadline",
        None,
        (await harness.job(job))["deadline"],
    )
    assert 80 < blocker.data["left_seconds"] <= 90
    assert "the job fails at" in blocker.message
    await harness.rows("update cograil.jobs set deadline = now() - interval '1 s'")
    assert "past its deadline" in (await blockers(harness, job))[-1].message


async def test_a_task_that_runs(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit(one())
    worker = await harness.manual_worker("ada")
    await worker.claim_one()
    (blocker,) = await blockers(harness, job)
    assert (blocker.kind, blocker.node_id, blocker.data["worker"]) == ("running", "a", "ada")
    assert "a is running on ada for" in blocker.message


async def test_a_worker_that_fell_silent_is_named_before_its_lease_is_over(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit(FAN_OF_TWO)
    for name in ("ada", "mute"):
        await (await harness.manual_worker(name)).claim(1)
    await harness.rows(SILENT, name="mute", ago=9, left=6)
    both = {b.data["worker"]: b for b in await blockers(harness, job) if b.kind == "running"}
    assert (both["ada"].data["is_silent"], "last heartbeat" in both["ada"].message) == (False, False)
    assert both["mute"].data["is_silent"]
    assert "whose last heartbeat was 9 s ago: unless it heartbeats by" in both["mute"].message
    await harness.rows(SILENT, name="mute", ago=16, left=-1)
    (over,) = [b for b in await blockers(harness, job) if b.data.get("worker") == "mute"]
    assert "its lease has expired, and an orchestrator will count the attempt as lost" in over.message


async def test_a_task_in_a_queue_tells_of_workers_that_fell_silent(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker("mute")
    job = await harness.submit(one())
    assert (await blockers(harness, job))[0].message.endswith("1 workers can run it")
    await harness.rows(SILENT, name="mute", ago=9, left=6)
    (blocker,) = await blockers(harness, job)
    assert blocker.message.endswith("1 workers can run it, but none of them sent a heartbeat lately")
    await harness.manual_worker("ada")
    (blocker,) = await blockers(harness, job)
    assert blocker.message.endswith("2 workers can run it, but only 1 sent a heartbeat lately")


async def test_news_that_nobody_has_taken(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit(CHAIN % ("echo", "default"))
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), {})
    blockers_found = await blockers(harness, job)
    assert [blocker.kind for blocker in blockers_found] == ["news", "dependency"]
    assert blockers_found[0].data["news"] == 1


async def test_a_backoff_says_until_when_and_why(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit("workflow_id: b\nnodes:\n  a: {handler: echo}\n")
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), Failed("oops", "out of luck"))
    await harness.advance()
    (blocker,) = await blockers(harness, job)
    assert (blocker.kind, blocker.node_id, blocker.data["attempt"]) == ("backoff", "a", 1)
    assert blocker.data["error"]["message"] == "out of luck"
    assert blocker.until is not None
    assert timedelta(seconds=3) < blocker.until - datetime.now(UTC) < timedelta(seconds=6)
    assert "attempt 1 failed (oops)" in blocker.message


async def test_a_wait_says_until_when(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit(
        "workflow_id: w\nnodes:\n  a: {type: wait, wait: {seconds: 3600}, next: b}\n  b: {handler: echo}\n"
    )
    wait, dependency = await blockers(harness, job)
    assert (wait.kind, wait.node_id, dependency.kind) == ("waiting_until", "a", "dependency")
    assert wait.until is not None
    assert wait.until.isoformat() in wait.message


async def test_a_job_that_is_held_back_says_until_when(harness: Harness) -> None:
    await harness.tick()
    moment = datetime.now(UTC) + timedelta(hours=1)
    job = await harness.submit(CHAIN % ("echo", "default"), not_before=moment)
    blockers_found = await blockers(harness, job)
    assert (blockers_found[0].kind, blockers_found[0].until, blockers_found[0].node_id) == (
        "waiting_until",
        moment,
        None,
    )
    assert "the job starts at" in blockers_found[0].message


async def test_children_are_told_together(harness: Harness) -> None:
    text = """
workflow_id: fan
nodes:
  split: {type: fan_out, source: [1, 2, 3, 4, 5, 6], task: {handler: echo}, next: gather}
  gather: {type: fan_in}
"""
    await harness.tick()
    job = await harness.submit(text)
    worker = await harness.manual_worker()
    first, second, third, _ = await worker.claim(4)
    await worker.report(first, {})
    await worker.report(second, Failed("oops", "no"))
    await worker.report(third, Failed("oops", "no"))
    await harness.advance()
    by_kind = {blocker.kind: blocker for blocker in await blockers(harness, job)}
    assert list(by_kind) == ["backoff", "queued", "running", "dependency"]
    assert {by_kind[kind].node_id for kind in ("backoff", "queued", "running")} == {"split"}
    assert "2 children of split are" in by_kind["backoff"].message
    assert "2 children of split are queued" in by_kind["queued"].message
    assert "split__3 is running" in by_kind["running"].message


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_explain_lists_no_blockers_of_a_job_that_has_ended(harness: Harness, end: str) -> None:
    job = await harness.submit(one(attempts=1))
    worker = await harness.manual_worker()
    if end == "cancelled":
        await harness.cancel(job)
    else:
        await worker.report(await worker.claim_one(), {} if end == "completed" else Failed("oops", "no"))
        await harness.advance()
    explanation = await harness.explain(job)
    assert (explanation.status, explanation.blockers) == (end, ())


@pytest.mark.parametrize("job_id", ["01a1e3c1-ac60-766a-80be-62fc2b743b93", "nonsense"])
async def test_an_unknown_job_is_not_found(harness: Harness, job_id: str) -> None:
    with pytest.raises(JobNotFound):
        await harness.explain(job_id)


async def test_a_running_engine_explains_while_it_works(harness: Harness, eventually: Any) -> None:
    go_on = asyncio.Event()

    async def held() -> dict[str, Any]:
        await go_on.wait()
        return {}

    harness.registry.register(held)
    async with harness.running():
        job = await harness.submit(one("held"))
        await eventually(lambda: _kinds(harness, job, ["running"]))
        go_on.set()
        await harness.ended(job)
        assert (await harness.explain(job)).blockers == ()


async def _kinds(harness: Harness, job: str, kinds: list[str]) -> bool:
    return [blocker.kind for blocker in await blockers(harness, job)] == kinds


async def test_a_worker_of_another_process_counts_by_what_it_registered(harness: Harness) -> None:
    await harness.tick()
    job = await harness.submit(one("rare"))
    async with harness.db.single("test") as tx:
        await register_process(tx, "worker", "able", 60, handlers=["rare"])
    assert [blocker.kind for blocker in await blockers(harness, job)] == ["queued"]


# -- what a claim would take before it --------------------------------------------------------------------


async def place_of(harness: Harness, job: str) -> tuple[int, int]:
    """How many tasks are before it, in all, and which number it is for its handler."""
    by_kind = {blocker.kind: blocker for blocker in await blockers(harness, job)}
    return by_kind["queued"].data["ahead"], by_kind["priority"].data[
        "position"
    ] if "priority" in by_kind else 1


async def test_tasks_of_queues_that_its_workers_do_not_serve_are_not_before_it(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker("light", queues=["light"])
    await harness.manual_worker("heavy", queues=["heavy"])
    await harness.submit_many(CHAIN % ("echo", "heavy"), [{}] * 3)
    await harness.submit(CHAIN % ("echo", "light"))
    job = await harness.submit(CHAIN % ("echo", "light"))
    assert await place_of(harness, job) == (1, 2)
    await harness.manual_worker("both", queues=["light", "heavy"])
    assert await place_of(harness, job) == (4, 5), "one that serves both would take them first"


async def test_tasks_of_handlers_that_its_workers_do_not_have_are_not_before_it(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker()
    await harness.submit_many(one("unheard_of"), [{}] * 3)
    job = await harness.submit(one())
    assert await place_of(harness, job) == (0, 1)


async def test_tasks_of_a_paused_queue_are_not_before_those_of_others(harness: Harness) -> None:
    await harness.tick()
    await harness.manual_worker()
    await harness.submit_many(CHAIN % ("echo", "heavy"), [{}] * 3)
    job = await harness.submit(CHAIN % ("echo", "light"))
    last = await harness.submit(CHAIN % ("echo", "heavy"))
    async with harness.db.transaction("pause") as tx:
        await pause.pause_queue(tx, "heavy", tenant="elsewhere")
    assert await place_of(harness, job) == (3, 4), "the queue of this name of another tenant"
    async with harness.db.transaction("pause") as tx:
        await pause.pause_queue(tx, "heavy")
    assert await place_of(harness, job) == (0, 1)
    assert await place_of(harness, last) == (4, 5), "in its own queue it has its place for when it goes on"


async def test_a_worker_elsewhere_takes_only_what_is_of_its_tenant(harness: Harness) -> None:
    await harness.tick()
    await harness.submit_many(one(), [{}] * 3)
    await harness.rows("update cograil.tasks set tenant_id = 'acme'")
    job = await harness.submit(one())
    async with harness.db.transaction("test") as tx:
        await join_remote_worker(tx, "acme", "theirs", 60, None, None)
    assert "no_worker" in [blocker.kind for blocker in await blockers(harness, job)]
    async with harness.db.transaction("test") as tx:
        await join_remote_worker(tx, "default", "ours", 60, None, ["echo"])
    assert await place_of(harness, job) == (0, 1)
    await harness.manual_worker()
    assert await place_of(harness, job) == (3, 4), "a worker of the engine serves all tenants"
    await harness.rows("update cograil.tasks set tenant_id = 'default'")


# -- people and children ----------------------------------------------------------------------------------


async def test_an_approval_with_a_deadline_is_told_once_with_its_moment(harness: Harness) -> None:
    await harness.tick()
    text = (
        "workflow_id: ask\nnodes:\n  a: {type: approval, approval: {message: May I?, timeout_seconds: 60}}\n"
    )
    job = await harness.submit(text)
    (blocker,) = await blockers(harness, job)
    assert (blocker.kind, blocker.node_id) == ("approval", "a")
    assert blocker.until == (await harness.nodes(job))["a"]["not_before"] is not None


async def test_a_child_is_named_with_its_status(harness: Harness) -> None:
    await harness.tick()
    async with harness.db.transaction("test") as tx:
        await publish(tx, read_workflow(one()), one())
    workflow_id = read_workflow(one()).workflow_id
    text = (
        f"workflow_id: top\nnodes:\n  a: {{type: subworkflow, subworkflow: {{workflow_id: {workflow_id}}}}}\n"
    )
    job = await harness.submit(text)
    ((child,),) = await harness.rows("select id::text from cograil.jobs where parent_job is not null")
    (blocker,) = await blockers(harness, job)
    assert (blocker.kind, blocker.data) == ("child", {"child_job": {"job_id": child, "status": "running"}})
    assert f"its child job {child}, which is running" in blocker.message
    node = (await harness.nodes(job))["a"]
    assert node["child_job"] == {"job_id": child, "status": "running"}


async def test_show_names_the_job_of_a_subworkflow(
    harness: Harness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    async with harness.db.transaction("test") as tx:
        await publish(tx, read_workflow(one()), one())
    workflow_id = read_workflow(one()).workflow_id
    text = (
        f"workflow_id: top\nnodes:\n  a: {{type: subworkflow, subworkflow: {{workflow_id: {workflow_id}}}}}\n"
    )
    job = await harness.submit(text)
    ((child,),) = await harness.rows("select id::text from cograil.jobs where parent_job is not null")
    node = (await harness.nodes(job))["a"]
    show_job(await harness.job(job), read_workflow(text), [node], [])
    show_node(node, job, None)
    assert capsys.readouterr().out.count(f"{child}, running") == 2
