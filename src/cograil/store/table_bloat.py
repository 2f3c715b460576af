"""How large the tables are, how much in them is dead, and who keeps it from being removed.

A row that was changed or deleted stays until no snapshot may need it and vacuum has come by. One session
that sits in a transaction for an hour keeps all that died in that hour, in every table.
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

# Vacuum comes when a fifth of a table is dead; when it is half and much, something is wrong.
MANY_DEAD_ROWS = 100_000
DEAD_SHARE = 0.5
EMPTY_BYTES = 8192  # one page, of the index of its large values
OLD_SECONDS = 300.0  # of a transaction
OLD_TRANSACTIONS = 1_000_000  # of what tells no time, such as a replication slot


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
        """Whether nothing is in it: by its size too, because the counts lag behind."""
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
        """Whether it is held for so long that tables grow."""
        return (self.seconds or 0.0) > OLD_SECONDS or self.transactions > OLD_TRANSACTIONS

    def __str__(self) -> str:
        since = f"for {self.seconds:.0f} s" if self.seconds is not None else ""
        parts = (self.kind, self.name, self.application, self.state, since)
        return f"{' '.join(word for word in parts if word)}, {self.transactions} transactions behind"


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of nodes and events that are for a period."""

    count: int
    total_bytes: int
    until: datetime | None
    default_bytes: int
    now: datetime

    def __str__(self) -> str:
        rest = f"{megabytes(self.default_bytes)} in the default ones"
        if self.until is None:
            return f"none; {rest}, which go by rows"
        reach = "made until" if self.until > self.now else "none made since"
        return f"{self.count} with {megabytes(self.total_bytes)}, {reach} {self.until:%Y-%m-%d}; {rest}"


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The tables, the largest first, who holds a snapshot, the oldest first, and the partitions."""

    sizes: tuple[TableSize, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    partitions: Partitions | None = None

    def findings(self) -> list[Finding]:
        """What the doctor says of it: H1 dead rows, H2 old snapshots, which only warn, H3 partitions."""
        findings = [self._dead_rows(), self._old_snapshots()]
        return findings + [Finding("green", "H3", "partitions", str(self.partitions))] * bool(self.partitions)

    def _dead_rows(self) -> Finding:
        dead = [table.table for table in self.sizes if table.is_mostly_dead]
        if dead:
            message = "much of it is dead: vacuum does not keep up, or an old snapshot (H2) keeps it"
            return Finding("yellow", "H1", "dead_rows", message, tuple(dead), len(dead))
        total = sum(table.total_bytes for table in self.sizes)
        message = f"{len(self.sizes)} tables, {megabytes(total)}, vacuum keeps up"
        return Finding("green", "H1", "dead_rows", message)

    def _old_snapshots(self) -> Finding:
        old = [str(snapshot) for snapshot in self.snapshots if snapshot.is_old]
        if old:
            message = "rows that die are kept as long as this is; end it"
            return Finding("yellow", "H2", "old_snapshots", message, tuple(old), len(old))
        return Finding("green", "H2", "old_snapshots", "nobody holds an old snapshot")


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1_048_576:,.1f} MB"


async def look(conn: Connection) -> TableHealth:
    """How the tables are now. Changes nothing; needs a migrated database."""
    return TableHealth(
        tuple(TableSize(*row) for row in await _rows(conn, TABLE_SIZES)),
        tuple(Snapshot(*row) for row in await _rows(conn, OLD_SNAPSHOTS)),
        next(Partitions(*row) for row in await _rows(conn, PARTITIONS)),
    )


async def _rows(conn: Connection, statement: Statement) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement.text.encode(), prepare=False)
        return await cursor.fetchall()
