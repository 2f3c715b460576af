"""A running engine inside a test: orchestrators and workers in this event loop, or single steps made by the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from cograil.apps.documents.settings import DocumentSettings
from cograil.definitions import read_workflow
from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.orchestrator.orchestrator_loop import Orchestrator
from cograil.runners import builtin_handlers  # noqa: F401  registers the built-in handlers
from cograil.runners.handler_registry import Registry, default_registry
from cograil.settings import Settings
from cograil.store import job_queries
from cograil.store.database import Database, Transaction
from cograil.store.doctor import Finding, check_invariants
from cograil.verbs import limits, tasks
from cograil.verbs.advance import EngineContext, advance_due
from cograil.verbs.cancel import cancel
from cograil.verbs.explain import JobExplanation, explain
from cograil.verbs.limits import Admission
from cograil.verbs.publish import keep_draft, publish
from cograil.verbs.retry import retry
from cograil.verbs.submit import Submission, submit
from cograil.verbs.tasks import Report, Slots, Tick, WorkerHeartbeat
from cograil.worker.worker_loop import Worker

ALL_APPS = ("captures", "companies", "containers")  # `documents` needs a folder


def quick_settings(**overrides: Any) -> Settings:
    """Short leases, and a database that may forget."""
    values: dict[str, Any] = {
        "database": {"allow_unsafe": True},
        "lease": {"seconds": 1.0, "heartbeat_seconds": 0.2, "scan_seconds": 0.2},
        "worker": {"grace_seconds": 2.0},
    }
    settings = Settings(**(values | {"apps": ALL_APPS} | overrides))
    return (
        settings
        if "apps" in overrides or settings.section(DocumentSettings).data_dir is None
        else settings.with_app("documents")
    )


@dataclass
class ManualWorker:
    """A worker whose every step the test makes; it heartbeats only when the test calls `heartbeat`."""

    db: Database
    worker_id: int
    name: str

    async def claim(
        self, slots: int = 1, *, handlers: Sequence[str] | None = None, queues: list[str] | None = None
    ) -> list[WorkItem]:
        """Take up to `slots` tasks, of these handlers or of any."""
        async with self.db.single("test") as tx:
            query = b"select distinct handler from cograil.tasks"
            names = handlers or [
                handler for (handler,) in await (await tx.connection.execute(query)).fetchall()
            ]
        async with self.db.single("claim") as tx:
            return await tasks.claim(tx, self.worker_id, Slots(list(names), [], slots, 0, queues))

    async def claim_alone(self, *, queues: list[str] | None = None) -> list[WorkItem]:
        """Take a task that must run alone, of any handler."""
        async with self.db.single("test") as tx:
            query = b"select distinct handler from cograil.tasks"
            names = [handler for (handler,) in await (await tx.connection.execute(query)).fetchall()]
        async with self.db.single("claim") as tx:
            return await tasks.claim_exclusive(tx, self.worker_id, Slots(names, [], 1, 0, queues))

    async def claim_one(self) -> WorkItem:
        (item,) = await self.claim()
        return item

    async def report(self, item: WorkItem, output: dict[str, Any] | Failed) -> bool:
        """Whether the outcome counted. It goes to the inbox, also that of a last task."""
        return bool(await self.report_to_inbox(self.outcome(item, output)))

    async def report_to_inbox(self, *reports: Report) -> set[int]:
        """The ids of the tasks that counted."""
        async with self.db.single("report") as tx:
            return await tasks.report_to_inbox(tx, self.worker_id, self.name, reports)

    async def report_as_worker(self, *reports: Report) -> set[int]:
        """As a worker reports: the success of a last task ends its job. The ids that counted."""
        async with self.db.single("report") as tx:
            return await tasks.report(tx, self.worker_id, self.name, reports)

    async def report_again(self, item: WorkItem, output: dict[str, Any] | Failed) -> bool:
        report = self.outcome(item, output)
        async with self.db.single("report") as tx:
            return bool(await tasks.report_again(tx, self.worker_id, self.name, [report]))

    def outcome(self, item: WorkItem, output: dict[str, Any] | Failed) -> Report:
        return Report(item, output if isinstance(output, Failed) else Completed(orjson.dumps(output)))

    async def checkpoint(self, item: WorkItem, data: Any) -> bool:
        async with self.db.single("test") as tx:
            return await tasks.save_checkpoint(tx, self.worker_id, self.name, item, "", orjson.dumps(data))

    async def heartbeat(self, lease_seconds: float = 60.0) -> WorkerHeartbeat:
        async with self.db.single("test") as tx:
            return await tasks.heartbeat_worker(tx, self.worker_id, self.name, lease_seconds, {})

    async def release(self, *items: WorkItem) -> set[int]:
        async with self.db.single("release") as tx:
            return await tasks.release(tx, self.worker_id, {item.task_id: item.fence for item in items})

    async def put_back(self, *items: WorkItem) -> None:
        """As workers of before did: the same task is ready again, under the same number."""
        query = b"""update cograil.tasks
                    set state = 'ready', worker_id = null, started_at = null, deadline = null
                    where id = any(%(ids)s)"""
        async with self.db.single("test") as tx:
            await tx.connection.execute(query, {"ids": [item.task_id for item in items]})


@dataclass
class Harness:
    """The database of a test and what runs on it."""

    db: Database
    settings: Settings
    registry: Registry
    engine_context: EngineContext = field(default_factory=EngineContext)
    ticker: int | None = None

    # -- what callers do -----------------------------------------------------------------------------

    async def submit(self, text: str, input: dict[str, Any] | None = None, **more: Any) -> str:
        """Submit a job of this workflow text."""
        return (await self.submit_many(text, [input or {}], **more))[0]

    async def submit_many(
        self, text: str, inputs: Sequence[dict[str, Any]], tenant: str = "default", **more: Any
    ) -> list[str]:
        """Submit a job of this workflow text for each input, in one transaction; `app` is whose it is."""
        workflow = read_workflow(text, app=more.get("app"))
        async with self.db.transaction("test") as tx:
            draft = await keep_draft(tx, workflow, text, tenant)
        more = {"definition_id": draft.definition_id, **more}
        async with self.db.transaction("submit") as tx:
            submissions = [Submission(workflow.workflow_id, job_inputs, **more) for job_inputs in inputs]
            return await submit(tx, self.engine_context, submissions, tenant)

    async def publish(self, text: str) -> int:
        """Publish this workflow text; its definition."""
        async with self.db.transaction("publish") as tx:
            return (await publish(tx, read_workflow(text), text)).definition_id

    async def cancel(self, job_id: str, **more: Any) -> str:
        async with self.db.transaction("cancel") as tx:
            return await cancel(tx, self.engine_context, job_id, **more)

    async def retry(self, job_id: str, node_id: str | None = None, **more: Any) -> str:
        async with self.db.transaction("retry") as tx:
            return await retry(tx, self.engine_context, job_id, node_id, **more)

    async def explain(self, job_id: str) -> JobExplanation:
        async with self.db.transaction("explain") as tx:
            return await explain(tx, self.engine_context.definitions, job_id)

    # -- what people see -----------------------------------------------------------------------------

    async def job(self, job_id: str) -> dict[str, Any]:
        """The job as people see it."""
        async with self.db.transaction("test") as tx:
            stored = await job_queries.find_job(tx, job_id)
            assert stored is not None
            return stored[0]

    async def nodes(self, job_id: str) -> dict[str, dict[str, Any]]:
        """Its nodes by name."""
        async with self.db.transaction("test") as tx:
            stored = await job_queries.find_job(tx, job_id)
            assert stored is not None
            workflow = await self.engine_context.definitions.get(tx, stored[1])
            return {view["node_id"]: view for view in await job_queries.list_nodes(tx, job_id, workflow)}

    async def statuses(self, job_id: str) -> dict[str, str]:
        """The status of each of its nodes."""
        return {name: view["status"] for name, view in (await self.nodes(job_id)).items()}

    async def events(self, job_id: str) -> list[dict[str, Any]]:
        """Its events."""
        async with self.db.transaction("test") as tx:
            return await job_queries.list_events(tx, job_id)

    async def event_types(self, job_id: str, node_id: str | None = None) -> list[str]:
        """The types of its events, of one node if named, in order."""
        events = await self.events(job_id)
        return [e["event_type"] for e in events if node_id is None or e["node_id"] == node_id]

    async def ended(self, job_id: str, timeout: float = 40.0) -> dict[str, Any]:
        """The job once it has ended."""
        async with asyncio.timeout(timeout):
            while True:
                job = await self.job(job_id)
                if job["completed_at"] is not None:
                    return job
                await asyncio.sleep(0.01)

    async def rows(self, query: str, **params: Any) -> list[tuple[Any, ...]]:
        """What this query returns; nothing for one that returns nothing."""
        async with self.db.single("test") as tx:
            cursor = await tx.connection.execute(query.encode(), params or None, prepare=False)
            return await cursor.fetchall() if cursor.description else []

    async def findings(self) -> list[Finding]:
        """The invariants that do not hold."""
        async with self.db.single("test") as tx:
            return await check_invariants(tx.connection)

    # -- single steps --------------------------------------------------------------------------

    async def advance(self) -> int:
        """Advance jobs until no more have news; how many advances that took."""
        total = 0
        while True:
            async with self.db.transaction("advance") as tx:
                done = await advance_due(tx, self.engine_context, self.settings.orchestrator.batch)
            if not done.advanced:
                return total
            total += done.advanced

    async def tick(self, grace_seconds: float = 60.0, excluded: Sequence[str] = ()) -> Tick:
        """What an orchestrator does by the clock, once."""
        async with self.db.single("test") as tx:
            if self.ticker is None:
                self.ticker = await tasks.register_process(tx, "orchestrator", "ticker", 3600)
            return await tasks.tick_orchestrator(tx, self.ticker, 3600, grace_seconds, excluded)

    async def manual_worker(
        self, name: str = "manual", *, lease_seconds: float = 60.0, **more: Any
    ) -> ManualWorker:
        """A worker driven by the test."""
        handlers = self.registry.names()
        async with self.db.single("test") as tx:
            worker_id = await tasks.register_process(
                tx, "worker", name, lease_seconds, handlers=handlers, **more
            )
        return ManualWorker(self.db, worker_id, name)

    async def expire_worker(self, manual_worker: ManualWorker) -> None:
        """Let the lease of this worker end now, and rescue the tasks that it held."""
        await self.rows(
            "update cograil.processes set lease_until = now() - interval '1 s' where id = %(id)s",
            id=manual_worker.worker_id,
        )
        await self.tick()

    # -- processes -----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def orchestrator(self, name: str = "orchestrator") -> AsyncIterator[Orchestrator]:
        orchestrator = Orchestrator(self.db, self.settings, EngineContext(), name)
        async with _running(orchestrator):
            yield orchestrator

    @contextlib.asynccontextmanager
    async def worker(self, name: str = "worker", **more: Any) -> AsyncIterator[Worker]:
        settings = more.pop("settings", self.settings)
        registry = more.pop("registry", self.registry)
        worker = Worker(self.db, settings, registry, name, **more)
        async with _running(worker):
            yield worker

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.orchestrator(), self.worker():
            yield


async def admit_now(tx: Transaction) -> Admission:
    """Look at the first limits and let go what they allow, as an orchestrator does in two transactions."""
    free = await limits.find_free(tx)
    return await limits.admit(tx, free.keys) if free.keys else Admission()


@contextlib.asynccontextmanager
async def _running(process: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(process.run())
    try:
        while not process.is_ready and not task.done():  # noqa: ASYNC110  it has no event for this
            await asyncio.sleep(0.005)
        yield
    finally:
        process.stop()
        await task


@contextlib.asynccontextmanager
async def open_harness(dsn: str, settings: Settings | None = None) -> AsyncIterator[Harness]:
    """A harness on this database."""
    settings = settings or quick_settings()
    registry = Registry()
    registry._specs.update(default_registry._specs)
    async with Database(dsn, settings.database) as db:
        yield Harness(db, settings, registry)
