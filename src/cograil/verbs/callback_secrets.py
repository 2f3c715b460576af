"""Who signs the callbacks of requests from outside: each key has a secret of its own.

It follows from the id of the key and a secret of this database, so it is kept nowhere, and a receiver that
knows the secret of its own key can sign for nobody else.
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
    """The secret of this key, as Standard Webhooks writes it; None without one: nobody could know it."""
    if not key_id:
        return None
    root = await find_secret(tx, ROOT)
    digest = hmac.digest(root.encode(), f"callbacks of {key_id}".encode(), "sha256")
    return SECRET_PREFIX + base64.b64encode(digest).decode()
