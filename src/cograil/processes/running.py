"""How a process runs and ends: its event loop, its name, its signals."""

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
    """Run this to its end in a loop of its own: uvloop where there is one. A `part` of an instance is traced.

    The collector looks for cycles far less often than by default: a batch of jobs is thousands of
    objects without one, and a profile showed it looking through them again and again. It looks every
    `COLLECT_SECONDS` as well: cycles that handlers make may hold much, however few objects they are.
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
    """Collect the young generations now and then; an old one is looked at as often as before."""

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
    """A name for this start of this process, unlike that of any other."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}-{secrets.token_hex(3)}"


def stop_on_signals(on_stop: Callable[[], None] | None = None) -> asyncio.Event:
    """Set when we are asked to stop; who asks twice gets his way at once.

    At once means that this process ends here: the kernel takes its children with it (the worker is
    killed, PostgreSQL shuts down), and what was not committed never happened.
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
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
            loop.add_signal_handler(number, hear, number)
    return stop


@asynccontextmanager
async def kept_running(
    run: Coroutine[Any, Any, None], stop: Callable[[], None]
) -> AsyncIterator[asyncio.Task[None]]:
    """`run` beside this block; at its end `stop` is called and `run` awaited."""
    task = asyncio.create_task(run)
    try:
        yield task
    finally:
        stop()
        await task


async def first_of(stop: asyncio.Event, *tasks: asyncio.Future[Any]) -> None:
    """Returns when `stop` is set or one of the tasks is done; raises what that one raised."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for task in done - {stopping}:
        task.result()


def end_process(code: int) -> NoReturn:
    """End here and now, whatever threads are still at."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


async def leave_nobody_behind(code: int) -> None:
    """Returns when no handler is left; ends the process when one hangs, which Python would wait for."""
    until = asyncio.get_running_loop().time() + 1.0
    while _stragglers():
        if asyncio.get_running_loop().time() > until:
            end_process(code)
        await asyncio.sleep(0.01)


def _stragglers() -> bool:
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    return len(threads) > 1 or len(asyncio.all_tasks()) > 1
