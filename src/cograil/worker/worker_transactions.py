"""The worker's side of `ctx.transaction()`: one connection, the report as its last statement, one commit."""

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
    """The transaction of one attempt, on a connection of the worker or on the handler's own."""

    def __init__(
        self,
        db: Database,
        connections: HandlerConnections,
        progress_writer: ProgressWriter,
        identity: Identity,
        item: WorkItem,
        own_connection: Any = None,
    ) -> None:
        self._db = db
        self._connections = connections
        self._progress = progress_writer
        self._identity = identity
        self._item = item
        self._own_connection = own_connection
        self._tx: Transaction | None = None
        self.is_borrowed = own_connection is not None

    @property
    def connection(self) -> Any:
        """The psycopg connection. Raises Fail before `begin`."""
        return self._begun.connection

    @property
    def _begun(self) -> Transaction:
        if self._tx is None:
            raise Fail("ctx.transaction(): use it as `async with`", code="bad_transaction")
        return self._tx

    async def begin(self) -> None:
        """Begin the transaction. Raises Fail when the connection belongs to another database."""
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
        if not isinstance(self._own_connection, AsyncConnection):
            raise Fail("ctx.transaction(): it takes a psycopg.AsyncConnection", code="bad_transaction")
        self._tx = await handler_transactions.begin(self._own_connection, is_borrowed=True)
        await self._check(self._own_connection, "this connection")

    async def _check(self, connection: AsyncConnection[Any], what: str) -> None:
        if not await self._connections.is_ours(connection):
            raise Fail(
                f"ctx.transaction(): {what} leads to another database than the one of cograil. "
                "Two databases cannot commit together; use ctx.idempotency_key there instead",
                code="bad_transaction",
            )

    async def finish(self, output: bytes) -> None:
        """Report the outcome and commit. Raises AttemptLost or Retry when the commit did not happen."""
        tx, item, identity = self._begun, self._item, self._identity
        with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
            await self._progress.flush(identity, {item.task_id})  # while the attempt is still there
        try:
            is_ours = await tasks.report_in_transaction(tx, identity.worker_id, identity.name, item, output)
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
            await self._resolve_commit(error)
        else:
            await self._return_connection()

    async def _resolve_commit(self, error: Exception) -> None:
        """Find out whether an interrupted commit happened.

        Returns when it did. Raises Retry when it did not, and AttemptLost when the attempt is lost.
        """
        while True:
            try:
                async with self._db.single("report") as tx:
                    is_recorded = await tasks.was_reported(tx, self._identity.worker_id, self._item)
                break
            except (psycopg.Error, DatabaseUnavailable) as outage:
                log.warning("cannot check whether a transaction committed", error=str(outage).strip())
                await asyncio.sleep(RETRY_SECONDS)
        if is_recorded is None:
            raise AttemptLost("this attempt was lost to another; its transaction was rolled back")
        if not is_recorded:
            raise Retry(f"it could not commit: {error}".strip(), code="transaction_failed") from error

    async def roll_back(self) -> None:
        """Roll back and return the connection. Never raises."""
        if self._tx is not None:
            with contextlib.suppress(Exception):
                await handler_transactions.roll_back(self._tx.connection)
            await self._return_connection()

    async def _return_connection(self) -> None:
        tx, self._tx = self._tx, None
        if tx is not None and not self.is_borrowed:
            await self._connections.give_back(tx.connection)
