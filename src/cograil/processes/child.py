"""A worker as a child process: started, watched, started again, and asked to stop at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import psycopg
import structlog

from cograil import metrics
from cograil.errors import CograilError, DatabaseUnavailable, UsageError
from cograil.processes.working import WorkOrder
from cograil.store.database import Database
from cograil.verbs import work

log = structlog.get_logger("up")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
STEADY_SECONDS = 10.0  # who lived this long did not die of its start
PATIENCE_SECONDS = 2.0
LONGEST_ANSWER = 1024 * 1024
STDERR = 2  # the descriptor
MARGIN_SECONDS = 20.0  # beyond the grace, for handing back and for saying good-bye

OnStart = Callable[[str | None], Awaitable[None]]


class WorkerChild:
    """One worker, as often as it takes.

    A child that dies is known to be dead, so its tasks need not wait for its lease to end.
    """

    def __init__(
        self,
        order: WorkOrder,
        db: Database,
        *,
        is_reloadable: bool = False,
        is_output_on_stderr: bool = False,
        on_start: OnStart | None = None,
    ) -> None:
        """What handlers print goes to standard error where standard output is for the answer of a command.

        `on_start` is called with the error of each child that cannot start, and with None when one works.
        """
        self._on_start = on_start or _log_error
        self.is_reloadable = is_reloadable
        self._stdout = STDERR if is_output_on_stderr else None
        self.handlers: list[str] = []
        self.is_ready = False
        self._order = order
        self._db = db
        self._process: asyncio.subprocess.Process | None = None
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asking = asyncio.Lock()
        self._questions = 0
        self._worker_id: int | None = None
        self._stop = asyncio.Event()
        self._is_reloading = False
        self._reload = asyncio.Event()
        self.loaded_files: list[Path] | None = None  # of the child's modules; None when it could not start
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        """Returns when the first child works; raises UsageError or CograilError when it cannot."""
        await asyncio.shield(self._first)

    def stop(self) -> None:
        """Let the child drain; `run` returns when it has. One that takes too long is killed."""
        self._stop.set()
        self._terminate()
        seconds = self._order.settings.worker.grace_seconds + MARGIN_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._kill)

    def reload(self) -> None:
        """Replace the child by one that imports its modules anew; what it runs is handed back, uncounted."""
        self._is_reloading = True
        self._reload.set()
        self._terminate()
        seconds = self._order.settings.worker.grace_seconds + MARGIN_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._kill_if, self._process)

    async def run(self) -> None:
        """Keep a worker until `stop`."""
        pause = SHORTEST_PAUSE
        clock = asyncio.get_running_loop().time
        try:
            while not self._stop.is_set():
                began = clock()
                await self._live()
                if self._stop.is_set():
                    break
                if self._is_reloading:
                    self._is_reloading = False
                    await self._declare_dead()
                elif self.is_reloadable and self.loaded_files is None:
                    await self._wait_for_edit()
                else:
                    pause = SHORTEST_PAUSE if clock() - began > STEADY_SECONDS else pause
                    await self._mourn(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            self._kill()
            self._settle(CograilError("stopped before the worker was ready"))

    async def _wait_for_edit(self) -> None:
        """Code that cannot be imported is not tried again before it is edited."""
        self._reload.clear()
        waiting = {asyncio.create_task(self._reload.wait()), asyncio.create_task(self._stop.wait())}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        self._is_reloading = False

    async def _live(self) -> None:
        """From the start of one child to its end."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "cograil.processes.working"),
                *(str(theirs.fileno()), str(os.getpid())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._stdout,
                start_new_session=True,  # an interrupt from the keyboard is for us to pass on
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_ANSWER)
        try:
            if self._stop.is_set():
                self._terminate()
            writer.write(self._order.to_json() + b"\n")
            await self._hear(await _read(reader))
            self._link = (reader, writer)
            await self._process.wait()
        finally:
            self.is_ready, self._link = False, None
            writer.close()

    async def _hear(self, answer: dict[str, object]) -> None:
        if "error" in answer:
            kind = UsageError if answer["exit_code"] == UsageError.exit_code else CograilError
            self._settle(kind(str(answer["error"])))
            self.loaded_files = None
            await self._on_start(str(answer["error"]))
        elif "worker_id" in answer:
            self.handlers = list(answer["handlers"])  # type: ignore[call-overload]
            self._worker_id = int(str(answer["worker_id"]))
            self.loaded_files = [Path(name) for name in answer["files"]]  # type: ignore[attr-defined]
            self.is_ready = True
            self._settle(None)
            await self._on_start(None)

    async def counts(self) -> metrics.Counts:
        """What the child has counted; nothing of one that is not there, or too busy to say."""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(PATIENCE_SECONDS), self._asking:
                return await self._ask()
        return metrics.NOTHING

    async def _ask(self) -> metrics.Counts:
        if self._link is None:
            return metrics.NOTHING
        reader, writer = self._link
        self._questions += 1
        writer.write(b"%d\n" % self._questions)
        while answer := await _read(reader):
            if answer.get("question") == self._questions:  # not one that we gave up
                return cast("metrics.Counts", answer["counts"])
        return metrics.NOTHING

    def _settle(self, error: CograilError | None) -> None:
        """The first answer decides whether there is any sense in going on."""
        if self._first.done():
            return
        if error is None:
            self._first.set_result(None)
        else:
            self._first.set_exception(error)
            self._first.exception()  # read by `ready`, or by nobody who cares

    async def _mourn(self, pause: float) -> None:
        assert self._process is not None
        code = self._process.returncode
        self._settle(CograilError(f"the worker ended ({code}) before it was ready"))
        log.warning("worker ended, starting another", exit_code=code, pid=self._process.pid, in_seconds=pause)
        await self._declare_dead()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), pause)

    async def _declare_dead(self) -> None:
        """What the child held and did not hand back need not wait for the end of its lease."""
        if self._worker_id is not None:
            with suppress(psycopg.Error, DatabaseUnavailable):
                async with self._db.single("leave") as tx:
                    await work.leave(tx, self._worker_id, "dead")
            self._worker_id = None

    def _terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def _kill_if(self, process: asyncio.subprocess.Process | None) -> None:
        if process is self._process:
            self._kill()

    def _kill(self) -> None:
        """The child and whatever its handlers started."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


async def _log_error(error: str | None) -> None:
    if error is not None:
        log.error("worker cannot start", error=error)


async def _read(reader: asyncio.StreamReader) -> dict[str, object]:
    """The child's answer; empty when it ended without one."""
    with suppress(ConnectionError):
        line = await reader.readline()
        return json.loads(line) if line.endswith(b"\n") else {}
    return {}
