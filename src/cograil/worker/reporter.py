"""Outcomes go out in natural batches: what gathers while one report is under way is the next one.

When that is much, it goes beside it: a server with two cores is at both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import psycopg
import structlog

from cograil import logs, metrics
from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import Completed, Failed
from cograil.store.database import Database
from cograil.verbs import tasks
from cograil.verbs.tasks import Report
from cograil.worker.heartbeat import Identity
from cograil.worker.progress_writer import ProgressWriter

log = structlog.get_logger("worker")
RETRY_SECONDS = 0.5
SENDERS = 2  # reports under way at once
MANY = 400  # outcomes that have gathered while one is under way are sent beside it
Addressed = tuple[Identity, Report]
CANNOT = Failed(
    "bad_result",
    "what the handler returned cannot be recorded; the log of its worker says why",
    retryable=False,
)


class Reporter:
    """Sends reports until each is recorded or refused; an outage only makes it later."""

    def __init__(
        self, db: Database, progress_writer: ProgressWriter, on_done: Callable[[Sequence[int]], None]
    ) -> None:
        self._db = db
        self._progress = progress_writer
        self._on_done = on_done
        self._pending: list[Addressed] = []
        self._senders: list[asyncio.Task[None]] = []

    def add(self, identity: Identity, report: Report) -> None:
        """Send this as soon as the one under way is through."""
        if isinstance(report.outcome, Failed):
            self._tell_failure(report)
        self._pending.append((identity, report))
        self._senders = [sender for sender in self._senders if not sender.done()]
        if not self._senders or (len(self._senders) < SENDERS and len(self._pending) >= MANY):
            self._senders.append(asyncio.create_task(self._send_all(), name="reporter"))

    def _tell_failure(self, report: Report) -> None:
        item, outcome = report.item, report.outcome
        assert isinstance(outcome, Failed)
        told = {"error_code": outcome.code, "error_message": outcome.message}
        details = outcome.details if isinstance(outcome.details, dict) else {}
        facts = logs.attempt_fields(item, told | details)
        if "traceback" in details:
            facts["exception"] = str(details["traceback"]).rstrip()
        log.warning("attempt failed", code=outcome.code, error=outcome.message, **facts)

    async def drain(self) -> None:
        """Return when all is sent."""
        await asyncio.gather(*self._senders)

    async def _send_all(self) -> None:
        await asyncio.sleep(0)  # handlers that end in the same step share a batch
        while self._pending:
            pending, self._pending = self._pending, []
            for identity in dict.fromkeys(identity for identity, _ in pending):
                await self._send(identity, [report for owner, report in pending if owner is identity])

    async def _send(self, identity: Identity, reports: list[Report]) -> None:
        is_repeat = False
        while True:
            try:
                await self._flush_progress(identity, reports)
                send = tasks.report_again if is_repeat else tasks.report
                counted = await send(self._db, identity.worker_id, identity.name, reports)
                break
            except Exception as error:
                if not _may_pass(error):
                    await self._send_apart(identity, reports, error)
                    return
                log.warning("report failed, trying again", error=str(error).strip(), tasks=len(reports))
                is_repeat = True
                await asyncio.sleep(RETRY_SECONDS)
        for report in reports:
            if report.item.task_id not in counted:
                log.info("late result refused", **logs.attempt_fields(report.item))
        completed = sum(1 for report in reports if isinstance(report.outcome, Completed))
        metrics.tasks_reported.labels("completed").inc(completed)
        metrics.tasks_reported.labels("failed").inc(len(reports) - completed)
        self._on_done([report.item.task_id for report in reports])

    async def _flush_progress(self, identity: Identity, reports: list[Report]) -> None:
        """ProgressWriter are a help: those that cannot be written are lost rather than a result with them."""
        try:
            await self._progress.flush(identity, {report.item.task_id for report in reports})
        except Exception as error:
            if _may_pass(error):
                raise
            log.exception("progress not written", tasks=len(reports))

    async def _send_apart(self, identity: Identity, reports: list[Report], error: Exception) -> None:
        """One of these cannot be recorded: it must not take the others down, and fails by itself.

        Where not even that can be said the attempt stays held until its time is up: were it given
        back, it would be run and given back for ever.
        """
        if len(reports) > 1:
            log.warning("report failed, sending each by itself", error=str(error).strip(), tasks=len(reports))
            for report in reports:
                await self._send(identity, [report])
            return
        item, facts = reports[0].item, logs.attempt_fields(reports[0].item)
        if reports[0].outcome is CANNOT:
            log.error("attempt cannot be reported, its time limit will end it", exc_info=error, **facts)
            return
        log.error("result cannot be recorded", error=str(error).strip(), exc_info=error, **facts)
        await self._send(identity, [Report(item, CANNOT)])


def _may_pass(error: Exception) -> bool:
    """Whether it is the database's or the network's, and not that of what we send."""
    is_theirs = isinstance(error, psycopg.Error | DatabaseUnavailable)
    return is_theirs and not isinstance(error, psycopg.DataError)
