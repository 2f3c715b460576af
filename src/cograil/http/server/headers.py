"""The headers of a request."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

KEY_PROTOCOL = "cograil.key."  # followed by the API key


class RequestHeaders(Headers):
    """Headers indexed by name: each request is searched for a dozen names, and most are absent."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        self._by_name: dict[str, list[str]] = {}
        for name, value in raw:
            self._by_name.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    def __getitem__(self, key: str) -> str:
        return self._by_name[key.lower()][0]

    def __contains__(self, key: Any) -> bool:
        return key.lower() in self._by_name

    def get(self, key: str, default: Any = None) -> Any:
        """Return the first value of this lower-case name, or the default."""
        values = self._by_name.get(key)
        return default if values is None else values[0]

    def getlist(self, key: str) -> list[str]:
        """Return all values of this name."""
        return self._by_name.get(key.lower(), [])


def request_headers(scope: Scope) -> RequestHeaders:
    """Return the headers of a request.

    A browser cannot set headers of a WebSocket, so its API key may come as a subprotocol instead.
    """
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    keys = [name for name in scope.get("subprotocols", ()) if name.startswith(KEY_PROTOCOL)]
    if keys and not any(name == b"authorization" for name, _ in raw):
        key = keys[0].removeprefix(KEY_PROTOCOL)
        raw = [*raw, (b"authorization", f"Bearer {key}".encode("latin-1"))]
    return RequestHeaders(raw)
