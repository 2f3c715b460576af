"""Retry: a finished job again as a new one, or a failed node of a running job."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import timedelta

from cograil.engine.states import JOB_TERMINAL
from cograil.errors import Conflict, JobNotFound, NodeNotFound, NotFinished
from cograil.model.ids import new_id
from cograil.model.job import JobState, NodeState, RetryAsked
from cograil.model.workflow import NodeType, Workflow
from cograil.store import jobs as store
from cograil.store import retrying
from cograil.store.database import Transaction
from cograil.store.jobs import LockedJobs
from cograil.store.writing import Batch, NewJob, write_batch
from cograil.verbs.advance import Decider, advance_locked
from cograil.verbs.submit import decide_new


@dataclass(frozen=True, slots=True)
class Takeover:
    """Which nodes a new job keeps, and which fan-outs it opens again for the children that failed."""

    kept: frozenset[str]
    reopened: frozenset[str]


async def retry(
    tx: Transaction, decider: Decider, job_id: str, node_id: str | None = None, *, by: str = ""
) -> str:
    """Run again what did not complete; the id of the job in which that happens.

    A finished job is final: a new job keeps its completed nodes; with `node_id`, that node and all that
    follows it run again. In a running job only a failed node can be retried, in place. Raises
    JobNotFound, NodeNotFound, NotFinished, or Conflict when there is nothing to run again.
    """
    locked = await store.lock_jobs(tx, [job_id])
    if job_id not in locked.states:
        raise JobNotFound(job_id)
    state = locked.states[job_id]
    workflow = await decider.catalog.get(tx, state.definition_id)
    node = None if node_id is None else await _find_node(tx, workflow, job_id, node_id)
    if state.status in JOB_TERMINAL:
        return await _as_new_job(tx, decider, workflow, state, node_id, by)
    if node_id is None:
        raise NotFinished(f"job {job_id} is still {state.status}; name a failed node to retry it in place")
    return await _in_place(tx, decider, locked, job_id, node_id, node, by)


async def _find_node(tx: Transaction, workflow: Workflow, job_id: str, node_id: str) -> NodeState | None:
    found = await retrying.load_node(tx, job_id, node_id)
    if found is None and node_id not in workflow.nodes:
        raise NodeNotFound(job_id, node_id)
    return found


async def _in_place(
    tx: Transaction,
    decider: Decider,
    locked: LockedJobs,
    job_id: str,
    node_id: str,
    node: NodeState | None,
    by: str,
) -> str:
    status = "pending" if node is None else node.status
    if node is None or status != "failed":
        raise Conflict(f"node {node_id!r} of job {job_id} is {status}, not failed")
    if node.parent is not None:
        locked.states[job_id].nodes[node_id] = node
    await advance_locked(tx, decider, locked, signals={job_id: [RetryAsked(node_id, by)]})
    return job_id


async def _as_new_job(
    tx: Transaction,
    decider: Decider,
    workflow: Workflow,
    old: JobState,
    node_id: str | None,
    by: str,
) -> str:
    nodes = await retrying.load_nodes(tx, old.job_id)
    if node_id is None and old.status == "completed":
        raise Conflict(f"job {old.job_id} is completed; name the node from which to run it again")
    takeover = decide_takeover(workflow, nodes, node_id)
    job_id = new_id()
    ended = await retrying.copy_nodes(tx, old.job_id, job_id, takeover.kept, takeover.reopened, node_id or "")
    words = await retrying.load_words(tx, old.job_id)
    new = _new_state(tx, old, job_id, by, _taken_over(nodes, takeover, ended))
    if takeover.reopened:
        new.children_wake_at = tx.now
    if workflow.timeout_seconds is not None:
        new.deadline = tx.now + timedelta(seconds=workflow.timeout_seconds)
    changes = await decide_new(tx, decider, workflow, new)
    changes.more.extend(name for name in takeover.reopened if nodes[name].expanded < (nodes[name].total or 0))
    batch = Batch()
    batch.add(new, changes, NewJob(workflow.workflow_id, workflow.version, **words))
    await write_batch(tx, batch, decider.owner)
    return job_id


def decide_takeover(workflow: Workflow, nodes: dict[str, NodeState], node_id: str | None) -> Takeover:
    """Completed nodes are kept; a fan-out whose children did not all complete is opened again."""
    parent = None if node_id is None or node_id in workflow.nodes else node_id.rsplit("__", 1)[0]
    again = _descendants(workflow, parent or node_id)
    if node_id is not None and parent is None:
        again.add(node_id)
    kept, reopened = set(), set()
    for name, state in nodes.items():
        node = workflow.nodes[name]
        if name in again or node.type is NodeType.END:
            continue
        if (
            node.type is NodeType.FAN_OUT
            and state.total is not None
            and (name == parent or state.failed or state.status != "completed")
        ):
            reopened.add(name)
        elif state.status == "completed":
            kept.add(name)
    return Takeover(frozenset(kept), frozenset(reopened))


def _descendants(workflow: Workflow, node_id: str | None) -> set[str]:
    found: set[str] = set()
    queue = deque(workflow.nodes[node_id].successors if node_id is not None else ())
    while queue:
        name = queue.popleft()
        if name not in found:
            found.add(name)
            queue.extend(workflow.nodes[name].successors)
    return found


def _taken_over(
    nodes: dict[str, NodeState], takeover: Takeover, ended: dict[str, int]
) -> dict[str, NodeState]:
    kept = {name: nodes[name] for name in takeover.kept}
    reopened = {
        name: replace(
            nodes[name], status="running", ended=ended[name], failed=0, error=None, finished_at=None
        )
        for name in takeover.reopened
    }
    return kept | reopened


def _new_state(tx: Transaction, old: JobState, job_id: str, by: str, nodes: dict[str, NodeState]) -> JobState:
    return JobState(
        job_id=job_id,
        tenant_id=old.tenant_id,
        definition_id=old.definition_id,
        status="pending",
        input_text=old.input_text,
        seq=0,
        created_at=tx.now,
        priority=old.priority,
        correlation_id=old.correlation_id,
        submitted_by=by or old.submitted_by,
        trace_parent=old.trace_parent,
        retry_of=old.job_id,
        nodes=nodes,
    )
