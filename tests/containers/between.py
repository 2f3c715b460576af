"""Somebody between us and an engine, who loses what is said: requests that stay without an answer."""

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
class Between:
    """Passes everything on, but for the answers to requests that are to be lost, so many of each."""

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
async def open_between(engine: str, place: Path) -> AsyncIterator[Between]:
    """Listens in this directory; its `url` is an engine that now and then is not understood."""
    between = Between(engine, f"unix://{place}/between.sock")

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(between.serve(reader, writer))
        between._tasks.add(task)

    server = await asyncio.start_unix_server(begin, f"{place}/between.sock")
    try:
        yield between
    finally:
        server.close()
        for task in between._tasks:
            task.cancel()
        await asyncio.gather(*between._tasks, return_exceptions=True)
