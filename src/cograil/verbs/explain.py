"""Explain why a job has not ended: an ordered list of blockers, computed from the database.

Each function of SOURCES finds blockers of its kinds. A new kind needs a name in ORDER and a function there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cograil.errors import JobNotFound
from cograil.model.job import shown_node_status
from cograil.model.states import JOB_TERMINAL, NODE_TERMINAL
from cograil.store import explain_queries, job_queries
from cograil.store.database import Transaction
from cograil.store.explain_queries import EngineState, TaskGroup, WaitMoment
from cograil.verbs import explain_waits
from cograil.verbs.blockers import ORDER, JobBlocker, Look
from cograil.verbs.definition_cache import DefinitionCache

__all__ = ["ORDER", "JobBlocker", "JobExplanation", "explain"]

WHY_ALONE = (
    "workers died while running it, and the next loss must have no other cause; "
    "no action is needed, it starts as soon as a worker is idle"
)


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """A job's status and its blockers. A job that has ended has none."""

    job_id: str
    status: str
    blockers: tuple[JobBlocker, ...]


async def explain(
    tx: Transaction, definitions: DefinitionCache, job_id: str, tenant: str = "default"
) -> JobExplanation:
    """Return why this job has not ended. Raises JobNotFound."""
    job_and_definition = await job_queries.find_job(tx, job_id, tenant)
    if job_and_definition is None:
        raise JobNotFound(job_id)
    job, definition_id = job_and_definition
    if job["status"] in JOB_TERMINAL:
        return JobExplanation(job_id, job["status"], ())
    workflow = await definitions.get(tx, definition_id)
    look = Look(tx, job, workflow, await explain_queries.engine_state(tx, job_id), tenant)
    blockers = [blocker for source in SOURCES for blocker in await source(look)]
    blockers.sort(key=lambda blocker: ORDER.index(blocker.kind))
    return JobExplanation(job_id, job["status"], tuple(blockers))


async def _find_engine(look: Look) -> Iterable[JobBlocker]:
    return _engine_blockers(look.engine)


async def _find_tasks(look: Look) -> Iterable[JobBlocker]:
    groups = await explain_queries.task_groups(look.tx, look.job_id)
    return [blocker for group in groups for blocker in _task_blockers(group, look.engine)]


async def _find_timers(look: Look) -> Iterable[JobBlocker]:
    """Times at which nodes continue. Approvals and child jobs report their own times."""
    explained = explain_waits.waiting_for_others(look)
    moments = await explain_queries.moments(look.tx, look.job_id)
    return [
        _make_timer_blocker(moment)
        for moment in moments
        if moment.status != "waiting" or moment.node_id not in explained
    ]


async def _find_start(look: Look) -> Iterable[JobBlocker]:
    until = look.job["not_before"]
    if look.job["status"] != "pending" or until is None:
        return ()
    return [JobBlocker("waiting_until", f"the job starts at {until.isoformat()}", None, until)]


async def _find_deadline(look: Look) -> Iterable[JobBlocker]:
    """The deadline of the job. It blocks nothing: it ends the job, whatever the job waits for."""
    until = look.job["deadline"]
    if until is None:
        return ()
    left = (until - look.engine.now).total_seconds()
    message = f"the job fails at {until.isoformat()}, in {left:.0f} s, unless it has ended by then"
    if left <= 0:
        message = f"the job is past its deadline {until.isoformat()}; an orchestrator will end it"
    return [JobBlocker("deadline", message, None, until, {"left_seconds": left})]


def _engine_blockers(engine: EngineState) -> Iterator[JobBlocker]:
    if engine.orchestrators == 0:
        yield JobBlocker(
            "no_orchestrator", "no orchestrator is running; start one with `cograil orchestrator`"
        )
    if engine.news:
        assert engine.oldest_news_at is not None
        age = max(0.0, (engine.now - engine.oldest_news_at).total_seconds())
        message = f"{engine.news} inbox rows wait for an orchestrator, the oldest for {age:.1f} s"
        yield JobBlocker("news", message, data={"news": engine.news, "age_seconds": age})


def _task_blockers(group: TaskGroup, engine: EngineState) -> Iterator[JobBlocker]:
    who = _who(group.node_id, group.parent, group.tasks)
    node_id = group.parent or group.node_id
    data = {"queue": group.queue, "handler": group.handler, "tasks": group.tasks}
    if group.state == "held":
        return  # the blocker of the limit reports these
    if group.state == "running":
        seconds = (engine.now - (group.started_at or engine.now)).total_seconds()
        message = f"{who} running on {group.worker} for {seconds:.1f} s{_silence(group, engine)}"
        data |= {"worker": group.worker, "seconds": seconds, "is_silent": group.is_silent}
        yield JobBlocker("running", message, node_id, data=data)
        return
    if group.workers_able == 0:
        yield JobBlocker("no_worker", f"{who} queued: {_lack(group, engine)}", node_id, data=data)
    elif group.is_exclusive:
        yield JobBlocker("alone", f"{who} queued to run alone: {WHY_ALONE}", node_id, data=data)
    else:
        message = (
            f"{who} queued on {group.queue!r} behind {group.ahead} tasks; "
            f"{group.workers_able} workers can run it{_silent_workers(group)}"
        )
        yield JobBlocker("queued", message, node_id, data=data | {"ahead": group.ahead})
    if group.ahead_here:
        yield JobBlocker("priority", _position(group), node_id, data=data | _place(group))


def _silence(group: TaskGroup, engine: EngineState) -> str:
    """Describe how long the worker that runs the task has sent no heartbeat; it may have died before its
    lease ends.
    """
    if not group.is_silent or group.heard_at is None or group.lease_until is None:
        return ""
    heard = f", whose last heartbeat was {(engine.now - group.heard_at).total_seconds():.0f} s ago"
    if group.lease_until <= engine.now:
        return f"{heard}: its lease has expired, and an orchestrator will count the attempt as lost"
    return f"{heard}: unless it heartbeats by {group.lease_until.isoformat()} the attempt is lost"


def _silent_workers(group: TaskGroup) -> str:
    if not group.silent_able:
        return ""
    which = (
        "none of them"
        if group.silent_able == group.workers_able
        else f"only {group.workers_able - group.silent_able}"
    )
    return f", but {which} sent a heartbeat lately"


def _place(group: TaskGroup) -> dict[str, Any]:
    """Return the rank of a ready task among the tasks of its handler; rank 1 is claimed next."""
    assert group.ahead_here is not None
    return {
        "position": group.ahead_here + 1,
        "ahead": group.ahead_here,
        "ahead_by_priority": group.ahead_by_priority,
        "priority": group.priority,
    }


def _position(group: TaskGroup) -> str:
    place = _place(group)
    first = "it" if group.tasks == 1 else "the first of them"
    older = place["ahead"] - place["ahead_by_priority"]
    return (
        f"{_who(group.node_id, group.parent, group.tasks)} ready with priority {group.priority}: {first} is "
        f"number {place['position']} for {group.handler!r}, after {group.ahead_by_priority} of a higher "
        f"priority and {older} older ones"
    )


def _lack(group: TaskGroup, engine: EngineState) -> str:
    if group.workers == 0 and engine.worker_error is not None:
        cause = f"no worker is running: it could not start: {engine.worker_error}"
        return f"{cause}; correct the module, and the worker starts again"
    if group.workers == 0:
        return "no worker is running; start one with `cograil worker`"
    if group.workers_on_queue == 0:
        start = f"start one with `cograil worker --queue {group.queue}`"
        return f"no worker serves the queue {group.queue!r}; {start}"
    return f"no worker has the handler {group.handler!r}; start one with `cograil worker --app MODULE`"


def _make_timer_blocker(moment: WaitMoment) -> JobBlocker:
    who = _who(moment.node_id, moment.parent, moment.nodes)
    node_id = moment.parent or moment.node_id
    if moment.status == "waiting":
        return JobBlocker(
            "waiting_until", f"{who} waiting until {moment.until.isoformat()}", node_id, moment.until
        )
    error = moment.error or {}
    why = f"attempt {moment.attempt} failed ({error.get('code', 'unknown')})"
    message = f"{who} to be tried again at {moment.until.isoformat()}: {why}"
    return JobBlocker("backoff", message, node_id, moment.until, {"attempt": moment.attempt, "error": error})


async def _find_dependencies(look: Look) -> Iterable[JobBlocker]:
    nodes = await job_queries.list_nodes(
        look.tx, look.job_id, look.workflow, tenant=look.tenant, children=False
    )
    status = {view["node_id"]: view["status"] for view in nodes}
    blockers = []
    for name, node in look.workflow.nodes.items():
        waits_for = [p for p in node.predecessors if status[p] not in NODE_TERMINAL]
        if status[name] == "pending" and waits_for:
            listed = ", ".join(f"{p} ({shown_node_status(status[p])})" for p in waits_for)
            blockers.append(
                JobBlocker("dependency", f"{name} waits for {listed}", name, data={"nodes": waits_for})
            )
    return blockers


def _who(node_id: str, parent: str | None, count: int) -> str:
    if parent is None:
        return f"{node_id} is"
    return f"{count} children of {parent} are" if count > 1 else f"{node_id} is"


SOURCES: tuple[Callable[[Look], Awaitable[Iterable[JobBlocker]]], ...] = (
    _find_engine,
    explain_waits.find_pauses,
    explain_waits.find_limits,
    explain_waits.find_people_and_children,
    _find_tasks,
    _find_timers,
    _find_start,
    _find_dependencies,
    _find_deadline,
)
