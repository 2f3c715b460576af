"""More mistakes: at the doors, in the relay, and in what keeps, holds back and takes many at once.

Those without a mode show without any fault: they are there to see that the oracle looks at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.torture.split_transactions import commit_halfway

from cograil.engine import approvals
from cograil.http.server import dispatcher
from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.store import api_keys as stored_keys
from cograil.store import (
    bulk_queries,
    locked_jobs,
    outbox_queries,
    partition_queries,
    retention_queries,
    task_queries,
    write_batch,
)
from cograil.store import idempotency_queries as records
from cograil.store.database import Transaction
from cograil.store.http_worker_queries import HeldTask
from cograil.store.statements import Statement
from cograil.store.task_queries import Report
from cograil.verbs import http_workers, idempotency, leases, slots

NO_FAULT = ""


def without(statement: Statement, part: str, instead: str = "") -> Statement:
    """This statement without a part of it, which must be there."""
    if part not in statement.text:
        raise ValueError(f"{statement.name} has changed: this mutant must follow")
    return replace(statement, text=statement.text.replace(part, instead))


# -- doors -------------------------------------------------------------------------------------------


def _audit_apart() -> None:
    add_audits = stored_keys.add_audits

    async def commit_and_audit(tx: Transaction, entries: Any) -> None:
        await commit_halfway(tx, is_at_a_door=True)
        await add_audits(tx, entries)

    dispatcher.add_audits = commit_and_audit  # type: ignore[attr-defined]


def _answer_apart() -> None:
    answer = idempotency.answer

    async def commit_and_answer(tx: Transaction, *order: Any, **more: Any) -> bool:
        await commit_halfway(tx, is_at_a_door=True)
        return await answer(tx, *order, **more)

    idempotency.answer = commit_and_answer


class Anybody(str):
    """The name of the caller."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def _far_of_anybody() -> None:
    async def hold(
        tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None, lease_seconds: float
    ) -> HeldTask:
        assert fence is not None
        return HeldTask(0, Anybody(), WorkItem(task_id, fence, job_id, "far", 1, "", {}, 0.0))

    async def believe(tx: Transaction, held: HeldTask, outcome: Completed | Failed) -> None:
        await task_queries.report_tasks(tx, held.worker, held.worker_name, [Report(held.item, outcome)])

    http_workers.held_task, http_workers.report = hold, believe


def _revoke_nothing() -> None:
    async def say_so(tx: Transaction, key_id: str) -> bool:
        return True

    stored_keys.revoke_key = say_so


def _make_no_key() -> None:
    async def say_so(tx: Transaction, **facts: Any) -> None:
        pass

    stored_keys.make_key = say_so


# -- the relay ---------------------------------------------------------------------------------------


def _told_early() -> None:
    early = "set state = 'delivered', delivered_at = now(), ended_at = now(), tries = d.tries + 1"
    marking = without(outbox_queries.CLAIM_DELIVERIES, "set tries = d.tries + 1", early)
    lease = "lease_until = now() + %(lease)s * interval '1 second'"
    outbox_queries.CLAIM_DELIVERIES = without(marking, lease, "lease_until = null")


def _spread_apart() -> None:
    insert_deliveries = outbox_queries.insert_deliveries

    async def commit_and_insert(tx: Transaction, *order: Any, **more: Any) -> None:
        await commit_halfway(tx)
        await insert_deliveries(tx, *order, **more)

    outbox_queries.insert_deliveries = commit_and_insert


def _end_apart() -> None:
    insert_outbox = outbox_queries.insert_outbox

    async def commit_and_tell(tx: Transaction, *order: Any) -> bool:
        await commit_halfway(tx)
        return await insert_outbox(tx, *order)

    outbox_queries.insert_outbox = commit_and_tell  # type: ignore[assignment]


# -- what is kept ------------------------------------------------------------------------------------


def _rows_stay() -> None:
    delete_jobs = retention_queries.delete_jobs

    async def leave_rows(tx: Transaction, ids: Sequence[str], *, is_whole: bool = False) -> int:
        return await delete_jobs(tx, ids, is_whole=True)

    retention_queries.delete_jobs = leave_rows


def _history_lost() -> None:
    gone = " and not exists (select 1 from cograil.jobs j where j.id = e.job_id)"
    partition_queries.DELETE_LEFTOVERS = without(partition_queries.DELETE_LEFTOVERS, gone)


def _not_alone() -> None:
    open_to_all = without(task_queries.CLAIM_TASKS, " and not is_alone")
    task_queries.CLAIM_TASKS = without(open_to_all, "a.state = 'running' and a.is_alone", "false")
    task_queries.CLAIM_ALONE = without(task_queries.CLAIM_ALONE, "state = 'ready' and is_alone", "false")


def _open_nothing() -> None:
    async def pass_by(tx: Transaction, states: Any) -> None:
        pass

    locked_jobs.open_jobs = pass_by


# -- what holds back, and many at once ---------------------------------------------------------------


def _pause_unheeded() -> None:
    locked = locked_jobs._locked

    def wake_all(rows: Any) -> locked_jobs.LockedJobs:
        locked_states = locked(rows)
        for state in locked_states.states.values():
            state.is_paused = False
        return locked_states

    locked_jobs._locked = wake_all


def _rejected_is_approved() -> None:
    approvals.DECISIONS["reject"] = "approved"


def _bulk_apart() -> None:
    move_operation = bulk_queries.move_operation

    async def commit_and_move(tx: Transaction, operation: bulk_queries.BulkOperation) -> None:
        await commit_halfway(tx)
        await move_operation(tx, operation)

    bulk_queries.move_operation = commit_and_move


def _orphans_untold() -> None:
    write_batch.CANCEL_CHILDREN = without(write_batch.CANCEL_CHILDREN, "c.finished_at is null", "false")


# -- what apps hold ----------------------------------------------------------------------------------


def _fence_unheeded() -> None:
    async def say_so(tx: Transaction, *order: Any) -> bool:
        return True

    leases.heartbeat = leases.check = slots.heartbeat = say_so  # type: ignore[assignment]
    records.ANSWER_RECORD = without(records.ANSWER_RECORD, "and fence = %(fence)s and is_open")


def _give_apart() -> None:
    give = leases.give

    async def commit_and_give(tx: Transaction, *order: Any) -> bool:
        await commit_halfway(tx)
        return await give(tx, *order)

    leases.give = commit_and_give  # type: ignore[assignment]


def _refresh_loses() -> None:
    emptied = "set answer = null, fence = "
    records.REFRESH_RECORD = without(records.REFRESH_RECORD, "set fence = ", emptied)


Slip = tuple[str, str, str, str, str, tuple[str, ...], Callable[[], None]]
MORE_MUTANTS: Sequence[Slip] = (
    ("audit_apart", "a move is audited in another transaction", "door_cancel", "server", "kill9",
     ("cancel.",), _audit_apart),
    ("audit_apart_of_pauses", "the same for pauses", "door_pause", "server", "kill9", ("pause.",),
     _audit_apart),
    ("audit_apart_of_subscriptions", "the same for subscriptions", "door_subscribe", "server", "kill9",
     ("subscribe.", "resend.", "unsubscribe."), _audit_apart),
    ("answer_apart", "what a key was answered is kept in another transaction", "door_submit_once", "server",
     "kill9", ("submit.",), _answer_apart),
    ("far_of_anybody", "a worker elsewhere is believed whatever it holds", "door_far_worker_lost", "server",
     NO_FAULT, (), _far_of_anybody),
    ("revoke_nothing", "a key that is revoked works", "revoke_key", "client", NO_FAULT, (), _revoke_nothing),
    ("make_no_key", "a key is told that is none", "make_key", "client", NO_FAULT, (), _make_no_key),
    ("told_early", "a delivery is marked as told before it is sent", "relay", "relay", "kill9",
     ("claim_deliveries.", "relay."), _told_early),
    ("spread_apart", "the outbox is emptied and committed before there are deliveries", "relay", "relay",
     "kill9", ("spread.",), _spread_apart),
    ("end_apart", "a subscription ends, and the others are told of it in another transaction", "relay_gone",
     "relay", "kill9", ("record_gone.",), _end_apart),
    ("rows_stay", "old jobs go without their rows", "old", "orchestrator", NO_FAULT, (), _rows_stay),
    ("history_lost", "what is left of a period is deleted, also of jobs that are kept", "periods",
     "orchestrator", NO_FAULT, (), _history_lost),
    ("not_alone", "what must run alone is claimed with others", "alone", "worker", NO_FAULT, (), _not_alone),
    ("open_nothing", "a job from SQL begins without its inputs", "from_sql", "orchestrator", NO_FAULT, (),
     _open_nothing),
    ("pause_unheeded", "a paused job goes on", "paused", "orchestrator", NO_FAULT, (), _pause_unheeded),
    ("rejected_is_approved", "who rejects approves", "reject", "client", NO_FAULT, (), _rejected_is_approved),
    ("bulk_apart", "jobs are cancelled, and how far it is is written in another transaction", "cancel_many",
     "worker", "kill9", ("bulk.",), _bulk_apart),
    ("orphans_untold", "children are not told that their parent was cut short", "orphans", "orchestrator",
     NO_FAULT, (), _orphans_untold),
    ("fence_unheeded", "who was replaced may go on, and answer", "app", "client", "stop",
     ("app_begin.commit.after", "app_heartbeat"), _fence_unheeded),
    ("give_apart", "a lease is given to a job in another transaction", "app", "client", "kill9",
     ("app_give.",), _give_apart),
    ("refresh_loses", "an answer is gone while it is refreshed", "app", "client", "kill9", ("app_refresh.",),
     _refresh_loses),
)  # fmt: skip
