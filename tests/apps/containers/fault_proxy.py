"""A proxy in front of a container engine that drops the answers to some requests."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Loss = Literal["silent", "cut"]  # nothing comes back any more; or the connection ends before the answer


@dataclass
class FaultProxy:
    """Passes everything on, but for the answers to requests that are to be lost, as often as each is to be."""

    engine: str
    url: str = ""
    losses: list[tuple[str, Loss]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def lose(self, pattern: str, loss: Loss, times: int = 1) -> None:
        self.losses += [(pattern, loss)] * times

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with closing(writer):
            there, here = await asyncio.open_unix_connection(self.engine.removeprefix("unix://"))
            losing: list[Loss] = []
            async with closing(here), asyncio.TaskGroup() as group:
                back = group.create_task(self._back(there, writer, losing))
                while data := await reader.read(65536):
                    losing += self._losses_of(data)
                    here.write(data)
                    await here.drain()
                back.cancel()

    def _losses_of(self, data: bytes) -> list[Loss]:
        line = data.split(b"\r\n", 1)[0].decode(errors="replace")
        for loss in self.losses:
            if re.search(loss[0], line):
                self.losses.remove(loss)
                self.lost.append(line)
                return [loss[1]]
        return []

    @staticmethod
    async def _back(there: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: list[Loss]) -> None:
        while data := await there.read(65536):
            if "cut" in losing:
                break
            if not losing:
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Closed in the end, however that comes."""
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def open_fault_proxy(engine: str, place: Path) -> AsyncIterator[FaultProxy]:
    """Listens in this directory; its `url` is an engine that now and then is not understood."""
    proxy = FaultProxy(engine, f"unix://{place}/proxy.sock")

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve(reader, writer))
        proxy._tasks.add(task)

    server = await asyncio.start_unix_server(begin, f"{place}/proxy.sock")
    try:
        yield proxy
    finally:
        server.close()
        for task in proxy._tasks:
            task.cancel()
        await asyncio.gather(*proxy._tasks, return_exceptions=True)
