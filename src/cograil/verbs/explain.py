"""Explain: why a job is not done, as an ordered list of blockers, computed from the database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cograil.engine.states import JOB_TERMINAL, NODE_TERMINAL
from cograil.errors import JobNotFound
from cograil.model.workflow import Workflow
from cograil.store import explaining, reading
from cograil.store.database import Transaction
from cograil.store.explaining import EngineState, Moment, TaskGroup
from cograil.verbs.catalog import Catalog

ORDER = (
    "no_orchestrator",
    "no_worker",
    "backoff",
    "waiting_until",
    "queued",
    "running",
    "news",
    "dependency",
)


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason, the most fundamental first. `kind` is one of ORDER."""

    kind: str
    message: str
    node_id: str | None = None
    until: datetime | None = None
    data: dict[str, Any] = field(default_factory=dict)


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
    engine = await explaining.engine_state(tx, job_id)
    blockers = [
        *_of_engine(engine),
        *(_of_task(group, engine) for group in await explaining.task_groups(tx, job_id)),
        *(_of_moment(moment) for moment in await explaining.moments(tx, job_id)),
        *_of_start(job),
        *await _of_dependencies(tx, job_id, workflow, tenant),
    ]
    blockers.sort(key=lambda blocker: ORDER.index(blocker.kind))
    return Explanation(job_id, job["status"], tuple(blockers))


def _of_engine(engine: EngineState) -> Iterator[Blocker]:
    if engine.orchestrators == 0:
        yield Blocker("no_orchestrator", "no orchestrator is running; start one with `cograil orchestrator`")
    if engine.news:
        assert engine.oldest_news_at is not None
        age = (engine.now - engine.oldest_news_at).total_seconds()
        message = f"{engine.news} news for {age:.1f} s, to be taken by an orchestrator"
        yield Blocker("news", message, data={"news": engine.news, "age_seconds": age})


def _of_task(group: TaskGroup, engine: EngineState) -> Blocker:
    who = _who(group.node_id, group.parent, group.tasks)
    node_id = group.parent or group.node_id
    data = {"queue": group.queue, "handler": group.handler, "tasks": group.tasks}
    if group.state == "running":
        seconds = (engine.now - (group.started_at or engine.now)).total_seconds()
        message = f"{who} running on {group.worker} for {seconds:.1f} s"
        return Blocker("running", message, node_id, data=data | {"worker": group.worker, "seconds": seconds})
    if group.workers_able == 0:
        return Blocker("no_worker", f"{who} waiting: {_lack(group)}", node_id, data=data)
    message = (
        f"{who} queued on {group.queue!r} behind {group.ahead} tasks; {group.workers_able} workers can run it"
    )
    return Blocker("queued", message, node_id, data=data | {"ahead": group.ahead})


def _lack(group: TaskGroup) -> str:
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


def _of_start(job: dict[str, Any]) -> Iterator[Blocker]:
    if job["status"] == "pending" and job["not_before"] is not None:
        until = job["not_before"]
        yield Blocker("waiting_until", f"the job starts at {until.isoformat()}", None, until)


async def _of_dependencies(tx: Transaction, job_id: str, workflow: Workflow, tenant: str) -> list[Blocker]:
    nodes = await reading.list_nodes(tx, job_id, workflow, tenant=tenant, children=False)
    status = {view["node_id"]: view["status"] for view in nodes}
    blockers = []
    for name, node in workflow.nodes.items():
        waits_for = [p for p in node.predecessors if status[p] not in NODE_TERMINAL]
        if status[name] == "pending" and waits_for:
            listed = ", ".join(f"{p} ({status[p]})" for p in waits_for)
            blockers.append(
                Blocker("dependency", f"{name} waits for {listed}", name, data={"nodes": waits_for})
            )
    return blockers


def _who(node_id: str, parent: str | None, count: int) -> str:
    if parent is None:
        return f"{node_id} is"
    return f"{count} children of {parent} are" if count > 1 else f"{node_id} is"
