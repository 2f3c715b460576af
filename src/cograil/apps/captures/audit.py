"""The audit log: requests about captures and their outcomes, as hash chains.

An entry's hash is the SHA-256 of its canonical JSON, which contains the hash of the previous entry. So changing,
removing or adding an entry changes all that follow, and a signed proof reveals it. Each capture is a chain; so are the
refused requests of one user, and those of one unauthenticated address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from cograil import canonical_json
from cograil.store.database import Transaction
from cograil.store.statements import statement

LOCK_CHAIN = statement("lock_chain", package="cograil.apps.captures")
LAST_ENTRY = statement("last_entry", package="cograil.apps.captures")
ADD_ENTRY = statement("add_entry", package="cograil.apps.captures")
LIST_ENTRIES = statement("list_entries", package="cograil.apps.captures")

NOTHING = "0" * 64  # before the first


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """The content of an entry. Its payload holds strings, integers and booleans only."""

    event: str
    tenant_id: str | None
    user_id: str | None
    capture_id: str | None = None
    http_status: int | None = None
    source_ip: str | None = None
    event_payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """One entry, as it is hashed, stored and shown."""

    chain: str
    seq: int
    at: str
    event: str
    tenant_id: str | None
    user_id: str | None
    capture_id: str | None
    http_status: int | None
    source_ip: str | None
    event_payload: dict[str, Any]
    previous_hash: str
    hash: str = ""

    def sealed(self) -> ChainEntry:
        """The entry with its hash."""
        fields = {name: value for name, value in asdict(self).items() if name != "hash"}
        return ChainEntry(**fields, hash=hash_of(fields))


@dataclass(frozen=True, slots=True)
class ChainPage:
    """A page of a chain: its entries, the first broken one, and the number after which the next page begins."""

    entries: list[dict[str, Any]]
    broken_at: int | None
    next_after: int | None


def hash_of(fields: dict[str, Any]) -> str:
    """The hash of an entry, given its other fields."""
    return hashlib.sha256(canonical_json.canonical(fields)).hexdigest()


def moment(at: datetime) -> str:
    """A time in the format that is hashed."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def first_broken(entries: Sequence[dict[str, Any]], previous: str = NOTHING, seq: int = 1) -> int | None:
    """The number of the first entry that was changed or is missing; None if all are intact."""
    for entry in entries:
        fields = {name: value for name, value in entry.items() if name != "hash"}
        if fields.get("seq") != seq or fields.get("previous_hash") != previous:
            return seq
        try:
            is_right = hash_of(fields) == entry.get("hash")
        except canonical_json.NotCanonical:
            is_right = False
        if not is_right:
            return seq
        previous, seq = str(entry["hash"]), seq + 1
    return None


async def begin_chain(tx: Transaction, chain: str, audit_event: AuditEvent) -> ChainEntry:
    """Write the first entry of a new chain, at the time of its transaction."""
    return await _add(tx, chain, tx.now, 1, NOTHING, audit_event)


async def append(tx: Transaction, chain: str, audit_event: AuditEvent) -> ChainEntry:
    """Append an entry to a chain under its lock; call this last in the transaction."""
    await tx.fetch(LOCK_CHAIN, chain=chain)
    ((at, seq, previous),) = await tx.fetch(LAST_ENTRY, chain=chain)
    return await _add(tx, chain, at, (seq or 0) + 1, previous or NOTHING, audit_event)


async def _add(
    tx: Transaction, chain: str, at: datetime, seq: int, previous: str, audit_event: AuditEvent
) -> ChainEntry:
    entry = ChainEntry(
        chain=chain,
        seq=seq,
        at=moment(at),
        previous_hash=previous,
        **asdict(audit_event),
    ).sealed()
    row = asdict(entry) | {"event_payload": orjson.dumps(entry.event_payload).decode()}
    await tx.execute(ADD_ENTRY, **row)
    return entry


async def list_entries(tx: Transaction, chain: str, after: int, limit: int) -> list[ChainEntry]:
    """At most `limit` entries of a chain after this number, in order."""
    return entries_of(await tx.fetch(LIST_ENTRIES, chain=chain, after=after, limit=limit))


def entries_of(rows: Sequence[Sequence[Any]]) -> list[ChainEntry]:
    """Rows of the log as entries."""
    return [_entry(row) for row in rows]


async def list_page(tx: Transaction, chain: str, after: int, limit: int) -> ChainPage:
    """A page of a chain, checked against the entry before it."""
    entries_after = await list_entries(tx, chain, max(0, after - 1), limit + 2)
    previous = NOTHING if after == 0 else ""  # "" is the hash of no entry
    if after > 0 and entries_after and entries_after[0].seq == after:
        previous, entries_after = entries_after[0].hash, entries_after[1:]
    entries = [asdict(entry) for entry in entries_after[:limit]]
    next_after = entries[-1]["seq"] if len(entries_after) > limit else None
    return ChainPage(entries, first_broken(entries, previous, after + 1), next_after)


def _entry(row: Sequence[Any]) -> ChainEntry:
    chain, seq, at, event, tenant, user, capture, status, address, payload, previous, hash_ = row
    value = orjson.loads(payload) if isinstance(payload, bytes | str) else payload
    return ChainEntry(
        chain, seq, moment(at), event, tenant, user, capture, status, address, value, previous, hash_
    )
