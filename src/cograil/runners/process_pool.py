"""The pool of child processes of a worker: started on demand, reused, recycled, and killed when stuck.

One child runs one handler at a time. If a child dies, its attempt fails and the worker keeps running.
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

MakeSetup = Callable[[], ipc.ChildSetup]


@dataclass(frozen=True, slots=True)
class RecyclePolicy:
    """When a child process is replaced."""

    tasks: int
    memory_bytes: int

    @property
    def max_growth(self) -> int:
        """The maximum memory growth of a child that is reused."""
        return self.memory_bytes // 2 or MAX_GROWTH


class ChildProcess:
    """One child process."""

    def __init__(self, process: asyncio.subprocess.Process, link: socket.socket) -> None:
        self.process = process
        self.tasks = 0
        self.growth = 0
        self._link = link
        self._memory_at_start = 0

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, according to the system: a busy event loop learns of its end much later."""
        if self.process.returncode is not None or self._reader.at_eof():
            return False
        with contextlib.suppress(ChildProcessError):  # its exit status was already collected
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return False

    @classmethod
    async def start(cls, setup: ipc.ChildSetup) -> ChildProcess:
        """Start a child and wait until it is ready. Raises ConnectionError when it ends before that."""
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
                start_new_session=True,  # own process group: processes of the handler are killed with it
            )
        child = cls(process, ours)
        try:
            await asyncio.wait_for(child._handshake(setup), START_SECONDS)
        except BaseException:
            await child.kill()
            raise
        return child

    async def _handshake(self, setup: ipc.ChildSetup) -> None:
        self._reader, self._writer = await ipc.open_link(self._link)
        self._writer.write(ipc.setup_message(setup))
        if (answer := await ipc.receive(self._reader)) is None:
            raise ConnectionError(f"a child process {await self._exit_reason()} when it started")
        self._memory_at_start = answer["ready"]

    async def run(self, item: WorkItem, ctx: Context, channel: Channel) -> Outcome:
        """Run this attempt and return its outcome."""
        self.tasks += 1
        self._writer.write(ipc.run_message(item))
        while (message := await ipc.receive(self._reader)) is not None:
            if "outcome" in message:
                self.growth = message["memory"] - self._memory_at_start
                return ipc.read_outcome(message)
            await self._serve(message, item, ctx, channel)
        return Failed("child_died", f"the child process {await self._exit_reason()}")

    def stop(self, reason: str) -> None:
        """Ask the handler to stop."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._writer.write(ipc.packed({"stop": reason}))

    async def kill(self) -> None:
        """Kill the process and the processes of its handler; returns when it has ended."""
        if self.process.returncode is None:  # else the system may have reused its process id
            self._kill_group()
        await self.process.wait()
        if hasattr(self, "_writer"):
            self._writer.close()
        else:
            self._link.close()

    async def _serve(self, message: ipc.Message, item: WorkItem, ctx: Context, channel: Channel) -> None:
        """Pass a message of the child's context to the channel of the worker."""
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

    async def _exit_reason(self) -> str:
        """Kill what is left of a child whose connection is closed, and return how it ended."""
        self._kill_group()
        code = await self.process.wait()
        if code >= 0:
            return f"ended with code {code}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"


class ProcessPool:
    """The child processes of a worker: one for each running process handler, plus idle ones."""

    def __init__(self, make_setup: MakeSetup, policy: RecyclePolicy) -> None:
        self._make_setup = make_setup
        self._policy = policy
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()
        self._warming: set[asyncio.Task[None]] = set()
        self._waiting = 0  # attempts that wait for a starting child
        self._is_closed = False

    def warm_up(self) -> None:
        """Start an idle child in advance."""
        if not self._is_closed:
            task = asyncio.create_task(self._start_idle(), name="warm up")
            self._warming.add(task)
            task.add_done_callback(self._warming.discard)

    async def run(
        self, item: WorkItem, ctx: Context, channel: Channel, started: asyncio.Future[ChildProcess]
    ) -> Outcome:
        """Run this attempt in a child, which `started` resolves to. Cancelling this kills the child."""
        try:
            child = await self._take()
        except (OSError, TimeoutError) as error:
            return Failed("child_died", f"no child process could be started: {error}")
        started.set_result(child)
        is_used_up = True
        try:
            outcome = await child.run(item, ctx, channel)
            is_used_up = not self._is_reusable(child, outcome)
            return outcome
        except (KeyError, TypeError, ValueError) as error:  # the handler wrote to the connection
            return Failed("child_died", f"the child process sent an invalid message: {error!r}")
        finally:
            await self._put_back(child, is_used_up=is_used_up)

    async def close(self) -> None:
        """Kill all children."""
        self._is_closed = True
        for task in list(self._warming):
            task.cancel()
        await asyncio.gather(*self._warming, return_exceptions=True)
        await asyncio.gather(*(self._end(child) for child in list(self._all)))

    async def _take(self) -> ChildProcess:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            await self._end(child)
        if self._waiting >= len(self._warming):  # starting children are already taken
            return await self._start()
        self._waiting += 1
        try:
            await asyncio.wait(set(self._warming), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting -= 1
        return await self._take()

    async def _start(self) -> ChildProcess:
        child = await ChildProcess.start(self._make_setup())
        self._all.add(child)
        return child

    async def _start_idle(self) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # the next attempt retries and reports the error
            self._idle.append(await self._start())

    def _is_reusable(self, child: ChildProcess, outcome: Outcome) -> bool:
        is_broken = isinstance(outcome, Failed) and outcome.code in ("out_of_memory", "child_died")
        is_within_policy = child.tasks < self._policy.tasks and child.growth <= self._policy.max_growth
        return child.is_alive and is_within_policy and not is_broken

    async def _put_back(self, child: ChildProcess, *, is_used_up: bool) -> None:
        if not is_used_up and not self._is_closed:
            self._idle.append(child)
            return
        self.warm_up()
        await self._end(child)

    async def _end(self, child: ChildProcess) -> None:
        self._all.discard(child)
        await child.kill()
