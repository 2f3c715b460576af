"""Bad input over a raw socket, row by row of the threats' matrix: a clear refusal, never a 500.

Ids are those of the matrix; tests/contract/test_threats.py sees that none is left out.
"""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest
import structlog
from tests.support.api_client import ApiClient
from tests.support.bad_requests import CORPUS, JOBS, Row, get, inputs, job, post

from cograil import logs

HELLO = """
workflow_id: hello
inputs: {name: {type: string, default: World}, count: {type: integer, default: 1}}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
ANY = "workflow_id: any\nnodes: {a: {handler: echo}}"


@pytest.fixture
async def door(api: ApiClient) -> ApiClient:
    for text in (HELLO, ANY):
        assert (await api.post("/api/v1/workflows", {"source": text})).status == 201
    return api


@pytest.mark.parametrize("rows", CORPUS, ids=["http", "json", "names", "callbacks"])
async def test_every_row_is_answered_as_the_matrix_says(door: ApiClient, rows: list[Row]) -> None:
    wrong = []
    for row in rows:
        answer = await door.raw(row.request)
        code = answer.code if answer.status >= 400 else ""  # every refusal is a problem of ours
        if (answer.status, code) != (row.status, row.code):
            wrong.append((row.name, answer.status, answer.raw[:200]))
        if code:
            assert len(answer.body["detail"]) <= 1000
            assert answer.body["detail"].isprintable(), row.name
        if answer.status == 405:
            assert answer.headers["allow"], row.name
    assert wrong == []


async def test_requests_behind_a_request_of_two_lengths_are_not_answered(door: ApiClient) -> None:
    """B03: a proxy before us may have taken the second request for a part of the first."""
    hidden = get("/livez")
    answered = await exchange(door, post(b"0\r\n\r\n", "Transfer-Encoding: chunked") + hidden)
    assert answered.count(b"HTTP/1.1 ") == 1
    assert answered.startswith(b"HTTP/1.1 400")


async def exchange(door: ApiClient, request: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(request)
    async with asyncio.timeout(10):
        answered = await reader.read()
    writer.close()
    return answered


async def test_a_body_that_is_too_large_ends_reading(door: ApiClient) -> None:
    """B01 and B02: the connection is closed, whether its end was told or came in pieces."""
    chunks = get(JOBS).replace(b"GET", b"POST")[:-2] + (
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for request in (
        post(b"").replace(b"Content-Length: 0", b"Content-Length: 1048577"),
        chunks + (b"40000\r\n" + b" " * 0x40000 + b"\r\n") * 4 + b"1\r\n \r\n",
    ):
        answered = await exchange(door, request)
        assert answered.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answered.lower()


@pytest.mark.parametrize("second", [b"FOO / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nA: \0\r\n\r\n"])
async def test_a_bad_next_request_does_not_cut_into_a_response(door: ApiClient, second: bytes) -> None:
    """Both came at once. The first is answered as a whole; then either the connection ends or the second is
    refused, and never the other way round."""
    answered = await exchange(door, get(JOBS) + second)
    assert answered.startswith(b"HTTP/1.1 200")
    assert answered.count(b'"next_cursor"') == 1


async def test_a_request_without_a_known_end_changes_nothing(door: ApiClient) -> None:
    """B03: it has no body that would have to be read before it is done, so it is refused before it begins."""
    made = await door.post("/api/v1/subscriptions", {"url": "https://a.example/hook"})
    path = f"/api/v1/subscriptions/{made.body['subscription_id']}"
    request = get(path, "Transfer-Encoding: gzip").replace(b"GET", b"DELETE", 1)
    answer = await door.raw(request)
    assert (answer.status, answer.code) == (400, "bad_framing")
    assert len((await door.get("/api/v1/subscriptions")).body["subscriptions"]) == 1
    assert (await door.call("DELETE", path)).status in (200, 204)


async def test_a_request_is_logged_in_one_line(door: ApiClient, capsys: pytest.CaptureFixture[str]) -> None:
    """B50: whatever stands in it. A name for the request is taken only if it is a plain word."""
    logs.configure("debug", "json")
    try:
        for odd in ("a%0ab", "a%1b[2Jb", "a%E2%80%A8b"):
            assert (await door.get(f"{JOBS}/{odd}", headers={"x-request-id": "a;b"})).status == 404
        structlog.get_logger("http").info("request failed", path="/a\nb\x1b[2J\u2028", request_id="a\r\nb")
    finally:
        logs.configure("info", "auto")
    lines = capsys.readouterr().err.splitlines()
    assert lines
    for line in lines:
        json.loads(line)
        assert line.isascii()
        assert line.isprintable()
    answer = await door.get(JOBS, headers={"x-request-id": "a;b"})
    assert answer.headers["x-request-id"] != "a;b"
    assert (await door.get(JOBS, headers={"x-request-id": "a-b_1"})).headers["x-request-id"] == "a-b_1"


async def test_large_numbers_come_back_as_they_were(door: ApiClient) -> None:
    """B32."""
    answer = await door.raw(post(inputs(b"9007199254740993")))
    assert b'"x":9007199254740993' in answer.raw


async def test_text_of_all_sorts_comes_back_as_it_was(door: ApiClient) -> None:
    """B36."""
    odd = "\u202e\u200b\U0001f600 e\u0301 \u00e9 \ufeff\u2028 \U0010ffff"
    job_id = (await door.raw(post(inputs(json.dumps(odd).encode())))).body["job_id"]
    shown = (await door.get(f"{JOBS}/{job_id}")).body["job"]["input_params"]
    assert shown == {"x": odd}


async def test_a_slow_body_is_not_waited_for(door: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """B09."""
    monkeypatch.setattr("cograil.http.server.request_limits.BODY_SECONDS", 0.3)
    answer = await door.raw(post(job())[:-5])
    assert (answer.status, answer.code) == (408, "request_timeout")


async def test_spelling_makes_no_other_request(door: ApiClient) -> None:
    """B33, B34 and B35: order, blanks and escapes do not matter, the characters themselves do."""
    header = "Idempotency-Key: spelled"
    first = await door.raw(post(b'{"workflow_id": "any", "input_params": {"a": "A", "n": 1.0}}', header))
    same = await door.raw(post(b'{"input_params":{"n":1.0e0,"a":"\\u0041"},"workflow_id":"any"}', header))
    assert (first.status, same.status) == (202, 200)
    digits = [
        await door.raw(post(inputs(number), "Idempotency-Key: n"))
        for number in (b"0.1", b"0.100000000000000005551115123125")
    ]
    assert [answer.status for answer in digits] == [202, 200], "B33: the same double"
    composed = await door.raw(post(inputs('"\u00e9"'.encode()), "Idempotency-Key: e"))
    apart = await door.raw(post(inputs('"e\u0301"'.encode()), "Idempotency-Key: e"))
    assert (composed.status, apart.status) == (202, 409)


async def test_an_input_that_does_not_fit_is_pointed_at_in_the_request(door: ApiClient) -> None:
    """Wherever a job is asked for: an input may have the name of a field."""
    wrong = {"workflow_id": "hello", "input_params": {"name": 5, "priority": 1}}
    answer = await door.post(JOBS, wrong)
    pointers = ["/input_params/priority", "/input_params/name"]
    assert (answer.status, [problem["pointer"] for problem in answer.body["problems"]]) == (422, pointers)
    request = wrong | {"request_id": str(uuid4()), "submitted_by": "me"}
    assert (await door.post("/api/v1/submit", request)).body["pointer"] == pointers[0]
    job_id = await door.submit("hello")
    await door.post(f"{JOBS}/{job_id}/cancel", {})
    again = await door.post(f"{JOBS}/{job_id}/retry", {"input_params": {"name": 5}})
    assert (again.status, again.body["pointer"]) == (422, "/input_params/name")
