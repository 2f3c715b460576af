"""Advance: lock jobs, take their inputs, load, decide and write."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from cograil import engine, tracing
from cograil.engine.advance import Evaluation
from cograil.engine.timers import is_past_deadline
from cograil.model.job import (
    Bounds,
    Changes,
    ChildRefused,
    ChildRequest,
    Input,
    JobState,
    Outputs,
    PreparedChildJob,
    RandomFloat,
    Reported,
    Submitted,
)
from cograil.model.outcome import Completed
from cograil.model.workflow import NodeType, Workflow
from cograil.setting_sections import OutboundSettings
from cograil.settings import Settings
from cograil.store import locked_jobs as store
from cograil.store import write_batch
from cograil.store.database import Transaction
from cograil.store.locked_jobs import LockedJobs, News, Revoked
from cograil.store.scan_cursors import InboxCursor
from cograil.store.write_batch import WriteBatch
from cograil.verbs.allowance import StepAllowance
from cograil.verbs.child_jobs import new_child
from cograil.verbs.definition_cache import DefinitionCache
from cograil.verbs.job_cache import JobCache
from cograil.verbs.persist import persist
from cograil.verbs.sql_submissions import open_submitted
from cograil.verbs.telemetry import note_joined, note_opened

INPUTS_PER_PASS = 2000
MAX_LOADS = 3  # maximum number of times that one pass loads outputs

Known = Mapping[
    str, Mapping[str, bytes | None]
]  # the jobs whose nodes are loaded, and outputs of their nodes
NOTHING_KNOWN: Known = {}
NOTHING_REVOKED = Revoked()


@dataclass(slots=True)
class EngineContext:
    """What decisions need besides the job: caches, bounds, random numbers and the id of the process."""

    definitions: DefinitionCache = field(default_factory=DefinitionCache)
    job_cache: JobCache | None = None
    bounds: Bounds = field(default_factory=Bounds)
    random: RandomFloat = random_module.random
    inbox_cursor: InboxCursor = field(default_factory=InboxCursor)
    owner: int | None = None
    strict_queues: bool = False  # every task must name its queue
    outbound: OutboundSettings = field(default_factory=OutboundSettings)  # the URLs that callbacks may use


def make_engine_context(settings: Settings) -> EngineContext:
    """Return an engine context with the bounds and rules of these settings."""
    return EngineContext(
        bounds=Bounds(
            poison_limit=settings.worker.poison_limit,
            fan_out_items=settings.limits.fan_out_items,
            fan_in_bytes=settings.limits.fan_in_bytes,
            node_steps=settings.limits.expression_steps,
            node_seconds=settings.limits.expression_seconds,
        ),
        strict_queues=settings.queues.strict,
        outbound=settings.outbound,
    )


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one pass: the number of jobs it advanced, the earliest time at which one of them wakes,
    and whether another pass may find more work at once.
    """

    advanced: int
    wake_at: datetime | None = None
    is_full: bool = False
    on_commit: Callable[[], None] = lambda: None  # call it after the pass is committed
    has_limits: bool = False  # a limit may have a free slot, or a job may need one


async def advance_due(
    tx: Transaction, engine_context: EngineContext, limit: int, aside: Iterable[str] = ()
) -> Pass:
    """Advance jobs that have inputs or are due. Advances 0 jobs when none is due, or other processes hold
    them.

    An error while deciding one job fails the whole pass, and nothing is written. Call `advance_one` for
    each job to find the one that fails.
    """
    first = engine_context.inbox_cursor.begin()
    locked = await store.lock_jobs_with_news(tx, limit, aside, first)
    if first and not locked.states:
        locked = await store.lock_jobs_with_news(tx, limit, aside)
    if not locked.states:
        engine_context.inbox_cursor.record(None)
        return Pass(0)
    steps = StepAllowance(engine_context.bounds.node_steps)
    changes = await advance_locked(tx, engine_context, locked, limit=INPUTS_PER_PASS, steps=steps)
    wakes = [change.wake_at for change in changes.values() if change.wake_at is not None]
    is_full = max(len(changes), locked.taken) >= limit // 2 or any(
        change.to_expand for change in changes.values()
    )
    engine_context.inbox_cursor.record(locked.first)
    known = engine_context.definitions.known
    has_limits = any([known[state.definition_id].has_limits for state in locked.states.values()])
    on_commit = partial(_remember, engine_context, locked, changes)
    return Pass(len(changes), min(wakes, default=None), is_full, on_commit, has_limits)


async def rehearse(tx: Transaction) -> None:
    """Run an empty pass, so that this connection has prepared the statements of a pass.

    Without it, the first jobs on each connection wait for the preparation.
    """
    locked = await store.lock_jobs_with_news(tx, 0)
    await store.take_inbox(tx, locked)
    await store.load_nodes(tx, locked, [])
    await write_batch.rehearse(tx)


def _remember(engine_context: EngineContext, locked: LockedJobs, changes: Mapping[str, Changes]) -> None:
    if engine_context.job_cache is not None:
        engine_context.job_cache.update(locked.states, changes, engine_context.definitions.known)


async def due_jobs(tx: Transaction, limit: int, aside: Iterable[str] = ()) -> list[str]:
    """Return the jobs that `advance_due` would advance now."""
    return await store.find_due(tx, limit, aside)


async def advance_one(tx: Transaction, engine_context: EngineContext, job_id: str) -> None:
    """Advance this job only."""
    steps = StepAllowance(engine_context.bounds.node_steps)
    locked = await store.lock_jobs(tx, [job_id])
    await advance_locked(tx, engine_context, locked, limit=INPUTS_PER_PASS, steps=steps)


async def advance_locked(
    tx: Transaction,
    engine_context: EngineContext,
    locked: LockedJobs,
    *,
    signals: Mapping[str, Sequence[Input]] | None = None,
    revoke: Iterable[str] = (),
    limit: int = store.NO_LIMIT,
    steps: StepAllowance | None = None,
) -> dict[str, Changes]:
    """Advance these locked jobs and write the decisions.

    Without `steps`, only what evaluates quickly is decided here; orchestrators do the rest.

    Jobs in `revoke`, and jobs past their deadline, lose their tasks before their inbox is taken. Reports
    that arrived before count; later reports are refused.
    """
    batch = WriteBatch()
    steps = steps or StepAllowance()
    timed = [state for state in locked.states.values() if state.deadline is not None]
    cut = {state.job_id for state in timed if is_past_deadline(state, tx.now)} | set(revoke)
    known = (
        engine_context.job_cache.fill_nodes(locked.states.values())
        if engine_context.job_cache is not None
        else {}
    )
    revoked = await store.revoke_tasks(tx, locked, list(cut)) if cut else NOTHING_REVOKED
    batch.revoked_workers |= revoked.workers
    news = await store.take_inbox(tx, locked, store.NO_LIMIT if cut else limit)
    _add_inputs(news, revoked.began)
    if locked.new:
        batch.held_jobs += await open_submitted(
            tx,
            engine_context.definitions,
            locked,
            news,
            strict_queues=engine_context.strict_queues,
            outbound=engine_context.outbound,
        )
    await _load_nodes(tx, engine_context, locked, known)
    _add_inputs(news, signals or {})
    decided = await decide(tx, engine_context, locked.states, news, known, revoked=cut, steps=steps)
    if unrevoked := [job_id for job_id, changes in decided.items() if changes.needs_revoke]:
        decided |= await _decide_revoked(tx, engine_context, locked, unrevoked, batch, news, known, steps)
    for job_id, changes in decided.items():
        batch.add(locked.states[job_id], changes)
    if tracing.is_on():
        note_opened(batch, locked, decided, engine_context.definitions.known)
        await note_joined(tx, engine_context.definitions.known, locked.states, decided)
    await persist(tx, engine_context.definitions, batch, engine_context.owner)
    return decided


async def _decide_revoked(
    tx: Transaction,
    engine_context: EngineContext,
    locked: LockedJobs,
    ids: list[str],
    batch: WriteBatch,
    news: News,
    known: Known,
    steps: StepAllowance,
) -> dict[str, Changes]:
    """Decide again for jobs that end early, after all of their tasks are revoked.

    A new statement takes the inbox, so it sees every report that was recorded before the tasks were
    revoked.
    """
    subset = LockedJobs({job_id: locked.states[job_id] for job_id in ids})
    revoked = await store.revoke_tasks(tx, subset, ids)
    batch.revoked_workers |= revoked.workers
    _add_inputs(news, await store.take_inbox(tx, subset))
    _add_inputs(news, revoked.began)
    locked.taken += subset.taken
    return await decide(tx, engine_context, subset.states, news, known, revoked=ids, steps=steps)


def _add_inputs(news: News, more: Mapping[str, Sequence[Input]]) -> None:
    for job_id, happenings in more.items():
        news.setdefault(job_id, []).extend(happenings)


async def _load_nodes(
    tx: Transaction, engine_context: EngineContext, locked: LockedJobs, known: Known
) -> None:
    """Load the nodes of all jobs except those that are known, and those whose only node came with its
    input.
    """
    workflows = await engine_context.definitions.load(
        tx, {state.definition_id for state in locked.states.values()}
    )
    wanted = [
        job_id
        for job_id, state in locked.states.items()
        if job_id not in known
        and (len(state.nodes) != 1 or state.nodes.keys() != workflows[state.definition_id].nodes.keys())
    ]
    if wanted:
        await store.load_nodes(tx, locked, wanted)


async def decide(
    tx: Transaction,
    engine_context: EngineContext,
    states: Mapping[str, JobState],
    news: News,
    known: Known = NOTHING_KNOWN,
    revoked: Collection[str] = (),
    steps: StepAllowance | None = None,
) -> dict[str, Changes]:
    """Decide for each job. Load the outputs that decisions need for all jobs at once, then decide again.

    Jobs in `revoked` have no running task. Nodes that still lack outputs after `MAX_LOADS` wait for another
    pass, because each load repeats the decision.
    """
    steps = steps or StepAllowance()
    workflows = await engine_context.definitions.load(tx, {state.definition_id for state in states.values()})
    await _load_children_wake(tx, states, workflows)
    outputs = {job_id: _known_outputs(known.get(job_id), news.get(job_id, ())) for job_id in states}
    decided: dict[str, Changes] = {}
    undecided = list(states)
    loads = 0

    def advance(job_id: str, evaluation: Evaluation) -> Changes:
        state = states[job_id]
        return engine.advance(
            workflows[state.definition_id],
            state,
            news.get(job_id, ()),
            now=tx.now,
            random=engine_context.random,
            outputs=outputs[job_id],
            bounds=engine_context.bounds,
            is_revoked=job_id in revoked,
            evaluation=evaluation,
        )

    while undecided:
        for job_id in undecided:
            decided[job_id] = await steps.decide(job_id, advance, defers_missing=loads == MAX_LOADS)
        loads = min(loads + 1, MAX_LOADS)
        wanting = [job_id for job_id in undecided if decided[job_id].missing_jobs]
        undecided = await _load_missing(tx, decided, undecided, outputs)
        for job_id in wanting:
            jobs = await _prepare_children(
                tx, engine_context, states[job_id], decided[job_id].missing_jobs, steps
            )
            outputs[job_id].jobs = (outputs[job_id].jobs or {}) | jobs
        undecided = list(dict.fromkeys([*undecided, *wanting])) if wanting else undecided
    return decided


async def _prepare_children(
    tx: Transaction,
    engine_context: EngineContext,
    parent: JobState,
    wanted: Iterable[ChildRequest],
    steps: StepAllowance,
) -> dict[str, PreparedChildJob | ChildRefused]:
    """Return the jobs that these subworkflow nodes would start, each with its first advance. Writes
    nothing.
    """
    prepared: dict[str, PreparedChildJob | ChildRefused] = {}
    for request in wanted:
        made = await new_child(
            tx, engine_context.definitions, parent, request, strict_queues=engine_context.strict_queues
        )
        if isinstance(made, ChildRefused):
            prepared[request.node_id] = made
            continue
        workflow, state = made
        changes = await decide_first(tx, engine_context, state, steps)
        child = PreparedChildJob(request.node_id, workflow.workflow_id, workflow.version, state, changes)
        prepared[request.node_id] = child
    return prepared


async def decide_first(
    tx: Transaction, engine_context: EngineContext, state: JobState, steps: StepAllowance | None = None
) -> Changes:
    """Decide the first advance of a new job, which has no running tasks."""
    job_id = state.job_id
    news: News = {job_id: [Submitted()]}
    return (await decide(tx, engine_context, {job_id: state}, news, revoked=[job_id], steps=steps))[job_id]


def _known_outputs(known: Mapping[str, bytes | None] | None, news: Iterable[Input]) -> Outputs:
    """Return the cached outputs and the outputs that the inputs carry. They need not be loaded."""
    outputs = Outputs(dict(known) if known else {})
    for happening in news:
        if isinstance(happening, Reported) and isinstance(happening.outcome, Completed):
            outputs.raw[happening.node_id] = happening.outcome.output
    return outputs


async def _load_missing(
    tx: Transaction, decided: dict[str, Changes], job_ids: list[str], outputs: dict[str, Outputs]
) -> list[str]:
    """Load the outputs that these decisions lacked; return the jobs to decide again."""
    nodes = [(job_id, name) for job_id in job_ids for name in decided[job_id].missing]
    parents = [(job_id, name) for job_id in job_ids for name in decided[job_id].missing_children]
    if nodes:
        for job_id, name in nodes:
            outputs[job_id].raw[name] = None
        for job_id, name, output in await store.load_outputs(tx, nodes):
            outputs[job_id].raw[name] = output
    if parents:
        for job_id, name in parents:
            outputs[job_id].children[name] = []
        for job_id, parent, name, status, output in await store.load_children(tx, parents):
            outputs[job_id].children[parent].append((name, status, output))
    return list(dict.fromkeys(job_id for job_id, _ in (*nodes, *parents)))


async def _load_children_wake(
    tx: Transaction, states: Mapping[str, JobState], workflows: Mapping[int, Workflow]
) -> None:
    if not any([workflow.has_fan_outs for workflow in workflows.values()]):
        return
    fanned = [state for state in states.values() if _has_open_fan_out(state, workflows[state.definition_id])]
    if fanned:
        await store.load_children_wake(tx, fanned)


def _has_open_fan_out(state: JobState, workflow: Workflow) -> bool:
    return any(
        node.status == "running" and node.parent is None and workflow.nodes[name].type is NodeType.FAN_OUT
        for name, node in state.nodes.items()
    )
