"""Signatures over the exact bytes of a request.

`X-Signature-256` uses the secret byte for byte. Standard Webhooks signs id, time and body, with the key in base64
after `whsec_`; a recently rotated secret signs too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

from cograil.verbs.callback_targets import ORCHESTRATOR, key_of


def signed_headers(
    style: str,
    secret: str | None,
    event_id: str,
    timestamp: int,
    body: bytes,
    old_secrets: Sequence[str] = (),
) -> dict[str, str]:
    """Return the signature headers; without a secret, only the id and the time of the event."""
    if style == ORCHESTRATOR:
        return {} if secret is None else {"x-signature-256": signature_256(secret, body)}
    headers = {"webhook-id": event_id, "webhook-timestamp": str(timestamp)}
    if secret is not None:
        signatures = [
            standard_signature(each_secret, event_id, timestamp, body)
            for each_secret in (secret, *old_secrets)
        ]
        headers["webhook-signature"] = " ".join(signatures)
        headers["x-signature-256"] = signature_256(secret, body)
    return headers


def signature_256(secret: str, body: bytes) -> str:
    """Return `sha256=` and the HMAC of the body in hex."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def standard_signature(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return `v1,` and the HMAC of id, time and body in base64."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key_of(secret), signed, "sha256")).decode()
