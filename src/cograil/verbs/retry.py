"""Retry: run a finished job again as a new job, or a failed node of a running job in place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import orjson

from cograil import tracing
from cograil.definitions import apply_inputs
from cograil.definitions.suggestions import hint_of_nodes, list_names
from cograil.engine.readiness import NextMove
from cograil.engine.retry_keys import KeyPlan, Rerun, has_key, plan_keys
from cograil.engine.skip_prediction import SkipPrediction, predict_skips
from cograil.errors import Conflict, JobNotFound, NodeNotFound, NotFinished
from cograil.model.idempotency_keys import KeyRoots
from cograil.model.ids import new_id
from cograil.model.job import JobState, NodeState, RetryRequested, shown_node_status
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Json, NodeType, Workflow
from cograil.store import locked_jobs as store
from cograil.store import retry_queries
from cograil.store.database import Transaction
from cograil.store.job_queries import list_failures
from cograil.store.locked_jobs import LockedJobs
from cograil.store.workflow_queries import is_paused
from cograil.store.write_batch import JobAttributes, WriteBatch
from cograil.verbs.advance import EngineContext, advance_locked, decide_first
from cograil.verbs.callback_targets import check_callback
from cograil.verbs.new_job import input_text, limit_of_new
from cograil.verbs.persist import persist
from cograil.verbs.workflow_ownership import check_retry

FROM_NODE = "--from NODE (`from_node` in the API)"


@dataclass(frozen=True, slots=True)
class Takeover:
    """The nodes that a new job keeps, and the fan-outs whose failed children run again."""

    kept: frozenset[str]
    reopened: frozenset[str]


@dataclass(frozen=True, slots=True)
class RetryForecast:
    """The effect of a retry. `reopened` are fan-outs of which only the children that did not complete run.

    `outdated` are kept nodes whose output was computed from inputs that now change, with these inputs.
    `skipped` are nodes behind a branch that a kept choice did not take. Of the nodes that run again,
    `same_keys` keep their idempotency keys; `new_keys` had completed before and get new ones.
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
    """A finished job, and what a new job keeps of it."""

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
    """The job to retry, locked, and the selected node."""

    locked: LockedJobs
    state: JobState
    workflow: Workflow
    node_id: str | None
    node: NodeState | None


async def retry(
    tx: Transaction,
    engine_context: EngineContext,
    job_id: str,
    node_id: str | None = None,
    *,
    by: str = "",
    inputs: Mapping[str, Json] | None = None,
    trace_parent: str | None = None,
    labels: Mapping[str, str] | None = None,
    new_keys: bool = False,
) -> str:
    """Run again every node that did not complete; return the id of the job in which they run.

    A finished job is final: a new job keeps its completed nodes; with `node_id`, that node and all nodes
    after it run again. `inputs` replace inputs of the same names; outputs that kept nodes computed from the
    old inputs stay (see `preview_retry`). `labels` are added to the labels of the old job. In a running job
    only a failed node can be retried, in place. Nodes that had not completed keep their idempotency keys
    and completed ones get new keys; with `new_keys` all of them get new keys. Raises JobNotFound,
    NodeNotFound, NotFinished, InvalidInput, or Conflict when nothing can run again, or a kept choice would
    skip the node again.
    """
    target = await _find(tx, engine_context, job_id, node_id)
    if target.state.status in JOB_TERMINAL:
        plan = await _plan(tx, target, inputs, new_keys)
        return await _as_new_job(tx, engine_context, plan, by, trace_parent, labels or {})
    failed = await _require_failed(tx, target, inputs, new_keys)
    if failed.parent is not None:
        target.state.nodes[failed.node_id] = failed
    signals = {job_id: [RetryRequested(failed.node_id, by)]}
    await advance_locked(tx, engine_context, target.locked, signals=signals)
    return job_id


async def preview_retry(
    tx: Transaction,
    engine_context: EngineContext,
    job_id: str,
    node_id: str | None = None,
    *,
    inputs: Mapping[str, Json] | None = None,
    new_keys: bool = False,
) -> RetryForecast:
    """Return what `retry` would do with the same arguments. Changes nothing; raises the same errors."""
    target = await _find(tx, engine_context, job_id, node_id)
    if target.state.status in JOB_TERMINAL:
        return _preview_new_job(await _plan(tx, target, inputs, new_keys))
    failed = await _require_failed(tx, target, inputs, new_keys)
    nodes = await retry_queries.load_nodes(tx, job_id)
    after = _descendants(target.workflow, failed.parent or failed.node_id)
    completed = tuple(name for name in target.workflow.nodes if _is_completed(nodes.get(name)))
    follow = [name for name in target.workflow.nodes if name in after and name not in completed]
    skipped = tuple(name for name in follow if _is_unwanted(nodes.get(name)))
    again = (failed.node_id, *(name for name in follow if name not in skipped))
    keyed = tuple(name for name in again if name == failed.node_id or has_key(target.workflow.nodes[name]))
    return RetryForecast(job_id, True, completed, again, skipped=skipped, same_keys=keyed)


async def _find(tx: Transaction, engine_context: EngineContext, job_id: str, node_id: str | None) -> _Found:
    locked = await store.lock_jobs(tx, [job_id])
    if job_id not in locked.states:
        raise JobNotFound(job_id)
    state = locked.states[job_id]
    workflow = await engine_context.definitions.get(tx, state.definition_id)
    node = None if node_id is None else await retry_queries.load_node(tx, job_id, node_id)
    if node is None and node_id is not None and node_id not in workflow.nodes:
        raise NodeNotFound(job_id, node_id, hint_of_nodes(node_id, workflow.nodes))
    return _Found(locked, state, workflow, node_id, node)


async def _require_failed(
    tx: Transaction, target: _Found, inputs: Mapping[str, Json] | None, new_keys: bool
) -> NodeState:
    """Return the node of a running job to retry in place."""
    job_id, status = target.state.job_id, target.state.status
    if target.node_id is None:
        wanted = f"name a failed node with {FROM_NODE} to retry it in place"
        raise NotFinished(f"job {job_id} is still {status}; {wanted}; {await _failed_nodes(tx, target)}")
    if inputs:
        raise NotFinished(f"job {job_id} is still {status}; only a new job can have other inputs")
    if new_keys:
        raise NotFinished(f"job {job_id} is still {status}; only a new job can have new idempotency keys")
    if target.node is None or target.node.status != "failed":
        what = "pending" if target.node is None else target.node.status
        message = f"node {target.node_id!r} of job {job_id} is {shown_node_status(what)}, not failed"
        raise Conflict(f"{message}; {await _failed_nodes(tx, target)}")
    return target.node


async def _failed_nodes(tx: Transaction, target: _Found) -> str:
    """Return the nodes and children of a running job that can be retried in place, as part of a sentence."""
    failures = await list_failures(tx, target.state.job_id, tenant=target.state.tenant_id)
    if not failures:
        return "none of its nodes has failed"
    return f"its failed nodes: {list_names([failure['node_id'] for failure in failures])}"


def _is_completed(node: NodeState | None) -> bool:
    return node is not None and node.status == "completed"


def _is_unwanted(node: NodeState | None) -> bool:
    return node is not None and node.skip_reason == NextMove.SKIP_BRANCH.value


async def _plan(tx: Transaction, target: _Found, inputs: Mapping[str, Json] | None, new_keys: bool) -> _Plan:
    old, workflow = target.state, target.workflow
    check_retry(workflow, inputs)
    if target.node_id is None and old.status == "completed":
        wanted = f"name the node from which to run it again with {FROM_NODE}"
        raise Conflict(f"job {old.job_id} is completed; {wanted}; its nodes: {list_names(workflow.nodes)}")
    nodes = await retry_queries.load_nodes(tx, old.job_id)
    takeover = decide_takeover(workflow, nodes, target.node_id)
    prediction = predict_skips(workflow, {name: nodes[name] for name in takeover.kept})
    if target.node_id in prediction.skipped:
        raise Conflict(_why_skipped(prediction, target.node_id))
    before = orjson.loads(old.input_text)
    changed = {name: value for name, value in (inputs or {}).items() if _differs(before, name, value)}
    text = old.input_text
    if changed or old.started_at is None:  # the submission may have been refused at its first advance
        job_input = apply_inputs(workflow, before | changed)
        limit_of_new(old.tenant_id, workflow, job_input)
        text = input_text(job_input)
    skipped = frozenset(prediction.skipped)
    job_id = new_id()
    keys = await _plan_keys(tx, target, nodes, takeover, job_id, is_new=new_keys)
    return _Plan(old, workflow, target.node_id, nodes, takeover, skipped, text, tuple(changed), job_id, keys)


async def _plan_keys(
    tx: Transaction,
    target: _Found,
    nodes: dict[str, NodeState],
    takeover: Takeover,
    job_id: str,
    *,
    is_new: bool,
) -> KeyPlan:
    rerun = [name for name in nodes if name not in takeover.kept | takeover.reopened]
    fans = [name for name in rerun if nodes[name].total is not None]
    children = await retry_queries.completed_children(tx, target.state.job_id, fans) if fans else {}
    again = Rerun(nodes, takeover.kept, takeover.reopened, children, target.node)
    roots = KeyRoots.read(target.state.key_roots, target.state.job_id)
    return plan_keys(target.workflow, roots, again, job_id, is_new=is_new)


def _why_skipped(prediction: SkipPrediction, node_id: str) -> str:
    """Return which choice must be made again for this node to run."""
    edge = next(prediction.untaken_branches(node_id))
    choice = prediction.known[edge.source]
    wanted = " or ".join(repr(name) for name in sorted(edge.branches or ()))
    return (
        f"node {node_id!r} would be skipped: it is behind the branch {wanted} of {edge.source!r}, which took "
        f"{choice.taken_branch!r} and is kept; retry from {edge.source!r} or before it"
    )


def _differs(before: Mapping[str, Json], name: str, value: Json) -> bool:
    """Compare as JSON: 1, 1.0 and true are equal in Python, but different inputs."""
    return name not in before or input_text({name: before[name]}) != input_text({name: value})


def _preview_new_job(plan: _Plan) -> RetryForecast:
    takeover = plan.takeover
    stays = takeover.kept | takeover.reopened
    return RetryForecast(
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
    """Return the kept nodes whose templates read a changed input."""
    read = {}
    for name in _in_order(plan.workflow, stays):
        templates = plan.workflow.nodes[name].templates
        names = tuple(changed for changed in plan.changed if any(t.reads_input(changed) for t in templates))
        if names:
            read[name] = names
    return read


async def _as_new_job(
    tx: Transaction,
    engine_context: EngineContext,
    plan: _Plan,
    by: str,
    trace_parent: str | None,
    labels: Mapping[str, str],
) -> str:
    old, workflow, nodes, takeover = plan.old, plan.workflow, plan.nodes, plan.takeover
    job_id = plan.job_id
    again = plan.node_id or ""
    ended = await retry_queries.copy_nodes(tx, old.job_id, job_id, takeover.kept, takeover.reopened, again)
    attributes = await retry_queries.load_attributes(tx, old.job_id)
    if labels:
        attributes["labels"] = {**(attributes["labels"] or {}), **labels}
    if old.started_at is None and attributes["callback"] is not None:
        check_callback(attributes["callback"], engine_context.outbound)
    new = _new_state(tx, plan, job_id, by, _taken_over(nodes, takeover, ended))
    new.key_roots = plan.keys.roots
    new.is_held = workflow.limit is not None
    new.is_paused = await is_paused(tx, old.tenant_id, workflow.workflow_id)
    new.trace_parent, new.trace_caller = tracing.new_job_traceparent(job_id, trace_parent), trace_parent
    if takeover.reopened:
        new.children_wake_at = tx.now
    if workflow.timeout_seconds is not None:
        new.deadline = tx.now + timedelta(seconds=workflow.timeout_seconds)
    changes = await decide_first(tx, engine_context, new)
    changes.to_expand.extend(
        name for name in takeover.reopened if nodes[name].expanded < (nodes[name].total or 0)
    )
    batch = WriteBatch()
    batch.add_new(new, changes, JobAttributes(workflow.workflow_id, workflow.version, **attributes))
    await persist(tx, engine_context.definitions, batch, engine_context.owner)
    if new.key_roots is not None:
        await retry_queries.keep_key_roots(tx, job_id, new.key_roots)
    return job_id


def decide_takeover(workflow: Workflow, nodes: dict[str, NodeState], node_id: str | None) -> Takeover:
    """Keep completed nodes; reopen a fan-out whose children did not all complete."""
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
    descendants: set[str] = set()
    queue = deque(workflow.nodes[node_id].successors if node_id is not None else ())
    while queue:
        name = queue.popleft()
        if name not in descendants:
            descendants.add(name)
            queue.extend(workflow.nodes[name].successors)
    return descendants


def _taken_over(
    nodes: dict[str, NodeState], takeover: Takeover, ended: dict[str, int]
) -> dict[str, NodeState]:
    kept_nodes = {name: nodes[name] for name in takeover.kept}
    reopened = {
        name: replace(
            nodes[name], status="running", ended=ended[name], failed=0, error=None, finished_at=None
        )
        for name in takeover.reopened
    }
    return kept_nodes | reopened


def _after(now: datetime, nodes: Mapping[str, NodeState]) -> datetime:
    """Return now, but at least the end of every kept node: the lock may have waited for the job's last
    pass.
    """
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
        trace_link=tracing.job_traceparent(old.job_id, old.trace_parent),
        retry_of=old.job_id,
        nodes=nodes,
    )
