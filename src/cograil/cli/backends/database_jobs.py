"""Jobs of an instance, read and changed in transactions on its database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from cograil.cli.backends.interface import EndOfJob, JobRequest, RetryOptions
from cograil.cli.instance_client import InstanceClient, audit, caller_traceparent, current_user, find_job
from cograil.errors import WorkflowNotFound
from cograil.model.job import Signalled
from cograil.model.workflow import Workflow
from cograil.store import job_queries
from cograil.store.database import Database, Transaction
from cograil.store.job_filter_queries import JobSearch, LogTail, find_jobs_by
from cograil.store.job_progress_queries import (
    JobProgressSnapshot,
    is_over,
    load_progress,
    new_events,
    resolve_job,
)
from cograil.store.job_queries import Traceback, View
from cograil.store.listener import Listener
from cograil.store.pause_queries import list_pauses
from cograil.store.retry_queries import load_node
from cograil.store.workflow_queries import find_workflow
from cograil.store.write_batch import DONE_CHANNEL
from cograil.verbs import bulk, pause
from cograil.verbs.advance import EngineContext
from cograil.verbs.bulk import BulkForecast, JobFilter
from cograil.verbs.cancel import cancel
from cograil.verbs.explain import JobExplanation, explain
from cograil.verbs.retry import RetryForecast, preview_retry, retry
from cograil.verbs.signal import signal, waiting_approval
from cograil.verbs.submit import Submission, submit

FOLLOW_SECONDS = 0.3
PAGE_SIZE = 10_000


class DatabaseConnection:
    """A connected client and its tenant."""

    subject = "database"

    def __init__(self, client: InstanceClient) -> None:
        self.client = client
        self.tenant = client.tenant

    @property
    def max_input_bytes(self) -> int:
        return self.client.settings.limits.input_bytes

    @property
    def engine_context(self) -> EngineContext:
        return self.client.engine_context

    def command(self, arguments: str) -> str:
        return self.client.command(arguments)

    def next_steps(self, job_id: str) -> str:
        return self.client.next_steps(job_id)

    def transaction(self, name: str) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction on the database."""
        return self.client.db.transaction(name)


class DatabaseJobReads(DatabaseConnection):
    """Jobs and their nodes, events and logs."""

    async def resolve_job(self, text: str) -> str:
        async with self.transaction("show") as tx:
            return await resolve_job(tx, text, self.tenant)

    async def find_job(self, text: str) -> View:
        async with self.transaction("show") as tx:
            return (await find_job(tx, text, self.tenant))[0]

    async def job_workflow(self, job_id: str) -> Workflow:
        async with self.transaction("show") as tx:
            _, definition_id = await find_job(tx, job_id, self.tenant)
            return await self.engine_context.definitions.get(tx, definition_id)

    async def list_jobs(self, criteria: JobSearch, *, before: str | None, limit: int) -> list[View]:
        async with self.transaction("show") as tx:
            last = None if before is None else await resolve_job(tx, before, self.tenant)
            return await find_jobs_by(tx, criteria, tenant=self.tenant, before=last, limit=limit)

    async def list_nodes(self, job_id: str, workflow: Workflow, *, children: bool) -> list[View]:
        async with self.transaction("show") as tx:
            return await job_queries.list_nodes(tx, job_id, workflow, tenant=self.tenant, children=children)

    async def has_node(self, job_id: str, node_id: str) -> bool:
        async with self.transaction("show") as tx:
            return await load_node(tx, job_id, node_id) is not None

    async def list_failures(self, job_id: str) -> list[View]:
        async with self.transaction("show") as tx:
            return await job_queries.list_failures(tx, job_id, tenant=self.tenant)

    async def find_traceback(self, job_id: str, node_id: str) -> Traceback | None:
        async with self.transaction("show") as tx:
            return await job_queries.find_traceback(tx, job_id, node_id)

    async def event_pages(
        self, job_id: str, *, after: int, node: str | None, follow: bool
    ) -> AsyncIterator[list[View]]:
        while True:
            async with self.transaction("show") as tx:
                was_over = not follow or await is_over(tx, job_id, self.tenant)
                page = await job_queries.list_events(
                    tx, job_id, tenant=self.tenant, after=after, limit=PAGE_SIZE, node=node
                )
            yield page
            after = page[-1]["seq"] if page else after
            if len(page) == PAGE_SIZE:
                continue
            if was_over:
                return
            await asyncio.sleep(FOLLOW_SECONDS)

    async def log_lines(self, job_id: str, *, node: str | None, follow: bool) -> AsyncIterator[View]:
        tail = LogTail(job_id, node, self.tenant)
        while True:
            async with self.transaction("show") as tx:
                is_last = not follow or await is_over(tx, job_id, self.tenant)
                lines = await tail.read(tx)
            for line in lines:
                yield line
            if is_last:
                return
            await asyncio.sleep(FOLLOW_SECONDS)

    async def explain(self, job_id: str) -> JobExplanation:
        async with self.transaction("explain") as tx:
            return await explain(tx, self.engine_context.definitions, job_id, self.tenant)

    async def watch(self, job_id: str, after: int | None) -> tuple[JobProgressSnapshot, list[View]]:
        async with self.transaction("watch") as tx:
            progress = await load_progress(tx, job_id, self.tenant)
            events = [] if after is None else await new_events(tx, job_id, after, self.tenant)
        return progress, events

    def job_ends(self) -> AbstractAsyncContextManager[EndOfJob]:
        return listen_for_job_ends(self.client.db)


class CliJobEndListener:
    """Wakes up when a job may have ended."""

    def __init__(self) -> None:
        self._wakeup = asyncio.Event()

    def on_notify(self, channel: str, payload: str) -> None:
        self._wakeup.set()

    async def wait(self, seconds: float) -> None:
        """Return at the next notification, or after this many seconds."""
        with suppress(
            TimeoutError
        ):  # `wait_for` of Python 3.11 loses a Ctrl-C that comes with the notification
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        self._wakeup.clear()


@asynccontextmanager
async def listen_for_job_ends(db: Database) -> AsyncIterator[CliJobEndListener]:
    """Listen in this block. Enter it before the job is created: else its end may be noticed late."""
    ends = CliJobEndListener()
    listener = Listener(db.direct, [DONE_CHANNEL], ends.on_notify)
    await listener.start()
    try:
        yield ends
    finally:
        await listener.stop()


class DatabaseJobActions(DatabaseConnection):
    """Changes of jobs, with entries in the audit log."""

    async def submit(self, request: JobRequest) -> str:
        name, version = request.workflow_id, request.version
        async with self.transaction("submit") as tx:
            row = await find_workflow(tx, self.tenant, name, version)
            if row is None:
                raise WorkflowNotFound(name, version)
            by = request.attributes.get("submitted_by") or current_user()
            attributes = {**request.attributes, "submitted_by": by, "trace_parent": caller_traceparent()}
            submission = Submission(name, dict(request.inputs), definition_id=row.definition_id, **attributes)
            create = partial(self._create_job, submission)
            if request.idempotency_key is None:
                return await create(tx)
            from cograil.cli.backends import idempotent_submit  # noqa: PLC0415  rarely needed, and loads the API

            api_request = idempotent_submit.build_request(request)
            return await idempotent_submit.submit_once(
                tx, self.tenant, request.idempotency_key, api_request, create
            )

    async def _create_job(self, submission: Submission, tx: Transaction) -> str:
        (job_id,) = await submit(tx, self.engine_context, [submission], self.tenant)
        await audit(tx, "submit", job_id)
        return job_id

    async def cancel(self, job_id: str, reason: str) -> str:
        async with self.transaction("cancel") as tx:
            status = await cancel(tx, self.engine_context, job_id, by=current_user(), reason=reason)
            await audit(tx, "cancel", job_id, reason=reason)
        return status

    async def preview_retry(self, job_id: str, options: RetryOptions) -> RetryForecast:
        async with self.transaction("preview") as tx:
            return await preview_retry(tx, self.engine_context, job_id, **_fields(options))

    async def retry(self, job_id: str, options: RetryOptions) -> tuple[str, RetryForecast]:
        by, trace_parent = current_user(), caller_traceparent()
        async with self.transaction("retry") as tx:
            preview = await preview_retry(tx, self.engine_context, job_id, **_fields(options))
            new_id = await retry(
                tx, self.engine_context, job_id, **_fields(options), by=by, trace_parent=trace_parent
            )
            details: dict[str, Any] = {"new_keys": True} if options.new_keys else {}
            await audit(tx, "retry", job_id, node_id=options.node_id, retried_as=new_id, **details)
        return new_id, preview

    async def answer(self, job_id: str, answer: Signalled) -> View:
        answer = replace(answer, by=(current_user() if answer.by is None else answer.by) or None)
        async with self.transaction("signal") as tx:
            if not answer.node_id:
                answer = replace(answer, node_id=await self._find_waiting_node(tx, job_id))
            result = await signal(tx, self.engine_context, job_id, answer)
            details = {"node_id": answer.node_id, "reason": answer.reason}
            await audit(tx, f"signal {answer.name}", job_id, **details)
        return {"node_id": answer.node_id, "by": answer.by} | asdict(result)

    async def _find_waiting_node(self, tx: Transaction, job_id: str) -> str:
        view, definition_id = await find_job(tx, job_id, self.tenant)
        workflow = await self.engine_context.definitions.get(tx, definition_id)
        nodes = await job_queries.list_nodes(tx, job_id, workflow, tenant=self.tenant, children=False)
        return waiting_approval(view, nodes)

    async def preview_bulk(self, verb: str, job_filter: JobFilter) -> BulkForecast:
        async with self.transaction("preview") as tx:
            return await bulk.preview_bulk(tx, verb, job_filter, self.tenant)

    async def begin_bulk(self, verb: str, job_filter: JobFilter, reason: str) -> str:
        options = {"by": current_user(), "reason": reason, "tenant": self.tenant}
        async with self.transaction("bulk") as tx:
            job_id = await bulk.begin_bulk(tx, self.engine_context, verb, job_filter, **options)
            await audit(tx, f"bulk {verb}", job_id, reason=reason)
        return job_id

    async def bulk_progress(self, text: str) -> View:
        async with self.transaction("show") as tx:
            job_id = await resolve_job(tx, text, self.tenant)
            operation = await bulk.find_bulk(tx, job_id, self.tenant)
        return {"job_id": operation.job_id} | bulk.outcome_of(operation)

    async def pause(self, kind: str, name: str, reason: str) -> str:
        by = current_user()
        async with self.transaction("pause") as tx:
            if kind == "job":
                name = await resolve_job(tx, name, self.tenant)
                await pause.pause_job(tx, name, by=by, reason=reason)
            elif kind == "queue":
                await pause.pause_queue(tx, name, by=by, reason=reason, tenant=self.tenant)
            else:
                await pause.pause_workflow(tx, name, by=by, reason=reason, tenant=self.tenant)
            await audit(tx, f"pause {kind}", name, reason=reason)
        return name

    async def resume(self, kind: str, name: str) -> str:
        async with self.transaction("resume") as tx:
            if kind == "job":
                name = await resolve_job(tx, name, self.tenant)
                await pause.resume_job(tx, name)
            elif kind == "queue":
                await pause.resume_queue(tx, name, tenant=self.tenant)
            else:
                await pause.resume_workflow(tx, name, tenant=self.tenant)
            await audit(tx, f"resume {kind}", name)
        return name

    async def list_pauses(self) -> list[View]:
        async with self.transaction("show") as tx:
            return [entry._asdict() for entry in await list_pauses(tx, self.tenant)]


def _fields(options: RetryOptions) -> dict[str, Any]:
    return {"node_id": options.node_id, "inputs": options.inputs, "new_keys": options.new_keys}
