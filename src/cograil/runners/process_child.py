"""A child process of a worker. It runs one handler at a time and can be killed.

The worker starts it as a module in a new interpreter. The handler runs in the main thread; another thread talks
to the worker. The process ends when the worker ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import queue
import resource
import signal
import socket
import sys
import threading
from typing import Any

from cograil import logs
from cograil.errors import CograilError
from cograil.model.app_events import AppEvent
from cograil.model.outcome import Failed, Outcome, WorkItem
from cograil.runners import handler_output, ipc, python_runner
from cograil.runners.context import Context, Limits
from cograil.runners.handler_exceptions import Fail
from cograil.runners.handler_registry import default_registry
from cograil.runners.handler_transaction import TransactionBackend

PR_SET_PDEATHSIG = 1
MEMORY_LIMIT = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS

StartedAttempt = tuple[WorkItem, Context]


class PipeChannel:
    """The channel of a context to the worker, used in the event loop of `WorkerConnection`."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._pending_answers: dict[int, asyncio.Future[bool]] = {}
        self._last = 0

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        return await self._ask({"checkpoint": data.decode(), "phase": phase})

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        return await self._ask({"step": name, "output": output.decode()})

    async def tell(self, item: WorkItem, event: AppEvent) -> bool:
        return await self._ask(ipc.event_message(event))

    def create_transaction(self, item: WorkItem, connection: Any) -> TransactionBackend:
        raise Fail("ctx.transaction() is for coroutine handlers of a worker", code="bad_transaction")

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        self._tell({"progress": [current, total, message]})

    def note_log(self, item: WorkItem, line: dict[str, Any]) -> None:
        self._tell({"log": line})

    def receive_answer(self, number: int, is_saved: bool) -> None:
        """Resolve one request with the answer of the worker."""
        if (answer := self._pending_answers.pop(number, None)) is not None and not answer.done():
            answer.set_result(is_saved)

    async def _ask(self, question: ipc.Message) -> bool:
        self._last += 1
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._pending_answers[self._last] = answer
        self._writer.write(ipc.packed({"ask": self._last, **question}))
        return await answer

    def _tell(self, message: ipc.Message) -> None:
        text = ipc.packed(message)
        self._loop.call_soon_threadsafe(self._writer.write, text)


class WorkerConnection(threading.Thread):
    """The thread that talks to the worker, with its own event loop."""

    def __init__(self, link: socket.socket) -> None:
        super().__init__(name="talker", daemon=True)
        self.setups: queue.Queue[ipc.ChildSetup] = queue.Queue()
        self.attempts: queue.Queue[StartedAttempt] = queue.Queue()
        self._link = link
        self._limits = Limits()
        self._ctx: Context | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            os._exit(0)  # the worker is gone; no result is needed

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        reader, self._writer = await ipc.open_link(self._link)
        self._channel = PipeChannel(self._writer)
        while (message := await ipc.receive(reader)) is not None:
            self._on_notify(message)

    def _on_notify(self, message: ipc.Message) -> None:
        if "run" in message:
            item = ipc.read_item(message)
            self._ctx = Context(item, self._channel, self._limits)
            self.attempts.put((item, self._ctx))
        elif "stop" in message and self._ctx is not None:
            self._ctx.cancel(message["stop"])
        elif "answer" in message:
            self._channel.receive_answer(message["answer"], message["saved"])
        elif "setup" in message:
            setup = ipc.read_setup(message)
            self._limits = Limits(**setup.limits)
            self.setups.put(setup)

    def tell(self, text: bytes) -> None:
        """Send a message, from any thread."""
        self._loop.call_soon_threadsafe(self._writer.write, text)


def main(descriptor: str, parent: str) -> None:
    """Run the child process: get the setup, import its modules, then run attempts."""
    _end_with(int(parent))
    link = socket.socket(fileno=int(descriptor))
    link.set_inheritable(False)
    talker = WorkerConnection(link)
    talker.start()
    setup = talker.setups.get()
    logs.configure(setup.log_level, setup.log_format)
    handler_output.capture(is_output_captured=setup.is_output_captured)
    problem = _import(setup)
    _limit_memory(setup.memory_bytes)
    talker.tell(ipc.packed({"ready": memory_taken()}))
    while True:
        item, ctx = talker.attempts.get()
        outcome = Failed("handler_missing", problem) if problem else run(item, ctx, Limits(**setup.limits))
        talker.tell(ipc.outcome_message(outcome, memory_taken()))


def run(item: WorkItem, ctx: Context, limits: Limits) -> Outcome:
    """Run this attempt in the main thread."""
    spec = default_registry.get(item.handler)
    if spec is None:
        return Failed(
            "handler_missing", f"no module of the child process registers the handler {item.handler!r}"
        )
    try:
        return python_runner.run_here(spec, item, ctx, limits)
    except MemoryError:
        return _out_of_memory()


def _out_of_memory() -> Failed:
    """Lift the memory limit, so that the failure can be reported. This child is not used again."""
    _, most = resource.getrlimit(MEMORY_LIMIT)
    resource.setrlimit(MEMORY_LIMIT, (most, most))
    return Failed(
        "out_of_memory", "the handler needs more memory than COGRAIL_WORKER__CHILD_MEMORY_MB allows"
    )


def _import(setup: ipc.ChildSetup) -> str:
    """Import the modules of the handlers. Return a message about a failed import, else an empty string."""
    sys.path[:] = setup.path
    for module in setup.modules:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit, CograilError) as error:
            return f"the module {module!r} cannot be imported in a child process: {error!r}"
    return ""


def _limit_memory(limit: int) -> None:
    """Set only the soft limit, so that `_out_of_memory` can lift it."""
    if limit:
        _, most = resource.getrlimit(MEMORY_LIMIT)
        resource.setrlimit(MEMORY_LIMIT, (limit, most))


def memory_taken() -> int:
    """Return the resident memory of this process in bytes."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _end_with(parent: int) -> None:
    """Make this process end with the worker. Without such a signal, the closed socket ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
