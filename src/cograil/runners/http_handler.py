"""The handler `http`: one request, as described by `type: http` in a workflow.

`register_http` registers it with a guard from the settings of the worker. Importing this module registers it
with the strictest guard, for callers that only list handlers.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
from pydantic import Field

from cograil import strict_json, tracing
from cograil.egress import (
    Destination,
    ForbiddenDestination,
    OutboundGuard,
    PublicOnly,
    UnknownHost,
    open_request,
)
from cograil.model.workflow import Json
from cograil.runners.context import Context, Fail, Retry
from cograil.runners.handler_registry import Registry, default_registry
from cograil.settings import LimitSettings, OutboundSettings

if TYPE_CHECKING:
    import httpx2

HANDLER = "http"
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
UNSAFE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)
MAX_SHOWN_CHARACTERS = 1_000
# Only these, because some codecs of Python take quadratic time.
CHARSETS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252"})

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
Status = Annotated[int, Field(ge=100, le=599)] | Annotated[str, Field(pattern="^[1-5]xx$")]
Statuses = Annotated[list[Status], Field(min_length=1)]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # characters that would end a header; a tab does not
_JSON = re.compile(r"application/(?:[a-z0-9.+_-]+\+)?json", re.IGNORECASE)

Headers = dict[str, str]


def register_http(registry: Registry, guard: OutboundGuard, output_bytes: int) -> None:
    """Register the handler; its requests go only where the guard allows."""

    async def http(
        ctx: Context,
        url: str,
        method: Method = "GET",
        headers: dict[str, Json] | None = None,
        body: Json = None,
        expect_status: Statuses | Status = "2xx",
    ) -> dict[str, Json]:
        """Send one request and return its response: status, headers and body."""
        content, kind = _content_of(body)
        sent = _headers_of(headers or {}, kind, ctx.idempotency_key if method in UNSAFE_METHODS else None)
        expected = expect_status if isinstance(expect_status, list) else [expect_status]
        return await _exchange(ctx, guard, url, method, sent, content, expected, output_bytes)

    registry.register(http, HANDLER)


register_http(default_registry, PublicOnly(OutboundSettings()), LimitSettings().output_bytes)


async def _exchange(
    ctx: Context,
    guard: OutboundGuard,
    url: str,
    method: str,
    headers: list[tuple[bytes, bytes]],
    content: bytes,
    expected: list[int | str],
    max_bytes: int,
) -> dict[str, Json]:
    import httpx2  # noqa: PLC0415  most workers never send a request

    destination = await _check_url(guard, url)
    # Messages contain only the host: the rest of a url may contain secrets.
    subject = f"{method} to {destination.host}"
    try:
        async with _open_traced(ctx, destination, method, headers, content) as response:
            if not _is_expected(response.status_code, expected):
                raise await _unexpected(subject, response)
            raw = await _read(response, max_bytes + 1)
            if len(raw) > max_bytes:
                message = f"{subject}: the response has more than {max_bytes:,} bytes"
                raise Fail(message, code="result_too_large")
            return {
                "status": response.status_code,
                "headers": {name.lower(): _storable(value) for name, value in response.headers.items()},
                "body": _body_of(ctx, response, raw),
            }
    except ForbiddenDestination as error:  # the connected address was not the checked one
        raise Fail(str(error), code="outbound_refused") from error
    except (httpx2.LocalProtocolError, httpx2.InvalidURL) as error:
        raise Fail(f"{subject} cannot be sent: {error}", code="bad_request") from error
    except httpx2.RequestError as error:
        reason = str(error) or type(error).__name__
        raise Retry(f"{subject} got no response: {reason}", code="http_unreachable") from error


@asynccontextmanager
async def _open_traced(
    ctx: Context, destination: Destination, method: str, headers: list[tuple[bytes, bytes]], content: bytes
) -> AsyncIterator[httpx2.Response]:
    """Open the request in a span. Sends its traceparent unless the node sets that header."""
    with tracing.request_span(method, destination.host, ctx.trace_parent) as span:
        if span.trace_parent is not None and not any(name == b"traceparent" for name, _ in headers):
            headers = [*headers, (b"traceparent", span.trace_parent.encode())]
        async with open_request(destination, method, headers, content) as response:
            status = response.status_code
            span.set_response(status, str(status) if status >= 400 else None)
            yield response


async def _check_url(guard: OutboundGuard, url: str) -> Destination:
    """Return the destination of a URL. Raises Fail for a forbidden one, Retry for an unknown host."""
    try:
        return await guard.check(url)
    except ForbiddenDestination as error:
        raise Fail(str(error), code="outbound_refused") from error
    except UnknownHost as error:
        raise Retry(str(error), code="http_unreachable") from error


# --- request


def _content_of(body: Json) -> tuple[bytes, str | None]:
    """Return the body as bytes and its content type: text unchanged, anything else as JSON."""
    if body is None:
        return b"", None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return orjson.dumps(body), "application/json"


def _headers_of(headers: dict[str, Json], kind: str | None, key: str | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of the node, completed by defaults."""
    own = {_header_name(name): _header_value(name, value) for name, value in headers.items()}
    # No compression by default: the size limit applies to the stored body.
    defaults = {"user-agent": "cograil", "accept": "*/*", "accept-encoding": "identity"}
    defaults |= {"content-type": kind} if kind else {}
    defaults |= {"idempotency-key": key} if key else {}
    return [(name.encode(), value.encode()) for name, value in (defaults | own).items()]


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise Fail(f"{name[:80]!r} is not a valid header name", code="bad_request")
    if name.lower() in RESERVED_HEADERS:
        raise Fail(f"the header {name} is reserved: cograil sets it", code="bad_request")
    return name.lower()


def _header_value(name: str, value: Json) -> str:
    """Convert a header value to text. Messages omit an invalid value, which may be a secret."""
    if value is None or isinstance(value, dict | list):
        kind = strict_json.kind_of(value)
        raise Fail(f"the header {name} must be text or a number, not {kind}", code="bad_request")
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    if _CONTROL.search(text):
        raise Fail(f"the header {name} contains control characters", code="bad_request")
    return text.strip()


# --- response


def _is_expected(status: int, expected: list[int | str]) -> bool:
    return status in expected or f"{status // 100}xx" in expected


async def _unexpected(subject: str, response: httpx2.Response) -> Fail | Retry:
    status = response.status_code
    raw = await _read(response, 4 * MAX_SHOWN_CHARACTERS)
    details = {"status": status, "body": _text_of(response, raw)[:MAX_SHOWN_CHARACTERS]}
    kind = Retry if status in TRANSIENT else Fail
    return kind(f"{subject} returned status {status}", code="http_status", details=details)


async def _read(response: httpx2.Response, max_bytes: int) -> bytes:
    """Return the first bytes of the body."""
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) >= max_bytes:
            break
    return bytes(raw[:max_bytes])


def _body_of(ctx: Context, response: httpx2.Response, raw: bytes) -> Json:
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if raw and _JSON.fullmatch(kind):
        try:
            return strict_json.read(raw, max_bytes=len(raw))
        except strict_json.InvalidJson as error:
            ctx.log.warning(
                "the response is not valid JSON despite its content type; using it as text", why=str(error)
            )
    return _text_of(response, raw)


def _text_of(response: httpx2.Response, raw: bytes) -> str:
    charset = (response.charset_encoding or "").lower()
    return _storable(raw.decode(charset if charset in CHARSETS else "utf-8", errors="replace"))


def _storable(text: str) -> str:
    """Replace NUL, which PostgreSQL cannot store."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
