"""Cursors: where the next page begins, signed, so that one made for another list or tenant is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac

from cograil.http.server.problem_details import Refusal

_SIGNATURE_BYTES = 12
LONGEST = 1024


class Cursors:
    """Makes cursors and reads them back, with a secret that all doors of a database share."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def make(self, place: str, *bound_to: object) -> str:
        """A cursor for this place in a list that is told by tenant, route and filters."""
        return _text(self._signature(place, bound_to) + place.encode())

    def read(self, cursor: str, *bound_to: object) -> str:
        """The place. Raises Refusal for a cursor that we did not make for this very list."""
        raw = _raw(cursor)
        place = raw[_SIGNATURE_BYTES:].decode("utf-8", "replace")
        if not hmac.compare_digest(raw[:_SIGNATURE_BYTES], self._signature(place, bound_to)):
            raise Refusal(422, "invalid_cursor", "this cursor is not one of this list; begin without one")
        return place

    def secret_for(self, purpose: str) -> bytes:
        """A secret for something else, which tells nothing of this one."""
        return hmac.digest(self._secret, f"secret for {purpose}".encode(), hashlib.sha256)

    def _signature(self, place: str, bound_to: tuple[object, ...]) -> bytes:
        text = "\x1f".join([place, *map(str, bound_to)])
        return hmac.digest(self._secret, text.encode(), hashlib.sha256)[:_SIGNATURE_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _raw(text: str) -> bytes:
    if len(text) > LONGEST or not text.isascii():
        return b""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return b""
