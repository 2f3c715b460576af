"""Finds the instance and opens its database, as a client or as another process of the instance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from cograil.embedded.data_directory import has_cluster, is_held, is_held_briefly, read_instance
from cograil.errors import InvalidSettings, NoInstance, SchemaMismatch
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.store.migrate import status
from cograil.verbs.advance import make_engine_context

__all__ = [
    "check_schema",
    "find_conninfo",
    "make_engine_context",
    "open_client",
    "open_reader",
    "queue_checks",
    "require_queues",
]

STARTING_SECONDS = 15.0  # how long to wait for an instance that is just starting


@asynccontextmanager
async def open_client(
    settings: Settings, *, application: str = "cograil", is_schema_checked: bool = True
) -> AsyncIterator[Database]:
    """Yield the database of the running instance: COGRAIL_DATABASE_URL, or the instance on the data
    directory.

    Raises NoInstance when none runs, SchemaMismatch when this program cannot work with the schema (unless
    the check is off), DatabaseUnavailable when the database does not answer.
    """
    conninfo = await find_conninfo(settings)
    async with Database(conninfo, settings.database, application=application) as db:
        if is_schema_checked:
            await check_schema(db)
        yield db


@asynccontextmanager
async def open_reader(
    settings: Settings, *, application: str = "cograil", is_schema_checked: bool = True
) -> AsyncIterator[Database]:
    """Do the same for read-only commands: where no instance runs, PostgreSQL is started for this block.

    Raises NoInstance when there is no database either. Must be entered in the main thread.
    """
    if settings.database.url or not _may_be_started(settings.data_dir):
        async with open_client(settings, application=application, is_schema_checked=is_schema_checked) as db:
            yield db
        return
    from cograil.processes.database_host import Host  # noqa: PLC0415  most commands find an instance

    host = Host(settings, is_brief=True)
    async with AsyncExitStack() as stack:
        host.start()
        stack.push_async_callback(asyncio.to_thread, host.stop)
        db = await stack.enter_async_context(
            Database(host.conninfo, settings.database, application=application)
        )
        if is_schema_checked:
            await check_schema(db)
        yield db


def _may_be_started(data_dir: Path) -> bool:
    """Return whether a database exists that only read-only commands use, if any."""
    return has_cluster(data_dir) and (not is_held(data_dir) or is_held_briefly(data_dir))


async def find_conninfo(settings: Settings) -> str:
    """Return the connection string of the instance of these settings. Raises NoInstance when none runs."""
    if settings.database.url:
        return settings.database.url
    data_dir = settings.data_dir
    until = _now() + STARTING_SECONDS
    while is_held(data_dir):
        instance = read_instance(data_dir)
        if instance is not None:
            return instance.conninfo
        if _now() > until:
            raise NoInstance(f"a cograil is starting on {data_dir} and not ready yet; try again")
        await asyncio.sleep(0.05)
    raise NoInstance(
        f"nothing runs on {data_dir}; start it with `cograil up`, "
        "or name another directory with --data-dir or COGRAIL_DATABASE_URL"
    )


async def check_schema(db: Database) -> None:
    """Raise SchemaMismatch unless the database has the schema of this program, or a compatible one."""
    async with db.single("schema") as tx:
        schema = await status(tx.connection)
    if schema.problems:
        raise SchemaMismatch("; ".join(schema.problems))
    if schema.pending:
        raise SchemaMismatch(
            f"the database has schema {schema.current}, this program needs {schema.known}: "
            "run `cograil db migrate`"
        )


def require_queues(settings: Settings) -> None:
    """Raise InvalidSettings when queues must be named and are not."""
    if settings.queues.strict and not settings.queues.names:
        raise InvalidSettings(
            "COGRAIL_QUEUES__STRICT is on and no queue is named; use --queue or COGRAIL_QUEUES__NAMES"
        )


def queue_checks(settings: Settings) -> Mapping[str, Callable[[Database], Awaitable[str]]]:
    """Return the readiness check of the queues, for processes that start without named queues."""

    async def say(db: Database) -> str:
        return "not named, and COGRAIL_QUEUES__STRICT is on"

    return {"queues": say} if settings.queues.strict and not settings.queues.names else {}


def _now() -> float:
    return asyncio.get_running_loop().time()
