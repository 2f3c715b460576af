"""The HTTP transport of the client.

Written by `make docs` from _async/transport.py; do not edit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, Self

import httpx2

from cograil.client.errors import ApiError, NotCograil, Unreachable, problem_of
from cograil.client.models import Json
from cograil.client.trace_context import current_parent

PREFIX = "/api/v1"
WAIT_MARGIN = 10.0


class Transport:
    """The connection to one instance. Raises ApiError for an error response, Unreachable without a response."""

    def __init__(self, url: str = "http://127.0.0.1:8080", key: str = "", *, timeout: float = 30.0) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._timeout = timeout
        self._http = httpx2.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, body: Json = None, params: Mapping[str, str] | None = None) -> Any:
        """Call any route of the API by its path, such as /queues/status."""
        return self._ask(method, path, body, params=params)

    def _ask(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 0,
    ) -> Any:
        """Return the response of a path under the prefix."""
        answer = self._send(method, PREFIX + path, body, params=params, headers=headers or {}, wait=wait)
        try:
            return answer.json()
        except ValueError:
            kind = answer.headers.get("content-type", "")
            raise NotCograil(str(self._http.base_url), answer.status_code, kind) from None

    def _send(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str],
        wait: float = 0,
        also: Collection[int] = (),
    ) -> httpx2.Response:
        """Return the response. Raises ApiError for a status from 400 that is not in `also`. None omits a parameter."""
        content = None if body is None else json.dumps(body).encode()
        request_headers = dict(headers) | ({} if content is None else {"content-type": "application/json"})
        if (trace_parent := current_parent()) is not None:
            request_headers.setdefault("traceparent", trace_parent)
        try:
            answer = self._http.request(
                method,
                path,
                content=content,
                params={name: str(value) for name, value in (params or {}).items() if value is not None},
                headers=request_headers,
                timeout=max(self._timeout, wait + WAIT_MARGIN),
            )
        except httpx2.TransportError as error:
            raise Unreachable(f"{self._http.base_url} does not answer: {error}") from error
        if answer.status_code >= 400 and answer.status_code not in also:
            retry_after = answer.headers.get("retry-after", "")
            raise ApiError(answer.status_code, problem_of(answer.content), retry_after=retry_after)
        return answer
