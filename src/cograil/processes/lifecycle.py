"""The life of a process: its event loop, its name, its signals."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, TypeVar

from cograil import tracing

Result = TypeVar("Result")

COLLECT_SECONDS = 30.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_async(main: Coroutine[Any, Any, Result], part: str | None = None) -> Result:
    """Run this to its end in an event loop of its own: uvloop if available. A `part` of an instance is
    traced.

    Garbage collection runs far less often than by default: a batch of jobs is thousands of objects without
    cycles, and a profile showed repeated scans of them. It also runs every `COLLECT_SECONDS`, because
    cycles of handlers may hold much memory with few objects.
    """
    if part is not None:
        tracing.configure(part)
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            _collect_regularly(runner.get_loop())
            return runner.run(main)
    finally:
        tracing.shutdown()


def _collect_regularly(loop: asyncio.AbstractEventLoop) -> None:
    """Collect the young generations regularly; the old one is collected as often as by default."""

    def collect() -> None:
        gc.collect(1)
        loop.call_later(COLLECT_SECONDS, collect)

    loop.call_later(COLLECT_SECONDS, collect)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def process_name() -> str:
    """Return a unique name for this start of this process."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}-{secrets.token_hex(3)}"


def stop_on_signals(on_stop: Callable[[], None] | None = None) -> asyncio.Event:
    """Return an event that a stop signal sets; a second signal ends the process at once.

    The kernel then ends its children too (the worker is killed, PostgreSQL shuts down), and uncommitted
    work is rolled back.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(number: int) -> None:
        if stop.is_set():
            end_process(128 + number)
        stop.set()
        if on_stop is not None:
            on_stop()

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, hear, number)
    return stop


@asynccontextmanager
async def kept_running(
    run: Coroutine[Any, Any, None], stop: Callable[[], None]
) -> AsyncIterator[asyncio.Task[None]]:
    """Run `run` beside this block; at its end call `stop` and await `run`."""
    task = asyncio.create_task(run)
    try:
        yield task
    finally:
        stop()
        await task


async def first_of(stop: asyncio.Event, *tasks: asyncio.Future[Any]) -> None:
    """Return when `stop` is set or one of the tasks is done; raises the error of that task."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for task in done - {stopping}:
        task.result()


def end_process(code: int) -> NoReturn:
    """End the process at once, even while threads run."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


async def leave_nobody_behind(code: int) -> None:
    """Return when no handler thread is left; end the process when one hangs, because Python would wait for
    it.
    """
    until = asyncio.get_running_loop().time() + 1.0
    while _stragglers():
        if asyncio.get_running_loop().time() > until:
            end_process(code)
        await asyncio.sleep(0.01)


def _stragglers() -> bool:
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    return len(threads) > 1 or len(asyncio.all_tasks()) > 1
