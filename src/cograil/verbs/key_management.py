"""API keys: create, verify and revoke. The key itself is shown once and only its hash is stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime

from cograil.errors import InvalidInput, NotFound, Problem
from cograil.model.ids import is_id
from cograil.model.roles import NOBODY, ROLES
from cograil.store import api_keys as store
from cograil.store.api_keys import StoredKey
from cograil.store.database import IS_TENANT, Transaction

PREFIX = "cog"
MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key in the form that its creator sees."""

    key: str
    key_id: str


async def create_key(
    tx: Transaction,
    *,
    tenant: str = "default",
    role: str,
    user_id: str = NOBODY,
    name: str = "",
    expires_at: datetime | None = None,
) -> NewKey:
    """Create a key of this tenant with this role. Raises InvalidInput."""
    if problems := _problems(tenant, role, user_id, name):
        raise InvalidInput(problems)
    key_id = base64.b32encode(secrets.token_bytes(10)).decode().lower()
    secret = secrets.token_urlsafe(32)
    await store.make_key(
        tx,
        key_id=key_id,
        tenant=tenant,
        role=role,
        user_id=user_id,
        name=name,
        hash_=_hash(secret),
        expires_at=expires_at,
    )
    return NewKey(f"{PREFIX}_{key_id}_{secret}", key_id)


async def revoke_key(tx: Transaction, key_id: str) -> None:
    """Revoke a key; servers that have cached it accept it for a few more seconds. Raises NotFound."""
    if not await store.revoke_key(tx, key_id):
        raise NotFound(f"key {key_id} does not exist, or it was revoked already")


async def delete_key(tx: Transaction, key_id: str) -> None:
    """Delete a revoked or expired key. After the last key is deleted, loopback needs no key. Raises
    NotFound.
    """
    if not await store.delete_key(tx, key_id):
        raise NotFound(f"key {key_id} does not exist or is still active; revoke it first")


def split_key(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a key; None when the text is not a key."""
    parts = text.split("_", 2)
    is_key = len(parts) == 3 and parts[0] == PREFIX and parts[1].isascii() and parts[1].isalnum()
    return (parts[1], parts[2]) if is_key else None


def recognises(stored: StoredKey | None, secret: str) -> bool:
    """Return whether this is the secret of the key. Takes the same time when the key does not exist."""
    known = _hash("") if stored is None else stored.hash
    is_same = hmac.compare_digest(_hash(secret), known)
    return is_same and stored is not None and stored.is_valid


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _problems(tenant: str, role: str, user_id: str, name: str) -> list[Problem]:
    problems = []
    if not IS_TENANT(tenant):
        message = (
            "a tenant must have up to 63 lowercase letters, digits, - and _, and begin with a letter or digit"
        )
        problems.append(Problem("invalid_value", message, "/tenant"))
    if role not in ROLES:
        problems.append(Problem("invalid_value", f"a role must be one of {', '.join(ROLES)}", "/role"))
    if not is_id(user_id):
        problems.append(Problem("invalid_value", "a user must be a UUID", "/user"))
    if len(name) > MAX_NAME or not name.isprintable():
        problems.append(Problem("invalid_value", f"a name must have at most {MAX_NAME} characters", "/name"))
    return problems
