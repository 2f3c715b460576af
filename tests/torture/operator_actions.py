"""Clients of what holds back: they pause and resume, answer, and cancel or retry many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from tests.torture import oracles
from tests.torture.bulk_operations import (
    begin,
    ripen,
    see_cancelled,
    see_retried,
    several_failed,
    several_running,
)
from tests.torture.child_jobs import MIDDLE, TOP, publish_families, see_family
from tests.torture.client_strikes import GONE_SECONDS, all_end, made, nothing, struck
from tests.torture.crash import Run
from tests.torture.held_jobs import PAUSED, resume_all, see_answers
from tests.torture.lane import NUMBERS, Lane
from tests.torture.scenarios import Scenario, be_late, mend
from tests.torture.sql_submissions import cancel_unopened

from cograil.errors import Conflict
from cograil.model.job import Signalled
from cograil.store.database import Transaction
from cograil.verbs import pause
from cograil.verbs.signal import signal

IS_PAUSED = {
    "job": "select 1 from cograil.jobs where id::text = %(name)s and paused_at is not null",
    "queue": "select 1 from cograil.pauses where kind = 'queue' and name = %(name)s",
    "workflow": "select 1 from cograil.pauses where kind = 'workflow' and name = %(name)s",
}
PAUSED_SCENARIO = Scenario(
    "paused",
    PAUSED,
    "completed",
    dict.fromkeys(["first", "slow", "last"], "completed"),
    {"first": 1, "slow": 1, "last": 1},
)


# -- pause and resume --------------------------------------------------------------------------------


async def _pause(kind: str, lane: Lane, run: Run) -> None:
    """An acknowledged pause holds; without an answer it holds or there is none."""
    job, name = await _slow_job(lane, kind)
    answer = await struck(lane, run, "pause", name, kind=kind)
    is_paused = bool(await lane.lab.rows(IS_PAUSED[kind], name=name))
    if answer is not None and not is_paused:
        run.violations.append(f"the client was told that the {kind} is paused, but it is not")
    await lane.set_gate(job, is_closed=False)
    await resume_all(lane, job)
    await all_end(lane, run, PAUSED_SCENARIO, [job])


async def _resume(kind: str, lane: Lane, run: Run) -> None:
    """After an acknowledged resume the job goes on by itself; who was not told may try again."""
    job, name = await _slow_job(lane, kind)
    async with lane.lab.db.transaction("pause") as tx:
        await PAUSES[kind](tx, name)
    await lane.set_gate(job, is_closed=False)
    await lane.until(SLOW_ENDED, GONE_SECONDS, job=job)
    answer = await struck(lane, run, "resume", name, kind=kind)
    if await lane.lab.rows(IS_PAUSED[kind], name=name):
        if answer is not None:
            run.violations.append(f"the client was told that the {kind} goes on, but it is paused")
        await resume_all(lane, job)
    await all_end(lane, run, PAUSED_SCENARIO, [job])


PAUSES: dict[str, Callable[[Transaction, str], Awaitable[None]]] = {
    "job": pause.pause_job,
    "queue": pause.pause_queue,
    "workflow": pause.pause_workflow,
}
SLOW_ENDED = (
    "select 1 from cograil.nodes where job_id = %(job)s and node_id = 'slow' and status = 'completed'"
)


async def _slow_job(lane: Lane, kind: str) -> tuple[str, str]:
    """A job whose slow node runs, and the name of what is to be paused of it."""
    job = await lane.submit(PAUSED, is_gated=True)
    query = "select 1 from torture.effects where job = %(job)s and node = 'slow'"
    await lane.until(query, GONE_SECONDS, job=job)
    return job, {"job": job, "queue": "halting", "workflow": "paused"}[kind]


async def _submit_paused(lane: Lane, run: Run) -> None:
    """A job of a paused workflow, which somebody resumes before, while or after it is made, begins."""
    mark = f"mark-{next(NUMBERS)}"
    await lane.publish(PAUSED)
    async with lane.lab.db.transaction("pause") as tx:
        await pause.pause_workflow(tx, "paused")
    answer = await struck(lane, run, "submit", "paused", meanwhile=_resume_meanwhile, mark=mark)
    await resume_all(lane, "")
    await all_end(lane, run, PAUSED_SCENARIO, await made(lane, run, answer, "correlation_id", mark))


async def _resume_meanwhile(lane: Lane, subject: str) -> asyncio.Future[None]:
    """Somebody resumes, and has to wait when the client has seen the pause and not committed."""
    resuming = asyncio.ensure_future(resume_all(lane, ""))
    await asyncio.wait({resuming}, timeout=0.2)
    return resuming


# -- answers -----------------------------------------------------------------------------------------

MIDDLE_DONE = dict.fromkeys(["first", "ask", "more", "last", "below", "split", "gather", "also"], "completed")
MIDDLE_SCENARIO = Scenario(
    "middle",
    MIDDLE,
    "completed",
    MIDDLE_DONE,
    {"first": 1, "last": 1, "split__0": 1, "split__1": 1, "wrong": 1},
)
MIDDLE_LATE = Scenario(
    "middle",
    MIDDLE,
    "failed",
    {"ask": "cancelled", "below": "cancelled", "also": "cancelled", "split__0": "completed"},
    MIDDLE_SCENARIO.executions,
    error="job_timeout",
)


async def ripe_middle(lane: Lane) -> tuple[str, str]:
    """A job and the child in which everything is under way; no orchestrator is there."""
    await publish_families(lane)
    top = await lane.submit(TOP, is_gated=True)
    query = "select id::text from cograil.jobs where parent_job = %(top)s"
    await lane.until(query, GONE_SECONDS, top=top)
    ((middle,),) = await lane.lab.rows(query, top=top)
    await ripen(lane, middle)
    return top, middle


async def _answer(decision_word: str, lane: Lane, run: Run) -> None:
    """An answer counts once or not at all; an acknowledged one counts, and is not taken a second time."""
    top, middle = await ripe_middle(lane)
    decision = await struck(lane, run, "signal", middle, meanwhile=nothing, decision=decision_word)
    is_decided = "approval_decided" in await lane.lab.event_types(middle)
    if decision is not None and not is_decided:
        run.violations.append(f"the client was told {decision}, but nothing is decided")
    try:
        async with lane.lab.db.transaction("signal") as tx:
            await signal(tx, lane.lab.engine_context, middle, Signalled(decision_word, "ask", by="again"))
        if is_decided:
            run.violations.append("a second answer was taken")
    except Conflict:
        if not is_decided:
            run.violations.append("nothing is decided, but an answer was refused")
    await _family_ends(lane, run, MIDDLE_SCENARIO, top, middle)
    run.violations += await see_answers(
        lane, middle, {"ask": {"approve": "approved"}.get(decision_word, "rejected")}
    )


async def _answer_too_late(lane: Lane, run: Run) -> None:
    """The deadline has passed, and no orchestrator was there to see it: the client's transaction does.

    The answer counts as a report would, but nothing comes of it any more.
    """
    top, middle = await ripe_middle(lane)
    await be_late(lane, middle)
    answer = await struck(lane, run, "signal", middle, meanwhile=nothing, decision="approve")
    is_decided = "approval_decided" in await lane.lab.event_types(middle)
    if answer is not None and not is_decided:
        run.violations.append(f"the client was told {answer}, but nothing is decided")
    nodes = {**MIDDLE_LATE.nodes, "ask": "completed" if is_decided else "cancelled"}
    await _family_ends(lane, run, replace(MIDDLE_LATE, nodes=nodes), top, middle)


async def _family_ends(lane: Lane, run: Run, scenario: Scenario, top: str, middle: str) -> None:
    await lane.help_with("orchestrator", "worker")
    await all_end(lane, run, scenario, [middle])
    await lane.ended(top)
    status = (await lane.lab.job(top))["status"]
    if status != scenario.status:
        run.violations.append(f"the child is {scenario.status}, but its parent {status}")
    run.violations += await see_family(lane, top)


# -- families ----------------------------------------------------------------------------------------


async def _cancel_child(lane: Lane, run: Run) -> None:
    """To cancel a child is told its parent, and its own children; what was reported counts."""
    top, middle = await ripe_middle(lane)
    answer = await struck(lane, run, "cancel", middle, meanwhile=nothing)
    if answer not in (None, "cancelled"):
        run.violations.append(f"the client was told {answer}")
    if (await lane.lab.job(middle))["status"] != "cancelled":
        if answer is not None:
            run.violations.append("the client was told that the job is cancelled, but it is not")
        await lane.lab.cancel(middle)
    nodes = {"ask": "cancelled", "below": "cancelled", "split__0": "completed", "split__1": "completed"}
    scenario = Scenario("middle", MIDDLE, "cancelled", nodes, MIDDLE_SCENARIO.executions)
    await lane.help_with("orchestrator", "worker")
    await all_end(lane, run, scenario, [middle])
    await lane.ended(top)
    run.violations += await see_family(lane, top)


async def _retry_in_family(lane: Lane, run: Run) -> None:
    """A node is retried in a child; what was reported meanwhile goes on in the same decision."""
    top, middle = await ripe_middle(lane)
    await mend(lane, middle)
    answer = await struck(lane, run, "retry", middle, meanwhile=nothing, node="wrong")
    is_retried = (await lane.lab.nodes(middle))["wrong"]["status"] != "failed"
    if answer is not None and not is_retried:
        run.violations.append("the client was told that the node is retried, but it is not")
    if not is_retried:
        await lane.lab.retry(middle, "wrong")
    async with lane.lab.db.transaction("signal") as tx:
        await signal(tx, lane.lab.engine_context, middle, Signalled("approve", "ask"))
    executions = {**MIDDLE_SCENARIO.executions, "wrong": 2}
    scenario = Scenario("middle", MIDDLE, "completed", MIDDLE_DONE | {"wrong": "completed"}, executions)
    await _family_ends(lane, run, scenario, top, middle)


async def _retry_in_family_too_late(lane: Lane, run: Run) -> None:
    """The same when the deadline of the child has passed."""
    top, middle = await ripe_middle(lane)
    await be_late(lane, middle)
    await struck(lane, run, "retry", middle, meanwhile=nothing, node="wrong")
    await _family_ends(lane, run, MIDDLE_LATE, top, middle)


FOUNDER = """
workflow_id: founder
nodes:
  below: {type: subworkflow, subworkflow: {workflow_id: leaf}}
  once: {type: subworkflow, subworkflow: {workflow_id: moment}}
"""


async def _submit_family(lane: Lane, run: Run) -> None:
    """A job is made with its children, in full or not at all."""
    mark = f"mark-{next(NUMBERS)}"
    await publish_families(lane)
    await lane.publish(FOUNDER)
    answer = await struck(lane, run, "submit", "founder", meanwhile=nothing, mark=mark)
    query = "select id::text, parent_job from cograil.jobs where correlation_id = %(mark)s"
    jobs = await lane.lab.rows(query, mark=mark)
    if len(jobs) not in (0, 3):
        run.violations.append(f"of the family there is {jobs}")
    founders = [job for job, parent in jobs if parent is None]
    if answer is not None and founders != [answer]:
        run.violations.append(f"the client was told {answer}, but there is {founders}")
    nodes = {"below": "completed", "once": "completed"}
    await all_end(lane, run, Scenario("founder", FOUNDER, "completed", nodes, {}), founders)
    for job in founders:
        run.violations += await see_family(lane, job)


# -- many --------------------------------------------------------------------------------------------


async def _bulk(verb: str, lane: Lane, run: Run) -> None:
    """The operation is there with its job and its audit or not at all; who was not told begins it again."""
    mark = await (several_running(lane) if verb == "cancel" else several_failed(lane))
    await lane.help_with()
    ((before,),) = await lane.lab.rows("select coalesce(max(id), 0) from cograil.audit_log")
    answer = await struck(lane, run, "bulk", mark, meanwhile=nothing, verb=verb)
    query = (
        "select j.id::text, o.id::text from cograil.jobs j"
        " full join cograil.bulk_operations o on o.job_id = j.id"
        " where coalesce(j.input -> 'filter', o.filter) ->> 'correlation_id' = %(mark)s"
    )
    jobs = await lane.lab.rows(query, mark=mark)
    if len(jobs) > 1 or None in sum(jobs, ()) or (answer is not None and [answer] != [r[0] for r in jobs]):
        run.violations.append(f"the client was told {answer}, but there is {jobs}")
        return
    query = "select target from cograil.audit_log where id > %(before)s and action = %(action)s"
    audited = await lane.lab.rows(query, before=before, action=f"bulk {verb}")
    if audited != [(job_id,) for job_id, *_ in jobs]:
        run.violations.append(f"there is {jobs}, but the audit log says {audited}")
    job = jobs[0][0] if jobs else await begin(lane, verb, mark)
    await lane.help_with("orchestrator", "worker")
    await lane.ended(job)
    scenario = Scenario("bulk", "", "completed", {"step": "completed"}, {})
    run.violations += await oracles.in_the_end(lane, scenario, job, 0)
    run.violations += await (see_cancelled if verb == "cancel" else see_retried)(lane, job)


Act = Callable[[Lane, Run], Awaitable[None]]
OPERATOR_ACTIONS: dict[str, Act] = {
    "pause_job": partial(_pause, "job"),
    "pause_queue": partial(_pause, "queue"),
    "pause_workflow": partial(_pause, "workflow"),
    "resume_job": partial(_resume, "job"),
    "resume_queue": partial(_resume, "queue"),
    "resume_workflow": partial(_resume, "workflow"),
    "submit_paused": _submit_paused,
    "approve": partial(_answer, "approve"),
    "reject": partial(_answer, "reject"),
    "answer_too_late": _answer_too_late,
    "cancel_child": _cancel_child,
    "cancel_unopened": cancel_unopened,
    "retry_in_family": _retry_in_family,
    "retry_in_family_too_late": _retry_in_family_too_late,
    "submit_family": _submit_family,
    "begin_cancel_many": partial(_bulk, "cancel"),
    "begin_retry_many": partial(_bulk, "retry"),
}
