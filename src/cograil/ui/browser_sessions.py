"""Browser sessions: a signed cookie that names an API key, and the CSRF tokens of forms.

The cookie does not contain the key. Its signature includes the hash of the key, so the session ends with the key,
which is looked up for every request. Without keys there is a cookie too, for the tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.types import Receive

from cograil import clock
from cograil.http.auth.authentication import KeyAuthenticator
from cograil.http.server import request_limits
from cograil.http.server.problem_details import Refusal
from cograil.model.roles import Caller

COOKIE, FLASH = "cograil_ui", "cograil_said"
SECONDS = 12 * 3600
MAX_FORM = 1024 * 1024
FORM_TYPE = "application/x-www-form-urlencoded"
MAX_COOKIE = 512


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """The content of a cookie. An empty `key_id` means a visitor without a key."""

    key_id: str
    until: int
    nonce: str
    signature: str = ""

    @property
    def text(self) -> str:
        return f"{self.key_id}.{self.until}.{self.nonce}"


class Sessions:
    """Creates and verifies sessions, for all servers of the database."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def begin(self, key_id: str = "", proof: bytes = b"") -> BrowserSession:
        """Return a new session for this key."""
        new = BrowserSession(key_id, int(clock.seconds()) + SECONDS, secrets.token_urlsafe(12))
        return BrowserSession(new.key_id, new.until, new.nonce, self._sign(b"session", new.text, proof))

    def read(self, headers: Headers) -> BrowserSession | None:
        """Return the unexpired session of a request. Its signature is not verified yet."""
        parts = cookie(headers, COOKIE).split(".")
        if len(parts) != 4 or not (parts[1].isascii() and parts[1].isdecimal() and len(parts[1]) < 12):
            return None
        session = BrowserSession(parts[0], int(parts[1]), parts[2], parts[3])
        return session if session.until > clock.seconds() else None

    def is_ours(self, session: BrowserSession, proof: bytes = b"") -> bool:
        """Return whether the signature is valid for this key hash."""
        return hmac.compare_digest(session.signature, self._sign(b"session", session.text, proof))

    def token(self, session: BrowserSession) -> str:
        """Return the CSRF token of this session."""
        return self._sign(b"form", session.text, b"")

    def is_token(self, session: BrowserSession, token: str) -> bool:
        """Return whether this is the CSRF token of the session."""
        return hmac.compare_digest(self.token(session).encode(), token.encode("utf-8", "replace"))

    def sealed(self, text: str) -> str:
        """Return a signed text for a cookie."""
        return f"{text.encode().hex()}.{self._sign(b'said', text, b'')}"

    def unsealed(self, cookie_text: str) -> str:
        """Return the text of a signed cookie; empty if the signature is invalid."""
        payload, _, signature = cookie_text.partition(".")
        try:
            text = bytes.fromhex(payload).decode()
        except ValueError:
            return ""
        return text if hmac.compare_digest(signature, self._sign(b"said", text, b"")) else ""

    def _sign(self, purpose: bytes, text: str, proof: bytes) -> str:
        message = b"\0".join([purpose, text.encode("utf-8", "replace"), proof])
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()[:40]


class SessionRing:
    """Authenticates by session cookie, and otherwise by API key."""

    def __init__(self, ring: KeyAuthenticator, sessions: Sessions) -> None:
        self.ring = ring
        self._sessions = sessions

    async def caller(self, headers: Headers, address: str, *, allows_stale_auth: bool = False) -> Caller:
        """Return the caller. Raises Refusal as KeyAuthenticator does."""
        session = self._sessions.read(headers)
        if session is not None and session.key_id and "authorization" not in headers:
            holder = await self.ring.holder(session.key_id, allows_stale_auth=allows_stale_auth)
            if holder is not None and self._sessions.is_ours(session, holder[1]):
                return holder[0]
        return await self.ring.caller(headers, address, allows_stale_auth=allows_stale_auth)

    async def has_keys(self, allows_stale_auth: bool = False) -> bool:
        """Return whether any key exists."""
        return await self.ring.has_keys(allows_stale_auth)


def cookie(headers: Headers, name: str) -> str:
    """Return the value of a cookie; empty if it is missing or too long."""
    for part in "; ".join(headers.getlist("cookie")).split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value if len(value) <= MAX_COOKIE and value.isascii() else ""
    return ""


def reject_other_sites(headers: Headers) -> None:
    """Raise Refusal for a form that a page of another site sent."""
    origin = headers.get("origin")
    is_other = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    if is_other or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refusal(403, "foreign_origin", "forms of other sites are not accepted")


async def read_form(receive: Receive, headers: Headers) -> Mapping[str, str]:
    """Return the fields of a form; of two with one name the last. Raises Refusal for an invalid or foreign form."""
    reject_other_sites(headers)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != FORM_TYPE:
        raise Refusal(415, "unsupported_media_type", f"the content type of a form must be {FORM_TYPE}")
    raw = await request_limits.read_body(receive, headers, MAX_FORM)
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError:
        raise Refusal(400, "malformed_form", "the form cannot be read") from None
    if any("\0" in value for _, value in pairs):
        raise Refusal(422, "invalid_value", "a field contains NUL")
    return dict(pairs)
