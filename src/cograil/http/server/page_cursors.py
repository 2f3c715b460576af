"""Cursors of paginated lists: signed, so that a cursor of another list or tenant is rejected."""

from __future__ import annotations

import base64
import hashlib
import hmac

from cograil.http.server.problem_details import Refusal

_SIGNATURE_BYTES = 12
MAX_CURSOR = 1024


class PageCursors:
    """Signs cursors and verifies them, with a secret that all servers of a database share."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def make(self, position: str, *bound_to: object) -> str:
        """Return a cursor for this position in a list; `bound_to` is its tenant, route and filters."""
        return _encode(self._signature(position, bound_to) + position.encode())

    def read(self, cursor: str, *bound_to: object) -> str:
        """Return the position. Raises Refusal for a cursor that was not made for this list."""
        raw = _decode(cursor)
        position = raw[_SIGNATURE_BYTES:].decode("utf-8", "replace")
        if not hmac.compare_digest(raw[:_SIGNATURE_BYTES], self._signature(position, bound_to)):
            message = "the cursor does not belong to this list; start without a cursor"
            raise Refusal(422, "invalid_cursor", message)
        return position

    def secret_for(self, purpose: str) -> bytes:
        """Derive a secret for another purpose. It does not reveal the secret of the cursors."""
        return hmac.digest(self._secret, f"secret for {purpose}".encode(), hashlib.sha256)

    def _signature(self, position: str, bound_to: tuple[object, ...]) -> bytes:
        text = "\x1f".join([position, *map(str, bound_to)])
        return hmac.digest(self._secret, text.encode(), hashlib.sha256)[:_SIGNATURE_BYTES]


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    if len(text) > MAX_CURSOR or not text.isascii():
        return b""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return b""
