"""Secrets that sign the callbacks of gateway requests: one secret for each API key.

A secret is derived from the id of the key and a secret of this database, so it is not stored. A receiver
that knows the secret of its own key cannot sign for another key.
"""

from __future__ import annotations

import base64
import hmac

from cograil.model.roles import Role
from cograil.store.api_keys import find_secret
from cograil.store.database import Transaction
from cograil.verbs.callback_targets import SECRET_PREFIX

ROOT = "callback"
MAY_REQUEST: tuple[Role, ...] = ("submitter", "gateway")


async def secret_of_key(tx: Transaction, key_id: str) -> str | None:
    """Return the secret of this key in the format of Standard Webhooks; None without a key."""
    if not key_id:
        return None
    root = await find_secret(tx, ROOT)
    digest = hmac.digest(root.encode(), f"callbacks of {key_id}".encode(), "sha256")
    return SECRET_PREFIX + base64.b64encode(digest).decode()
