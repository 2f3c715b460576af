"""The sweeper: removes containers and workspaces of this machine that are no longer needed.

A container whose job was cancelled, failed or deleted is stopped and removed, and so is its workspace. Containers and
workspaces are listed before the database is queried: a job is older than its workspace, so none looks unknown.
"""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import structlog

from cograil.apps.containers import queries as store
from cograil.apps.containers.jobs import settle
from cograil.apps.containers.metrics import count_end
from cograil.apps.containers.queries import ContainerRunId
from cograil.apps.containers.runtime.container_attempt import ContainerTools
from cograil.apps.containers.runtime.docker_engine import STOP_SECONDS, ContainerRecord, EngineError
from cograil.apps.containers.settings import ContainerSettings
from cograil.errors import DatabaseUnavailable
from cograil.model.ids import is_id
from cograil.store.database import Database

log = structlog.get_logger("containers")
ID_LENGTH = 36
PASSING = (EngineError, DatabaseUnavailable, psycopg.Error, OSError)  # after which it retries


class Sweeper:
    """Sweeps the workspaces and containers of one machine."""

    def __init__(self, db: Database, tools: ContainerTools, settings: ContainerSettings) -> None:
        self._db = db
        self._tools = tools
        self._settings = settings
        self._removing: dict[str, asyncio.Task[None]] = {}  # a slow stop must not delay others

    async def run(self) -> None:
        """Sweep when triggered and at every interval, until cancelled."""
        try:
            while True:
                self._tools.is_to_sweep.clear()
                try:
                    await self.sweep()
                except PASSING as error:
                    log.warning("sweep failed, trying again", error=str(error).strip())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.sweep_seconds):
                        await self._tools.is_to_sweep.wait()
        finally:
            for task in self._removing.values():
                task.cancel()
            await asyncio.gather(*self._removing.values(), return_exceptions=True)

    async def sweep(self) -> None:
        """Run one sweep: settle ended jobs, prune old ones, begin to remove leftovers."""
        await settle_ended(self._db, self._settings)
        await self._remove_left()

    async def _remove_left(self) -> None:
        rooms = self._tools.rooms
        records = await self._tools.engine.held({"cograil.place": rooms.place})
        runs_by_name = {name: run for name in rooms.names() if (run := run_of(name)) is not None}
        present_runs = {*runs_by_name.values(), *(_run_held(record) for record in records)}
        if not present_runs:
            return
        async with self._db.single("needed") as tx:
            needed = await store.needed_runs(tx, rooms.place, present_runs)
        for record in records:
            if _run_held(record) not in needed and record.container not in self._removing:
                self._removing[record.container] = asyncio.create_task(self._remove(record))
        kept_runs = needed | {
            _run_held(record) for record in records
        }  # a workspace is removed after its container
        for name in [name for name, run in runs_by_name.items() if run not in kept_runs]:
            try:
                await asyncio.to_thread(rooms.remove, name)
            except OSError as error:  # such as files of another user; it must not stop the others
                log.warning("a workspace cannot be removed", room=name, error=str(error))

    async def _remove(self, record: ContainerRecord) -> None:
        log.info("removing an unneeded container", container=record.container[:12], **record.labels)
        try:
            with contextlib.suppress(EngineError):  # it has ended, or is gone
                await self._tools.engine.stop(record.container, STOP_SECONDS)
            await self._tools.engine.remove(record.container)
            self._tools.is_to_sweep.set()  # for its workspace
        except (EngineError, OSError) as error:
            log.warning("a container cannot be removed", container=record.container[:12], error=str(error))
        finally:
            del self._removing[record.container]


async def settle_ended(db: Database, settings: ContainerSettings) -> None:
    """Settle ended jobs that no attempt settled; prune those that ended long ago."""
    while await _settle_some(db, settings):
        pass
    is_more = True
    while is_more:
        async with db.single("prune_containers") as tx:
            is_more = await store.prune_container_jobs(tx, settings.retention_seconds) == store.AT_A_TIME


async def _settle_some(db: Database, settings: ContainerSettings) -> bool:
    """Settle some jobs; return whether there may be more."""
    async with db.single("unsettled") as tx:
        ended = await store.unsettled_container_jobs(tx)
    ends = []
    for tenant, id in ended:
        async with db.transaction("settle") as tx:
            ends.append(await settle(tx, tenant, id, settings.retention_seconds))
        count_end(ends[-1])
    return len(ended) == store.AT_A_TIME and any(ends)


def run_of(name: str) -> ContainerRunId | None:
    """The run of a workspace, by its name; None for another directory."""
    job_id, rest = name[:ID_LENGTH], name[ID_LENGTH + 1 :]
    node_id, _, run = rest.rpartition(".")
    return ContainerRunId(job_id, node_id, int(run)) if is_id(job_id) and run.isdecimal() else None


def _run_held(record: ContainerRecord) -> ContainerRunId:
    labels = record.labels
    return ContainerRunId(labels["cograil.job"], labels["cograil.node"], int(labels["cograil.run"]))
