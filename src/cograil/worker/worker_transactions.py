"""The worker's side of `ctx.transaction()`: a connection, the report as its last statement, one commit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import psycopg
import structlog
from psycopg import AsyncConnection

from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import WorkItem
from cograil.runners.handler_exceptions import AttemptLost, Fail, Retry
from cograil.store import handler_transactions
from cograil.store.database import Database, Transaction
from cograil.store.handler_transactions import HandlerConnections
from cograil.verbs import tasks
from cograil.worker.heartbeat import Identity
from cograil.worker.progress_writer import ProgressWriter

log = structlog.get_logger("worker")
RETRY_SECONDS = 0.5


class WorkerTransaction:
    """The transaction of one attempt, on a connection of ours or on one the handler brought."""

    def __init__(
        self,
        db: Database,
        connections: HandlerConnections,
        progress_writer: ProgressWriter,
        identity: Identity,
        item: WorkItem,
        brought: Any = None,
    ) -> None:
        self._db = db
        self._connections = connections
        self._progress = progress_writer
        self._identity = identity
        self._item = item
        self._brought = brought
        self._tx: Transaction | None = None
        self.is_borrowed = brought is not None

    @property
    def connection(self) -> Any:
        """Of the driver, once it has begun."""
        return self._begun.connection

    @property
    def _begun(self) -> Transaction:
        if self._tx is None:
            raise Fail("ctx.transaction(): use it as `async with`", code="bad_transaction")
        return self._tx

    async def begin(self) -> None:
        """Raises Fail when the connection leads elsewhere: two databases cannot commit together."""
        if not self.is_borrowed:
            connection = await self._connections.take()
            try:
                self._tx = await handler_transactions.begin(connection, is_borrowed=False)
                if not self._connections.is_checked:
                    await self._check(connection, "COGRAIL_DATABASE__HANDLER_URL")
                    self._connections.is_checked = True
            except BaseException:
                self._tx = None
                await connection.close()
                await self._connections.give_back(connection)
                raise
            return
        if not isinstance(self._brought, AsyncConnection):
            raise Fail("ctx.transaction(): it takes a psycopg.AsyncConnection", code="bad_transaction")
        self._tx = await handler_transactions.begin(self._brought, is_borrowed=True)
        await self._check(self._brought, "this connection")

    async def _check(self, connection: AsyncConnection[Any], what: str) -> None:
        if not await self._connections.is_ours(connection):
            raise Fail(
                f"ctx.transaction(): {what} leads to another database than that of cograil; "
                "two databases cannot commit together. Use ctx.idempotency_key there instead",
                code="bad_transaction",
            )

    async def finish(self, output: bytes) -> None:
        """Report and commit; raises AttemptLost or Retry when that did not happen."""
        tx, item, identity = self._begun, self._item, self._identity
        with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
            await self._progress.flush(identity, {item.task_id})  # while the attempt is still there
        try:
            is_ours = await tasks.report_here(tx, identity.worker_id, identity.name, item, output)
        except (psycopg.Error, OSError) as error:
            await self.roll_back()
            raise Retry(f"the transaction was lost: {error}".strip(), code="transaction_failed") from error
        if not is_ours:
            await self.roll_back()
            raise AttemptLost("this attempt was lost to another; its transaction was rolled back")
        try:
            await handler_transactions.commit(tx)
        except (psycopg.Error, OSError) as error:
            await self.roll_back()
            await self._ask(error)
        else:
            await self._let_go()

    async def _ask(self, error: Exception) -> None:
        """The commit may have happened. Returns when it has; raises when it has not, or never will."""
        while True:
            try:
                counted = await tasks.was_reported(self._db, self._identity.worker_id, self._item)
                break
            except (psycopg.Error, DatabaseUnavailable) as still:
                log.warning("cannot ask whether a transaction committed", error=str(still).strip())
                await asyncio.sleep(RETRY_SECONDS)
        if counted is None:
            raise AttemptLost("this attempt was lost to another; its transaction was rolled back")
        if not counted:
            raise Retry(f"it could not commit: {error}".strip(), code="transaction_failed") from error

    async def roll_back(self) -> None:
        """Never raises; nothing of it remains."""
        if self._tx is not None:
            with contextlib.suppress(Exception):
                await handler_transactions.roll_back(self._tx.connection)
            await self._let_go()

    async def _let_go(self) -> None:
        tx, self._tx = self._tx, None
        if tx is not None and not self.is_borrowed:
            await self._connections.give_back(tx.connection)
