"""The client of the API and of a worker: the gateway forwards requests to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from cograil.egress import ForbiddenDestination, KeptConnections, PublicOnly, UnknownHost
from cograil.errors import Problem
from cograil.http.server.problem_details import Refusal
from cograil.model.hop_count import HOP
from cograil.settings import OutboundSettings

MAX_BYTES = 64 * 1024 * 1024
CONNECTIONS = 100
PASSED_ON = (
    "authorization",
    "content-type",
    "x-correlation-id",
    "x-request-id",
    "idempotency-key",
    "traceparent",
    HOP,
)


class UpstreamUnreachable(Exception):
    """The upstream does not respond."""


class UpstreamTimeout(Exception):
    """The response did not arrive in time."""


class UpstreamResponse(NamedTuple):
    """A response. Its header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """One server from the settings, so it may have any address, including a private one."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url.rstrip("/")
        self._seconds = seconds
        self._guard = PublicOnly(OutboundSettings(allow_private=True))
        self._connections = KeptConnections(CONNECTIONS)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes = b"",
        seconds: float | None = None,
    ) -> UpstreamResponse:
        """Send this request and return the response. Raises UpstreamUnreachable or UpstreamTimeout."""
        import httpx2  # noqa: PLC0415  a gateway that is starting has no use for it

        request_headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]
        request_headers += [
            (b"accept", b"*/*"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"cograil gateway"),
        ]
        try:
            async with asyncio.timeout(seconds or self._seconds):
                destination = await self._guard.check(self.url + target)
                async with self._connections.open_request(
                    destination, method, request_headers, content
                ) as response:
                    response_headers = {name.lower(): value for name, value in response.headers.items()}
                    return UpstreamResponse(response.status_code, response_headers, await _read(response))
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise UpstreamTimeout from error
        except (httpx2.RequestError, UnknownHost, ForbiddenDestination) as error:
            raise UpstreamUnreachable from error

    async def is_alive(self, seconds: float) -> str:
        """Return `ok`, or what is wrong with the upstream."""
        try:
            response = await self.send("GET", "/livez", {}, seconds=seconds)
        except UpstreamUnreachable:
            return "unreachable"
        except UpstreamTimeout:
            return f"no response within {seconds:g} s"
        return "ok" if response.status == 200 else f"answered {response.status}"


async def _read(response: Any) -> bytes:
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > MAX_BYTES:
            raise UpstreamUnreachable
    return bytes(raw)


async def forward(
    upstream: Upstream,
    method: str,
    target: str,
    headers: Mapping[str, str],
    content: bytes,
    *,
    tries: int = 1,
) -> UpstreamResponse:
    """Send a change to the API and return the response. Raises Refusal for any error.

    Errors of the request are those of the API; errors of the API itself are not shown. `tries` above 1 is only for
    idempotent requests.
    """
    try:
        response = await _send_with_retries(upstream, method, target, headers, content, tries)
    except UpstreamUnreachable:
        raise Refusal(502, "bad_gateway", "the orchestrator cannot be reached") from None
    except UpstreamTimeout:
        raise Refusal(504, "gateway_timeout", "the orchestrator did not answer in time") from None
    if 400 <= response.status < 500:
        raise upstream_refusal(response)
    if not 200 <= response.status < 300:
        raise Refusal(502, "bad_gateway", "the orchestrator failed")
    return response


async def _send_with_retries(
    upstream: Upstream, method: str, target: str, headers: Mapping[str, str], content: bytes, tries: int
) -> UpstreamResponse:
    for _ in range(tries - 1):
        with contextlib.suppress(UpstreamUnreachable):
            return await upstream.send(method, target, headers, content)
    return await upstream.send(method, target, headers, content)


def upstream_refusal(response: UpstreamResponse) -> Refusal:
    """Return the error response of the API as a Refusal."""
    try:
        problem = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    problems = problem.get("problems") or ()
    headers = {
        name: response.headers[name]
        for name in ("retry-after", "www-authenticate")
        if name in response.headers
    }
    return Refusal(
        response.status,
        str(problem.get("code", "refused")),
        str(problem.get("detail", "the orchestrator rejected the request")),
        str(problem.get("pointer", "")),
        problems=tuple(Problem(entry["code"], entry["detail"], entry["pointer"]) for entry in problems),
        headers=headers,
    )
