"""Tasks: what workers and orchestrators do with them, and how these processes register.

Every function takes the transaction first. Most run one statement, which checks the fence itself, and are
called with `Database.single`. The functions of the store that need no decision are re-exported here under
their own names, so that workers import nothing from the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from cograil import tracing
from cograil.model.outcome import Completed, WorkItem
from cograil.store import task_queries
from cograil.store.database import Transaction
from cograil.store.job_queries import workflows_of
from cograil.store.scan_cursors import ClaimCursors
from cograil.store.task_queries import (
    Report,
    Slots,
    Step,
    Tick,
    WorkerHeartbeat,
    add_attempt_event,
    claim_exclusive,
    heartbeat_worker,
    leave_process,
    register_process,
    report_in_transaction,
    save_checkpoint,
    save_progress,
    save_steps,
    tick_orchestrator,
)
from cograil.verbs.telemetry import note_ended

__all__ = [
    "Report",
    "Slots",
    "Step",
    "Tick",
    "WorkerHeartbeat",
    "add_attempt_event",
    "claim",
    "claim_exclusive",
    "heartbeat_worker",
    "leave_process",
    "register_process",
    "release",
    "report",
    "report_again",
    "report_in_transaction",
    "report_to_inbox",
    "save_checkpoint",
    "save_progress",
    "save_steps",
    "tick_orchestrator",
    "was_reported",
    "workflows_of",
]


async def claim(
    tx: Transaction, worker: int, slots: Slots, cursors: ClaimCursors | None = None
) -> list[WorkItem]:
    """Claim due tasks; an empty list when none is due.

    With `cursors` the scan continues where the last claim ended. When it finds nothing there, it scans once
    more from the beginning. The heartbeat repairs a claim whose response was lost (`WorkerHeartbeat.task_ids`).
    """
    cursors = cursors or ClaimCursors()
    is_ahead = cursors.begin()
    items = await task_queries.claim_tasks(tx, worker, slots, cursors)
    if items or not is_ahead:
        return items
    cursors.reset()
    return await task_queries.claim_tasks(tx, worker, slots, cursors)


async def report(tx: Transaction, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Record these outcomes; return the ids of the tasks that counted. The others were late.

    A job whose last task succeeds ends in the same statement, without an orchestrator. Every other outcome
    goes to the inbox of its job; so does a last task when its job has other input.
    """
    last = [
        (item, outcome.output) for item, outcome in reports if item.is_last and isinstance(outcome, Completed)
    ]
    ended: set[int] = set()
    if last and not tracing.is_on():
        jobs = await task_queries.end_jobs(tx, worker, name, last)
        tx.afterwards(partial(note_ended, jobs))
        ended = {job.task_id for job in jobs}
    rest = [report for report in reports if report.item.task_id not in ended]
    return ended | (await report_to_inbox(tx, worker, name, rest) if rest else set())


async def report_to_inbox(tx: Transaction, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Put these outcomes into the inboxes of their jobs; return the ids of the tasks that counted."""
    return await task_queries.report_tasks(tx, worker, name, reports)


async def report_again(tx: Transaction, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Repeat a report whose response was lost; return the ids of the tasks that counted.

    The first report may have been committed. Outcomes that it recorded count, and are not recorded twice.
    """
    recorded = await task_queries.find_reported(tx, reports)
    rest = [report for report in reports if report.item.task_id not in recorded]
    return recorded | (await report(tx, worker, name, rest) if rest else set())


async def release(tx: Transaction, worker: int, fences: Mapping[int, int]) -> set[int]:
    """Hand these tasks back unfinished; return the ids that were still held. The attempts do not count."""
    return await task_queries.release_tasks(tx, worker, fences)


async def was_reported(tx: Transaction, worker: int, item: WorkItem) -> bool | None:
    """Find out whether a report counted after its commit got no response.

    True: it counted. False: it did not, and the worker still holds the task. None: the task was lost. A
    session that is still committing the report holds the lock of the task; this function waits for it.
    """
    if await task_queries.await_task(tx, worker, item):
        return False
    report = Report(item, Completed(b"{}"))
    return True if await task_queries.find_reported(tx, [report]) else None
