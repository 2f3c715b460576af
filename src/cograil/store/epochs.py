"""A new epoch: after a restore, no number that a worker may still hold is issued again.

`cograil.new_epoch()` skips numbers of tasks and processes, and fences. Orchestrators call it when they see
another cluster or timeline; a restore into the same cluster calls it before any process uses the database.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from cograil.errors import SchemaMismatch


async def begin_epoch(connection: AsyncConnection[Any]) -> int:
    """Begin a new epoch in this database; return its number. Raises SchemaMismatch for a schema without
    epochs.
    """
    cursor = await connection.execute("select to_regprocedure('cograil.new_epoch(boolean)') is not null")
    if await cursor.fetchone() != (True,):
        raise SchemaMismatch("the schema of this database has no epochs yet; run `cograil db migrate` first")
    cursor = await connection.execute("select cograil.new_epoch()")
    (epoch,) = (await cursor.fetchall())[0]
    return int(epoch)
