"""One database, what runs on it, and a lab to look at it. Points are run one after another in a lane."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.support.harness import Harness, open_harness
from tests.torture import effect_handlers
from tests.torture.forked_processes import Child, ForkServer, open_fork_server
from tests.torture.victims import HERE, decider_with_small_chunks

from cograil.definitions import read_workflow
from cograil.errors import AlreadyTerminal
from cograil.settings import Settings
from cograil.verbs.publish import publish
from cograil.verbs.submit import Submission, submit

WATCHDOG_SECONDS = 20.0
OVER = "select 1 from cograil.jobs where id = %(job)s and finished_at is not null"
CLOSE_FAMILY = b"insert into torture.shut values (%s) on conflict do nothing"
NUMBERS = itertools.count(1)


class Stuck(Exception):
    """A job did not end; the text says what it waits for."""


@dataclass
class Lane:
    """A database of its own, and the processes forked for it."""

    lab: Harness
    fork_server: ForkServer
    dsn: str
    mutant: str | None = None
    key: str = ""  # that of its callers over HTTP
    watchdog_seconds: float = WATCHDOG_SECONDS
    blamed: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    helpers: dict[str, Child] = field(default_factory=dict)
    passing: list[Child] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)  # jobs of the point at hand that belong to its own

    # -- jobs ----------------------------------------------------------------------------------------

    async def submit(
        self, text: str, *, is_gated: bool = False, mark: str | None = None, callback: Any = None
    ) -> str:
        """Submit a job; its gate, and that of its family, is closed in the same transaction."""
        await self.publish(text)
        workflow_id = read_workflow(text).workflow_id
        mark = mark or f"mark-{next(NUMBERS)}"
        async with self.lab.db.transaction("test") as tx:
            submission = Submission(workflow_id, correlation_id=mark, callback=callback)
            (job,) = await submit(tx, self.lab.engine_context, [submission])
            if is_gated:
                await tx.connection.execute("insert into torture.gates values (%s)", [job])
                await tx.connection.execute(CLOSE_FAMILY, [mark])
        return job

    async def publish(self, text: str) -> None:
        """Publish this workflow, once for each lane."""
        if text not in self.known:
            async with self.lab.db.transaction("test") as tx:
                await publish(tx, read_workflow(text), text)
            self.known.add(text)

    async def until(self, query: str, seconds: float, **params: Any) -> bool:
        """Wait until this query returns something, at most so long; whether it did."""
        until = time.monotonic() + seconds
        while True:
            if await self.lab.rows(query, **params):
                return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.015)

    async def is_over(self, job: str) -> bool:
        """Whether the job has ended."""
        return await self.until(OVER, 0.0, job=job)

    async def ended(self, job: str, seconds: float | None = None) -> None:
        """Return when the job has ended; raises Stuck with an explanation when it does not."""
        if not await self.until(OVER, seconds or self.watchdog_seconds, job=job):
            explanation = await self.lab.explain(job)
            await self.give_up(job)
            raise Stuck(f"job {job} never ended: {explanation}")

    async def give_up(self, job: str) -> None:
        """Get a job out of the way of the next."""
        with contextlib.suppress(AlreadyTerminal):
            await self.lab.cancel(job)

    async def set_gate(self, job: str, *, is_closed: bool) -> None:
        """Make handlers wait, or let them go on."""
        close = "insert into torture.gates values (%(job)s) on conflict do nothing"
        await self.lab.rows(close if is_closed else "delete from torture.gates where job = %(job)s", job=job)

    async def open_family(self, job: str) -> None:
        """Let the handlers of this job, its children and its like go on."""
        query = (
            "delete from torture.shut"
            " where mark = (select correlation_id from cograil.jobs where id = %(job)s)"
        )
        await self.lab.rows(query, job=job)

    # -- processes -----------------------------------------------------------------------------------

    async def fork(self, role: str, **more: Any) -> Child:
        """A process for the point at hand."""
        child = await self.fork_server.fork(role, self.dsn, mutant=self.mutant, **more)
        self.passing.append(child)
        return child

    async def clear(self) -> None:
        """End the processes of the point at hand, and the jobs that were only there for it."""
        for child in self.passing:
            await child.kill()
            await self.end_lease(child)
        self.passing.clear()
        for job in self.beside:
            await self.give_up(job)
        self.beside.clear()

    async def end_lease(self, child: Child) -> None:
        """What 15 s of silence do, at once."""
        query = (
            "update cograil.processes set lease_until = now() - interval '1 s'"
            " where name like %(name)s and state in ('alive', 'draining')"
        )
        await self.lab.rows(query, name=f"%:{child.pid}-%")

    @contextlib.asynccontextmanager
    async def helped(self) -> AsyncIterator[None]:
        """With an orchestrator and a worker, whichever of them is not there already."""
        missing = {"orchestrator", "worker"} - self.helpers.keys()
        extra = [await self.fork_server.fork(role, self.dsn) for role in missing]
        yield
        for child in extra:
            await child.kill()
            await self.end_lease(child)

    async def help_with(self, *roles: str) -> None:
        """Keep exactly these running beside the victims."""
        for role in list(self.helpers):
            if role not in roles or self.helpers[role].ended.is_set():
                child = self.helpers.pop(role)
                await child.kill()
                await self.end_lease(child)
        for role in roles:
            if role not in self.helpers:
                self.helpers[role] = await self.fork_server.fork(role, self.dsn)


@contextlib.asynccontextmanager
async def open_lanes(
    postgres: str, template: str, directory: Path, count: int, *, mutant: str | None = None
) -> AsyncIterator[list[Lane]]:
    """`count` lanes, each on a copy of the template, all with one fork server."""
    async with contextlib.AsyncExitStack() as stack:
        fork_server = await stack.enter_async_context(open_fork_server(directory))
        lanes = []
        for _ in range(count):
            dsn = stack.enter_context(_database(postgres, template))
            settings = Settings(
                database={"allow_unsafe": True, "idle_in_transaction_seconds": 10}, outbound=HERE
            )
            lab = await stack.enter_async_context(open_harness(dsn, settings))
            lab.engine_context = decider_with_small_chunks(settings)
            lanes.append(Lane(lab, fork_server, dsn, mutant))
            stack.push_async_callback(lanes[-1].help_with)
        yield lanes


@contextlib.contextmanager
def _database(postgres: str, template: str) -> Any:
    name = sql.Identifier(f"torture_{next(NUMBERS)}")
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} template {}").format(name, sql.Identifier(template)))
        dsn = make_conninfo(postgres, dbname=name.as_string(None).strip('"'))
        with psycopg.connect(dsn) as connection:
            connection.execute(effect_handlers.SCHEMA.encode())
        yield dsn
        admin.execute(sql.SQL("drop database {} with (force)").format(name))
