"""Explain: what stands between a job and its end, the most fundamental first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lab import Lab
from test_workers import one

from cograil.definitions import read_workflow
from cograil.errors import JobNotFound
from cograil.intake.cli.describing import show_job, show_node
from cograil.model.outcome import Failed
from cograil.store.remote import join_remote_worker
from cograil.store.tasks import note_worker_error
from cograil.verbs import pause
from cograil.verbs.explain import ORDER, Blocker
from cograil.verbs.publish import publish
from cograil.verbs.work import register_process

CHAIN = "workflow_id: chain\nnodes:\n  a: {handler: %s, queue: %s, next: b}\n  b: {handler: echo}\n"
FAN_OF_TWO = "workflow_id: fan\nnodes:\n  split: {type: fan_out, source: [0, 1], task: {handler: echo}}\n"
SILENT = (
    "update cograil.processes set pulsed_at = now() - %(ago)s * interval '1 second',"
    " lease_until = now() + %(left)s * interval '1 second' where name = %(name)s"
)


async def blockers(lab: Lab, job: str) -> list[Blocker]:
    """Its blockers, in the order of the list."""
    found = (await lab.explain(job)).blockers
    assert [ORDER.index(blocker.kind) for blocker in found] == sorted(ORDER.index(b.kind) for b in found)
    return list(found)


async def test_with_nothing_running_the_orchestrator_comes_first(lab: Lab) -> None:
    job = await lab.submit(CHAIN % ("echo", "default"))
    found = await blockers(lab, job)
    assert [blocker.kind for blocker in found] == ["no_orchestrator", "no_worker", "dependency"]
    assert "no worker is running" in found[1].message
    assert (found[2].node_id, found[2].data) == ("b", {"nodes": ["a"]})
    assert "b waits for a (queued)" in found[2].message


async def test_an_orchestrator_that_fell_silent_does_not_count(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit(one())
    assert "no_orchestrator" not in [blocker.kind for blocker in await blockers(lab, job)]
    await lab.rows("update cograil.processes set lease_until = now() - interval '1 s'")
    assert "no_orchestrator" in [blocker.kind for blocker in await blockers(lab, job)]


async def test_a_queue_that_nobody_serves(lab: Lab) -> None:
    await lab.tick()
    await lab.hand(queues=["light"])
    job = await lab.submit(CHAIN % ("echo", "heavy"))
    first = (await blockers(lab, job))[0]
    assert (first.kind, first.node_id) == ("no_worker", "a")
    assert (
        "no worker serves the queue 'heavy'; start one with `cograil worker --queue heavy`" in first.message
    )
    assert first.data == {"queue": "heavy", "handler": "echo", "tasks": 1}


async def test_a_handler_that_nobody_has(lab: Lab) -> None:
    await lab.tick()
    await lab.hand()
    job = await lab.submit(CHAIN % ("unheard_of", "default"))
    first = (await blockers(lab, job))[0]
    assert first.kind == "no_worker"
    assert "no worker has the handler 'unheard_of'" in first.message


async def test_a_worker_that_drains_or_died_is_none(lab: Lab) -> None:
    job = await lab.submit(one())
    for state in ("draining", "dead", "stopped"):
        await lab.hand()
        await lab.rows(f"update cograil.processes set state = '{state}' where kind = 'worker'")
        assert "no worker is running" in [blocker.message for blocker in await blockers(lab, job)][1]


async def test_a_worker_that_could_not_start_is_told_with_its_error(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit(one())
    (process,) = (await lab.rows("select id from cograil.processes where kind = 'orchestrator'"))[0]
    error = "the app 'handlers' cannot be imported: SyntaxError: invalid syntax (handlers.py, line 3)"
    async with lab.db.single("test") as tx:
        await note_worker_error(tx, process, error)
    message = (await blockers(lab, job))[0].message
    assert message == (
        f"a is queued: no worker is running: it could not start: {error}; "
        "correct the module, and the worker starts again"
    )
    await lab.tick()  # a heartbeat keeps it
    assert error in (await blockers(lab, job))[0].message
    async with lab.db.single("test") as tx:
        await note_worker_error(tx, process, None)
    assert "no worker is running; start one" in (await blockers(lab, job))[0].message


async def test_a_task_that_waits_for_its_turn(lab: Lab) -> None:
    await lab.tick()
    await lab.hand()
    await lab.submit_many(one(), [{}] * 3)
    await lab.submit(one(), priority=5)
    job = await lab.submit(one())
    found, place = await blockers(lab, job)
    assert (found.kind, found.data["ahead"]) == ("queued", 4)
    assert "behind 4 tasks; 1 workers can run it" in found.message
    assert place.kind == "priority"


async def test_a_task_knows_its_place_among_those_of_its_handler(lab: Lab) -> None:
    await lab.tick()
    await lab.hand()
    await lab.submit_many(one(), [{}] * 3)
    await lab.submit(one("sleep"), priority=9)
    await lab.submit_many(one(), [{}] * 2, priority=5)
    job = await lab.submit(one(), priority=2)
    found = {blocker.kind: blocker for blocker in await blockers(lab, job)}
    place = found["priority"]
    assert place.data["position"] == 3, "those of a lower priority and of other handlers do not count"
    assert (place.data["ahead_by_priority"], place.data["priority"], place.node_id) == (2, 2, "a")
    assert found["queued"].data["ahead"] == 3
    assert "number 3 for 'echo', after 2 of a higher priority and 0 older ones" in place.message
    later = await lab.submit(one(), priority=2)
    assert (await blockers(lab, later))[1].data["position"] == 4
    first = await lab.submit(one(), priority=10)
    assert [blocker.kind for blocker in await blockers(lab, first)] == ["queued"], "nobody is before it"


async def test_a_task_that_nobody_can_run_has_its_place_too(lab: Lab) -> None:
    await lab.tick()
    await lab.submit(one("rare"))
    job = await lab.submit(one("rare"))
    assert [blocker.kind for blocker in await blockers(lab, job)] == ["no_worker", "priority"]


async def test_a_deadline_is_told_last_with_its_moment(lab: Lab) -> None:
    await lab.tick()
    text = (
        "workflow_id: t\ntimeout_seconds: 90\nnodes:\n  a: {handler: echo, next: b}\n  b: {handler: echo}\n"
    )
    job = await lab.submit(text)
    found = (await blockers(lab, job))[-1]
    assert (found.kind, found.node_id, found.until) == ("deadline", None, (await lab.job(job))["deadline"])
    assert 80 < found.data["left_seconds"] <= 90
    assert "the job fails at" in found.message
    await lab.rows("update cograil.jobs set deadline = now() - interval '1 s'")
    assert "past its deadline" in (await blockers(lab, job))[-1].message


async def test_a_task_that_runs(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit(one())
    hand = await lab.hand("ada")
    await hand.claim_one()
    (found,) = await blockers(lab, job)
    assert (found.kind, found.node_id, found.data["worker"]) == ("running", "a", "ada")
    assert "a is running on ada for" in found.message


async def test_a_worker_that_fell_silent_is_named_before_its_lease_is_over(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit(FAN_OF_TWO)
    for name in ("ada", "mute"):
        await (await lab.hand(name)).claim(1)
    await lab.rows(SILENT, name="mute", ago=9, left=6)
    both = {b.data["worker"]: b for b in await blockers(lab, job) if b.kind == "running"}
    assert (both["ada"].data["is_silent"], "heard of" in both["ada"].message) == (False, False)
    assert both["mute"].data["is_silent"]
    assert "which was last heard of 9 s ago: unless it pulses by" in both["mute"].message
    await lab.rows(SILENT, name="mute", ago=16, left=-1)
    (over,) = [b for b in await blockers(lab, job) if b.data.get("worker") == "mute"]
    assert "its lease is over, and an orchestrator will count the attempt as lost" in over.message


async def test_a_task_in_a_queue_tells_of_workers_that_fell_silent(lab: Lab) -> None:
    await lab.tick()
    await lab.hand("mute")
    job = await lab.submit(one())
    assert (await blockers(lab, job))[0].message.endswith("1 workers can run it")
    await lab.rows(SILENT, name="mute", ago=9, left=6)
    (found,) = await blockers(lab, job)
    assert found.message.endswith("1 workers can run it, but none of them has been heard of lately")
    await lab.hand("ada")
    (found,) = await blockers(lab, job)
    assert found.message.endswith("2 workers can run it, but 1 have not been heard of lately")


async def test_news_that_nobody_has_taken(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit(CHAIN % ("echo", "default"))
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), {})
    found = await blockers(lab, job)
    assert [blocker.kind for blocker in found] == ["news", "dependency"]
    assert found[0].data["news"] == 1


async def test_a_backoff_says_until_when_and_why(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit("workflow_id: b\nnodes:\n  a: {handler: echo}\n")
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), Failed("oops", "out of luck"))
    await lab.advance()
    (found,) = await blockers(lab, job)
    assert (found.kind, found.node_id, found.data["attempt"]) == ("backoff", "a", 1)
    assert found.data["error"]["message"] == "out of luck"
    assert found.until is not None
    assert timedelta(seconds=3) < found.until - datetime.now(UTC) < timedelta(seconds=6)
    assert "attempt 1 failed (oops)" in found.message


async def test_a_wait_says_until_when(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit(
        "workflow_id: w\nnodes:\n  a: {type: wait, wait: {seconds: 3600}, next: b}\n  b: {handler: echo}\n"
    )
    wait, dependency = await blockers(lab, job)
    assert (wait.kind, wait.node_id, dependency.kind) == ("waiting_until", "a", "dependency")
    assert wait.until is not None
    assert wait.until.isoformat() in wait.message


async def test_a_job_that_is_held_back_says_until_when(lab: Lab) -> None:
    await lab.tick()
    moment = datetime.now(UTC) + timedelta(hours=1)
    job = await lab.submit(CHAIN % ("echo", "default"), not_before=moment)
    found = await blockers(lab, job)
    assert (found[0].kind, found[0].until, found[0].node_id) == ("waiting_until", moment, None)
    assert "the job starts at" in found[0].message


async def test_children_are_told_together(lab: Lab) -> None:
    text = """
workflow_id: fan
nodes:
  split: {type: fan_out, source: [1, 2, 3, 4, 5, 6], task: {handler: echo}, next: gather}
  gather: {type: fan_in}
"""
    await lab.tick()
    job = await lab.submit(text)
    hand = await lab.hand()
    first, second, third, _ = await hand.claim(4)
    await hand.report(first, {})
    await hand.report(second, Failed("oops", "no"))
    await hand.report(third, Failed("oops", "no"))
    await lab.advance()
    found = {blocker.kind: blocker for blocker in await blockers(lab, job)}
    assert list(found) == ["backoff", "queued", "running", "dependency"]
    assert {found[kind].node_id for kind in ("backoff", "queued", "running")} == {"split"}
    assert "2 children of split are" in found["backoff"].message
    assert "2 children of split are queued" in found["queued"].message
    assert "split__3 is running" in found["running"].message


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_nothing_stands_in_the_way_of_a_job_that_has_ended(lab: Lab, end: str) -> None:
    job = await lab.submit(one(attempts=1))
    hand = await lab.hand()
    if end == "cancelled":
        await lab.cancel(job)
    else:
        await hand.report(await hand.claim_one(), {} if end == "completed" else Failed("oops", "no"))
        await lab.advance()
    explanation = await lab.explain(job)
    assert (explanation.status, explanation.blockers) == (end, ())


@pytest.mark.parametrize("job_id", ["01a1e3c1-ac60-766a-80be-62fc2b743b93", "nonsense"])
async def test_an_unknown_job_is_not_found(lab: Lab, job_id: str) -> None:
    with pytest.raises(JobNotFound):
        await lab.explain(job_id)


async def test_a_running_engine_explains_while_it_works(lab: Lab, eventually: Any) -> None:
    go_on = asyncio.Event()

    async def held() -> dict[str, Any]:
        await go_on.wait()
        return {}

    lab.registry.register(held)
    async with lab.running():
        job = await lab.submit(one("held"))
        await eventually(lambda: _kinds(lab, job, ["running"]))
        go_on.set()
        await lab.ended(job)
        assert (await lab.explain(job)).blockers == ()


async def _kinds(lab: Lab, job: str, kinds: list[str]) -> bool:
    return [blocker.kind for blocker in await blockers(lab, job)] == kinds


async def test_a_worker_of_another_process_counts_by_what_it_registered(lab: Lab) -> None:
    await lab.tick()
    job = await lab.submit(one("rare"))
    async with lab.db.single("test") as tx:
        await register_process(tx, "worker", "able", 60, handlers=["rare"])
    assert [blocker.kind for blocker in await blockers(lab, job)] == ["queued"]


# -- what a claim would take before it --------------------------------------------------------------------


async def place_of(lab: Lab, job: str) -> tuple[int, int]:
    """How many tasks are before it, in all, and which number it is for its handler."""
    found = {blocker.kind: blocker for blocker in await blockers(lab, job)}
    return found["queued"].data["ahead"], found["priority"].data["position"] if "priority" in found else 1


async def test_tasks_of_queues_that_its_workers_do_not_serve_are_not_before_it(lab: Lab) -> None:
    await lab.tick()
    await lab.hand("light", queues=["light"])
    await lab.hand("heavy", queues=["heavy"])
    await lab.submit_many(CHAIN % ("echo", "heavy"), [{}] * 3)
    await lab.submit(CHAIN % ("echo", "light"))
    job = await lab.submit(CHAIN % ("echo", "light"))
    assert await place_of(lab, job) == (1, 2)
    await lab.hand("both", queues=["light", "heavy"])
    assert await place_of(lab, job) == (4, 5), "one that serves both would take them first"


async def test_tasks_of_handlers_that_its_workers_do_not_have_are_not_before_it(lab: Lab) -> None:
    await lab.tick()
    await lab.hand()
    await lab.submit_many(one("unheard_of"), [{}] * 3)
    job = await lab.submit(one())
    assert await place_of(lab, job) == (0, 1)


async def test_tasks_of_a_paused_queue_are_not_before_those_of_others(lab: Lab) -> None:
    await lab.tick()
    await lab.hand()
    await lab.submit_many(CHAIN % ("echo", "heavy"), [{}] * 3)
    job = await lab.submit(CHAIN % ("echo", "light"))
    last = await lab.submit(CHAIN % ("echo", "heavy"))
    async with lab.db.transaction("pause") as tx:
        await pause.pause_queue(tx, "heavy", tenant="elsewhere")
    assert await place_of(lab, job) == (3, 4), "the queue of this name of another tenant"
    async with lab.db.transaction("pause") as tx:
        await pause.pause_queue(tx, "heavy")
    assert await place_of(lab, job) == (0, 1)
    assert await place_of(lab, last) == (4, 5), "in its own queue it has its place for when it goes on"


async def test_a_worker_elsewhere_takes_only_what_is_of_its_tenant(lab: Lab) -> None:
    await lab.tick()
    await lab.submit_many(one(), [{}] * 3)
    await lab.rows("update cograil.tasks set tenant_id = 'acme'")
    job = await lab.submit(one())
    async with lab.db.transaction("test") as tx:
        await join_remote_worker(tx, "acme", "theirs", 60, None, None)
    assert "no_worker" in [blocker.kind for blocker in await blockers(lab, job)]
    async with lab.db.transaction("test") as tx:
        await join_remote_worker(tx, "default", "ours", 60, None, ["echo"])
    assert await place_of(lab, job) == (0, 1)
    await lab.hand()
    assert await place_of(lab, job) == (3, 4), "a worker of the engine serves all tenants"
    await lab.rows("update cograil.tasks set tenant_id = 'default'")


# -- people and children ----------------------------------------------------------------------------------


async def test_an_approval_with_a_deadline_is_told_once_with_its_moment(lab: Lab) -> None:
    await lab.tick()
    text = (
        "workflow_id: ask\nnodes:\n  a: {type: approval, approval: {message: May I?, timeout_seconds: 60}}\n"
    )
    job = await lab.submit(text)
    (found,) = await blockers(lab, job)
    assert (found.kind, found.node_id) == ("approval", "a")
    assert found.until == (await lab.nodes(job))["a"]["not_before"] is not None


async def test_a_child_is_named_with_its_status(lab: Lab) -> None:
    await lab.tick()
    async with lab.db.transaction("test") as tx:
        await publish(tx, read_workflow(one()), one())
    workflow_id = read_workflow(one()).workflow_id
    text = (
        f"workflow_id: top\nnodes:\n  a: {{type: subworkflow, subworkflow: {{workflow_id: {workflow_id}}}}}\n"
    )
    job = await lab.submit(text)
    ((child,),) = await lab.rows("select id::text from cograil.jobs where parent_job is not null")
    (found,) = await blockers(lab, job)
    assert (found.kind, found.data) == ("child", {"child_job": {"job_id": child, "status": "running"}})
    assert f"its child job {child}, which is running" in found.message
    node = (await lab.nodes(job))["a"]
    assert node["child_job"] == {"job_id": child, "status": "running"}


async def test_show_names_the_job_of_a_subworkflow(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    async with lab.db.transaction("test") as tx:
        await publish(tx, read_workflow(one()), one())
    workflow_id = read_workflow(one()).workflow_id
    text = (
        f"workflow_id: top\nnodes:\n  a: {{type: subworkflow, subworkflow: {{workflow_id: {workflow_id}}}}}\n"
    )
    job = await lab.submit(text)
    ((child,),) = await lab.rows("select id::text from cograil.jobs where parent_job is not null")
    node = (await lab.nodes(job))["a"]
    show_job(await lab.job(job), read_workflow(text), [node], [])
    show_node(node, job, None)
    assert capsys.readouterr().out.count(f"{child}, running") == 2
