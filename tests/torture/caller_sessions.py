"""A caller at a door: real requests to a server that is struck, and then to the next one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from tests.support.api_client import ApiClient, ApiResponse
from tests.torture import oracles
from tests.torture.client_strikes import GONE_SECONDS, STOPPED_SECONDS
from tests.torture.crash import Run
from tests.torture.forked_processes import Child
from tests.torture.lane import NUMBERS, Lane, Stuck

from cograil.verbs.key_management import create_key

TRIES = 6
DYING_SECONDS = 2.0  # a connection that broke has a server that is about to be seen dead
BEFORE = (
    "check.",
    "schema.",
    "doors.",
    "keys.",
)  # what every server passes before it does anything for anybody

Look = Callable[[], Awaitable[list[str]]]


class Reply(NamedTuple):
    """What a caller was told; a status of 0 when it did not dare to ask again."""

    status: int
    body: Any
    times: int  # how often it asked


@dataclass
class CallerSession:
    """A caller that asks until it is answered. `look` is what must hold whenever a server was struck."""

    lane: Lane
    run: Run
    look: Look
    mark: str
    key: str
    is_from_the_start: bool  # strike it before it does anything for anybody, too; it is the same for all
    victim: Child = field(init=False)
    server: Child = field(init=False)
    door: Path = field(init=False)  # where it writes down its port
    late: list[ApiResponse] = field(
        default_factory=list
    )  # what a server said that was woken after all was over
    _unanswered: list[asyncio.Task[ApiResponse | None]] = field(default_factory=list)

    async def open(self) -> None:
        """Begin with the server that is to be struck."""
        fault = self.run.fault
        seconds = STOPPED_SECONDS if fault is not None and fault.mode == "stop" else 5.0
        await self._fork(fault=fault and fault.order, idle_seconds=seconds)
        self.victim = self.server

    async def _fork(self, **order: Any) -> None:
        self.door = Path(f"{self.lane.fork_server.directory}/door-{next(NUMBERS)}")
        self.server = await self.lane.fork("server", answer=str(self.door), **order)

    async def ask(
        self, path: str, body: Any = None, *, method: str = "POST", is_safe: bool = True, **headers: str
    ) -> Reply:
        """Ask, and ask again when there was no answer, unless that would not be safe."""
        sent = {"x-request-id": self.mark} | {name.replace("_", "-"): text for name, text in headers.items()}
        for times in range(1, TRIES + 1):
            answer = await self._once(method, path, body, sent)
            if answer is not None and answer.status < 500:
                return Reply(answer.status, answer.body if answer.raw else None, times)
            await self._recover(is_broken=answer is None)
            if not is_safe:
                return Reply(0, None, times)
        raise Stuck(f"{path} was asked {TRIES} times and never answered")

    async def _once(self, method: str, path: str, body: Any, headers: dict[str, str]) -> ApiResponse | None:
        """One request; None when its server is gone or silent."""
        port = await self._port()
        if port is None:
            return None
        asking = asyncio.create_task(self._call(port, method, path, body, headers))
        struck = asyncio.create_task(self.server.struck())
        try:
            await asyncio.wait({asking, struck}, timeout=GONE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            struck.cancel()
        if not asking.done() and self.server.stopped.is_set():
            self._unanswered.append(asking)
            return None
        return await asking

    async def _call(
        self, port: int, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> ApiResponse | None:
        api = ApiClient(self.lane.lab, cast("Any", None), port, self.key)
        try:
            at = path if path.startswith("/v1/") else f"/api/v1{path}"
            return await api.call(method, at, body, headers)
        except (OSError, TimeoutError, IndexError, ValueError):  # no answer, or half of one
            return None

    async def _port(self) -> int | None:
        """Where the server answers; None when it was struck before it did."""
        until = time.monotonic() + GONE_SECONDS
        while not self.door.exists():
            if self.server.stopped.is_set() or self.server.ended.is_set() or time.monotonic() > until:
                return None
            await asyncio.sleep(0.005)
        return int(self.door.read_text())

    async def _recover(self, *, is_broken: bool) -> None:
        """Look at what is left, and turn to another server when this one is gone."""
        if is_broken:
            await self.server.struck_within(DYING_SECONDS)
        self.run.violations += await oracles.at_once(self.lane)
        self.run.violations += [f"at once: {violation}" for violation in await self.look()]
        if self.server.stopped.is_set() or self.server.ended.is_set():
            await self._fork()

    async def close(self) -> None:
        """Wake a server that was stopped; a server that lives must answer."""
        victim, fault = self.victim, self.run.fault
        points = victim.points()
        self.run.points = [
            point for point in points if self.is_from_the_start or not point.startswith(BEFORE)
        ]
        self.run.struck = any(point.startswith("!") for point in points)
        if victim.stopped.is_set():
            victim.resume()
            async with asyncio.timeout(GONE_SECONDS):
                answers = await asyncio.gather(*self._unanswered)
            self.late += [answer for answer in answers if answer is not None and answer.status < 500]
            self.server = victim
            self.door = Path(victim.answer)
            if (await self.ask("/jobs?limit=1", method="GET")).status != 200:
                self.run.violations.append("the woken server does not answer")
        is_killed = fault is not None and fault.mode == "kill9"
        if victim.ended.is_set() and not is_killed:
            self.run.violations.append(f"the server ended by itself with {victim.code}")


@contextlib.asynccontextmanager
async def caller_session(
    lane: Lane, run: Run, mark: str, look: Look, *, has_key: bool = True, is_from_the_start: bool = False
) -> AsyncIterator[CallerSession]:
    """A caller with the key of an admin, or none at all; what it left is to be looked at afterwards."""
    if not has_key:
        await lane.lab.rows("delete from cograil.keys")
        lane.key = ""
    elif not lane.key:
        async with lane.lab.db.transaction("test") as tx:
            lane.key = (await create_key(tx, role="admin", name="torture")).key
    session = CallerSession(lane, run, look, mark, lane.key, is_from_the_start)
    await session.open()
    yield session
    await session.close()
