"""The steps of one attempt (`ctx.step`). Each runs once; later attempts get the saved result."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any

import orjson

from cograil import strict_json
from cograil.model.workflow import Json
from cograil.runners.handler_exceptions import Cancelled, Fail

MAX_NAME = 200

Step = Callable[..., Any]
Keep = Callable[[str, bytes], Awaitable[None]]
KeepInThread = Callable[[str, bytes], None]


class StepResults:
    """Results of steps by name. Concurrent calls of a running step share its result."""

    __slots__ = ("_ends", "_lock", "_max_bytes", "_room")

    def __init__(self, kept: Mapping[str, Json] | None, max_bytes: int, room: int) -> None:
        """`max_bytes` limits one result, `room` all results of the node together."""
        self._lock = threading.Lock()
        self._max_bytes = max_bytes
        self._room = room
        self._ends = {name: self._done(orjson.dumps(value)) for name, value in (kept or {}).items()}

    def _done(self, text: bytes) -> Future[bytes]:
        end: Future[bytes] = Future()
        end.set_result(text)
        self._room -= len(text)
        return end

    async def in_loop(self, name: str, step: Step, args: tuple[Any, ...], keep: Keep) -> Json:
        """Return the result of this step; runs it in the event loop unless it is saved or running."""
        end, is_mine = self._enter(name)
        if not is_mine:
            text = end.result() if end.done() else await asyncio.wrap_future(end)
            return orjson.loads(text)
        try:
            value = step(*args)
            text = self._text(name, await value if inspect.isawaitable(value) else value)
            await keep(name, text)
        except BaseException as error:
            self._give_up(name, end, error)
            raise
        end.set_result(text)
        return orjson.loads(text)

    def in_thread(self, name: str, step: Step, args: tuple[Any, ...], keep: KeepInThread) -> Json:
        """Return the result of this step, blocking; a coroutine runs in its own event loop."""
        end, is_mine = self._enter(name)
        if not is_mine:
            return orjson.loads(end.result())
        try:
            value = step(*args)
            text = self._text(name, asyncio.run(_await_value(value)) if inspect.isawaitable(value) else value)
            keep(name, text)
        except BaseException as error:
            self._give_up(name, end, error)
            raise
        end.set_result(text)
        return orjson.loads(text)

    def _enter(self, name: str) -> tuple[Future[bytes], bool]:
        """Return the future of the step, and whether the caller must run it."""
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_NAME:
            raise Fail(f"step: the name must have 1 to {MAX_NAME} printable characters", code="bad_step")
        with self._lock:
            if (known := self._ends.get(name)) is not None:
                return known, False
            end: Future[bytes] = Future()
            end.set_running_or_notify_cancel()  # a cancelled waiter must not cancel it
            self._ends[name] = end
            return end, True

    def _text(self, name: str, value: Json) -> bytes:
        try:
            text = strict_json.write(value, max_bytes=self._max_bytes)
        except strict_json.InvalidJson as error:
            raise Fail(f"step {name!r}: {error}", code="bad_step") from error
        with self._lock:
            self._room -= len(text)
            if self._room < 0:
                raise Fail(f"step {name!r}: the results of all steps together are too large", code="bad_step")
        return text

    def _give_up(self, name: str, end: Future[bytes], error: BaseException) -> None:
        """Pass the error to waiting callers. The next call runs the step again."""
        with self._lock:
            del self._ends[name]
        is_cancelled = isinstance(error, asyncio.CancelledError)
        end.set_exception(Cancelled(f"the step {name!r} was cancelled") if is_cancelled else error)


async def _await_value(value: Awaitable[Json]) -> Json:
    return await value
