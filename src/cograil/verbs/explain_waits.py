"""Blockers that people and limits cause: pauses, limits with their holders, rates, approvals, children."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from cograil.model.workflow import NodeType
from cograil.store import explain_queries, job_queries
from cograil.store.explain_queries import HeldBy
from cograil.verbs.blockers import JobBlocker, Look

MAX_SHOWN = 20


async def find_pauses(look: Look) -> Iterable[JobBlocker]:
    """Report who paused the job, its workflow or its queue, since when and why."""
    blockers = []
    for kind, name, by, reason, at in await explain_queries.pauses(look.tx, look.job_id):
        what = "the job" if kind == "job" else f"the {kind} {name!r}"
        who = f" by {by}" if by else ""
        why = f": {reason}" if reason else ""
        message = f"{what} was paused{who} at {at.isoformat()}{why}; `cograil resume {kind} {name}`"
        blockers.append(
            JobBlocker("paused", message, data={"kind": kind, "name": name, "by": by, "reason": reason})
        )
    return blockers


async def find_limits(look: Look) -> Iterable[JobBlocker]:
    """Report the jobs that hold the slots of a limit, or the time at which a rate allows the next job."""
    return [
        blocker
        for held in await explain_queries.held_by(look.tx, look.job_id)
        for blocker in await _find_limit_blockers(look, held)
    ]


async def _find_limit_blockers(look: Look, held: HeldBy) -> list[JobBlocker]:
    what = "the job is" if held.node_id is None else f"{held.node_id} is"
    data: dict[str, Any] = {"key": held.key, "concurrency": held.concurrency}
    blockers = []
    if held.concurrency is not None:
        jobs = await explain_queries.limit_holders(look.tx, held.what, held.key)
        message = f"{what} held by the limit of {held.concurrency} at a time for {held.key!r}"
        if jobs:
            message += f"; its slots are held by {', '.join(jobs[:3])}" + (
                " and others" if len(jobs) > 3 else ""
            )
        blockers.append(JobBlocker("limit", message, held.node_id, data=data | {"holders": jobs[:MAX_SHOWN]}))
    if held.rate is not None:
        until = look.engine.now + timedelta(seconds=held.wait_seconds or 0.0)
        message = (
            f"{what} held by the rate of {held.rate:g} in {held.per_seconds:g} s for {held.key!r}; "
            f"the next may begin at {until.isoformat()}"
        )
        blockers.append(JobBlocker("rate", message, held.node_id, until, data | {"rate": held.rate}))
    return blockers


def waiting_for_others(look: Look) -> set[str]:
    """Return the nodes that wait for a person or a child job."""
    kinds = (NodeType.APPROVAL, NodeType.SUBWORKFLOW)
    return {name for name, node in look.workflow.nodes.items() if node.type in kinds}


async def find_people_and_children(look: Look) -> Iterable[JobBlocker]:
    """Report approvals without an answer, and child jobs that have not ended."""
    waiting = waiting_for_others(look)
    if not waiting:
        return ()
    nodes = await job_queries.list_nodes(
        look.tx, look.job_id, look.workflow, tenant=look.tenant, children=False
    )
    return [
        _of_waiting(look, view)
        for view in nodes
        if view["node_id"] in waiting and view["status"] == "waiting"
    ]


def _at_most(view: dict[str, Any]) -> str:
    until = view["not_before"]
    return f", until {until.isoformat()} at most" if until is not None else ""


def _of_waiting(look: Look, view: dict[str, Any]) -> JobBlocker:
    name = view["node_id"]
    if look.workflow.nodes[name].type is NodeType.SUBWORKFLOW:
        child = view["child_job"] or {"job_id": None, "status": "gone"}
        hint = f"`cograil explain {child['job_id']}`"
        message = f"{name} waits for its child job {child['job_id']}, which is {child['status']}"
        message += f"{_at_most(view)}; {hint}"
        return JobBlocker("child", message, name, view["not_before"], {"child_job": child})
    request = view["input"] or {}
    who = " or ".join(request.get("approvers") or []) or "anybody"
    by = f" --by {request['approvers'][0]}" if request.get("approvers") else ""
    data = " --data '{...}'" if request.get("form") else ""
    hint = f"`cograil approve {look.job_id} {name}{by}{data}`"
    message = f"{name} waits for {who} to approve{_at_most(view)}: {request.get('message', '')}; {hint}"
    return JobBlocker(
        "approval", message, name, view["not_before"], {"approvers": request.get("approvers") or []}
    )
