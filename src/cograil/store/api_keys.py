"""API keys, and the audit log."""

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
ROLE_PRIVILEGES = statement("role_privileges")


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A stored key: its owner, role, and the hash of its secret."""

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
    """Insert a new key."""
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
    """Return the key of this id, of any tenant; None when there is none."""
    rows = await tx.fetch(FIND_KEY, id=key_id)
    return StoredKey(*rows[0]) if rows else None


async def has_keys(tx: Transaction) -> bool:
    """Return whether any key exists, even a revoked or expired one."""
    ((has_keys,),) = await tx.fetch(HAS_KEYS)
    return bool(has_keys)


async def list_keys(tx: Transaction, tenant: str | None) -> list[dict[str, Any]]:
    """Return all keys, newest first, without their hashes."""
    return await tx.fetch_dicts(LIST_KEYS, tenant=tenant)


async def revoke_key(tx: Transaction, key_id: str) -> bool:
    """Revoke a key; return False when it does not exist or was revoked."""
    return await tx.execute(REVOKE_KEY, id=key_id) == 1


async def delete_key(tx: Transaction, key_id: str) -> bool:
    """Delete a revoked or expired key; return False when there is none of this id."""
    return await tx.execute(DELETE_KEY, id=key_id) == 1


async def note_key_use(tx: Transaction, key_id: str) -> None:
    """Update the last use of the key."""
    await tx.execute(NOTE_KEY_USE, id=key_id)


class AuditRecord(NamedTuple):
    """One entry of the audit log: a change and its author."""

    tenant: str
    key_id: str
    user_id: str
    role: str
    action: str
    target: str = ""
    request_id: str = ""
    address: str = ""
    data: Mapping[str, Any] | None = None

    def of(self, target: str) -> AuditRecord:
        """Return the same entry for this target."""
        return self._replace(target=target)

    def row(self) -> tuple[Any, ...]:
        """Return the columns of the entry, in the order of `AUDIT`."""
        return (*self[:-1], None if self.data is None else orjson.dumps(self.data))


async def add_audits(tx: Transaction, entries: Sequence[AuditRecord]) -> None:
    """Append entries to the audit log, in the transaction of the change."""
    columns = AUDIT()
    columns.rows += [entry.row() for entry in entries]
    await tx.execute(ADD_AUDITS, **columns.params())


async def list_audit(tx: Transaction, tenant: str, before: int | None, limit: int) -> list[dict[str, Any]]:
    """Return entries, newest first; `before` is the last id of the previous page."""
    rows = await tx.fetch_dicts(LIST_AUDIT, tenant=tenant, before=before, limit=limit)
    return [row | {"data": None if row["data"] is None else orjson.loads(row["data"])} for row in rows]


async def find_secret(tx: Transaction, name: str) -> str:
    """Return a secret that all servers of this database share."""
    ((secret,),) = await tx.fetch(FIND_SECRET, name=name)
    return str(secret)


async def role_privileges(tx: Transaction) -> list[str]:
    """Return the privileges of the session role that bypass row-level security."""
    (row,) = await tx.fetch(ROLE_PRIVILEGES)
    powers = ("is a superuser", "bypasses row-level security", "owns a table of cograil")
    return [power for power, has_it in zip(powers, row, strict=True) if has_it]
