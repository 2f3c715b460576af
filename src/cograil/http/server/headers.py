"""The headers of a request."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

KEY_PROTOCOL = "cograil.key."  # then the key


class Heading(Headers):
    """Headers found by their names: a dozen are looked for in every request, and few requests have any."""

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
        """The first of this name. Names are given in small letters."""
        found = self._by_name.get(key)
        return default if found is None else found[0]

    def getlist(self, key: str) -> list[str]:
        """All of this name."""
        return self._by_name.get(key.lower(), [])


def headers_of(scope: Scope) -> Heading:
    """The headers of a request. A browser cannot set any for a WebSocket and names its key as a protocol."""
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    keys = [name for name in scope.get("subprotocols", ()) if name.startswith(KEY_PROTOCOL)]
    if keys and not any(name == b"authorization" for name, _ in raw):
        key = keys[0].removeprefix(KEY_PROTOCOL)
        raw = [*raw, (b"authorization", f"Bearer {key}".encode("latin-1"))]
    return Heading(raw)
