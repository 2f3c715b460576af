"""A running engine inside a test: one orchestrator and one worker in this event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from cograil.definitions import read_workflow
from cograil.orchestrator.loop import Orchestrator
from cograil.runners import builtin  # noqa: F401  registers the built-in handlers
from cograil.runners.registry import Registry, default_registry
from cograil.settings import Settings
from cograil.store import reading
from cograil.store.database import Database
from cograil.verbs.advance import Decider
from cograil.verbs.publish import keep_draft
from cograil.verbs.submit import Submission, submit
from cograil.worker.loop import Worker


def quick_settings(**overrides: Any) -> Settings:
    """Short leases, and a database that may forget."""
    values: dict[str, Any] = {
        "database": {"allow_unsafe": True},
        "lease": {"seconds": 1.0, "pulse_seconds": 0.2, "scan_seconds": 0.2},
        "worker": {"grace_seconds": 2.0},
    }
    return Settings(**(values | overrides))


@dataclass
class Lab:
    """The database of a test and what runs on it."""

    db: Database
    settings: Settings
    registry: Registry
    decider: Decider = field(default_factory=Decider)

    async def submit(self, text: str, input: dict[str, Any] | None = None, **more: Any) -> str:
        """Submit a job of this workflow text."""
        workflow = read_workflow(text)
        async with self.db.transaction("test") as tx:
            draft = await keep_draft(tx, workflow, text)
        async with self.db.transaction("submit") as tx:
            submission = Submission(
                workflow.workflow_id, input or {}, definition_id=draft.definition_id, **more
            )
            return (await submit(tx, self.decider, [submission]))[0]

    async def job(self, job_id: str) -> dict[str, Any]:
        """The job as people see it."""
        async with self.db.transaction("test") as tx:
            found = await reading.find_job(tx, job_id)
            assert found is not None
            return found[0]

    async def nodes(self, job_id: str) -> dict[str, dict[str, Any]]:
        """Its nodes by name."""
        async with self.db.transaction("test") as tx:
            found = await reading.find_job(tx, job_id)
            assert found is not None
            workflow = await self.decider.catalog.get(tx, found[1])
            return {view["node_id"]: view for view in await reading.list_nodes(tx, job_id, workflow)}

    async def events(self, job_id: str) -> list[dict[str, Any]]:
        """Its events."""
        async with self.db.transaction("test") as tx:
            return await reading.list_events(tx, job_id)

    async def ended(self, job_id: str, timeout: float = 20.0) -> dict[str, Any]:
        """The job once it has ended."""
        async with asyncio.timeout(timeout):
            while True:
                job = await self.job(job_id)
                if job["completed_at"] is not None:
                    return job
                await asyncio.sleep(0.01)

    @contextlib.asynccontextmanager
    async def orchestrator(self, name: str = "orchestrator") -> AsyncIterator[Orchestrator]:
        one = Orchestrator(self.db, self.settings, Decider(), name)
        async with _running(one):
            yield one

    @contextlib.asynccontextmanager
    async def worker(self, name: str = "worker", **more: Any) -> AsyncIterator[Worker]:
        one = Worker(self.db, self.settings, self.registry, name, **more)
        async with _running(one):
            yield one

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.orchestrator(), self.worker():
            yield


@contextlib.asynccontextmanager
async def _running(one: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(one.run())
    try:
        while not one.is_ready and not task.done():
            await asyncio.sleep(0.005)
        yield
    finally:
        one.stop()
        await task


@contextlib.asynccontextmanager
async def open_lab(dsn: str, settings: Settings | None = None) -> AsyncIterator[Lab]:
    """A lab on this database."""
    settings = settings or quick_settings()
    registry = Registry()
    registry._specs.update(default_registry._specs)
    async with Database(dsn, settings.database) as db:
        yield Lab(db, settings, registry)
