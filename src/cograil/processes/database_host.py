"""The database of an instance: an embedded PostgreSQL in the data directory, or the configured server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from typing import Self

from cograil.embedded.data_directory import Instance, is_held, write_instance
from cograil.embedded.postgres_server import EmbeddedPostgres
from cograil.errors import DatabaseUnavailable
from cograil.processes.app_plugins import migrate_apps
from cograil.processes.instance_discovery import open_client
from cograil.settings import Settings
from cograil.store.database import Database, connect
from cograil.store.database_setup import set_up_database

Report = Callable[[str], None]


class Host:
    """The database server of an instance.

    With COGRAIL_DATABASE_URL it starts nothing and writes nothing to the data directory: any number of
    instances may share that server.
    """

    def __init__(
        self, settings: Settings, report: Report = lambda _: None, *, is_brief: bool = False
    ) -> None:
        self.conninfo = settings.database.url or ""
        self._server = None
        if not self.conninfo:
            self._server = EmbeddedPostgres(settings.data_dir, report=report, is_brief=is_brief)
        self._announced: tuple[str, int] | None = None

    @property
    def is_embedded(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        """Start the server, in the main thread. Raises what EmbeddedPostgres.start raises."""
        if self._server is not None:
            self.conninfo = self._server.start()

    def stop(self) -> None:
        """Shut the server down cleanly, and wait for it."""
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def announce(self, host: str, port: int) -> None:
        """Write the address of the instance to instance.json, until `stop`."""
        self._announced = (host, port)
        if self._server is not None:
            write_instance(
                Instance(
                    pid=os.getpid(),
                    conninfo=self.conninfo,
                    host=host,
                    port=port,
                    version=version_of("cograil"),
                    started_at=datetime.now(UTC),
                    data_dir=self._server.data_dir,
                )
            )

    def revive(self) -> bool:
        """Start the server again if it has ended; return whether it had. Blocks for a second or less.

        Raises DatabaseUnavailable when it cannot be started at the address that its clients use.
        """
        if self._server is None or self._server.pid is not None:
            return False
        before = self.conninfo
        self._server.stop()
        self.start()
        if self.conninfo != before:
            raise DatabaseUnavailable("PostgreSQL ended and runs again at another address; restart cograil")
        if self._announced:
            self.announce(*self._announced)
        return True


async def prepare_database(conninfo: str, settings: Settings) -> None:
    """Update the schema, on a server that keeps its commits.

    Raises UnsafeDatabase, RolesMissing, SchemaMismatch or DatabaseUnavailable.
    """
    async with await connect(settings.database.direct_url or conninfo, prepare=False) as connection:
        await set_up_database(connection, allow_unsafe=settings.database.allow_unsafe)
        await migrate_apps(connection, settings)


@asynccontextmanager
async def open_prepared(settings: Settings, *, application: str = "cograil") -> AsyncIterator[Database]:
    """Yield the database of the instance; where none runs, the embedded one is started for this block.

    It is created and migrated if necessary, so that data can be stored before the first start. Must be
    entered in the main thread. Raises what `open_client` and `prepare_database` raise.
    """
    if settings.database.url or is_held(settings.data_dir):
        async with open_client(settings, application=application) as db:
            yield db
        return
    host = Host(settings)
    async with AsyncExitStack() as stack:
        host.start()
        stack.push_async_callback(asyncio.to_thread, host.stop)
        await prepare_database(host.conninfo, settings)
        yield await stack.enter_async_context(
            Database(host.conninfo, settings.database, application=application)
        )
