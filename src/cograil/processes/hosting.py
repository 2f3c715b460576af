"""The database of an instance: our own PostgreSQL in the data directory, or the one we were told."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from typing import Self

from cograil.errors import DatabaseUnavailable
from cograil.settings import Settings
from cograil.store.database import connect
from cograil.store.directory import Instance, write_instance
from cograil.store.embedded import EmbeddedPostgres
from cograil.store.migrate import check_server, migrate

Report = Callable[[str], None]


class Host:
    """A database for an instance to run on.

    With COGRAIL_DATABASE_URL there is nothing to start, and nothing is written to the data directory:
    any number of instances may share that server.
    """

    def __init__(self, settings: Settings, report: Report = lambda _: None) -> None:
        self.conninfo = settings.database.url or ""
        self._server = None if self.conninfo else EmbeddedPostgres(settings.data_dir, report=report)
        self._announced: tuple[str, int] | None = None

    @property
    def is_embedded(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        """Run the server, in the main thread. Raises what EmbeddedPostgres.start raises."""
        if self._server is not None:
            self.conninfo = self._server.start()

    def stop(self) -> None:
        """Shut the server down cleanly; waits for it."""
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def announce(self, host: str, port: int) -> None:
        """Tell the command line where we are (instance.json), until `stop`."""
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
        """Start the server again if it has ended; whether that was so. Blocks, for a second or less.

        Raises DatabaseUnavailable when it cannot be had back where its clients look for it.
        """
        if self._server is None or self._server.pid is not None:
            return False
        before = self.conninfo
        self._server.stop()
        self.start()
        if self.conninfo != before:
            raise DatabaseUnavailable("PostgreSQL ended; it runs again in another place, start cograil anew")
        if self._announced:
            self.announce(*self._announced)
        return True


async def prepare_database(conninfo: str, settings: Settings) -> None:
    """Bring the schema up to date on a server that keeps what it commits.

    Raises UnsafeDatabase, SchemaMismatch or DatabaseUnavailable.
    """
    async with await connect(settings.database.direct_url or conninfo, prepare=False) as connection:
        await check_server(connection, settings.database.allow_unsafe)
        await migrate(connection)
