"""What a handler may ask and tell while it runs (`ctx`)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cograil import jsontext
from cograil.errors import InvalidInput
from cograil.model.ids import new_id, task_name
from cograil.model.outcome import Completed, Recorded, WorkItem
from cograil.model.telling import Event, checked_event
from cograil.model.workflow import Json
from cograil.runners.exceptions import AttemptLost, Cancelled, Fail, Retry
from cograil.runners.handler_output import Output
from cograil.runners.log import Log, escaped
from cograil.runners.results import completed
from cograil.runners.steps import Steps
from cograil.runners.transaction import Joint, JointTransaction

__all__ = ["DEFAULT_LIMITS", "AttemptLost", "Cancelled", "Channel", "Context", "Fail", "Limits", "Retry"]

KIB, MIB = 1024, 1024 * 1024
MAX_PROGRESS_MESSAGE = 256
MAX_PHASE = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one attempt may produce, and how long it may take to obey."""

    output_bytes: int = 4 * MIB
    checkpoint_bytes: int = 1 * MIB
    event_bytes: int = 4 * MIB
    log_lines: int = 1_000
    log_line_bytes: int = 16 * KIB
    grace_seconds: float = 5.0


class Channel(Protocol):
    """The worker's side of a context. The `note_` methods are called from any thread and must not block."""

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        """Make this JSON text the checkpoint of the task, durably, in the order of the calls.

        False when the attempt is no longer ours: nothing was saved.
        """

    async def tell(self, item: WorkItem, event: Event) -> bool:
        """Tell this event and save its checkpoint, durably, both or neither.

        False when the attempt is no longer ours: nothing was told.
        """

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        """Keep this JSON text as the result of this step, durably.

        False when the attempt is no longer ours: nothing was saved.
        """

    def join(self, item: WorkItem, connection: Any) -> Joint:
        """What the transaction of a handler needs, on this connection or on one of the worker's."""

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        """Remember the latest progress; send it when it suits, at most once a second."""

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        """Keep this line: {"at", "level", "message"} and perhaps "fields" and "logger".

        One with a "logger" was printed or logged by other means, and heard there already.
        """


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
        "_output",
        "_reason",
        "_steps",
        "_stopping",
        "_telling",
        "abandoned",
        "joint",
        "recorded",
    )

    def __init__(self, item: WorkItem, channel: Channel, limits: Limits | None = None, loop: Any = None):
        """Made by the worker in its event loop: the channel is used there, unless another `loop` is named."""
        self._item = item
        self._channel = channel
        self._limits = limits or DEFAULT_LIMITS
        self._loop: asyncio.AbstractEventLoop = loop or asyncio.get_running_loop()
        self._log: Log | None = None
        self._output: Output | None = None
        self._steps: Steps | None = None
        self._reason: str | None = None
        self._is_asked_to_stop = False
        self._is_over = False
        self._stopping: asyncio.Future[None] | None = None
        self._telling: asyncio.Lock | None = None
        self.abandoned = False  # the handler did not obey in time and still runs somewhere
        self.joint: JointTransaction | None = None
        self.recorded: Recorded | None = None  # the result is committed; nothing changes that any more

    # --- who am I

    @property
    def task_id(self) -> str:
        """Of this attempt, as events show it; an opaque string."""
        return task_name(self._item.task_id, self._item.job_id)

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
    def trace_parent(self) -> str | None:
        """The W3C traceparent of this attempt, to send with requests to others; None without a trace."""
        return self._item.trace_parent

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
        text = self._checkpoint_text(data)
        return self._awaited(self._save(self._channel.save_checkpoint, text, escaped(str(phase))[:MAX_PHASE]))

    def tell(
        self,
        type: str,
        data: Mapping[str, Json],
        *,
        subject: str | None = None,
        checkpoint: Json = None,
        phase: str = "",
    ) -> Awaitable[None]:
        """Tell the callback of the job, and subscribers, that this happened; with a new checkpoint, if given.

        Both are safe when it returns, or neither; in a coroutine await it. Events of a node are heard in
        the order in which they were told; without a subject they are about the node. Raises `AttemptLost`
        when the task is no longer ours, `Fail` (bad_event, bad_checkpoint) for what cannot be told or saved.
        """
        subject = self._item.place if subject is None else subject
        try:
            text = checked_event(type, subject, data, self._limits.event_bytes)
        except InvalidInput as error:
            raise Fail(f"event: {error}", code="bad_event") from error
        saved = None if checkpoint is None else self._checkpoint_text(checkpoint)
        event = Event(new_id(), type, subject, text, saved, escaped(str(phase))[:MAX_PHASE])
        return self._awaited(self._tell(event))

    def step(self, name: str, step: Callable[..., Any], *args: Any) -> Any:
        """The result of `step(*args)`, done once: later attempts of the node get what was kept.

        In a coroutine await it; in a thread it returns the result when that is safe. `step` may be a
        coroutine function. What it returns is given back as JSON holds it, in the first attempt too. A
        step that raises is not kept. Raises `AttemptLost` when the task is no longer ours, `Fail` (code
        bad_step) when the result is not JSON or too large.
        """
        self._refuse_when_lost()
        if self._steps is None:
            limits = self._limits
            self._steps = Steps(self._item.steps, limits.checkpoint_bytes, limits.output_bytes)
        if _running_loop() is not None:
            return self._steps.in_loop(name, step, args, self._keep)
        return self._steps.in_thread(name, step, args, self._keep_in_thread)

    def transaction(self, connection: Any = None) -> JointTransaction:
        """`async with ctx.transaction() as tx`: your SQL and the result of the attempt commit together.

        For coroutines, once in an attempt, at its end. See transaction.py for when it commits.
        """
        if _running_loop() is not self._loop:
            raise Fail("ctx.transaction() is for coroutine handlers of a worker", code="bad_transaction")
        if self.joint is not None:
            raise Fail("ctx.transaction(): one for each attempt", code="bad_transaction")
        self._refuse_when_lost()
        joint = self._channel.join(self._item, connection)
        self.joint = JointTransaction(joint, self._check_output, self._mark_recorded)
        return self.joint

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

    @property
    def output(self) -> Output:
        """What the handler prints."""
        if self._output is None:
            self._output = Output(self.log, self._limits.log_line_bytes)
        return self._output

    @property
    def channel(self) -> Channel:
        """The line to the worker."""
        return self._channel

    def stopping(self) -> asyncio.Future[None]:
        """A future that is done once `cancel` was called."""
        if self._stopping is None:
            self._stopping = self._loop.create_future()
            if self._is_asked_to_stop:
                self._wake()
        return self._stopping

    def close(self) -> None:
        """The attempt is over: from now on the handler, if it still runs, talks to nobody.

        Cycles are broken here: one with its log or its transaction would keep the attempt, with its params,
        until the collector looks for cycles, which is after some 20,000 attempts (processes/running.py).
        """
        if self._output is not None:
            self._output.close()
        self._is_over = True
        if self._log is not None:
            self._log.close()
        if self.joint is not None and self.joint.is_over:
            self.joint = None

    def _wake(self) -> None:
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)

    def _note_log(self, line: dict[str, Json]) -> None:
        if not self._is_over:
            self._channel.note_log(self._item, line)

    def _refuse_when_lost(self) -> None:
        if self._is_over or self._reason == "lost":
            raise AttemptLost("this attempt is over or was lost to another")

    async def _save(self, save: Callable[..., Awaitable[bool]], *args: Any) -> None:
        if not self._is_over and self._reason != "lost":
            if await save(self._item, *args):
                return
            self._reason = "lost"
        raise AttemptLost("this attempt was lost to another; nothing was saved")

    def _checkpoint_text(self, data: Json) -> bytes:
        try:
            return jsontext.write(data, max_bytes=self._limits.checkpoint_bytes)
        except jsontext.InvalidJson as error:
            raise Fail(f"checkpoint: {error}", code="bad_checkpoint") from error

    def _awaited(self, saving: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """In a coroutine what is to be awaited; in a thread all is done when it returns."""
        if _running_loop() is self._loop:
            return saving
        self._wait_in_thread(saving)
        return _NOTHING_TO_AWAIT

    async def _tell(self, event: Event) -> None:
        """One at a time: the mark of the last one says whether that was told."""
        if self._telling is None:
            self._telling = asyncio.Lock()
        async with self._telling:
            await self._save(self._channel.tell, event)

    async def _keep(self, name: str, text: bytes) -> None:
        """From any loop: the channel is used in ours."""
        saving = self._save(self._channel.save_step, name, text)
        if _running_loop() is self._loop:
            await saving
        else:
            await asyncio.wrap_future(self._sent(saving))

    def _keep_in_thread(self, name: str, text: bytes) -> None:
        self._wait_in_thread(self._save(self._channel.save_step, name, text))

    def _check_output(self, value: Json) -> Completed:
        return completed(value, self._limits.output_bytes)

    def _mark_recorded(self) -> None:
        self.recorded = Recorded()
        self.close()

    def _sent(self, saving: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
        try:
            return asyncio.run_coroutine_threadsafe(saving, self._loop)
        except RuntimeError:  # the loop is closed: the worker is gone
            saving.close()
            raise AttemptLost("the worker has stopped") from None

    def _wait_in_thread(self, saving: Coroutine[Any, Any, None]) -> None:
        future = self._sent(saving)
        # Not for ever: a loop that stopped between the check and the call would hold the thread, and the
        # thread would hold up the exit of the process.
        while not concurrent.futures.wait([future], timeout=1.0).done:
            if self._loop.is_closed():
                saving.close()
                raise AttemptLost("the worker has stopped")
        future.result()


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
