"""The sweeper: what is on this machine of container jobs that nobody needs any more is removed.

A container whose job was cancelled, failed or forgotten is stopped and removed, and so is its workspace. What
is there is read before the database is asked: a job is older than its room, so none is taken for unknown.
"""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import structlog

from cograil.apps.containers import queries as store
from cograil.apps.containers.jobs import settle
from cograil.apps.containers.metrics import count_end
from cograil.apps.containers.queries import RunName
from cograil.apps.containers.runtime.container_attempt import ContainerTools
from cograil.apps.containers.runtime.docker_engine import STOP_SECONDS, ContainerRecord, EngineError
from cograil.apps.containers.settings import ContainerSettings
from cograil.errors import DatabaseUnavailable
from cograil.model.ids import is_id
from cograil.store.database import Database

log = structlog.get_logger("containers")
ID_LENGTH = 36
PASSING = (EngineError, DatabaseUnavailable, psycopg.Error, OSError)  # for which it is tried again


class Sweeper:
    """One sweeper, for the rooms and the engine of one machine."""

    def __init__(self, db: Database, tools: ContainerTools, settings: ContainerSettings) -> None:
        self._db = db
        self._tools = tools
        self._settings = settings
        self._removing: dict[str, asyncio.Task[None]] = {}  # one that is slow to stop must not keep others

    async def run(self) -> None:
        """Sweep when there may be something to do, and every now and then; until cancelled."""
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
        """Once: settle what has ended, forget what is old, begin to remove what is left."""
        await settle_ended(self._db, self._settings)
        await self._remove_left()

    async def _remove_left(self) -> None:
        rooms = self._tools.rooms
        held = await self._tools.engine.held({"cograil.place": rooms.place})
        named = {name: run for name in rooms.names() if (run := run_of(name)) is not None}
        there = {*named.values(), *(_run_held(one) for one in held)}
        if not there:
            return
        async with self._db.single("needed") as tx:
            needed = await store.needed_runs(tx, rooms.place, there)
        for one in held:
            if _run_held(one) not in needed and one.container not in self._removing:
                self._removing[one.container] = asyncio.create_task(self._remove(one))
        kept = needed | {_run_held(one) for one in held}  # a room is removed when nothing is in it any more
        for name in [name for name, run in named.items() if run not in kept]:
            try:
                await asyncio.to_thread(rooms.remove, name)
            except OSError as error:  # such as files of another user; the others need not wait for it
                log.warning("a workspace cannot be removed", room=name, error=str(error))

    async def _remove(self, one: ContainerRecord) -> None:
        log.info("removing a container that nobody needs", container=one.container[:12], **one.labels)
        try:
            with contextlib.suppress(EngineError):  # it has ended, or is gone
                await self._tools.engine.stop(one.container, STOP_SECONDS)
            await self._tools.engine.remove(one.container)
            self._tools.is_to_sweep.set()  # for its room
        except (EngineError, OSError) as error:
            log.warning("a container cannot be removed", container=one.container[:12], error=str(error))
        finally:
            del self._removing[one.container]


async def settle_ended(db: Database, settings: ContainerSettings) -> None:
    """Write and tell how jobs ended of which nobody did; forget those that ended long ago."""
    while await _settle_some(db, settings):
        pass
    is_more = True
    while is_more:
        async with db.single("prune_containers") as tx:
            is_more = await store.prune_container_jobs(tx, settings.retention_seconds) == store.AT_A_TIME


async def _settle_some(db: Database, settings: ContainerSettings) -> bool:
    """Whether there may be more."""
    async with db.single("unsettled") as tx:
        ended = await store.unsettled_container_jobs(tx)
    ends = []
    for tenant, id in ended:
        async with db.transaction("settle") as tx:
            ends.append(await settle(tx, tenant, id, settings.retention_seconds))
        count_end(ends[-1])
    return len(ended) == store.AT_A_TIME and any(ends)


def run_of(name: str) -> RunName | None:
    """Whose room this is; None for what is no room of ours."""
    job_id, rest = name[:ID_LENGTH], name[ID_LENGTH + 1 :]
    node_id, _, run = rest.rpartition(".")
    return RunName(job_id, node_id, int(run)) if is_id(job_id) and run.isdecimal() else None


def _run_held(one: ContainerRecord) -> RunName:
    labels = one.labels
    return RunName(labels["cograil.job"], labels["cograil.node"], int(labels["cograil.run"]))
