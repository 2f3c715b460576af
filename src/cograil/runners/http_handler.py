"""The handler `http`: one request, as `type: http` in a workflow describes it.

`register_http` gives it a guard by the settings of the worker. Importing this module registers it with
the strictest one, for those who only want to know which handlers there are.
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
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"})
SHOWN_CHARACTERS = 1_000
# Only these: some codecs of Python take quadratic time.
CHARSETS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252"})

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
Status = Annotated[int, Field(ge=100, le=599)] | Annotated[str, Field(pattern="^[1-5]xx$")]
Statuses = Annotated[list[Status], Field(min_length=1)]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # what would end a header; a tab would not
_JSON = re.compile(r"application/(?:[a-z0-9.+_-]+\+)?json", re.IGNORECASE)

Headers = dict[str, str]


def register_http(registry: Registry, guard: OutboundGuard, output_bytes: int) -> None:
    """Let the workers of this registry send requests where the guard lets them."""

    async def http(
        ctx: Context,
        url: str,
        method: Method = "GET",
        headers: dict[str, Json] | None = None,
        body: Json = None,
        expect_status: Statuses | Status = "2xx",
    ) -> dict[str, Json]:
        """Send one request and return its answer: status, headers and body."""
        content, kind = _content_of(body)
        sent = _headers_of(headers or {}, kind, ctx.idempotency_key if method in CHANGING else None)
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

    destination = await _checked(guard, url)
    # Messages name the host only: the rest of a url may hold secrets.
    subject = f"{method} to {destination.host}"
    try:
        async with _traced(ctx, destination, method, headers, content) as response:
            if not _is_expected(response.status_code, expected):
                raise await _unexpected(subject, response)
            raw = await _read(response, max_bytes + 1)
            if len(raw) > max_bytes:
                message = f"{subject}: the answer has more than {max_bytes:,} bytes"
                raise Fail(message, code="result_too_large")
            return {
                "status": response.status_code,
                "headers": {name.lower(): _storable(value) for name, value in response.headers.items()},
                "body": _body_of(ctx, response, raw),
            }
    except ForbiddenDestination as error:  # the other end was not the one that was checked
        raise Fail(str(error), code="outbound_refused") from error
    except (httpx2.LocalProtocolError, httpx2.InvalidURL) as error:
        raise Fail(f"{subject} cannot be sent: {error}", code="bad_request") from error
    except httpx2.RequestError as error:
        why = str(error) or type(error).__name__
        raise Retry(f"{subject} got no answer: {why}", code="http_unreachable") from error


@asynccontextmanager
async def _traced(
    ctx: Context, destination: Destination, method: str, headers: list[tuple[bytes, bytes]], content: bytes
) -> AsyncIterator[httpx2.Response]:
    """The answer. The other end is told of our trace, unless the node tells it of another."""
    with tracing.request_span(method, destination.host, ctx.trace_parent) as asked:
        if asked.trace_parent is not None and not any(name == b"traceparent" for name, _ in headers):
            headers = [*headers, (b"traceparent", asked.trace_parent.encode())]
        async with open_request(destination, method, headers, content) as response:
            status = response.status_code
            asked.set_response(status, str(status) if status >= 400 else None)
            yield response


async def _checked(guard: OutboundGuard, url: str) -> Destination:
    """Where this URL leads. Raises Fail when requests must not go there, Retry when nobody knows the name."""
    try:
        return await guard.check(url)
    except ForbiddenDestination as error:
        raise Fail(str(error), code="outbound_refused") from error
    except UnknownHost as error:
        raise Retry(str(error), code="http_unreachable") from error


# --- the request


def _content_of(body: Json) -> tuple[bytes, str | None]:
    """The body as it is sent, and its content type: text as it is, anything else as JSON."""
    if body is None:
        return b"", None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return orjson.dumps(body), "application/json"


def _headers_of(given: dict[str, Json], kind: str | None, key: str | None) -> list[tuple[bytes, bytes]]:
    """What was given, and what we add unless it was given."""
    headers = {_header_name(name): _header_value(name, value) for name, value in given.items()}
    # Without compression unless asked for: the limit is for what is stored.
    ours = {"user-agent": "cograil", "accept": "*/*", "accept-encoding": "identity"}
    ours |= {"content-type": kind} if kind else {}
    ours |= {"idempotency-key": key} if key else {}
    return [(name.encode(), value.encode()) for name, value in (ours | headers).items()]


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise Fail(f"{name[:80]!r} cannot be the name of a header", code="bad_request")
    if name.lower() in OURS:
        raise Fail(f"the header {name} is set by cograil", code="bad_request")
    return name.lower()


def _header_value(name: str, value: Json) -> str:
    """A header as text. The value is not told when it is wrong: it may be a secret."""
    if value is None or isinstance(value, dict | list):
        kind = strict_json.kind_of(value)
        raise Fail(f"the header {name} must be text or a number, not {kind}", code="bad_request")
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    if _CONTROL.search(text):
        raise Fail(f"the header {name} has control characters in it", code="bad_request")
    return text.strip()


# --- the answer


def _is_expected(status: int, expected: list[int | str]) -> bool:
    return status in expected or f"{status // 100}xx" in expected


async def _unexpected(subject: str, response: httpx2.Response) -> Fail | Retry:
    status = response.status_code
    raw = await _read(response, 4 * SHOWN_CHARACTERS)
    details = {"status": status, "body": _text_of(response, raw)[:SHOWN_CHARACTERS]}
    kind = Retry if status in TRANSIENT else Fail
    return kind(f"{subject} was answered with {status}", code="http_status", details=details)


async def _read(response: httpx2.Response, max_bytes: int) -> bytes:
    """The first bytes of the body, however long it is."""
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
            ctx.log.warning("the answer is no JSON, though it says so; taken as text", why=str(error))
    return _text_of(response, raw)


def _text_of(response: httpx2.Response, raw: bytes) -> str:
    charset = (response.charset_encoding or "").lower()
    return _storable(raw.decode(charset if charset in CHARSETS else "utf-8", errors="replace"))


def _storable(text: str) -> str:
    """PostgreSQL holds no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
