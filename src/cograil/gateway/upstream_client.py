"""The API, or a worker: where the gateway sends what it cannot answer by itself."""

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


class Unreachable(Exception):
    """Nobody answers there."""


class TooSlow(Exception):
    """The answer did not come in time."""


class Answered(NamedTuple):
    """What came back. The names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """One server that the operator named; so it may be anywhere, also on this machine."""

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
    ) -> Answered:
        """What is answered to this request. Raises Unreachable or TooSlow."""
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
                    return Answered(response.status_code, response_headers, await _read(response))
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise TooSlow from error
        except (httpx2.RequestError, UnknownHost, ForbiddenDestination) as error:
            raise Unreachable from error

    async def is_alive(self, seconds: float) -> str:
        """`ok`, or what is wrong with it."""
        try:
            answered = await self.send("GET", "/livez", {}, seconds=seconds)
        except Unreachable:
            return "unreachable"
        except TooSlow:
            return f"no answer within {seconds:g} s"
        return "ok" if answered.status == 200 else f"answered {answered.status}"


async def _read(response: Any) -> bytes:
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > MAX_BYTES:
            raise Unreachable
    return bytes(raw)


async def forward(
    upstream: Upstream,
    method: str,
    target: str,
    headers: Mapping[str, str],
    content: bytes,
    *,
    tries: int = 1,
) -> Answered:
    """Send a change to the API; the answer if it is one. Raises Refusal for all that is none.

    What was wrong with the request is said as the API said it; what is wrong with the API is not. More than
    one try is for what may be done twice.
    """
    try:
        answered = await _tried(upstream, method, target, headers, content, tries)
    except Unreachable:
        raise Refusal(502, "bad_gateway", "the orchestrator cannot be reached") from None
    except TooSlow:
        raise Refusal(504, "gateway_timeout", "the orchestrator did not answer in time") from None
    if 400 <= answered.status < 500:
        raise relayed(answered)
    if not 200 <= answered.status < 300:
        raise Refusal(502, "bad_gateway", "the orchestrator could not do this")
    return answered


async def _tried(
    upstream: Upstream, method: str, target: str, headers: Mapping[str, str], content: bytes, tries: int
) -> Answered:
    for _ in range(tries - 1):
        with contextlib.suppress(Unreachable):
            return await upstream.send(method, target, headers, content)
    return await upstream.send(method, target, headers, content)


def relayed(answered: Answered) -> Refusal:
    """A refusal of the API as ours."""
    try:
        problem = orjson.loads(answered.body)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    listed = problem.get("problems") or ()
    headers = {
        name: answered.headers[name]
        for name in ("retry-after", "www-authenticate")
        if name in answered.headers
    }
    return Refusal(
        answered.status,
        str(problem.get("code", "refused")),
        str(problem.get("detail", "the orchestrator refused this")),
        str(problem.get("pointer", "")),
        problems=tuple(Problem(entry["code"], entry["detail"], entry["pointer"]) for entry in listed),
        headers=headers,
    )
