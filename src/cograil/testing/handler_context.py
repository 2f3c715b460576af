"""A `ctx` for unit tests of handlers: it records the handler's calls in lists that a test can read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, NamedTuple

import orjson
from typing_extensions import override

from cograil.errors import InvalidInput
from cograil.model.app_events import checked_event
from cograil.model.outcome import WorkItem
from cograil.model.workflow import Json
from cograil.runners import context as runners
from cograil.runners.handler_exceptions import Fail

DAY_SECONDS = 86_400.0


class Progress(NamedTuple):
    """One call of `ctx.progress`."""

    current: float
    total: float | None
    message: str


class LogLine(NamedTuple):
    """One line of `ctx.log`."""

    level: str
    message: str
    fields: dict[str, Json]


class Context(runners.Context):
    """One attempt, as a handler sees it. It works in a function, in a coroutine, in a thread.

    `checkpoint` and `steps` are the state that earlier attempts left. `ctx.transaction()` calls
    `transaction` with the connection that the handler passes, and expects an asynchronous context manager;
    without `transaction` it raises.

    The calls of the handler are in `progresses`, `logged`, `checkpoints`, `steps` and `events`.
    """

    def __init__(
        self,
        params: Mapping[str, Json] | None = None,
        *,
        attempt: int = 1,
        job_id: str = "00000000-0000-7000-8000-000000000001",
        node_id: str = "node",
        handler: str = "handler",
        checkpoint: Json = None,
        steps: Mapping[str, Json] | None = None,
        transaction: Callable[[Any], Any] | None = None,
        **item: Any,
    ) -> None:
        work = WorkItem(1, 1, job_id, node_id, attempt, handler, dict(params or {}), DAY_SECONDS, checkpoint)
        self.steps: dict[str, Json] = dict(steps or {})
        self.progresses: list[Progress] = []
        self.logged: list[LogLine] = []
        self.checkpoints: list[Json] = [] if checkpoint is None else [checkpoint]
        self.events: list[tuple[str, Json]] = []
        self._transaction = transaction
        super().__init__(work._replace(steps=dict(self.steps), **item), _Recorder(self), loop=_Immediately())

    @override
    def checkpoint(self, data: Json, phase: str = "") -> Awaitable[None]:
        """Record the last checkpoint; raises as in a worker when it is not JSON."""
        self._refuse_when_lost()
        self.checkpoints.append(orjson.loads(self._checkpoint_text(data)))
        return _DONE

    def tell(
        self,
        type: str,
        data: Mapping[str, Json],
        *,
        subject: str | None = None,
        checkpoint: Json = None,
        phase: str = "",
    ) -> Awaitable[None]:
        """Record this event; raises as in a worker when it is invalid."""
        self._refuse_when_lost()
        try:
            checked_event(type, subject or self.idempotency_key, data, self._limits.event_bytes)
        except InvalidInput as error:
            raise Fail(f"event: {error}", code="bad_event") from error
        self.events.append((type, dict(data)))
        if checkpoint is not None:
            self.checkpoints.append(orjson.loads(self._checkpoint_text(checkpoint)))
        return _DONE

    def transaction(self, connection: Any = None) -> Any:
        """Return the transaction that the test provides."""
        if self._transaction is None:
            raise Fail(
                "ctx.transaction() needs a database: give the test's own with Context(transaction=...)",
                code="bad_transaction",
            )
        return self._transaction(connection)

    @override
    async def _save_step(self, name: str, text: bytes) -> None:
        self.steps[name] = orjson.loads(text)

    @override
    def _save_step_in_thread(self, name: str, text: bytes) -> None:
        self.steps[name] = orjson.loads(text)


class _Recorder:
    """The channel of a context without a worker."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        self._context.progresses.append(Progress(current, total, message))

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        self._context.logged.append(LogLine(line["level"], line["message"], line.get("fields", {})))

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        return True

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        return True

    async def tell(self, item: WorkItem, event: Any) -> bool:
        return True

    def create_transaction(self, item: WorkItem, connection: Any) -> Any:
        raise AssertionError("a context for tests has transactions of its own")


class _Immediately:
    """The loop of a context, which runs calls at once."""

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        callback()


class _Done:
    """A finished result that a coroutine may await."""

    def __await__(self) -> Generator[None]:
        return
        yield


_DONE = _Done()
