"""The context of a running handler (`ctx`)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cograil import strict_json
from cograil.errors import InvalidInput
from cograil.model.app_events import AppEvent, checked_event
from cograil.model.ids import new_id, task_name
from cograil.model.outcome import Completed, Recorded, WorkItem
from cograil.model.workflow import Json
from cograil.runners.handler_exceptions import AttemptLost, Cancelled, Fail, Retry
from cograil.runners.handler_log import Log, escaped
from cograil.runners.handler_output import Output
from cograil.runners.handler_results import completed
from cograil.runners.handler_steps import StepResults
from cograil.runners.handler_transaction import HandlerTransaction, TransactionBackend

__all__ = ["DEFAULT_LIMITS", "AttemptLost", "Cancelled", "Channel", "Context", "Fail", "Limits", "Retry"]

KIB, MIB = 1024, 1024 * 1024
MAX_PROGRESS_MESSAGE = 256
MAX_PHASE = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one attempt: sizes, and the grace period after a stop request."""

    output_bytes: int = 4 * MIB
    checkpoint_bytes: int = 1 * MIB
    event_bytes: int = 4 * MIB
    log_lines: int = 1_000
    log_line_bytes: int = 16 * KIB
    grace_seconds: float = 5.0


class Channel(Protocol):
    """The worker's side of a context. The `note_` methods are called from any thread and must not block."""

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        """Save this JSON text as the checkpoint of the task, durably, in the order of the calls.

        Return False when the worker no longer owns the attempt; nothing is saved then.
        """

    async def tell(self, item: WorkItem, event: AppEvent) -> bool:
        """Publish this event and save its checkpoint in one transaction.

        Return False when the worker no longer owns the attempt; nothing is published then.
        """

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        """Save this JSON text as the result of this step, durably.

        Return False when the worker no longer owns the attempt; nothing is saved then.
        """

    def create_transaction(self, item: WorkItem, connection: Any) -> TransactionBackend:
        """Create the transaction of a handler, on this connection or on one of the worker's."""

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        """Keep the latest progress; it is written at most once a second."""

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        """Keep this line: {"at", "level", "message"} and optionally "fields" and "logger".

        A line with "logger" was already printed or logged elsewhere in this process.
        """


class Context:
    """One attempt, as its handler sees it. All methods may be called from coroutines and threads."""

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
        "handler_transaction",
        "recorded",
    )

    def __init__(self, item: WorkItem, channel: Channel, limits: Limits | None = None, loop: Any = None):
        """The worker creates it in its event loop. The channel runs in that loop, or in `loop`."""
        self._item = item
        self._channel = channel
        self._limits = limits or DEFAULT_LIMITS
        self._loop: asyncio.AbstractEventLoop = loop or asyncio.get_running_loop()
        self._log: Log | None = None
        self._output: Output | None = None
        self._steps: StepResults | None = None
        self._reason: str | None = None
        self._is_asked_to_stop = False
        self._is_over = False
        self._stopping: asyncio.Future[None] | None = None
        self._telling: asyncio.Lock | None = None
        self.abandoned = False  # the handler did not stop in time and may still run
        self.handler_transaction: HandlerTransaction | None = None
        self.recorded: Recorded | None = None  # the result is committed and final

    # --- identity

    @property
    def task_id(self) -> str:
        """The id of this attempt in events; an opaque string."""
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
        """The W3C traceparent of this attempt, for outgoing requests; None without a trace."""
        return self._item.trace_parent

    @property
    def idempotency_key(self) -> str:
        """The same key in every attempt. Send it to other systems, so that they recognise a repeated request."""
        return self._item.idempotency_key

    @property
    def params(self) -> dict[str, Json]:
        """All params of the task, before type coercion."""
        return self._item.params

    @property
    def checkpoint_data(self) -> Json:
        """The data of the last checkpoint of an earlier attempt; None without one."""
        return self._item.checkpoint

    # --- output of the handler

    @property
    def log(self) -> Log:
        """The log of the attempt: `ctx.log.info("fetched", rows=10)`."""
        if self._log is None:
            self._log = Log(self._note_log, self._limits.log_lines, self._limits.log_line_bytes)
        return self._log

    def progress(self, current: float, total: float | None = None, message: str = "") -> None:
        """Set the progress. This is cheap: the worker writes the latest value at most once a second."""
        _refuse_non_number("current", current)
        if total is not None:
            _refuse_non_number("total", total)
        if not self._is_over:
            shown = escaped(str(message))[:MAX_PROGRESS_MESSAGE]
            self._channel.note_progress(self._item, current, total, shown)

    def checkpoint(self, data: Json, phase: str = "") -> Awaitable[None]:
        """Save `data` durably; the next attempt gets it as `ctx.checkpoint_data`.

        A coroutine awaits it; in a thread it blocks until the data is saved. Raises `AttemptLost` when this
        worker no longer owns the task, `Fail` (code bad_checkpoint) when `data` is not JSON or too large.
        """
        text = self._checkpoint_text(data)
        return self._await_or_block(
            self._save(self._channel.save_checkpoint, text, escaped(str(phase))[:MAX_PHASE])
        )

    def tell(
        self,
        type: str,
        data: Mapping[str, Json],
        *,
        subject: str | None = None,
        checkpoint: Json = None,
        phase: str = "",
    ) -> Awaitable[None]:
        """Publish an event to the callback of the job and to subscribers, optionally with a new checkpoint.

        Both are saved in one transaction. A coroutine awaits it. Events of a node are delivered in the order
        of the calls; the default subject is the node. Raises `AttemptLost` when this worker no longer owns
        the task, `Fail` (code bad_event or bad_checkpoint) for an invalid event or checkpoint.
        """
        subject = self._item.place if subject is None else subject
        try:
            text = checked_event(type, subject, data, self._limits.event_bytes)
        except InvalidInput as error:
            raise Fail(f"event: {error}", code="bad_event") from error
        saved = None if checkpoint is None else self._checkpoint_text(checkpoint)
        event = AppEvent(new_id(), type, subject, text, saved, escaped(str(phase))[:MAX_PHASE])
        return self._await_or_block(self._tell(event))

    def step(self, name: str, step: Callable[..., Any], *args: Any) -> Any:
        """Run `step(*args)` once and save its result; later attempts of the node get the saved result.

        A coroutine awaits it; in a thread it blocks until the result is saved. `step` may be a coroutine
        function. The result is always converted to JSON and back. A step that raises is not saved. Raises
        `AttemptLost` when this worker no longer owns the task, `Fail` (code bad_step) when the result is not
        JSON or too large.
        """
        self._refuse_when_lost()
        if self._steps is None:
            limits = self._limits
            self._steps = StepResults(self._item.steps, limits.checkpoint_bytes, limits.output_bytes)
        if _running_loop() is not None:
            return self._steps.in_loop(name, step, args, self._save_step)
        return self._steps.in_thread(name, step, args, self._save_step_in_thread)

    def transaction(self, connection: Any = None) -> HandlerTransaction:
        """`async with ctx.transaction() as tx`: your SQL and the result of the attempt commit together.

        For coroutine handlers, once in an attempt, at its end. handler_transaction.py says when it commits.
        """
        if _running_loop() is not self._loop:
            raise Fail("ctx.transaction() is for coroutine handlers of a worker", code="bad_transaction")
        if self.handler_transaction is not None:
            raise Fail("ctx.transaction(): only one transaction per attempt", code="bad_transaction")
        self._refuse_when_lost()
        handler_transaction = self._channel.create_transaction(self._item, connection)
        self.handler_transaction = HandlerTransaction(
            handler_transaction, self._check_output, self._mark_recorded
        )
        return self.handler_transaction

    # --- cancellation

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
        """Ask the handler to stop, from any thread. Only the first reason counts.

        'timeout', 'shutdown' and 'lost' have their own outcomes (see python_runner.py); any other reason is a
        cancellation.
        """
        if self._is_over:
            return
        self._reason = self._reason or reason
        self._is_asked_to_stop = True
        self._loop.call_soon_threadsafe(self._wake)

    @property
    def reason(self) -> str | None:
        """The reason why the handler should stop; None while it may run."""
        return self._reason

    @property
    def output(self) -> Output:
        """Captures the output that the handler prints."""
        if self._output is None:
            self._output = Output(self.log, self._limits.log_line_bytes)
        return self._output

    @property
    def channel(self) -> Channel:
        """The channel to the worker."""
        return self._channel

    def stopping(self) -> asyncio.Future[None]:
        """Return a future that is done once `cancel` is called."""
        if self._stopping is None:
            self._stopping = self._loop.create_future()
            if self._is_asked_to_stop:
                self._wake()
        return self._stopping

    def close(self) -> None:
        """End the attempt. A handler that still runs no longer reaches the worker.

        Cycles are broken here: one with its log or its transaction would keep the attempt, with its params,
        until the collector looks for cycles, which is after some 20,000 attempts (processes/lifecycle.py).
        """
        if self._output is not None:
            self._output.close()
        self._is_over = True
        if self._log is not None:
            self._log.close()
        if self.handler_transaction is not None and self.handler_transaction.is_over:
            self.handler_transaction = None

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
            return strict_json.write(data, max_bytes=self._limits.checkpoint_bytes)
        except strict_json.InvalidJson as error:
            raise Fail(f"checkpoint: {error}", code="bad_checkpoint") from error

    def _await_or_block(self, saving: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Return an awaitable in the event loop; in a thread, block until it is done."""
        if _running_loop() is self._loop:
            return saving
        self._wait_in_thread(saving)
        return _NOTHING_TO_AWAIT

    async def _tell(self, event: AppEvent) -> None:
        """Publish one event at a time: the mark of the last event detects a repeat."""
        if self._telling is None:
            self._telling = asyncio.Lock()
        async with self._telling:
            await self._save(self._channel.tell, event)

    async def _save_step(self, name: str, text: bytes) -> None:
        """Save a step from any event loop; the channel runs in the loop of the context."""
        saving = self._save(self._channel.save_step, name, text)
        if _running_loop() is self._loop:
            await saving
        else:
            await asyncio.wrap_future(self._submit_to_loop(saving))

    def _save_step_in_thread(self, name: str, text: bytes) -> None:
        self._wait_in_thread(self._save(self._channel.save_step, name, text))

    def _check_output(self, value: Json) -> Completed:
        return completed(value, self._limits.output_bytes)

    def _mark_recorded(self) -> None:
        self.recorded = Recorded()
        self.close()

    def _submit_to_loop(self, saving: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
        try:
            return asyncio.run_coroutine_threadsafe(saving, self._loop)
        except RuntimeError:  # the loop is closed: the worker has stopped
            saving.close()
            raise AttemptLost("the worker has stopped") from None

    def _wait_in_thread(self, saving: Coroutine[Any, Any, None]) -> None:
        future = self._submit_to_loop(saving)
        # With a timeout: a loop that stopped after the check would block the thread, and the thread would
        # block the exit of the process.
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
    """The result of `ctx.checkpoint` in a thread, where nothing is left to await."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_NOTHING_TO_AWAIT = _NothingToAwait()
DEFAULT_LIMITS = Limits()
