"""Retry: a finished job again as a new one, or a failed node of a running job."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import orjson

from cograil import tracing
from cograil.definitions import apply_inputs
from cograil.definitions.hints import hint_of_nodes, list_names
from cograil.engine.foresight import Foresight, foresee
from cograil.engine.keys import KeyPlan, Rerun, has_key, plan_keys
from cograil.engine.readiness import Verdict
from cograil.engine.states import JOB_TERMINAL
from cograil.errors import Conflict, JobNotFound, NodeNotFound, NotFinished
from cograil.model.ids import new_id
from cograil.model.job import JobState, NodeState, RetryAsked, shown_node_status
from cograil.model.keys import KeyRoots
from cograil.model.workflow import Json, NodeType, Workflow
from cograil.store import jobs as store
from cograil.store import retrying
from cograil.store.database import Transaction
from cograil.store.jobs import LockedJobs
from cograil.store.reading import list_failures
from cograil.store.workflows import is_paused
from cograil.store.writing import Batch, NewJob
from cograil.verbs.advance import Decider, advance_locked, decide_first
from cograil.verbs.callbacks import check_callback
from cograil.verbs.limits import write_and_hold
from cograil.verbs.making import input_text, limit_of_new
from cograil.verbs.ownership import check_retry

FROM_NODE = "--from NODE (`from_node` in the API)"


@dataclass(frozen=True, slots=True)
class Takeover:
    """Which nodes a new job keeps, and which fan-outs it opens again for the children that failed."""

    kept: frozenset[str]
    reopened: frozenset[str]


@dataclass(frozen=True, slots=True)
class RetryPreview:
    """What a retry would do. `reopened` are fan-outs of which only the children that did not complete run.

    `outdated` are nodes that keep what they made of inputs that are changed now, with these inputs.
    `skipped` are nodes behind a branch that a kept choice did not take. Of the nodes that run again,
    `same_keys` have the idempotency keys they had, and `new_keys` new ones: they had completed before.
    """

    job_id: str
    is_in_place: bool
    kept: tuple[str, ...]
    again: tuple[str, ...]
    reopened: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    outdated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    same_keys: tuple[str, ...] = ()
    new_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """A finished job, and what a new one takes over from it."""

    old: JobState
    workflow: Workflow
    node_id: str | None
    nodes: dict[str, NodeState]
    takeover: Takeover
    skipped: frozenset[str]
    input_text: bytes
    changed: tuple[str, ...]
    job_id: str  # of the new job
    keys: KeyPlan


@dataclass(frozen=True, slots=True)
class _Found:
    """The job that is to be retried, locked, and the node that was named."""

    locked: LockedJobs
    state: JobState
    workflow: Workflow
    node_id: str | None
    node: NodeState | None


async def retry(
    tx: Transaction,
    decider: Decider,
    job_id: str,
    node_id: str | None = None,
    *,
    by: str = "",
    inputs: Mapping[str, Json] | None = None,
    trace_parent: str | None = None,
    labels: Mapping[str, str] | None = None,
    new_keys: bool = False,
) -> str:
    """Run again what did not complete; the id of the job in which that happens.

    A finished job is final: a new job keeps its completed nodes; with `node_id`, that node and all that
    follows it run again. `inputs` replace inputs of the same names; what a kept node made of the old
    ones stays (see `preview_retry`); `labels` are those that a new job has beside those of the old one.
    In a running job only a failed node can be retried, in place.
    What had not completed runs with the idempotency keys it had, what had completed with new ones; with
    `new_keys` all of it does.
    Raises JobNotFound, NodeNotFound, NotFinished, InvalidInput, or Conflict when there is nothing to run
    again, or the node would be skipped again because of a choice that is kept.
    """
    found = await _find(tx, decider, job_id, node_id)
    if found.state.status in JOB_TERMINAL:
        plan = await _plan(tx, found, inputs, new_keys)
        return await _as_new_job(tx, decider, plan, by, trace_parent, labels or {})
    failed = await _require_failed(tx, found, inputs, new_keys)
    if failed.parent is not None:
        found.state.nodes[failed.node_id] = failed
    signals = {job_id: [RetryAsked(failed.node_id, by)]}
    await advance_locked(tx, decider, found.locked, signals=signals)
    return job_id


async def preview_retry(
    tx: Transaction,
    decider: Decider,
    job_id: str,
    node_id: str | None = None,
    *,
    inputs: Mapping[str, Json] | None = None,
    new_keys: bool = False,
) -> RetryPreview:
    """What `retry` would do with the same arguments. Changes nothing; raises what it would raise."""
    found = await _find(tx, decider, job_id, node_id)
    if found.state.status in JOB_TERMINAL:
        return _preview_new_job(await _plan(tx, found, inputs, new_keys))
    failed = await _require_failed(tx, found, inputs, new_keys)
    nodes = await retrying.load_nodes(tx, job_id)
    after = _descendants(found.workflow, failed.parent or failed.node_id)
    completed = tuple(name for name in found.workflow.nodes if _is_completed(nodes.get(name)))
    follow = [name for name in found.workflow.nodes if name in after and name not in completed]
    skipped = tuple(name for name in follow if _is_unwanted(nodes.get(name)))
    again = (failed.node_id, *(name for name in follow if name not in skipped))
    keyed = tuple(name for name in again if name == failed.node_id or has_key(found.workflow.nodes[name]))
    return RetryPreview(job_id, True, completed, again, skipped=skipped, same_keys=keyed)


async def _find(tx: Transaction, decider: Decider, job_id: str, node_id: str | None) -> _Found:
    locked = await store.lock_jobs(tx, [job_id])
    if job_id not in locked.states:
        raise JobNotFound(job_id)
    state = locked.states[job_id]
    workflow = await decider.catalog.get(tx, state.definition_id)
    node = None if node_id is None else await retrying.load_node(tx, job_id, node_id)
    if node is None and node_id is not None and node_id not in workflow.nodes:
        raise NodeNotFound(job_id, node_id, hint_of_nodes(node_id, workflow.nodes))
    return _Found(locked, state, workflow, node_id, node)


async def _require_failed(
    tx: Transaction, found: _Found, inputs: Mapping[str, Json] | None, new_keys: bool
) -> NodeState:
    """The node of a running job that is to be tried again in place."""
    job_id, status = found.state.job_id, found.state.status
    if found.node_id is None:
        wanted = f"name a failed node with {FROM_NODE} to retry it in place"
        raise NotFinished(f"job {job_id} is still {status}; {wanted}; {await _failed_nodes(tx, found)}")
    if inputs:
        raise NotFinished(f"job {job_id} is still {status}; only a new job can have other inputs")
    if new_keys:
        raise NotFinished(f"job {job_id} is still {status}; only a new job can have new idempotency keys")
    if found.node is None or found.node.status != "failed":
        what = "pending" if found.node is None else found.node.status
        message = f"node {found.node_id!r} of job {job_id} is {shown_node_status(what)}, not failed"
        raise Conflict(f"{message}; {await _failed_nodes(tx, found)}")
    return found.node


async def _failed_nodes(tx: Transaction, found: _Found) -> str:
    """The nodes and children of a running job that can be retried in place, as part of a sentence."""
    failures = await list_failures(tx, found.state.job_id, tenant=found.state.tenant_id)
    if not failures:
        return "none of its nodes has failed"
    return f"its failed nodes: {list_names([failure['node_id'] for failure in failures])}"


def _is_completed(node: NodeState | None) -> bool:
    return node is not None and node.status == "completed"


def _is_unwanted(node: NodeState | None) -> bool:
    return node is not None and node.skip_reason == Verdict.SKIP_BRANCH.value


async def _plan(tx: Transaction, found: _Found, inputs: Mapping[str, Json] | None, new_keys: bool) -> _Plan:
    old, workflow = found.state, found.workflow
    check_retry(workflow, inputs)
    if found.node_id is None and old.status == "completed":
        wanted = f"name the node from which to run it again with {FROM_NODE}"
        raise Conflict(f"job {old.job_id} is completed; {wanted}; its nodes: {list_names(workflow.nodes)}")
    nodes = await retrying.load_nodes(tx, old.job_id)
    takeover = decide_takeover(workflow, nodes, found.node_id)
    foresight = foresee(workflow, {name: nodes[name] for name in takeover.kept})
    if found.node_id in foresight.skipped:
        raise Conflict(_why_skipped(foresight, found.node_id))
    before = orjson.loads(old.input_text)
    changed = {name: value for name, value in (inputs or {}).items() if _differs(before, name, value)}
    text = old.input_text
    if changed or old.started_at is None:  # it may have been refused when it was opened
        given = apply_inputs(workflow, before | changed)
        limit_of_new(old.tenant_id, workflow, given)
        text = input_text(given)
    skipped = frozenset(foresight.skipped)
    job_id = new_id()
    keys = await _plan_keys(tx, found, nodes, takeover, job_id, is_new=new_keys)
    return _Plan(old, workflow, found.node_id, nodes, takeover, skipped, text, tuple(changed), job_id, keys)


async def _plan_keys(
    tx: Transaction,
    found: _Found,
    nodes: dict[str, NodeState],
    takeover: Takeover,
    job_id: str,
    *,
    is_new: bool,
) -> KeyPlan:
    rerun = [name for name in nodes if name not in takeover.kept | takeover.reopened]
    fans = [name for name in rerun if nodes[name].total is not None]
    children = await retrying.completed_children(tx, found.state.job_id, fans) if fans else {}
    again = Rerun(nodes, takeover.kept, takeover.reopened, children, found.node)
    roots = KeyRoots.read(found.state.key_roots, found.state.job_id)
    return plan_keys(found.workflow, roots, again, job_id, is_new=is_new)


def _why_skipped(foresight: Foresight, node_id: str) -> str:
    """Which choice to make again for this node to run."""
    edge = next(foresight.choices_against(node_id))
    choice = foresight.known[edge.source]
    wanted = " or ".join(repr(name) for name in sorted(edge.branches or ()))
    return (
        f"node {node_id!r} would be skipped: it is behind the branch {wanted} of {edge.source!r}, which took "
        f"{choice.taken_branch!r} and is kept; retry from {edge.source!r} or before it"
    )


def _differs(before: Mapping[str, Json], name: str, value: Json) -> bool:
    """1 and 1.0 and true are equal in Python, and different inputs."""
    return name not in before or input_text({name: before[name]}) != input_text({name: value})


def _preview_new_job(plan: _Plan) -> RetryPreview:
    takeover = plan.takeover
    stays = takeover.kept | takeover.reopened
    return RetryPreview(
        plan.old.job_id,
        False,
        kept=_in_order(plan.workflow, takeover.kept),
        again=_in_order(plan.workflow, plan.workflow.nodes.keys() - stays - plan.skipped),
        reopened=_in_order(plan.workflow, takeover.reopened),
        changed=plan.changed,
        outdated=_outdated(plan, stays),
        skipped=_in_order(plan.workflow, plan.skipped),
        same_keys=tuple(name for name in plan.keys.same if name not in plan.skipped),
        new_keys=tuple(name for name in plan.keys.new if name not in plan.skipped),
    )


def _in_order(workflow: Workflow, names: Iterable[str]) -> tuple[str, ...]:
    chosen = set(names)
    return tuple(name for name in workflow.nodes if name in chosen)


def _outdated(plan: _Plan, stays: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The nodes that stay though their templates read a changed input."""
    read = {}
    for name in _in_order(plan.workflow, stays):
        templates = plan.workflow.nodes[name].templates
        names = tuple(one for one in plan.changed if any(t.reads_input(one) for t in templates))
        if names:
            read[name] = names
    return read


async def _as_new_job(
    tx: Transaction,
    decider: Decider,
    plan: _Plan,
    by: str,
    trace_parent: str | None,
    labels: Mapping[str, str],
) -> str:
    old, workflow, nodes, takeover = plan.old, plan.workflow, plan.nodes, plan.takeover
    job_id = plan.job_id
    again = plan.node_id or ""
    ended = await retrying.copy_nodes(tx, old.job_id, job_id, takeover.kept, takeover.reopened, again)
    words = await retrying.load_words(tx, old.job_id)
    if labels:
        words["labels"] = {**(words["labels"] or {}), **labels}
    if old.started_at is None and words["callback"] is not None:
        check_callback(words["callback"], decider.outbound)
    new = _new_state(tx, plan, job_id, by, _taken_over(nodes, takeover, ended))
    new.key_roots = plan.keys.roots
    new.is_held = workflow.limit is not None
    new.is_paused = await is_paused(tx, old.tenant_id, workflow.workflow_id)
    new.trace_parent, new.trace_caller = tracing.parent_of_new(job_id, trace_parent), trace_parent
    if takeover.reopened:
        new.children_wake_at = tx.now
    if workflow.timeout_seconds is not None:
        new.deadline = tx.now + timedelta(seconds=workflow.timeout_seconds)
    changes = await decide_first(tx, decider, new)
    changes.more.extend(name for name in takeover.reopened if nodes[name].expanded < (nodes[name].total or 0))
    batch = Batch()
    batch.add_new(new, changes, NewJob(workflow.workflow_id, workflow.version, **words))
    await write_and_hold(tx, decider.catalog, batch, decider.owner)
    if new.key_roots is not None:
        await retrying.keep_key_roots(tx, job_id, new.key_roots)
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


def _after(now: datetime, nodes: Mapping[str, NodeState]) -> datetime:
    """Now, but after the end of all that is kept: we may have waited for the last pass of the old job."""
    ends = [node.finished_at for node in nodes.values() if node.finished_at is not None]
    return max([now, *(end + timedelta(microseconds=1) for end in ends)])


def _new_state(tx: Transaction, plan: _Plan, job_id: str, by: str, nodes: dict[str, NodeState]) -> JobState:
    old = plan.old
    return JobState(
        job_id=job_id,
        tenant_id=old.tenant_id,
        definition_id=old.definition_id,
        status="pending",
        input_text=plan.input_text,
        seq=0,
        created_at=_after(tx.now, nodes),
        priority=old.priority,
        correlation_id=old.correlation_id,
        submitted_by=by or old.submitted_by,
        trace_link=tracing.parent_of(old.job_id, old.trace_parent),
        retry_of=old.job_id,
        nodes=nodes,
    )
