"""Limits of a request, checked before its body is parsed: lengths, framing, timeouts."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from cograil.http.server.problem_details import Refusal
from cograil.model.hop_count import HOP, MAX_HOPS

MAX_URL = 8 * 1024
MAX_HEADERS, MAX_HEADER_BYTES = 100, 64 * 1024
HEAD_SECONDS = 10.0  # from the first byte of a request, or of a connection, to the end of the head
BODY_SECONDS = 10.0
WRITE_SECONDS = 30.0  # a client that reads nothing for this long is dropped
TENANT_HEADERS = ("x-tenant-id", "x-tenant", "x-cograil-tenant")
CLOSE = {"Connection": "close"}  # the rest of this connection was not read, or cannot be trusted


def check_framing(scope: Scope) -> None:
    """Raise Refusal for a request that two parsers could read differently, and for one that is too long."""
    if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_URL:
        raise Refusal(414, "uri_too_long", f"a URL has at most {MAX_URL:,} bytes")
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    size = sum([len(name) + len(value) for name, value in headers])
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        raise Refusal(431, "headers_too_large", "too many headers, or too long ones", headers=CLOSE)
    names = [name for name, _ in headers]
    if names.count(b"host") != 1:
        raise Refusal(400, "bad_host", "a request has exactly one Host header", headers=CLOSE)
    if b"content-length" in names and (b"transfer-encoding" in names or names.count(b"content-length") > 1):
        raise Refusal(400, "bad_framing", "the length of the body is specified twice", headers=CLOSE)


def check_expectations(headers: Headers) -> None:
    """Raise Refusal for an expectation that the server does not support."""
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Refusal(417, "expectation_failed", "the only supported Expect value is 100-continue")


def check_tenant(headers: Headers) -> None:
    """Raise Refusal for a header that names a tenant: only the key decides the tenant."""
    for name in TENANT_HEADERS:
        if name in headers:
            raise Refusal(422, "unknown_field", f"unknown header {name}: the tenant is that of the key")


def check_hops(headers: Headers) -> None:
    """Raise Refusal for a request that went around a loop of events too often."""
    text = headers.get(HOP)
    if text is None:
        return
    if not (text.isascii() and text.isdecimal() and len(text) < 3):
        raise Refusal(400, "bad_hop", f"{HOP} is a small number")
    if int(text) >= MAX_HOPS:
        raise Refusal(
            508, "loop_detected", f"event loop: this request was caused by {MAX_HOPS} events in a row"
        )


def check_accept(headers: Headers, *media_types: str) -> None:
    """Raise Refusal when the client accepts none of these media types."""
    accept = headers.get("accept", "")
    if not accept:
        return
    accepted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    families = {f"{media_type.partition('/')[0]}/*" for media_type in media_types}
    if accepted.isdisjoint({"*/*", *families, *media_types}):
        raise Refusal(406, "not_acceptable", f"the response is {' or '.join(media_types)}")


def check_json(headers: Headers, *, is_any_type: bool = False) -> None:
    """Raise Refusal for a compressed body, and for one without the content type of JSON in UTF-8."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "unsupported_media_type", "compressed bodies are not supported", headers=CLOSE)
    if is_any_type:
        return
    media_type, _, parameters = headers.get("content-type", "").partition(";")
    charset = parameters.replace(" ", "").replace('"', "").lower()
    if media_type.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise Refusal(
            415, "unsupported_media_type", "the body must be application/json in UTF-8", headers=CLOSE
        )


async def read_body(receive: Receive, headers: Headers, max_bytes: int) -> bytes:
    """Return the whole body. Raises Refusal when it is too large or too slow; then the rest is not read."""
    too_large = Refusal(413, "payload_too_large", f"a body has at most {max_bytes:,} bytes", headers=CLOSE)
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 15:
        raise Refusal(400, "bad_framing", "Content-Length is not a number", headers=CLOSE)
    if int(length) > max_bytes:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "incomplete_body", "the client disconnected")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > max_bytes:
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        detail = f"the body did not arrive within {BODY_SECONDS:g} seconds"
        raise Refusal(408, "request_timeout", detail, headers=CLOSE) from None
