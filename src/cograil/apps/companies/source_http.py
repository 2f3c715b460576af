"""One HTTP request to a source: guarded, with a timeout, and with failures as codes of the contract."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from cograil import clock, strict_json
from cograil.apps.companies.constants import (
    AUTH_ERROR,
    FORBIDDEN,
    INTERNAL_ERROR,
    NOT_FOUND,
    RATE_LIMIT,
    SOURCE_UNAVAILABLE,
    TIMEOUT,
    UPSTREAM_5XX,
)
from cograil.delivery.circuit_breaker import Breakers
from cograil.egress import ForbiddenDestination, KeptConnections, OutboundGuard, UnknownHost

MAX_BYTES = 8 * 1024 * 1024
MAX_KEYS = strict_json.MAX_BATCH_KEYS  # a company may have thousands of establishments
LARGE_BYTES = 128 * 1024  # takes long enough to read that others should not wait for it
BROKEN = frozenset({"malformed_json", "invalid_encoding"})  # a later response may be better
PER_PLACE = 32
MAX_RETRY_AFTER = 10.0  # a source that demands more is not queried again in this run
CODES = {400: INTERNAL_ERROR, 401: AUTH_ERROR, 403: FORBIDDEN, 404: NOT_FOUND, 408: TIMEOUT, 429: RATE_LIMIT}
AGAIN = frozenset({TIMEOUT, RATE_LIMIT, UPSTREAM_5XX, SOURCE_UNAVAILABLE})


class SourceFailure(Exception):
    """A source did not return the requested data. The message has nothing of the request."""

    def __init__(
        self,
        code: str,
        message: str,
        http_status: int | None = None,
        *,
        after_seconds: float | None = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = http_status
        self.after_seconds = after_seconds
        self.is_retryable = code in AGAIN and not is_final


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed response and its size in bytes."""

    body: Any
    size: int
    status: int


class SourceClient:
    """Sends requests to sources over kept connections; a circuit breaker skips sources that are down."""

    def __init__(
        self, guard: OutboundGuard, timeout_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._guard = guard
        self._seconds = timeout_seconds
        self._kept = KeptConnections(PER_PLACE)
        self._breakers = Breakers(clock)

    async def close(self) -> None:
        """Close all connections."""
        await self._kept.close()

    async def ask(self, method: str, url: str, headers: Mapping[str, str], content: bytes = b"") -> Reply:
        """The parsed JSON response. Raises SourceFailure for any status other than 200."""
        origin = url.partition("://")[2].partition("/")[0]
        if self._breakers.is_open(origin):
            message = f"{origin} failed too often and is left alone for a while"
            raise SourceFailure(SOURCE_UNAVAILABLE, message, is_final=True)
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._exchange(method, url, headers, content)
        except TimeoutError:
            self._breakers.note(origin, is_available=False)
            raise SourceFailure(TIMEOUT, f"request timed out after {self._seconds:g} s") from None
        except SourceFailure as failure:
            self._breakers.note(origin, is_available=failure.code not in AGAIN)
            raise
        self._breakers.note(origin, is_available=True)
        return reply

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> Reply:
        import httpx2  # noqa: PLC0415  most workers never ask a source

        sent = {
            "user-agent": "cograil",
            "accept": "application/json",
            "accept-encoding": "identity",
            **headers,
        }
        try:
            destination = await self._guard.check(url)
            lines = [(name.encode(), value.encode()) for name, value in sent.items()]
            async with self._kept.open_request(destination, method, lines, content) as response:
                return await _read(response)
        except ForbiddenDestination as error:
            raise SourceFailure(INTERNAL_ERROR, f"requests must not go there: {error}") from None
        except UnknownHost as error:
            raise SourceFailure(SOURCE_UNAVAILABLE, str(error)) from None
        except httpx2.RequestError as error:
            # Its text may show what was sent; the kind of it says enough.
            raise SourceFailure(SOURCE_UNAVAILABLE, f"no answer: {type(error).__name__}") from None


async def _read(response: Any) -> Reply:
    status = int(response.status_code)
    if status != 200:
        raise _failure(status, response.headers.get("retry-after"))
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > MAX_BYTES:
            raise SourceFailure(INTERNAL_ERROR, f"the answer has more than {MAX_BYTES:,} bytes", status)
    try:
        return Reply(await _parsed(bytes(raw)), len(raw), status)
    except strict_json.InvalidJson as error:
        if error.code in BROKEN:
            raise SourceFailure(SOURCE_UNAVAILABLE, "the response is not JSON", status) from None
        message = f"the answer is JSON that cannot be kept: {error.code}"
        raise SourceFailure(INTERNAL_ERROR, message, status) from None


async def _parsed(raw: bytes) -> Any:
    read = partial(strict_json.read, raw, max_bytes=MAX_BYTES, max_keys=MAX_KEYS)
    return await asyncio.to_thread(read) if len(raw) > LARGE_BYTES else read()


def _failure(status: int, retry_after: str | None) -> SourceFailure:
    message = f"answered with {status}"
    if status >= 500:
        code = UPSTREAM_5XX
    elif status < 400:
        return SourceFailure(SOURCE_UNAVAILABLE, message, status, is_final=True)
    else:
        code = CODES.get(status, INTERNAL_ERROR)
    after = read_retry_after(retry_after, clock.now()) if code in AGAIN else None
    is_final = after is not None and after > MAX_RETRY_AFTER
    return SourceFailure(code, message, status, after_seconds=None if is_final else after, is_final=is_final)


def read_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from now, of a number or a date; None for what is neither."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    seconds = (until - now).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
