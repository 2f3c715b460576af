"""The fork server and its children as the test sees them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Child:
    """One forked process. `stopped` and `ended` are set when the kernel said so."""

    def __init__(self, fork_server: ForkServer, pid: int, order: dict[str, Any]) -> None:
        self._fork_server = fork_server
        self.pid = pid
        self.role: str = order["role"]
        self.log: str = order["log"]
        self.answer: str = order["answer"]
        self.stopped = asyncio.Event()
        self.ended = asyncio.Event()
        self.code: int | None = None

    def send(self, number: int) -> None:
        """Have the fork server send a signal, for it alone knows whether this is still its child's id."""
        self._fork_server.order(pid=self.pid, signal=int(number))

    def resume(self) -> None:
        """Let it go on."""
        self.stopped.clear()
        self.send(signal.SIGCONT)

    async def kill(self) -> None:
        """End it now."""
        self.send(signal.SIGKILL)
        await self.ended.wait()

    async def struck_within(self, seconds: float) -> None:
        """Return when it is stopped or gone, or after this time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.struck(), seconds)

    async def struck(self) -> None:
        """Return when it is stopped or gone."""
        waits = [asyncio.create_task(event.wait()) for event in (self.stopped, self.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @property
    def is_struck(self) -> bool:
        """Whether it has come to the point where its fault waits."""
        return any(point.startswith("!") for point in self.points())

    def points(self) -> list[str]:
        """The points it has passed so far."""
        log = Path(self.log)
        return log.read_text().splitlines() if log.exists() else []


class ForkServer:
    """Where children come from."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process = process
        self.directory = directory
        self._numbers = itertools.count(1)
        self._born: dict[int, tuple[asyncio.Future[Child], dict[str, Any]]] = {}
        self._children: dict[int, Child] = {}

    async def fork(self, role: str, dsn: str, **more: Any) -> Child:
        """A child that becomes this."""
        number = next(self._numbers)
        base = self.directory / f"{number}-{role}"
        order = {"number": number, "role": role, "dsn": dsn, "output": f"{base}.out", "log": f"{base}.log"}
        order |= {"answer": f"{base}.answer"} | more
        born: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._born[number] = (born, order)
        self.order(**order)
        return await born

    def order(self, **order: Any) -> None:
        """Send an order to the fork server."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def hear(self) -> None:
        """Take note of what the fork server reports, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._note(json.loads(line))

    def _note(self, facts: dict[str, Any]) -> None:
        if "number" in facts:
            born, order = self._born.pop(facts["number"])
            child = self._children[facts["pid"]] = Child(self, facts["pid"], order)
            if born.cancelled():
                child.send(signal.SIGKILL)  # nobody waits for it any more
            else:
                born.set_result(child)
        elif "stopped" in facts:
            self._children[facts["pid"]].stopped.set()
        elif "ended" in facts:
            child = self._children.pop(facts["pid"])
            child.code = facts["ended"]
            child.ended.set()


@contextlib.asynccontextmanager
async def open_fork_server(directory: Path) -> AsyncIterator[ForkServer]:
    """A fork server with everything imported; its children end with it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.torture.fork_server_main"),
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("COGRAIL_")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    fork_server = ForkServer(process, directory)
    hearing = asyncio.create_task(fork_server.hear())
    try:
        yield fork_server
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await hearing
