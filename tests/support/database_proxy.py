"""A proxy before the database that can cut, freeze or refuse connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class DatabaseProxy:
    """Forwards all bytes until it is frozen, cut or refusing."""

    def __init__(self, dsn: str, folder: Path) -> None:
        params = conninfo_to_dict(dsn)
        self._there = f"{params['host']}/.s.PGSQL.{params['port']}"
        self._here = folder / f".s.PGSQL.{params['port']}"
        self.dsn = make_conninfo(dsn, host=str(folder))
        self._server: asyncio.Server | None = None
        self._is_refusing = False
        self._passing = asyncio.Event()
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def restore(self) -> None:
        """Forward all bytes again."""
        self._passing.set()
        if self._is_refusing:
            await self.cut()
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._carry, self._here)

    def freeze(self) -> None:
        """Forward nothing more; connections stay open."""
        self._passing.clear()

    async def refuse_as_starting(self) -> None:
        """Break all connections; refuse new ones with the error of a server that is starting."""
        await self.cut()
        self._server = await asyncio.start_unix_server(self._refuse, self._here)
        self._is_refusing = True

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
        await reader.read(4096)
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
        writer.close()

    async def cut(self) -> None:
        """Break all connections and accept no new ones."""
        if self._server is not None:
            self._server.close()
            self._server, self._is_refusing = None, False
            self._here.unlink(missing_ok=True)
        self._passing.set()
        for end in list(self._ends):
            end.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there, back = await asyncio.open_unix_connection(self._there)
        self._ends |= {writer, back}
        try:
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        finally:
            self._ends -= {writer, back}
            for end in (writer, back):
                end.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def open_database_proxy(dsn: str) -> AsyncIterator[DatabaseProxy]:
    """A proxy before this database that forwards all bytes."""
    with TemporaryDirectory(prefix="wire") as folder:
        proxy = DatabaseProxy(dsn, Path(folder))
        await proxy.restore()
        try:
            yield proxy
        finally:
            await proxy.cut()
