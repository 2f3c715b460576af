"""`ctx.transaction()`: the handler's own SQL and the report of its result commit together.

The end of the block does not commit, because the result is not known yet. The runner commits when the handler
has returned, or `tx.complete(output)` commits. In all other cases the transaction is rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from cograil.model.outcome import Completed
from cograil.model.workflow import Json
from cograil.runners.handler_exceptions import Fail


class TransactionBackend(Protocol):
    """The worker's side: a connection on which the result can be reported."""

    is_borrowed: bool
    """Whether it is the handler's own connection, which the handler may commit before the report."""

    @property
    def connection(self) -> Any:
        """The psycopg connection, after `begin`."""

    async def begin(self) -> None:
        """Begin the transaction. Raises Fail when the connection is unusable or of another database."""

    async def finish(self, output: bytes) -> None:
        """Report and commit. Raises AttemptLost or Retry when it was rolled back instead."""

    async def roll_back(self) -> None:
        """Roll back. Never raises."""


class HandlerTransaction:
    """The `tx` of `async with ctx.transaction() as tx`."""

    def __init__(
        self,
        handler_transaction: TransactionBackend,
        check: Callable[[Json], Completed],
        on_recorded: Callable[[], None],
    ) -> None:
        self._backend = handler_transaction
        self._check = check
        self._on_recorded = on_recorded
        self._state: Literal["new", "open", "left", "ended"] = "new"
        self.committing: asyncio.Task[None] | None = None

    @property
    def connection(self) -> Any:
        """The psycopg connection; statements inside the block belong to the transaction."""
        return self._backend.connection

    async def execute(self, query: Any, params: Any = None) -> Any:
        """Run this statement and return its cursor."""
        if self._state != "open":
            raise Fail("ctx.transaction(): the block has ended", code="bad_transaction")
        return await self._backend.connection.execute(query, params)

    async def complete(self, output: Json = None) -> None:
        """Report this output as the result of the attempt and commit it with the transaction.

        The attempt is over when this returns; the return value of the handler is not used. Raises
        `AttemptLost` when this worker no longer owns the task, and `Retry` when the commit failed; the
        transaction is rolled back then.
        """
        if self._state != "open":
            raise Fail("tx.complete(): the block has ended", code="bad_transaction")
        await self._finish(self._check(output).output)

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise Fail("ctx.transaction(): only one transaction per attempt", code="bad_transaction")
        self._state = "open"
        try:
            await self._backend.begin()
        except BaseException:
            await self.undo()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state != "open":
            return
        if error is not None:
            await self.undo()
        elif self._backend.is_borrowed:
            await self.undo()
            raise Fail(
                "ctx.transaction(connection): end the block with `await tx.complete(output)`; "
                "it commits the report on your connection",
                code="bad_transaction",
            )
        else:
            self._state = "left"

    # --- for the runner

    @property
    def is_unfinished(self) -> bool:
        """Whether it has begun, and is neither committed nor rolled back."""
        return self._state in ("open", "left")

    @property
    def is_over(self) -> bool:
        """Whether it ended, and nothing of it runs any more."""
        return self._state == "ended" and (self.committing is None or self.committing.done())

    async def conclude(self, outcome: Completed) -> None:
        """Commit with the result that the handler returned."""
        if self._state == "open":
            raise Fail("ctx.transaction(): the handler returned inside the block", code="bad_transaction")
        await self._finish(outcome.output)

    async def undo(self) -> None:
        """Roll back, unless the transaction has ended or is committing."""
        if self.is_unfinished:
            self._state = "ended"
            await self._backend.roll_back()

    async def _finish(self, output: bytes) -> None:
        """Commit. A cancellation waits until the result of the commit is known."""
        self._state = "ended"
        self.committing = asyncio.create_task(self._commit(output))
        try:
            await asyncio.shield(self.committing)
        except asyncio.CancelledError:
            await _wait_uninterrupted(self.committing)
            raise

    async def _commit(self, output: bytes) -> None:
        await self._backend.finish(output)
        self._on_recorded()


async def _wait_uninterrupted(task: asyncio.Task[None]) -> None:
    """Wait until the task is done, even when this task is cancelled again."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()  # mark as retrieved; the context already has the outcome
