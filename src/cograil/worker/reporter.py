"""Reports of outcomes, sent in batches.

Outcomes that arrive while a report is under way form the next batch. A large batch is sent at once, in
parallel: the server can use a second core.
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
MAX_SENDERS = 2  # reports under way at once
LARGE_BATCH = 400  # pending outcomes that start a second sender
PendingReport = tuple[Identity, Report]
UNRECORDABLE = Failed(
    "bad_result",
    "the result of the handler cannot be recorded; see the log of the worker",
    retryable=False,
)


class Reporter:
    """Sends reports until each is recorded or refused. During an outage it retries."""

    def __init__(
        self, db: Database, progress_writer: ProgressWriter, on_done: Callable[[Sequence[int]], None]
    ) -> None:
        self._db = db
        self._progress = progress_writer
        self._on_done = on_done
        self._pending: list[PendingReport] = []
        self._senders: list[asyncio.Task[None]] = []

    def add(self, identity: Identity, report: Report) -> None:
        """Queue this report for the next batch."""
        if isinstance(report.outcome, Failed):
            self._log_failure(report)
        self._pending.append((identity, report))
        self._senders = [sender for sender in self._senders if not sender.done()]
        if not self._senders or (len(self._senders) < MAX_SENDERS and len(self._pending) >= LARGE_BATCH):
            self._senders.append(asyncio.create_task(self._send_all(), name="reporter"))

    def _log_failure(self, report: Report) -> None:
        item, outcome = report.item, report.outcome
        assert isinstance(outcome, Failed)
        error = {"error_code": outcome.code, "error_message": outcome.message}
        details = outcome.details if isinstance(outcome.details, dict) else {}
        fields = logs.attempt_fields(item, error | details)
        if "traceback" in details:
            fields["exception"] = str(details["traceback"]).rstrip()
        log.warning("attempt failed", code=outcome.code, error=outcome.message, **fields)

    async def drain(self) -> None:
        """Return when all reports are sent."""
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
                async with self._db.single("report") as tx:
                    recorded = await send(tx, identity.worker_id, identity.name, reports)
                break
            except Exception as error:
                if not _is_transient(error):
                    await self._send_apart(identity, reports, error)
                    return
                log.warning("report failed, trying again", error=str(error).strip(), tasks=len(reports))
                is_repeat = True
                await asyncio.sleep(RETRY_SECONDS)
        for report in reports:
            if report.item.task_id not in recorded:
                log.info("late result refused", **logs.attempt_fields(report.item))
        completed = sum(1 for report in reports if isinstance(report.outcome, Completed))
        metrics.tasks_reported.labels("completed").inc(completed)
        metrics.tasks_reported.labels("failed").inc(len(reports) - completed)
        self._on_done([report.item.task_id for report in reports])

    async def _flush_progress(self, identity: Identity, reports: list[Report]) -> None:
        """Write pending progress and log lines. Those that cannot be written are dropped; the result is not."""
        try:
            await self._progress.flush(identity, {report.item.task_id for report in reports})
        except Exception as error:
            if _is_transient(error):
                raise
            log.exception("progress not written", tasks=len(reports))

    async def _send_apart(self, identity: Identity, reports: list[Report], error: Exception) -> None:
        """Send each report of a batch that cannot be recorded; the one that is wrong becomes a failure.

        If even that failure cannot be recorded, the attempt stays held until its timeout. Releasing it would
        run it again without end.
        """
        if len(reports) > 1:
            log.warning("report failed, sending each by itself", error=str(error).strip(), tasks=len(reports))
            for report in reports:
                await self._send(identity, [report])
            return
        item, fields = reports[0].item, logs.attempt_fields(reports[0].item)
        if reports[0].outcome is UNRECORDABLE:
            log.error("attempt cannot be reported, its time limit will end it", exc_info=error, **fields)
            return
        log.error("result cannot be recorded", error=str(error).strip(), exc_info=error, **fields)
        await self._send(identity, [Report(item, UNRECORDABLE)])


def _is_transient(error: Exception) -> bool:
    """Whether the database or the network caused this error, and not the data of the report."""
    is_database_error = isinstance(error, psycopg.Error | DatabaseUnavailable)
    return is_database_error and not isinstance(error, psycopg.DataError)
