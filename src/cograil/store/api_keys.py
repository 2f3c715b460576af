"""Keys of callers, and the log of what they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from cograil.store.database import Transaction
from cograil.store.statements import statement
from cograil.store.write_columns import AUDIT

MAKE_KEY = statement("make_key")
FIND_KEY = statement("find_key")
HAS_KEYS = statement("has_keys")
LIST_KEYS = statement("list_keys")
REVOKE_KEY = statement("revoke_key")
DELETE_KEY = statement("delete_key")
NOTE_KEY_USE = statement("note_key_use")
ADD_AUDITS = statement("add_audits")
LIST_AUDIT = statement("list_audit")
FIND_SECRET = statement("find_secret")
WHAT_IT_MAY = statement("what_it_may")


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is known of a key: whose it is, and how to recognise its secret."""

    key_id: str
    tenant: str
    role: str
    user_id: str
    name: str
    hash: bytes
    is_valid: bool


async def make_key(
    tx: Transaction,
    *,
    key_id: str,
    tenant: str,
    role: str,
    user_id: str,
    name: str,
    hash_: bytes,
    expires_at: datetime | None,
) -> None:
    """Keep a new key."""
    await tx.execute(
        MAKE_KEY,
        id=key_id,
        tenant=tenant,
        role=role,
        user=user_id,
        name=name,
        hash=hash_,
        expires_at=expires_at,
    )


async def find_key(tx: Transaction, key_id: str) -> StoredKey | None:
    """The key of this id, whoever's it is."""
    rows = await tx.fetch(FIND_KEY, id=key_id)
    return StoredKey(*rows[0]) if rows else None


async def has_keys(tx: Transaction) -> bool:
    """Whether there is any key, though it may have ended."""
    return bool((await tx.fetch(HAS_KEYS))[0][0])


async def list_keys(tx: Transaction, tenant: str | None) -> list[dict[str, Any]]:
    """All keys, newest first, without what recognises them."""
    names = (
        "key_id",
        "tenant",
        "role",
        "user_id",
        "name",
        "created_at",
        "expires_at",
        "revoked_at",
        "last_used_at",
    )
    return [dict(zip(names, row, strict=True)) for row in await tx.fetch(LIST_KEYS, tenant=tenant)]


async def revoke_key(tx: Transaction, key_id: str) -> bool:
    """End a key. False: there is none of this id, or it had ended."""
    return await tx.execute(REVOKE_KEY, id=key_id) == 1


async def delete_key(tx: Transaction, key_id: str) -> bool:
    """Forget a key that has ended. False: there is none of this id that has."""
    return await tx.execute(DELETE_KEY, id=key_id) == 1


async def note_key_use(tx: Transaction, key_id: str) -> None:
    """It is in use."""
    await tx.execute(NOTE_KEY_USE, id=key_id)


class AuditEntry(NamedTuple):
    """One change that somebody made."""

    tenant: str
    key_id: str
    user_id: str
    role: str
    action: str
    target: str = ""
    request_id: str = ""
    address: str = ""
    data: Mapping[str, Any] | None = None

    def of(self, target: str) -> AuditEntry:
        """The same for a target that was not known before."""
        return self._replace(target=target)

    def row(self) -> tuple[Any, ...]:
        """As it is written."""
        return (*self[:-1], None if self.data is None else orjson.dumps(self.data))


async def add_audits(tx: Transaction, entries: Sequence[AuditEntry]) -> None:
    """Append to the log; it commits with what it tells."""
    columns = AUDIT()
    columns.rows += [entry.row() for entry in entries]
    await tx.execute(ADD_AUDITS, **columns.params())


async def list_audit(tx: Transaction, tenant: str, before: int | None, limit: int) -> list[dict[str, Any]]:
    """The newest entries first; `before` is the last id of the page before."""
    names = ("id", "at", "key_id", "user_id", "role", "action", "target", "request_id", "address", "data")
    rows = await tx.fetch(LIST_AUDIT, tenant=tenant, before=before, limit=limit)
    views = [dict(zip(names, row, strict=True)) for row in rows]
    return [view | {"data": None if view["data"] is None else orjson.loads(view["data"])} for view in views]


async def find_secret(tx: Transaction, name: str) -> str:
    """A secret that all doors of this database share."""
    secret: str = (await tx.fetch(FIND_SECRET, name=name))[0][0]
    return secret


async def what_it_may(tx: Transaction) -> list[str]:
    """What the role of this session may that the role of a door should not."""
    (row,) = await tx.fetch(WHAT_IT_MAY)
    powers = ("is a superuser", "bypasses row-level security", "owns a table of ours")
    return [power for power, has_it in zip(powers, row, strict=True) if has_it]
