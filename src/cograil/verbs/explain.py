"""Explain: why a job is not done, as an ordered list of blockers, computed from the database.

Each of SOURCES looks for blockers of its kinds; a new kind is a name in ORDER and a function there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cograil.engine.states import JOB_TERMINAL, NODE_TERMINAL
from cograil.errors import JobNotFound
from cograil.model.job import shown_node_status
from cograil.store import explaining, reading
from cograil.store.database import Transaction
from cograil.store.explaining import EngineState, Moment, TaskGroup
from cograil.verbs import holdups
from cograil.verbs.blockers import ORDER, Blocker, Look
from cograil.verbs.catalog import Catalog

__all__ = ["ORDER", "Blocker", "Explanation", "explain"]

WHY_ALONE = (
    "workers died while running it, and one more loss must be its own doing; "
    "nothing to do, it runs as soon as a worker is empty"
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A job's status and what stands between it and its end; nothing does once it has ended."""

    job_id: str
    status: str
    blockers: tuple[Blocker, ...]


async def explain(tx: Transaction, catalog: Catalog, job_id: str, tenant: str = "default") -> Explanation:
    """Why this job is not done. Raises JobNotFound."""
    found = await reading.find_job(tx, job_id, tenant)
    if found is None:
        raise JobNotFound(job_id)
    job, definition_id = found
    if job["status"] in JOB_TERMINAL:
        return Explanation(job_id, job["status"], ())
    workflow = await catalog.get(tx, definition_id)
    look = Look(tx, job, workflow, await explaining.engine_state(tx, job_id), tenant)
    blockers = [blocker for source in SOURCES for blocker in await source(look)]
    blockers.sort(key=lambda blocker: ORDER.index(blocker.kind))
    return Explanation(job_id, job["status"], tuple(blockers))


async def _of_engine(look: Look) -> Iterable[Blocker]:
    return _engine_blockers(look.engine)


async def _of_tasks(look: Look) -> Iterable[Blocker]:
    groups = await explaining.task_groups(look.tx, look.job_id)
    return [blocker for group in groups for blocker in _task_blockers(group, look.engine)]


async def _of_moments(look: Look) -> Iterable[Blocker]:
    """Not of approvals and children: what is told of those has its moment with it."""
    told = holdups.waiting_for_others(look)
    moments = await explaining.moments(look.tx, look.job_id)
    return [_of_moment(one) for one in moments if one.status != "waiting" or one.node_id not in told]


async def _of_start(look: Look) -> Iterable[Blocker]:
    until = look.job["not_before"]
    if look.job["status"] != "pending" or until is None:
        return ()
    return [Blocker("waiting_until", f"the job starts at {until.isoformat()}", None, until)]


async def _of_deadline(look: Look) -> Iterable[Blocker]:
    """Nothing holds the job up here: it is ended by the clock, whatever it still waits for."""
    until = look.job["deadline"]
    if until is None:
        return ()
    left = (until - look.engine.now).total_seconds()
    message = f"the job fails at {until.isoformat()}, in {left:.0f} s, unless it has ended by then"
    if left <= 0:
        message = f"the job is past its deadline {until.isoformat()}; an orchestrator will end it"
    return [Blocker("deadline", message, None, until, {"left_seconds": left})]


def _engine_blockers(engine: EngineState) -> Iterator[Blocker]:
    if engine.orchestrators == 0:
        yield Blocker("no_orchestrator", "no orchestrator is running; start one with `cograil orchestrator`")
    if engine.news:
        assert engine.oldest_news_at is not None
        age = max(0.0, (engine.now - engine.oldest_news_at).total_seconds())
        message = f"{engine.news} news for {age:.1f} s, to be taken by an orchestrator"
        yield Blocker("news", message, data={"news": engine.news, "age_seconds": age})


def _task_blockers(group: TaskGroup, engine: EngineState) -> Iterator[Blocker]:
    who = _who(group.node_id, group.parent, group.tasks)
    node_id = group.parent or group.node_id
    data = {"queue": group.queue, "handler": group.handler, "tasks": group.tasks}
    if group.state == "held":
        return  # a limit tells
    if group.state == "running":
        seconds = (engine.now - (group.started_at or engine.now)).total_seconds()
        message = f"{who} running on {group.worker} for {seconds:.1f} s{_silence(group, engine)}"
        data |= {"worker": group.worker, "seconds": seconds, "is_silent": group.is_silent}
        yield Blocker("running", message, node_id, data=data)
        return
    if group.workers_able == 0:
        yield Blocker("no_worker", f"{who} queued: {_lack(group, engine)}", node_id, data=data)
    elif group.is_alone:
        yield Blocker("alone", f"{who} queued to run alone: {WHY_ALONE}", node_id, data=data)
    else:
        message = (
            f"{who} queued on {group.queue!r} behind {group.ahead} tasks; "
            f"{group.workers_able} workers can run it{_silent_workers(group)}"
        )
        yield Blocker("queued", message, node_id, data=data | {"ahead": group.ahead})
    if group.ahead_here:
        yield Blocker("priority", _position(group), node_id, data=data | _place(group))


def _silence(group: TaskGroup, engine: EngineState) -> str:
    """What there is to fear of the worker that runs it: it may be dead, though its lease goes on."""
    if not group.is_silent or group.heard_at is None or group.lease_until is None:
        return ""
    heard = f", which was last heard of {(engine.now - group.heard_at).total_seconds():.0f} s ago"
    if group.lease_until <= engine.now:
        return f"{heard}: its lease is over, and an orchestrator will count the attempt as lost"
    return f"{heard}: unless it pulses by {group.lease_until.isoformat()} the attempt is lost"


def _silent_workers(group: TaskGroup) -> str:
    if not group.silent_able:
        return ""
    which = "none of them has" if group.silent_able == group.workers_able else f"{group.silent_able} have not"
    return f", but {which} been heard of lately"


def _place(group: TaskGroup) -> dict[str, Any]:
    """Where a ready task stands among those of its handler; 1 goes next."""
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


def _of_moment(moment: Moment) -> Blocker:
    who = _who(moment.node_id, moment.parent, moment.nodes)
    node_id = moment.parent or moment.node_id
    if moment.status == "waiting":
        return Blocker(
            "waiting_until", f"{who} waiting until {moment.until.isoformat()}", node_id, moment.until
        )
    error = moment.error or {}
    why = f"attempt {moment.attempt} failed ({error.get('code', 'unknown')})"
    message = f"{who} to be tried again at {moment.until.isoformat()}: {why}"
    return Blocker("backoff", message, node_id, moment.until, {"attempt": moment.attempt, "error": error})


async def _of_dependencies(look: Look) -> Iterable[Blocker]:
    nodes = await reading.list_nodes(look.tx, look.job_id, look.workflow, tenant=look.tenant, children=False)
    status = {view["node_id"]: view["status"] for view in nodes}
    blockers = []
    for name, node in look.workflow.nodes.items():
        waits_for = [p for p in node.predecessors if status[p] not in NODE_TERMINAL]
        if status[name] == "pending" and waits_for:
            listed = ", ".join(f"{p} ({shown_node_status(status[p])})" for p in waits_for)
            blockers.append(
                Blocker("dependency", f"{name} waits for {listed}", name, data={"nodes": waits_for})
            )
    return blockers


def _who(node_id: str, parent: str | None, count: int) -> str:
    if parent is None:
        return f"{node_id} is"
    return f"{count} children of {parent} are" if count > 1 else f"{node_id} is"


SOURCES: tuple[Callable[[Look], Awaitable[Iterable[Blocker]]], ...] = (
    _of_engine,
    holdups.of_pauses,
    holdups.of_limits,
    holdups.of_people_and_children,
    _of_tasks,
    _of_moments,
    _of_start,
    _of_dependencies,
    _of_deadline,
)
