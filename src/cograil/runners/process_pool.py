"""The child processes of a worker: started when needed, kept warm, replaced when worn out, killed when stuck.

One child runs one handler at a time. Whatever happens to it, its attempt gets an outcome and the worker
lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from cograil.model.outcome import Failed, Outcome, WorkItem
from cograil.runners import ipc
from cograil.runners.context import Channel, Context

log = structlog.get_logger("worker")

START_SECONDS = 60.0
MIB = 1024 * 1024
MAX_GROWTH = 256 * MIB  # without a limit, a child that has grown by this much is replaced

MakeOrder = Callable[[], ipc.ChildSetup]


@dataclass(frozen=True, slots=True)
class RecyclePolicy:
    """When a child is worn out."""

    tasks: int
    memory_bytes: int

    @property
    def most_growth(self) -> int:
        """How much memory a child may have gained since its start and still be used again."""
        return self.memory_bytes // 2 or MAX_GROWTH


class ChildProcess:
    """One child process, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process, link: socket.socket) -> None:
        self.process = process
        self.tasks = 0
        self.growth = 0
        self._link = link
        self._memory_at_start = 0

    @property
    def lives(self) -> bool:
        """By what the system says: a loop that is busy hears of an end much later."""
        if self.process.returncode is not None or self._reader.at_eof():
            return False
        with contextlib.suppress(ChildProcessError):  # somebody has heard its end already
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return False

    @classmethod
    async def start(cls, order: ipc.ChildSetup) -> ChildProcess:
        """A new one, ready; raises ConnectionError when it ends before it is."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-P",
                    "-m",
                    "cograil.runners.process_child",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # its own group: what a handler starts is killed with it
            )
        child = cls(process, ours)
        try:
            await asyncio.wait_for(child._greet(order), START_SECONDS)
        except BaseException:
            await child.kill()
            raise
        return child

    async def _greet(self, order: ipc.ChildSetup) -> None:
        self._reader, self._writer = await ipc.open_link(self._link)
        self._writer.write(ipc.order_message(order))
        if (answer := await ipc.receive(self._reader)) is None:
            raise ConnectionError(f"a child process {await self._how_it_ended()} when it started")
        self._memory_at_start = answer["ready"]

    async def run(self, item: WorkItem, ctx: Context, channel: Channel) -> Outcome:
        """Run this attempt to its end, whatever that is."""
        self.tasks += 1
        self._writer.write(ipc.run_message(item))
        while (message := await ipc.receive(self._reader)) is not None:
            if "outcome" in message:
                self.growth = message["memory"] - self._memory_at_start
                return ipc.read_outcome(message)
            await self._serve(message, item, ctx, channel)
        return Failed("child_died", f"the child process {await self._how_it_ended()}")

    def stop(self, reason: str) -> None:
        """Tell the handler that it should end."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._writer.write(ipc.packed({"stop": reason}))

    async def kill(self) -> None:
        """End it now, and what its handler started; returns when it is gone."""
        if self.process.returncode is None:  # else its number may be that of another group by now
            self._kill_group()
        await self.process.wait()
        if hasattr(self, "_writer"):
            self._writer.close()
        else:
            self._link.close()

    async def _serve(self, message: ipc.Message, item: WorkItem, ctx: Context, channel: Channel) -> None:
        """What the context in the child says goes to the channel of the worker."""
        if "progress" in message:
            channel.note_progress(item, *message["progress"])
        elif "log" in message:
            channel.note_log(item, message["log"])
        elif "ask" in message:
            if "step" in message:
                saved = await channel.save_step(item, message["step"], message["output"].encode())
            elif "event" in message:
                saved = await channel.tell(item, ipc.read_event(message))
            else:
                data = message["checkpoint"].encode()
                saved = await channel.save_checkpoint(item, data, message["phase"])
            self._writer.write(ipc.packed({"answer": message["ask"], "saved": saved}))
            if not saved:
                ctx.cancel("lost")

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def _how_it_ended(self) -> str:
        """Its end of the link is closed: if it still lives it is of no use, nor is what it started."""
        self._kill_group()
        code = await self.process.wait()
        if code >= 0:
            return f"ended with code {code}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"


class ProcessPool:
    """The children of a worker. As many run as there are attempts; the idle ones wait for the next."""

    def __init__(self, make_order: MakeOrder, wear: RecyclePolicy) -> None:
        self._make_order = make_order
        self._wear = wear
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()
        self._warming: set[asyncio.Task[None]] = set()
        self._waiting = 0  # how many attempts wait for a child that is being started
        self._is_closed = False

    def warm_up(self) -> None:
        """Have a child ready, before it is needed."""
        if not self._is_closed:
            task = asyncio.create_task(self._start_idle(), name="warm up")
            self._warming.add(task)
            task.add_done_callback(self._warming.discard)

    async def run(
        self, item: WorkItem, ctx: Context, channel: Channel, begun: asyncio.Future[ChildProcess]
    ) -> Outcome:
        """Run this attempt in a child, which `begun` then names. Cancel this, and the child is killed."""
        try:
            child = await self._take()
        except (OSError, TimeoutError) as error:
            return Failed("child_died", f"no child process could be started: {error}")
        begun.set_result(child)
        is_worn = True
        try:
            outcome = await child.run(item, ctx, channel)
            is_worn = not self._may_go_on(child, outcome)
            return outcome
        except (KeyError, TypeError, ValueError) as error:  # a handler that wrote where only we write
            return Failed("child_died", f"the child process said what nobody understands: {error!r}")
        finally:
            await self._put_back(child, is_worn=is_worn)

    async def close(self) -> None:
        """End all of them."""
        self._is_closed = True
        for task in list(self._warming):
            task.cancel()
        await asyncio.gather(*self._warming, return_exceptions=True)
        await asyncio.gather(*(self._end(child) for child in list(self._all)))

    async def _take(self) -> ChildProcess:
        while self._idle:
            child = self._idle.pop()
            if child.lives:
                return child
            await self._end(child)
        if self._waiting >= len(self._warming):  # those that are on their way are spoken for
            return await self._start()
        self._waiting += 1
        try:
            await asyncio.wait(set(self._warming), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting -= 1
        return await self._take()

    async def _start(self) -> ChildProcess:
        child = await ChildProcess.start(self._make_order())
        self._all.add(child)
        return child

    async def _start_idle(self) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # whoever needs one tries again, and tells
            self._idle.append(await self._start())

    def _may_go_on(self, child: ChildProcess, outcome: Outcome) -> bool:
        is_ill = isinstance(outcome, Failed) and outcome.code in ("out_of_memory", "child_died")
        is_young = child.tasks < self._wear.tasks and child.growth <= self._wear.most_growth
        return child.lives and is_young and not is_ill

    async def _put_back(self, child: ChildProcess, *, is_worn: bool) -> None:
        if not is_worn and not self._is_closed:
            self._idle.append(child)
            return
        self.warm_up()
        await self._end(child)

    async def _end(self, child: ChildProcess) -> None:
        self._all.discard(child)
        await child.kill()
