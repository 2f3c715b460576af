"""Advance: lock, take the news, load, decide, write. The heart of every orchestrator."""

from __future__ import annotations

import random
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
    ChildJob,
    Dice,
    Happening,
    JobState,
    Outputs,
    Refused,
    Reported,
    Submitted,
    WantedJob,
)
from cograil.model.outcome import Completed
from cograil.model.workflow import NodeType, Workflow
from cograil.setting_parts import OutboundSettings
from cograil.settings import Settings
from cograil.store import jobs as store
from cograil.store import writing
from cograil.store.database import Transaction
from cograil.store.jobs import LockedJobs, News, Revoked
from cograil.store.places import NewsPlace
from cograil.store.writing import Batch
from cograil.verbs.allowance import StepAllowance
from cograil.verbs.catalog import Catalog
from cograil.verbs.children import new_child
from cograil.verbs.limits import write_and_hold
from cograil.verbs.measuring import note_joined, note_opened
from cograil.verbs.memory import Memory
from cograil.verbs.opening import open_submitted

NEWS_PER_PASS = 2000
MAX_LOADS = 3  # times that one pass loads outputs

Known = Mapping[str, Mapping[str, bytes | None]]  # the jobs whose nodes are known, and outputs of theirs
NOTHING_KNOWN: Known = {}
NOTHING_REVOKED = Revoked()


@dataclass(slots=True)
class Decider:
    """What every decision of a process needs beside the job: definitions, bounds, dice, its own id."""

    catalog: Catalog = field(default_factory=Catalog)
    memory: Memory | None = None
    bounds: Bounds = field(default_factory=Bounds)
    dice: Dice = random.random
    place: NewsPlace = field(default_factory=NewsPlace)
    owner: int | None = None
    strict_queues: bool = False  # nothing is submitted without a named queue
    outbound: OutboundSettings = field(default_factory=OutboundSettings)  # where callbacks may lead


def decider_of(settings: Settings) -> Decider:
    """What decisions need, with the bounds and rules of these settings."""
    return Decider(
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
    """What one pass did: how many jobs it advanced, when the first of them wants to wake, whether there
    may be more to do at once."""

    advanced: int
    wake_at: datetime | None = None
    is_full: bool = False
    remember: Callable[[], None] = lambda: None  # to be called once the pass is committed
    has_limits: bool = False  # a place under a limit may be free now, or wanted


async def advance_due(tx: Transaction, decider: Decider, limit: int, aside: Iterable[str] = ()) -> Pass:
    """Advance jobs that have news or are due. Nothing to do, or all of it in others' hands: 0.

    An error while deciding one job fails the whole pass, and nothing is written: one has then to find
    out by `advance_one` which job it is.
    """
    first = decider.place.begin()
    locked = await store.lock_jobs_with_news(tx, limit, aside, first)
    if first and not locked.states:
        locked = await store.lock_jobs_with_news(tx, limit, aside)
    if not locked.states:
        decider.place.note(None)
        return Pass(0)
    steps = StepAllowance(decider.bounds.node_steps)
    changes = await advance_locked(tx, decider, locked, limit=NEWS_PER_PASS, steps=steps)
    wakes = [change.wake_at for change in changes.values() if change.wake_at is not None]
    is_full = max(len(changes), locked.taken) >= limit // 2 or any(change.more for change in changes.values())
    decider.place.note(locked.first)
    known = decider.catalog.known
    has_limits = any([known[state.definition_id].has_limits for state in locked.states.values()])
    remember = partial(_remember, decider, locked, changes)
    return Pass(len(changes), min(wakes, default=None), is_full, remember, has_limits)


async def rehearse(tx: Transaction) -> None:
    """Go through a pass with no jobs, so that this connection has read and planned what passes need.

    The first jobs would wait for that otherwise, once for each connection.
    """
    locked = await store.lock_jobs_with_news(tx, 0)
    await store.take_inbox(tx, locked)
    await store.load_nodes(tx, locked, [])
    await writing.rehearse(tx)


def _remember(decider: Decider, locked: LockedJobs, changes: Mapping[str, Changes]) -> None:
    if decider.memory is not None:
        decider.memory.note(locked.states, changes, decider.catalog.known)


async def due_jobs(tx: Transaction, limit: int, aside: Iterable[str] = ()) -> list[str]:
    """Jobs that `advance_due` would take now, or fail to take."""
    return await store.find_due(tx, limit, aside)


async def advance_one(tx: Transaction, decider: Decider, job_id: str) -> None:
    """Advance one job by itself."""
    steps = StepAllowance(decider.bounds.node_steps)
    locked = await store.lock_jobs(tx, [job_id])
    await advance_locked(tx, decider, locked, limit=NEWS_PER_PASS, steps=steps)


async def advance_locked(
    tx: Transaction,
    decider: Decider,
    locked: LockedJobs,
    *,
    signals: Mapping[str, Sequence[Happening]] | None = None,
    revoke: Iterable[str] = (),
    limit: int = store.NO_LIMIT,
    steps: StepAllowance | None = None,
) -> dict[str, Changes]:
    """Advance these locked jobs, and write what was decided.

    Without `steps` only what evaluates quickly is decided here; orchestrators do the rest.

    Jobs in `revoke`, and those past their deadline, lose their tasks before their inbox is taken:
    what was reported before that counts, and nothing can be reported after.
    """
    batch = Batch()
    steps = steps or StepAllowance()
    timed = [state for state in locked.states.values() if state.deadline is not None]
    cut = {state.job_id for state in timed if is_past_deadline(state, tx.now)} | set(revoke)
    known = decider.memory.recall(locked.states.values()) if decider.memory is not None else {}
    revoked = await store.revoke_tasks(tx, locked, list(cut)) if cut else NOTHING_REVOKED
    batch.revoked_workers |= revoked.workers
    news = await store.take_inbox(tx, locked, store.NO_LIMIT if cut else limit)
    _add_news(news, revoked.began)
    if locked.new:
        batch.held_jobs += await open_submitted(
            tx,
            decider.catalog,
            locked,
            news,
            strict_queues=decider.strict_queues,
            outbound=decider.outbound,
        )
    await _load_nodes(tx, decider, locked, known)
    _add_news(news, signals or {})
    decided = await decide(tx, decider, locked.states, news, known, revoked=cut, steps=steps)
    if unrevoked := [job_id for job_id, changes in decided.items() if changes.needs_revoke]:
        decided |= await _decide_revoked(tx, decider, locked, unrevoked, batch, news, known, steps)
    for job_id, changes in decided.items():
        batch.add(locked.states[job_id], changes)
    if tracing.is_on():
        note_opened(batch, locked, decided, decider.catalog.known)
        await note_joined(tx, decider.catalog.known, locked.states, decided)
    await write_and_hold(tx, decider.catalog, batch, decider.owner)
    return decided


async def _decide_revoked(
    tx: Transaction,
    decider: Decider,
    locked: LockedJobs,
    ids: list[str],
    batch: Batch,
    news: News,
    known: Known,
    steps: StepAllowance,
) -> dict[str, Changes]:
    """Decide again for jobs that are to be cut short, with no task of theirs out any more.

    The inbox is taken in a new statement, which sees every report that was there before the tasks went.
    """
    those = LockedJobs({job_id: locked.states[job_id] for job_id in ids})
    revoked = await store.revoke_tasks(tx, those, ids)
    batch.revoked_workers |= revoked.workers
    _add_news(news, await store.take_inbox(tx, those))
    _add_news(news, revoked.began)
    locked.taken += those.taken
    return await decide(tx, decider, those.states, news, known, revoked=ids, steps=steps)


def _add_news(news: News, more: Mapping[str, Sequence[Happening]]) -> None:
    for job_id, happenings in more.items():
        news.setdefault(job_id, []).extend(happenings)


async def _load_nodes(tx: Transaction, decider: Decider, locked: LockedJobs, known: Known) -> None:
    """Load the nodes of all jobs but those that are known, and those whose only node came with its news."""
    workflows = await decider.catalog.load(tx, {state.definition_id for state in locked.states.values()})
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
    decider: Decider,
    states: Mapping[str, JobState],
    news: News,
    known: Known = NOTHING_KNOWN,
    revoked: Collection[str] = (),
    steps: StepAllowance | None = None,
) -> dict[str, Changes]:
    """Decide for each job; outputs that a decision asks for are loaded for all at once, then asked again.

    Of jobs in `revoked` no task is out any more. After `MAX_LOADS` the nodes that still lack outputs are
    left for another pass: each load repeats the decision.
    """
    steps = steps or StepAllowance()
    workflows = await decider.catalog.load(tx, {state.definition_id for state in states.values()})
    await _load_children_wake(tx, states, workflows)
    outputs = {job_id: _outputs_at_hand(known.get(job_id), news.get(job_id, ())) for job_id in states}
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
            dice=decider.dice,
            outputs=outputs[job_id],
            bounds=decider.bounds,
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
            jobs = await _prepare_children(tx, decider, states[job_id], decided[job_id].missing_jobs, steps)
            outputs[job_id].jobs = (outputs[job_id].jobs or {}) | jobs
        undecided = list(dict.fromkeys([*undecided, *wanting])) if wanting else undecided
    return decided


async def _prepare_children(
    tx: Transaction, decider: Decider, parent: JobState, wanted: Iterable[WantedJob], steps: StepAllowance
) -> dict[str, ChildJob | Refused]:
    """The jobs that these subworkflow nodes would begin, each with its first advance. Writes nothing."""
    prepared: dict[str, ChildJob | Refused] = {}
    for one in wanted:
        made = await new_child(tx, decider.catalog, parent, one, strict_queues=decider.strict_queues)
        if isinstance(made, Refused):
            prepared[one.node_id] = made
            continue
        workflow, state = made
        changes = await decide_first(tx, decider, state, steps)
        child = ChildJob(one.node_id, workflow.workflow_id, workflow.version, state, changes)
        prepared[one.node_id] = child
    return prepared


async def decide_first(
    tx: Transaction, decider: Decider, state: JobState, steps: StepAllowance | None = None
) -> Changes:
    """The first advance of a job that is being made; nothing of it can be out."""
    job_id = state.job_id
    news: News = {job_id: [Submitted()]}
    return (await decide(tx, decider, {job_id: state}, news, revoked=[job_id], steps=steps))[job_id]


def _outputs_at_hand(known: Mapping[str, bytes | None] | None, news: Iterable[Happening]) -> Outputs:
    """What is remembered, and what the news themselves carry, need not be loaded."""
    outputs = Outputs(dict(known) if known else {})
    for happening in news:
        if isinstance(happening, Reported) and isinstance(happening.outcome, Completed):
            outputs.raw[happening.node_id] = happening.outcome.output
    return outputs


async def _load_missing(
    tx: Transaction, decided: dict[str, Changes], asked: list[str], outputs: dict[str, Outputs]
) -> list[str]:
    """Load what these decisions lacked; the jobs that must be decided again."""
    nodes = [(job_id, name) for job_id in asked for name in decided[job_id].missing]
    parents = [(job_id, name) for job_id in asked for name in decided[job_id].missing_children]
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
