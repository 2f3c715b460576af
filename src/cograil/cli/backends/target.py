"""What a command speaks to: a server, or the database of an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from cograil.cli.backends.interface import Backend
from cograil.cli.backends.server_profiles import Server
from cograil.cli.instance_client import connected, connected_to_read
from cograil.cli.options import chosen_tenant
from cograil.errors import UsageError
from cograil.settings import Settings


@dataclass(frozen=True, slots=True)
class Target:
    """The server of a command, or the settings that lead to a database."""

    settings: Settings | None = None
    server: Server | None = None

    def open(self) -> AbstractAsyncContextManager[Backend]:
        """Connect to the server or to the running instance. Raises NoInstance or DatabaseUnavailable."""
        return self._open_server() if self.server is not None else _open_database(self._database_settings())

    def open_to_read(self) -> AbstractAsyncContextManager[Backend]:
        """As `open`, to read only; when nothing runs, the embedded database is started for this command."""
        if self.server is not None:
            return self._open_server()
        return _open_database(self._database_settings(), reads_only=True)

    def require_database(self, reason: str) -> Settings:
        """Return the settings of a command that has to use the database. Raises UsageError for a server."""
        if self.server is not None:
            raise UsageError(
                f"{reason}; run this command where the database is, without {self.server.options}"
            )
        return self._database_settings()

    def _database_settings(self) -> Settings:
        assert self.settings is not None
        return self.settings

    def _open_server(self) -> AbstractAsyncContextManager[Backend]:
        from cograil.cli.backends.server_backend import open_server  # noqa: PLC0415  loads the HTTP client

        assert self.server is not None
        if (tenant := chosen_tenant()) != "default":
            raise UsageError(
                f"--tenant {tenant}: a server serves the tenant of the API key; use a key of that tenant"
            )
        return open_server(self.server)


@asynccontextmanager
async def _open_database(settings: Settings, *, reads_only: bool = False) -> AsyncIterator[Backend]:
    from cograil.cli.backends.database_backend import DatabaseBackend  # noqa: PLC0415  loads the engine

    async with (connected_to_read if reads_only else connected)(settings) as client:
        yield DatabaseBackend(client)
