"""`ctx.transaction()`: the handler's own SQL and the report of its result commit together.

The block does not commit when it ends: the result is not known yet. The runner commits when the handler
has returned it, or `tx.complete(output)` does. Whatever ends otherwise is rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from cograil.model.outcome import Completed
from cograil.model.workflow import Json
from cograil.runners.exceptions import Fail


class Joint(Protocol):
    """The worker's side of it: a connection on which the report can be made."""

    is_borrowed: bool
    """Whether it is the handler's own connection, which its owner may commit before us."""

    @property
    def connection(self) -> Any:
        """Of the driver, once it has begun."""

    async def begin(self) -> None:
        """Raises Fail when the connection leads elsewhere, or cannot be used."""

    async def finish(self, output: bytes) -> None:
        """Report and commit. Raises AttemptLost or Retry when that did not happen: it is rolled back."""

    async def roll_back(self) -> None:
        """Never raises."""


class JointTransaction:
    """What `async with ctx.transaction() as tx` gives."""

    def __init__(
        self, joint: Joint, check: Callable[[Json], Completed], on_recorded: Callable[[], None]
    ) -> None:
        self._joint = joint
        self._check = check
        self._on_recorded = on_recorded
        self._state: Literal["new", "open", "left", "ended"] = "new"
        self.committing: asyncio.Task[None] | None = None

    @property
    def connection(self) -> Any:
        """The psycopg connection; what it executes inside the block belongs to the transaction."""
        return self._joint.connection

    async def execute(self, query: Any, params: Any = None) -> Any:
        """Run this statement; the cursor, for `fetchone` and `fetchall`."""
        if self._state != "open":
            raise Fail("ctx.transaction(): its block has ended", code="bad_transaction")
        return await self._joint.connection.execute(query, params)

    async def complete(self, output: Json = None) -> None:
        """Make this the result of the attempt, and commit it with what the transaction did.

        The attempt is over when this returns: what the handler returns later is not used. Raises
        `AttemptLost` when the task is no longer ours, `Retry` when it could not commit: all is undone.
        """
        if self._state != "open":
            raise Fail("tx.complete(): its block has ended", code="bad_transaction")
        await self._finish(self._check(output).output)

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise Fail("ctx.transaction(): one for each attempt", code="bad_transaction")
        self._state = "open"
        try:
            await self._joint.begin()
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
        elif self._joint.is_borrowed:
            await self.undo()
            raise Fail(
                "ctx.transaction(connection): end the block with `await tx.complete(output)`; "
                "only then is it known that your connection commits the report as well",
                code="bad_transaction",
            )
        else:
            self._state = "left"

    # --- for the runner

    @property
    def is_unfinished(self) -> bool:
        """Whether it was begun, and neither committed nor rolled back."""
        return self._state in ("open", "left")

    @property
    def is_over(self) -> bool:
        """Whether it ended, and nothing of it runs any more."""
        return self._state == "ended" and (self.committing is None or self.committing.done())

    async def conclude(self, outcome: Completed) -> None:
        """The handler returned this."""
        if self._state == "open":
            raise Fail("ctx.transaction(): the handler returned without leaving it", code="bad_transaction")
        await self._finish(outcome.output)

    async def undo(self) -> None:
        """Roll back, unless it ended before or is past the point where it can be undone."""
        if self.is_unfinished:
            self._state = "ended"
            await self._joint.roll_back()

    async def _finish(self, output: bytes) -> None:
        """From here on there is no way back: a cancellation waits until we know how it ended."""
        self._state = "ended"
        self.committing = asyncio.create_task(self._commit(output))
        try:
            await asyncio.shield(self.committing)
        except asyncio.CancelledError:
            await _patiently(self.committing)
            raise

    async def _commit(self, output: bytes) -> None:
        await self._joint.finish(output)
        self._on_recorded()


async def _patiently(task: asyncio.Task[None]) -> None:
    """Until it is done, however often we are cancelled."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()  # known by now to whoever asks the context
