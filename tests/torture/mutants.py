"""Mistakes in the protocol, switched on in forked processes only: the harness must see each of them.

`more_mutants.py` has those of doors, relays and all that came later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.torture.more_mutants import MORE_MUTANTS
from tests.torture.split_transactions import commit_halfway

from cograil.engine.timers import is_past_deadline
from cograil.model.job import Changes, Input
from cograil.store import locked_jobs, task_queries, workflow_queries
from cograil.store.database import Transaction
from cograil.store.locked_jobs import LockedJobs, News
from cograil.store.statements import Statement
from cograil.store.write_batch import WriteBatch, write_batch
from cograil.store.write_columns import EVENTS
from cograil.verbs import advance as advancing
from cograil.verbs import cancel as cancelling
from cograil.verbs import limits as limiting
from cograil.verbs import tasks
from cograil.verbs.advance import EngineContext
from cograil.verbs.tasks import Tick


@dataclass(frozen=True)
class Mutant:
    """One mistake, where it should show, and how to make it."""

    name: str
    mistake: str
    scenario: str
    victim: str
    mode: str
    where: tuple[str, ...]
    switch_on: Callable[[], None]


# -- a report is matched by job and node, not by task and fence --------------------------------------

REPORT_BY_NODE = """
with given as (
  select * from unnest(%(step_id)s::bigint[], %(step_fence)s::int[], %(step_job_id)s::uuid[],
    %(step_node_id)s::text[], %(step_attempt)s::int[], %(step_output)s::json[], %(step_error)s::json[])
    as g(id, fence, job_id, node_id, attempt, output, error)
), done as (
  delete from cograil.tasks t using given g where g.job_id = t.job_id and g.node_id = t.node_id
  returning g.id as given_id, t.id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.fence, t.started_at,
            g.output, g.error
), told as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at,
                             output, error)
  select tenant_id, job_id, 'report', node_id, attempt, id, fence, %(name)s, started_at, output, error
  from done
), noted as (
  select pg_notify('cograil_news', '')
)
select done.given_id from done, noted
"""


def _report_by_node() -> None:
    task_queries.REPORT_TASKS = Statement("report_tasks", REPORT_BY_NODE, "")


# -- a checkpoint is saved for any sender ------------------------------------------------------------

CHECKPOINT_OF_ANYBODY = """
insert into cograil.checkpoints as c (job_id, node_id, attempt, phase, data)
values (%(job)s, %(node)s, %(attempt)s, %(phase)s, %(data)s::json)
on conflict (job_id, node_id) do update set attempt = excluded.attempt, data = excluded.data,
  number = c.number + 1
returning number
"""


def _checkpoint_of_anybody() -> None:
    task_queries.SAVE_CHECKPOINT = Statement("save_checkpoint", CHECKPOINT_OF_ANYBODY, "")


# -- a worker whose lease is over may claim ----------------------------------------------------------

ALIVE = (
    " and exists (select 1 from cograil.processes p"
    " where p.id = %(worker)s and p.state = 'alive' and p.lease_until > now())"
)


def _claim_of_the_dead() -> None:
    text = task_queries.CLAIM_TASKS.text
    if ALIVE not in text:
        raise ValueError("claim_tasks has changed: this mutant must follow")
    task_queries.CLAIM_TASKS = replace(task_queries.CLAIM_TASKS, text=text.replace(ALIVE, ""))


# -- events are written in a transaction of their own, after the state -------------------------------


def _events_apart() -> None:
    async def write_twice(tx: Transaction, batch: WriteBatch, owner: int | None) -> None:
        events = WriteBatch(events=batch.events)
        batch.events = EVENTS()
        await write_batch(tx, batch, owner)
        await commit_halfway(tx)
        await write_batch(tx, events, owner)

    limiting.write_batch = write_twice  # type: ignore[attr-defined]


# -- the inbox is taken and that is committed before the write ---------------------------------------


def _take_apart() -> None:
    take_inbox = locked_jobs.take_inbox

    async def take_and_commit(tx: Transaction, locked: LockedJobs, limit: int = locked_jobs.NO_LIMIT) -> News:
        news = await take_inbox(tx, locked, limit)
        await commit_halfway(tx)
        return news

    locked_jobs.take_inbox = take_and_commit  # type: ignore[assignment]


# -- cancel takes the inbox first and revokes the tasks after it -------------------------------------


def _cancel_takes_first() -> None:
    async def take_then_revoke(
        tx: Transaction,
        engine_context: EngineContext,
        locked: LockedJobs,
        *,
        signals: Mapping[str, Sequence[Input]] | None = None,
        revoke: Iterable[str] = (),
        limit: int = locked_jobs.NO_LIMIT,
    ) -> dict[str, Changes]:
        batch = WriteBatch()
        news = await locked_jobs.take_inbox(tx, locked, locked_jobs.NO_LIMIT)
        cut = {job_id for job_id, state in locked.states.items() if is_past_deadline(state, tx.now)} | set(
            revoke
        )
        batch.revoked_workers = (await locked_jobs.revoke_tasks(tx, locked, list(cut))).workers
        await advancing._load_nodes(tx, engine_context, locked, {})
        for job_id, signalled in (signals or {}).items():
            news.setdefault(job_id, []).extend(signalled)
        decided = await advancing.decide(tx, engine_context, locked.states, news, revoked=cut)
        for job_id, changes in decided.items():
            batch.add(locked.states[job_id], changes)
        await write_batch(tx, batch, engine_context.owner)
        return decided

    cancelling.advance_locked = take_then_revoke  # type: ignore[assignment, attr-defined]


# -- a rescue takes the tasks away in one transaction and says so in another -------------------------

TAKE_FROM_THE_DEAD = """
with dead as (
  update cograil.processes set state = 'dead'
  where id <> %(process)s and state in ('alive', 'draining') and lease_until < now() returning id, name
), gone as (
  delete from cograil.tasks where state = 'running' and worker_id in (select id from dead) returning *
)
select coalesce(json_agg(g), '[]') from (
  select g.*, dead.name from gone g join dead on dead.id = g.worker_id) as g
"""
SAY_LOST = """
insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at,
                           error)
select tenant_id, job_id, 'lost', node_id, attempt, id, fence, name, started_at, '{"code": "worker_lost"}'
from json_to_recordset(%(gone)s) as g(tenant_id text, job_id uuid, node_id text, attempt int, id bigint,
                                      fence int, name text, started_at timestamptz)
"""


def _rescue_apart() -> None:
    tick = tasks.tick_orchestrator

    async def rescue_then_say(tx: Transaction, process: int, *more: Any) -> Tick:
        gone = (await tx.fetch(Statement("mutant_rescue", TAKE_FROM_THE_DEAD, ""), process=process))[0][0]
        if gone != b"[]":
            await tx.execute(Statement("mutant_halfway", SAY_LOST, ""), gone=gone.decode())
        return await tick(tx, process, *more)

    tasks.tick_orchestrator = rescue_then_say  # type: ignore[assignment]


# -- a limit is decided without the lock of its name -------------------------------------------------


def _admit_unlocked() -> None:
    async def pass_by(tx: Transaction, kind: str, names: object) -> None:
        pass

    limiting.lock_names = pass_by  # type: ignore[attr-defined]


# -- a step is kept for any sender -------------------------------------------------------------------

STEP_OF_ANYBODY = """
with given as (
  select * from unnest(%(step_id)s::bigint[], %(step_fence)s::int[], %(step_job_id)s::uuid[],
    %(step_node_id)s::text[], %(step_attempt)s::int[], %(step_name)s::text[], %(step_output)s::json[])
    with ordinality as g(id, fence, job_id, node_id, attempt, name, output, number)
), saved as (
  insert into cograil.steps (job_id, node_id, name, attempt, output)
  select job_id, node_id, name, attempt, output from given where %(worker)s > 0 and %(name)s <> ''
  on conflict (job_id, node_id, name) do nothing
)
select number::int - 1 from given
"""


def _step_of_anybody() -> None:
    task_queries.SAVE_STEPS = Statement("save_steps", STEP_OF_ANYBODY, "")


# -- an event is told again when its answer was lost -------------------------------------------------


def _told_again() -> None:
    text = task_queries.ADD_ATTEMPT_EVENT.text
    if MARKED not in text:
        raise ValueError("add_attempt_event has changed: this mutant must follow")
    task_queries.ADD_ATTEMPT_EVENT = replace(task_queries.ADD_ATTEMPT_EVENT, text=text.replace(MARKED, ""))


MARKED = " where c.told is distinct from excluded.told"


# -- the rows of a handler are committed before its report -------------------------------------------


def _rows_apart() -> None:
    report_in_transaction = tasks.report_in_transaction

    async def commit_and_report(tx: Transaction, *order: Any) -> bool:
        await tx.connection.execute("commit")
        await tx.connection.execute("begin")
        return await report_in_transaction(tx, *order)

    tasks.report_in_transaction = commit_and_report  # type: ignore[assignment]


# -- who makes a job of a paused workflow does not hold on to the pause ------------------------------


def _pause_let_go() -> None:
    text = workflow_queries.FIND_WORKFLOW.text
    if KEPT_PAUSE not in text:
        raise ValueError("find_workflow has changed: this mutant must follow")
    workflow_queries.FIND_WORKFLOW = replace(
        workflow_queries.FIND_WORKFLOW, text=text.replace(KEPT_PAUSE, "")
    )


KEPT_PAUSE = " for key share"


_ALL: Sequence[tuple[Any, ...]] = (
    ("report_by_node", "a report is matched by job and node, not by task and fence", "dag", "worker", "wake",
     ("report.",), _report_by_node),
    ("checkpoint_of_anybody", "a checkpoint is saved for any sender", "dag", "worker", "wake",
     ("checkpoint.",), _checkpoint_of_anybody),
    ("claim_of_the_dead", "a worker whose lease is over may claim", "dag", "worker", "stop",
     ("claim.", "report.", "heartbeat."), _claim_of_the_dead),
    ("events_apart", "events are committed after the state they tell of", "dag", "orchestrator", "kill9",
     ("advance.",), _events_apart),
    ("take_apart", "the inbox is taken and committed before the write", "dag", "orchestrator", "kill9",
     ("advance.",), _take_apart),
    ("cancel_takes_first", "cancel takes the inbox before it revokes the tasks", "cancel", "client", "pause",
     ("cancel.",), _cancel_takes_first),
    ("rescue_apart", "a rescue deletes tasks and says `lost` in two transactions", "dag", "recovery", "kill9",
     ("tick.",), _rescue_apart),
    ("admit_unlocked", "a limit is decided without the lock of its name", "limits", "orchestrator", "pause",
     ("admit.let_go_tasks", "admit.admit_jobs", "admit.commit.before"), _admit_unlocked),
    ("step_of_anybody", "a step is kept for any sender", "steps", "worker", "wake", ("steps.",),
     _step_of_anybody),
    ("told_again", "an event is told again when its answer was lost", "telling", "worker", "commit_unknown",
     ("tell.",), _told_again),
    ("rows_apart", "the rows of a handler are committed before its report", "booked", "worker", "kill9",
     ("handler.",), _rows_apart),
    ("pause_let_go", "who makes a job of a paused workflow does not hold on to the pause", "submit_paused",
     "client", "pause", ("submit.",), _pause_let_go),
)  # fmt: skip
MUTANTS = {name: Mutant(name, *rest) for name, *rest in (*_ALL, *MORE_MUTANTS)}
