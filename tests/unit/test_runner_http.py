"""The handler `http` against real servers on this machine."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.support.handler_attempts import eventually, failed, output
from tests.support.http_site import HERE, Names, Sender, Site

from cograil.egress import PublicOnly
from cograil.egress import ssrf_guard as outbound_guard
from cograil.runners import builtin_handlers  # noqa: F401  importing registers
from cograil.runners.handler_registry import Registry, default_registry
from cograil.runners.http_handler import register_http
from cograil.settings import OutboundSettings

Json = Any


# --- what is sent and what comes back


def test_the_http_handler_is_built_in_and_gets_the_guard_of_its_worker() -> None:
    spec = default_registry.get("http")
    assert spec is not None
    assert spec.kind == "async"
    registry = Registry()
    register_http(registry, PublicOnly(OutboundSettings()), 1)
    register_http(registry, PublicOnly(HERE), 1)
    assert registry.names() == ["http"]


async def test_the_answer_is_status_headers_and_body(sender: Sender, site: Site) -> None:
    site.answers(201, b'{"id": 7}', Content_Type="application/json; charset=utf-8", X_Tag="a")
    response = output(await sender.send(f"{site.url}/things?q=1#part"))
    assert (response["status"], response["body"]) == (201, {"id": 7})
    assert response["headers"]["x-tag"] == "a"
    assert set(response["headers"]) == {"content-length", "content-type", "x-tag"}
    first, headers, body = site.requests[0]
    assert first == "GET /things?q=1 HTTP/1.1"
    assert (headers["host"], body) == (f"127.0.0.1:{site.port}", b"")


@pytest.mark.parametrize(
    ("kind", "raw", "body"),
    [
        ("application/json", b"[1]", [1]),
        ("application/problem+json", b"{}", {}),
        ("application/json", b"", ""),
        ("application/json", b"{broken", "{broken"),
        ("application/json", b'{"a": NaN}', '{"a": NaN}'),
        ("text/plain", b"[1]", "[1]"),
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=ISO-8859-1", b"\xe9", "é"),
        ("text/plain; charset=punycode", b"a-b", "a-b"),
        ("application/octet-stream", b"a\0\xff", "a��"),
    ],
)
async def test_the_body_is_json_when_it_says_so_and_is_else_text(
    sender: Sender, site: Site, kind: str, raw: bytes, body: Json
) -> None:
    site.answers(200, raw, Content_Type=kind)
    assert output(await sender.send(site.url))["body"] == body
    assert bool(sender.channel.lines) == (kind == "application/json" and isinstance(body, str) and body != "")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
async def test_requests_that_change_things_carry_the_idempotency_key(
    sender: Sender, site: Site, method: str
) -> None:
    output(await sender.send(site.url, method=method))
    sent = site.requests[0][1]
    assert site.requests[0][0].split()[0] == method
    assert sent.get("idempotency-key") == (None if method in ("GET", "HEAD") else sender.ctx.idempotency_key)


async def test_a_given_header_wins_over_ours(sender: Sender, site: Site) -> None:
    headers = {"IDEMPOTENCY-KEY": "mine", "Content-Type": "application/xml", "X-Number": 7, "X-Yes": True}
    output(await sender.send(site.url, method="POST", headers=headers, body="<a/>"))
    _, sent, body = site.requests[0]
    assert (sent["idempotency-key"], sent["content-type"], body) == ("mine", "application/xml", b"<a/>")
    assert (sent["x-number"], sent["x-yes"]) == ("7", "true")


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (0, b"0", "application/json"),
        ("é", "é".encode(), "text/plain; charset=utf-8"),
        (None, b"", None),
    ],
)
async def test_text_is_sent_as_it_is_and_anything_else_as_json(
    sender: Sender, site: Site, body: Json, sent: bytes, kind: str | None
) -> None:
    output(await sender.send(site.url, method="POST", body=body))
    _, headers, received = site.requests[0]
    assert (received, headers.get("content-type")) == (sent, kind)


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nY: b"},
        {"X": "a\0"},
        {"X": "a\x7f"},
        {"X": None},
        {"X": ["a"]},
        {"X Y": "a"},
        {"X\r\nY": "a"},
        {"": "a"},
        {"Host": "other"},
        {"transfer-encoding": "chunked"},
    ],
)
async def test_headers_that_would_say_something_else_are_refused(
    sender: Sender, site: Site, headers: Json
) -> None:
    error = failed(await sender.send(site.url, headers=headers), "bad_request")
    assert not error.retryable
    assert site.connections == 0


async def test_an_answer_over_the_limit_fails_without_being_read_to_its_end(
    sender: Sender, site: Site
) -> None:
    site.answer, site.is_endless = b"HTTP/1.1 200 OK\r\n\r\n", True
    assert not failed(await sender.send(site.url, max_bytes=100_000), "result_too_large").retryable
    site.is_endless = False
    site.answers(200, b"x" * 100)
    assert output(await sender.send(site.url, max_bytes=100))["body"] == "x" * 100
    failed(await sender.send(site.url, max_bytes=99), "result_too_large")


# --- how it fails


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_a_status_that_may_pass_is_tried_again(sender: Sender, site: Site, status: int) -> None:
    site.answers(status, b"y" * 5000)
    error = failed(await sender.send(site.url), "http_status")
    assert error.retryable
    assert error.details == {"status": status, "body": "y" * 1000}


@pytest.mark.parametrize("status", [302, 400, 401, 404, 409, 422, 501])
async def test_any_other_status_that_is_not_expected_is_final(
    sender: Sender, site: Site, status: int
) -> None:
    site.answers(status, b"why")
    error = failed(await sender.send(site.url), "http_status")
    assert not error.retryable
    assert error.details == {"status": status, "body": "why"}


@pytest.mark.parametrize(
    ("status", "expected", "is_fine"),
    [
        (404, [404, "2xx"], True),
        (204, [404, "2xx"], True),
        (503, "5xx", True),
        (200, [201], False),
        (200, 200, True),
        (302, ["3xx"], True),
    ],
)
async def test_success_statuses_can_be_configured(
    sender: Sender, site: Site, status: int, expected: Json, is_fine: bool
) -> None:
    site.answers(status)
    outcome = await sender.send(site.url, expect_status=expected)
    if is_fine:
        assert output(outcome)["status"] == status
    else:
        failed(outcome, "http_status")


@pytest.mark.parametrize("wrong", [[], ["6xx"], [99], [600], "ok", [None]])
async def test_a_wrong_expectation_is_refused_before_anything_is_sent(
    sender: Sender, site: Site, wrong: Json
) -> None:
    failed(await sender.send(site.url, expect_status=wrong), "invalid_params")
    assert site.connections == 0


async def test_a_server_that_cannot_be_reached_is_tried_again_later(sender: Sender, site: Site) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/?token=secret"
        error = failed(await sender.send(url), "http_unreachable")
    assert error.retryable
    assert "secret" not in error.message
    site.answer = b""
    assert failed(await sender.send(site.url), "http_unreachable").retryable
    site.answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"
    assert failed(await sender.send(site.url), "http_unreachable").retryable
    nobody = PublicOnly(HERE, Names())
    assert failed(await sender.send("http://nobody.test/", nobody), "http_unreachable").retryable


async def test_a_connection_that_takes_too_long_is_tried_again_later(
    sender: Sender, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound_guard, "CONNECT_SECONDS", 0.2)
    site.is_silent = True
    outcome = await sender.send(f"https://127.0.0.1:{site.port}/")
    assert failed(outcome, "http_unreachable").retryable


async def test_a_cancelled_request_is_given_up_at_once(sender: Sender, site: Site) -> None:
    site.is_silent = True
    sending = asyncio.create_task(sender.send(site.url))
    await eventually(lambda: site.connections)
    sender.ctx.cancel("cancelled")
    failed(await sending, "cancelled")
    await eventually(lambda: site.closed)
