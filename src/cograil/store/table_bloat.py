"""The size of the tables, their dead rows, and the sessions that keep these from being removed.

A changed or deleted row stays until no snapshot needs it and vacuum removes it. A session that is in a
transaction for an hour keeps the dead rows of that hour, in every table.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import tuple_row

from cograil.store.doctor import Connection, Finding
from cograil.store.statements import Statement, statement

TABLE_SIZES = statement("doctor_table_sizes")
OLD_SNAPSHOTS = statement("doctor_old_snapshots")
PARTITIONS = statement("doctor_partitions")

# Vacuum runs when a fifth of a table is dead; a table that is large and half dead needs attention.
MANY_DEAD_ROWS = 100_000
DEAD_SHARE = 0.5
EMPTY_BYTES = 8192  # one page, of the index of its TOAST table
OLD_SECONDS = 300.0  # age of a transaction
OLD_TRANSACTIONS = 1_000_000  # age of holders without a time, such as a replication slot


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table. Rows are estimates; bytes count indexes too."""

    table: str
    rows: int
    dead_rows: int
    total_bytes: int
    index_bytes: int
    vacuumed_at: datetime | None

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows: by its size too, because the statistics lag behind."""
        return not (self.rows or self.dead_rows) and self.total_bytes - self.index_bytes <= EMPTY_BYTES

    @property
    def is_mostly_dead(self) -> bool:
        """Whether vacuum does not keep up."""
        return self.dead_rows >= MANY_DEAD_ROWS and self.dead_rows > DEAD_SHARE * self.rows


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session for which dead rows are kept, with the age of its snapshot in seconds and transactions."""

    kind: str
    name: str
    application: str
    state: str
    seconds: float | None
    transactions: int

    @property
    def is_old(self) -> bool:
        """Whether it is so old that tables grow."""
        return (self.seconds or 0.0) > OLD_SECONDS or self.transactions > OLD_TRANSACTIONS

    def __str__(self) -> str:
        since = f"for {self.seconds:.0f} s" if self.seconds is not None else ""
        parts = (self.kind, self.name, self.application, self.state, since)
        return f"{' '.join(word for word in parts if word)}, {self.transactions} transactions behind"


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of nodes and events by period."""

    count: int
    total_bytes: int
    until: datetime | None
    default_bytes: int
    now: datetime

    def __str__(self) -> str:
        rest = f"{megabytes(self.default_bytes)} in the default ones"
        if self.until is None:
            return f"none; {rest}, which are deleted by rows"
        reach = "made until" if self.until > self.now else "no partition created since"
        return f"{self.count} with {megabytes(self.total_bytes)}, {reach} {self.until:%Y-%m-%d}; {rest}"


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The tables, the largest first; the holders of snapshots, the oldest first; and the partitions."""

    sizes: tuple[TableSize, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    partitions: Partitions | None = None

    def findings(self) -> list[Finding]:
        """Return the doctor's findings: H1 dead rows, H2 old snapshots, which only warn, H3 partitions."""
        findings = [self._dead_rows(), self._old_snapshots()]
        return findings + [Finding("green", "H3", "partitions", str(self.partitions))] * bool(self.partitions)

    def _dead_rows(self) -> Finding:
        dead = [table.table for table in self.sizes if table.is_mostly_dead]
        if dead:
            message = "much of it is dead: vacuum does not keep up, or an old snapshot (H2) keeps the rows"
            return Finding("yellow", "H1", "dead_rows", message, tuple(dead), len(dead))
        total = sum(table.total_bytes for table in self.sizes)
        message = f"{len(self.sizes)} tables, {megabytes(total)}, vacuum keeps up"
        return Finding("green", "H1", "dead_rows", message)

    def _old_snapshots(self) -> Finding:
        old = [str(snapshot) for snapshot in self.snapshots if snapshot.is_old]
        if old:
            message = "dead rows are kept until this session ends; end it"
            return Finding("yellow", "H2", "old_snapshots", message, tuple(old), len(old))
        return Finding("green", "H2", "old_snapshots", "no session holds an old snapshot")


def megabytes(size: int) -> str:
    """Return a size as text."""
    return f"{size / 1_048_576:,.1f} MB"


async def look(conn: Connection) -> TableHealth:
    """Return the current state of the tables. Changes nothing; needs a migrated database."""
    return TableHealth(
        tuple(TableSize(*row) for row in await _rows(conn, TABLE_SIZES)),
        tuple(Snapshot(*row) for row in await _rows(conn, OLD_SNAPSHOTS)),
        next(Partitions(*row) for row in await _rows(conn, PARTITIONS)),
    )


async def _rows(conn: Connection, statement: Statement) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement.text.encode(), prepare=False)
        return await cursor.fetchall()
