"""What a handler may ask and tell while it runs (`ctx`), and the exceptions it may raise or meet."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from cograil import jsontext
from cograil.model.outcome import WorkItem
from cograil.model.workflow import Json
from cograil.runners.log import Log, escaped

KIB, MIB = 1024, 1024 * 1024
MAX_PROGRESS_MESSAGE = 256
MAX_PHASE = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one attempt may produce, and how long it may take to obey."""

    output_bytes: int = 4 * MIB
    checkpoint_bytes: int = 1 * MIB
    log_lines: int = 1_000
    log_line_bytes: int = 16 * KIB
    grace_seconds: float = 5.0


class Channel(Protocol):
    """The worker's side of a context. The `note_` methods are called from any thread and must not block."""

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        """Make this JSON text the checkpoint of the task, durably, in the order of the calls.

        False when the attempt is no longer ours: nothing was saved.
        """

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        """Remember the latest progress; send it when it suits, at most once a second."""

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        """Keep this line: {"at", "level", "message"} and perhaps "fields"."""


class Retry(Exception):
    """Raised by a handler: this attempt failed, another may succeed."""

    def __init__(self, message: str = "", *, code: str = "handler_error", details: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Fail(Exception):
    """Raised by a handler: it failed, and trying again cannot help."""

    def __init__(self, message: str = "", *, code: str = "failed", details: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Cancelled(Exception):
    """The attempt was told to stop; raised by `ctx.raise_if_cancelled()`."""


class AttemptLost(Cancelled):
    """The task was given to somebody else: whatever this attempt still does is in vain."""


class Context:
    """One attempt as its handler sees it. Every method may be called from coroutines and threads."""

    __slots__ = (
        "_channel",
        "_is_asked_to_stop",
        "_is_over",
        "_item",
        "_limits",
        "_log",
        "_loop",
        "_reason",
        "_stopping",
        "abandoned",
    )

    def __init__(self, item: WorkItem, channel: Channel, limits: Limits | None = None) -> None:
        """Made by the worker in its event loop: the channel is used there."""
        self._item = item
        self._channel = channel
        self._limits = limits or DEFAULT_LIMITS
        self._loop = asyncio.get_running_loop()
        self._log: Log | None = None
        self._reason: str | None = None
        self._is_asked_to_stop = False
        self._is_over = False
        self._stopping: asyncio.Future[None] | None = None
        self.abandoned = False  # the handler did not obey in time and still runs somewhere

    # --- who am I

    @property
    def task_id(self) -> str:
        """Of this attempt, as events show it; an opaque string."""
        return str(self._item.task_id)

    @property
    def job_id(self) -> str:
        return self._item.job_id

    @property
    def node_id(self) -> str:
        return self._item.node_id

    @property
    def attempt(self) -> int:
        """1 for the first execution."""
        return self._item.attempt

    @property
    def tenant_id(self) -> str:
        return self._item.tenant_id

    @property
    def correlation_id(self) -> str | None:
        return self._item.correlation_id

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt: send it to other systems so that they recognise a repeat."""
        return self._item.idempotency_key

    @property
    def params(self) -> dict[str, Json]:
        """All params as they were sent, before any coercion."""
        return self._item.params

    @property
    def checkpoint_data(self) -> Json:
        """The data of the last checkpoint of an earlier attempt, exactly as saved; None without one."""
        return self._item.checkpoint

    # --- what I tell

    @property
    def log(self) -> Log:
        """Lines kept with the attempt: `ctx.log.info("fetched", rows=10)`."""
        if self._log is None:
            self._log = Log(self._note_log, self._limits.log_lines, self._limits.log_line_bytes)
        return self._log

    def progress(self, current: float, total: float | None = None, message: str = "") -> None:
        """Say how far it is. Cheap: the worker sends the latest at most once a second."""
        _refuse_non_number("current", current)
        if total is not None:
            _refuse_non_number("total", total)
        if not self._is_over:
            shown = escaped(str(message))[:MAX_PROGRESS_MESSAGE]
            self._channel.note_progress(self._item, current, total, shown)

    def checkpoint(self, data: Json, phase: str = "") -> Awaitable[None]:
        """Save `data` durably; the next attempt gets it as `ctx.checkpoint_data`.

        In a coroutine await it; in a thread it returns when the data is safe. Raises `AttemptLost`
        when the task is no longer ours, `Fail` (code bad_checkpoint) when `data` is not JSON or too large.
        """
        try:
            text = jsontext.write(data, max_bytes=self._limits.checkpoint_bytes)
        except jsontext.InvalidJson as error:
            raise Fail(f"checkpoint: {error}", code="bad_checkpoint") from error
        saving = self._save(text, escaped(str(phase))[:MAX_PHASE])
        return saving if _running_loop() is self._loop else self._wait_in_thread(saving)

    # --- am I to stop

    @property
    def cancelled(self) -> bool:
        """True once the attempt should end: cancelled, timed out, lost, or the worker shuts down."""
        return self._reason is not None

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` (or `AttemptLost`) when the attempt should end."""
        if self._reason == "lost":
            raise AttemptLost("this attempt was lost to another")
        if self._reason is not None:
            raise Cancelled(f"this attempt must stop: {self._reason}")

    # --- for the worker and the runner

    def cancel(self, reason: str) -> None:
        """Tell the handler to stop; from any thread. The first reason counts, and none after the end.

        'timeout', 'shutdown' and 'lost' have meanings (see python.py); any other is a cancellation.
        """
        if self._is_over:
            return
        self._reason = self._reason or reason
        self._is_asked_to_stop = True
        self._loop.call_soon_threadsafe(self._wake)

    @property
    def reason(self) -> str | None:
        """Why the handler should stop; None while it may go on."""
        return self._reason

    def stopping(self) -> asyncio.Future[None]:
        """A future that is done once `cancel` was called."""
        if self._stopping is None:
            self._stopping = self._loop.create_future()
            if self._is_asked_to_stop:
                self._wake()
        return self._stopping

    def close(self) -> None:
        """The attempt is over: from now on the handler, if it still runs, talks to nobody."""
        self._is_over = True

    def _wake(self) -> None:
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)

    def _note_log(self, line: dict[str, Json]) -> None:
        if not self._is_over:
            self._channel.note_log(self._item, line)

    async def _save(self, text: bytes, phase: str) -> None:
        if not self._is_over and self._reason != "lost":
            if await self._channel.save_checkpoint(self._item, text, phase):
                return
            self._reason = "lost"
        raise AttemptLost("this attempt was lost to another; its checkpoint was not saved")

    def _wait_in_thread(self, saving: Coroutine[Any, Any, None]) -> Awaitable[None]:
        try:
            future = asyncio.run_coroutine_threadsafe(saving, self._loop)
        except RuntimeError:  # the loop is closed: the worker is gone
            saving.close()
            raise AttemptLost("the worker has stopped") from None
        # Not for ever: a loop that stopped between the check and the call would hold the thread, and the
        # thread would hold up the exit of the process.
        while not concurrent.futures.wait([future], timeout=1.0).done:
            if self._loop.is_closed():
                saving.close()
                raise AttemptLost("the worker has stopped")
        future.result()
        return _NOTHING_TO_AWAIT


def _refuse_non_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"progress: {name} must be a finite number, not {value!r}")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _NothingToAwait:
    """What `ctx.checkpoint` returns in a thread, where all is done when it returns."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_NOTHING_TO_AWAIT = _NothingToAwait()
DEFAULT_LIMITS = Limits()
