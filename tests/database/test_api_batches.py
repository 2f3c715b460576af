"""Batches over HTTP: limits hold for each job of one; a batch with a key is done once."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import psycopg
import pytest
from tests.support.api_client import ApiClient, ApiResponse

from cograil.store import idempotency_queries as store_idempotency
from cograil.verbs import idempotency
from cograil.verbs.idempotency import Key

FLOW = "workflow_id: w\nnodes:\n  inner: {handler: echo, retry: {max_attempts: 1}}\n"
BATCH = "/api/v1/jobs/batch"
ONE = {"workflow_id": "w"}
MANY_KEYS = {str(number): {"a": 1} for number in range(5_000)}


@pytest.fixture
async def shop(api: ApiClient) -> ApiClient:
    await api.harness.publish(FLOW)
    return api


async def count(api: ApiClient) -> int:
    ((jobs,),) = await api.harness.rows("select count(*) from cograil.jobs")
    return int(jobs)


async def submit(api: ApiClient, jobs: Any, once: str | None = None, **facts: Any) -> ApiResponse:
    headers = {} if once is None else {"idempotency-key": once}
    return await api.post(BATCH, {"jobs": jobs}, headers=headers, **facts)


async def raw(api: ApiClient, body: bytes) -> ApiResponse:
    head = (
        f"POST {BATCH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    )
    return await api.raw(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)


def told(answer: ApiResponse) -> list[tuple[int, str]]:
    """Of each the status, and what is wrong with it."""
    assert answer.status == 200, answer.raw
    return [(result["status"], result.get("error", {}).get("code", "")) for result in answer.body["results"]]


# -- limits -----------------------------------------------------------------------------------------------


async def test_a_thousand_jobs_with_ten_inputs_each_are_one_batch(shop: ApiClient) -> None:
    inputs = {f"input_{number}": number for number in range(10)}
    answer = await submit(shop, [ONE | {"input_params": inputs}] * 1000)
    assert told(answer) == [(202, "")] * 1000


async def test_a_limit_of_one_job_fails_only_that_job_of_the_batch(shop: ApiClient) -> None:
    """B27 and the largest body of a single submit, for each of a batch."""
    jobs: list[Any] = [
        ONE,
        ONE | {"input_params": {"text": "x" * 300_000}},
        ONE | {"input_params": {"list": [0] * 10_001}},
        ONE | {"input_params": {"texts": ["x" * 250_000] * 5}},
        ONE | {"input_params": MANY_KEYS | {str(number): {} for number in range(5_000, 9_000)}},
        ONE | {"input_params": MANY_KEYS},
        "hello",
        None,
        7,
        [ONE],
        ONE,
    ]
    assert told(await submit(shop, jobs)) == [
        (202, ""),
        (422, "too_large"),
        (422, "too_large"),
        (413, "too_large"),
        (422, "too_large"),
        (422, "too_large"),
        (422, "invalid_type"),
        (422, "invalid_type"),
        (422, "invalid_type"),
        (422, "invalid_type"),
        (202, ""),
    ]
    assert await count(shop) == 2


ODD: tuple[tuple[bytes, int, str], ...] = (
    (b'{"workflow_id": "w", "workflow_id": "w"}', 400, "duplicate_key"),
    (b'{"workflow_id": "w", "priority": NaN}', 400, "invalid_number"),
    (b'{"workflow_id": "w", "input_params": {"n": 1e400}}', 400, "invalid_number"),
    (b'{"workflow_id": "w", "input_params": {"n": 9223372036854775808}}', 422, "out_of_range"),
    (b'{"workflow_id": "\\u0000"}', 400, "invalid_unicode"),
    (b'{"workflow_id": "\\ud800"}', 400, "invalid_unicode"),
    (b'{"workflow_id": "w", "input_params": ' + b'{"a":' * 33 + b"1" + b"}" * 34, 400, "too_deep"),
)


async def test_an_odd_field_fails_only_that_job_of_the_batch(shop: ApiClient) -> None:
    good = json.dumps(ONE).encode()
    for item, status, code in ODD:
        answer = await raw(shop, b' {"jobs" : [\n' + good + b" , " + item + b"," + good + b"] }\r\n")
        assert told(answer) == [(202, ""), (status, code), (202, "")], item


NO_BATCH: tuple[tuple[bytes, int, str], ...] = (
    (b'{"jobs": []}', 422, "invalid_value"),
    (b'{"jobs": {}}', 422, "invalid_type"),
    (b'{"jobs": [{}], "more": 1}', 422, "unknown_field"),
    (b'{"jobs": [{}], "jobs": [{}]}', 400, "duplicate_key"),
    (b'{"jobs": [{}]', 400, "malformed_json"),
    (b'{"jobs": [{},]}', 400, "malformed_json"),
    (b'{"jobs": [{}]}]', 400, "malformed_json"),
    (b'{"jobs": [{} {}]}', 400, "malformed_json"),
    (b'{"jobs": [' + b"[" * 100_000, 400, "too_deep"),
    (b'\xef\xbb\xbf{"jobs": [{}]}', 400, "invalid_encoding"),
    (b'{"jobs": [{"\xff": 1}]}', 400, "invalid_encoding"),
    (b'{"jobs": [' + b",".join([b'{"":0}'] * 1001) + b"]}", 422, "too_large"),
    (b'{"jobs": [' + b"0," * 900_000, 422, "too_large"),
    (b'{"jobs": [[' + b",".join([b'{"":0}'] * 500_001) + b"]]}", 422, "too_large"),
)


async def test_a_body_that_is_not_a_batch_is_refused_as_a_whole(shop: ApiClient) -> None:
    for body, status, code in NO_BATCH:
        answer = await raw(shop, body)
        assert (answer.status, answer.code) == (status, code), body[:80]
    assert await count(shop) == 0


# -- keys -------------------------------------------------------------------------------------------------


async def test_a_batch_with_a_key_is_done_once_and_answered_as_the_first_time(shop: ApiClient) -> None:
    jobs = [ONE, ONE, {"workflow_id": "nope"}, 7, ONE | {"idempotency_key": "own"}]
    first = await submit(shop, jobs, "monday")
    assert told(first) == [
        *[(202, "")] * 2,
        (404, "workflow_not_found"),
        (422, "invalid_type"),
        (202, ""),
    ]
    again = await submit(shop, jobs, "monday")
    assert (again.status, again.body) == (200, first.body)
    assert await count(shop) == 3
    other = await submit(shop, jobs[:-1], "monday")
    assert (other.status, other.code) == (409, "idempotency_conflict")
    assert await count(shop) == 3
    # Another tenant, another route and the key of a job are none of its business.
    key = await shop.make_key("admin", "acme")
    assert (await submit(shop, jobs, "monday", key=key)).status == 200
    default = await shop.make_key("admin")
    headers = {"idempotency-key": "monday"}
    assert (await shop.post("/api/v1/jobs", ONE, headers=headers, key=default)).status == 202
    mixed = await submit(shop, [ONE | {"idempotency_key": "monday"}], key=default)
    assert told(mixed) == [(202, "")]


async def test_a_batch_that_is_sent_many_times_at_once_is_done_once(shop: ApiClient) -> None:
    jobs = [ONE, *(ONE | {"idempotency_key": f"job-{number}"} for number in range(5)), ONE]
    others = [jobs[0], *reversed(jobs[1:-1]), jobs[-1]]
    batches = [(jobs, "a"), (others, "b")] * 5
    answers = await asyncio.gather(*(submit(shop, batch, key) for batch, key in batches))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.raw for answer in answers[::2]}) == len({answer.raw for answer in answers[1::2]}) == 1
    assert await count(shop) == 2 + 5 + 2


async def test_a_key_that_somebody_is_at_is_that_jobs_fault_alone(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are made by then: a caller that is told of a failure would send them again."""
    monkeypatch.setattr("cograil.http.server.idempotent_requests.IN_PROGRESS_SECONDS", 0.2)
    async with shop.harness.db.transaction("test") as tx:  # as another request does
        await store_idempotency.lock_key(tx, Key("default", f"POST {BATCH}", "slow"))
        answer = await submit(shop, [ONE, ONE | {"idempotency_key": "slow"}, ONE])
    assert told(answer) == [(202, ""), (409, "in_progress"), (202, "")]


async def test_a_database_that_goes_away_in_the_middle_of_a_batch_is_told_of_each(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And asked no more for those behind it: each would wait for it in turn."""
    calls = itertools.count()

    async def find(*_: object) -> None:
        next(calls)
        raise psycopg.OperationalError("gone")

    monkeypatch.setattr(idempotency, "find", find)
    keyed = [ONE | {"idempotency_key": key} for key in ("a", "b", "c")]
    assert told(await submit(shop, [ONE, *keyed])) == [(202, ""), *[(503, "database_unavailable")] * 3]
    assert next(calls) == 2  # it may have been done, so it was looked for once more


async def test_a_refused_job_of_a_batch_has_not_taken_its_key(shop: ApiClient) -> None:
    wrong = {"workflow_id": "nope", "idempotency_key": "order"}
    assert told(await submit(shop, [wrong, ONE], "first")) == [(404, "workflow_not_found"), (202, "")]
    right = ONE | {"idempotency_key": "order"}
    assert told(await submit(shop, [right], "second")) == [(202, "")]
    assert told(await submit(shop, [right], "third")) == [(200, "")]
    other = right | {"priority": 1}
    assert told(await submit(shop, [other], "fourth")) == [(409, "idempotency_conflict")]


async def test_a_batch_of_long_complaints_with_a_key_is_answered_too(shop: ApiClient) -> None:
    odd = {"workflow_id": "w", "x" * 200_000: 1}
    jobs = [ONE | {"input_params": {"y" * 10_000: "x" * 300_000}}] * 20 + [odd] * 7
    first = await submit(shop, jobs, "long")
    assert {status for status, _ in told(first)} == {422}
    assert (await submit(shop, jobs, "long")).body == first.body


async def test_a_key_that_can_be_none_is_refused_everywhere(shop: ApiClient) -> None:
    """B52."""
    job = await shop.submit("w")
    routes = (BATCH, f"/api/v1/jobs/{job}/retry", f"/api/v1/jobs/{job}/nodes/inner/retry")
    for path, key in itertools.product(routes, ("", "x" * 129, "a b", "\xe9")):
        body = {"jobs": [ONE]} if path == BATCH else {}
        answer = await shop.post(path, body, headers={"idempotency-key": key})
        assert (answer.status, answer.code) == (400, "invalid_idempotency_key"), (path, key)
    assert await count(shop) == 1


@pytest.mark.parametrize("path", ["retry", "nodes/inner/retry"])
async def test_a_retry_with_a_key_is_made_once(shop: ApiClient, path: str) -> None:
    job = await shop.submit("w")
    await shop.post(f"/api/v1/jobs/{job}/cancel", {})
    route, headers = f"/api/v1/jobs/{job}/{path}", {"idempotency-key": "again"}
    preview = await shop.post(route, {"preview": True}, headers=headers)
    assert (preview.status, "is_in_place" in preview.body or "job_id" in preview.body) == (200, True)
    answers = await asyncio.gather(*(shop.post(route, {}, headers=headers) for _ in range(5)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.raw for answer in answers}) == 1
    assert answers[0].headers["location"] == f"/api/v1/jobs/{answers[0].body['job_id']}"
    assert await count(shop) == 2
    other = await shop.post(route, {"input_params": {"a": 1}}, headers=headers)
    assert (other.status, other.code) == (409, "idempotency_conflict")
    assert (await shop.post(route, {})).body["job_id"] != answers[0].body["job_id"]
