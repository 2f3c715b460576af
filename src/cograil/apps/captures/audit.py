"""The audit log: what was asked about captures and what became of it, each entry bound to the one before.

An entry's hash is the SHA-256 of its canonical JSON, in which the hash of the entry before it stands. So
whoever changes, removes or adds one changes all that follow, and what a proof was signed over tells of it.
Each capture is a chain; so are the refusals of one user, and those of one address that nobody recognised.
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
class Happening:
    """What an entry is about. Its payload holds texts, integers and truth values only."""

    event: str
    tenant_id: str | None
    user_id: str | None
    capture_id: str | None = None
    http_status: int | None = None
    source_ip: str | None = None
    event_payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
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

    def sealed(self) -> Entry:
        """The same, with its hash."""
        facts = {name: value for name, value in asdict(self).items() if name != "hash"}
        return Entry(**facts, hash=hash_of(facts))


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries of a chain: the first that is not as it was written, and after which there are more."""

    entries: list[dict[str, Any]]
    broken_at: int | None
    next_after: int | None


def hash_of(facts: dict[str, Any]) -> str:
    """Of an entry without its hash."""
    return hashlib.sha256(canonical_json.canonical(facts)).hexdigest()


def moment(at: datetime) -> str:
    """A time as it is hashed."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def first_broken(entries: Sequence[dict[str, Any]], previous: str = NOTHING, seq: int = 1) -> int | None:
    """The number of the first entry that is not as it was written, or is missing; None if all hold."""
    for entry in entries:
        facts = {name: value for name, value in entry.items() if name != "hash"}
        if facts.get("seq") != seq or facts.get("previous_hash") != previous:
            return seq
        try:
            is_right = hash_of(facts) == entry.get("hash")
        except canonical_json.NotCanonical:
            is_right = False
        if not is_right:
            return seq
        previous, seq = str(entry["hash"]), seq + 1
    return None


async def begin_chain(tx: Transaction, chain: str, happening: Happening) -> Entry:
    """The first entry of a chain that nobody else can know yet, at the time of its transaction."""
    return await _add(tx, chain, tx.now, 1, NOTHING, happening)


async def append(tx: Transaction, chain: str, happening: Happening) -> Entry:
    """The next entry of a chain, by one transaction at a time; it comes last in that."""
    await tx.fetch(LOCK_CHAIN, chain=chain)
    ((at, seq, previous),) = await tx.fetch(LAST_ENTRY, chain=chain)
    return await _add(tx, chain, at, (seq or 0) + 1, previous or NOTHING, happening)


async def _add(
    tx: Transaction, chain: str, at: datetime, seq: int, previous: str, happening: Happening
) -> Entry:
    entry = Entry(
        chain=chain,
        seq=seq,
        at=moment(at),
        previous_hash=previous,
        **asdict(happening),
    ).sealed()
    row = asdict(entry) | {"event_payload": orjson.dumps(entry.event_payload).decode()}
    await tx.execute(ADD_ENTRY, **row)
    return entry


async def list_entries(tx: Transaction, chain: str, after: int, limit: int) -> list[Entry]:
    """So many entries of a chain that come after this one, in order."""
    return entries_of(await tx.fetch(LIST_ENTRIES, chain=chain, after=after, limit=limit))


def entries_of(rows: Sequence[Sequence[Any]]) -> list[Entry]:
    """Rows of the log as entries."""
    return [_entry(row) for row in rows]


async def list_page(tx: Transaction, chain: str, after: int, limit: int) -> Page:
    """The same, held against the entry before them."""
    found = await list_entries(tx, chain, max(0, after - 1), limit + 2)
    previous = NOTHING if after == 0 else ""  # which nobody has
    if after > 0 and found and found[0].seq == after:
        previous, found = found[0].hash, found[1:]
    entries = [asdict(entry) for entry in found[:limit]]
    next_after = entries[-1]["seq"] if len(found) > limit else None
    return Page(entries, first_broken(entries, previous, after + 1), next_after)


def _entry(row: Sequence[Any]) -> Entry:
    chain, seq, at, event, tenant, user, capture, status, address, payload, previous, hash_ = row
    value = orjson.loads(payload) if isinstance(payload, bytes | str) else payload
    return Entry(
        chain, seq, moment(at), event, tenant, user, capture, status, address, value, previous, hash_
    )
