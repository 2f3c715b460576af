"""Many requests at the same moment: what they all need is looked up once, and nobody is sent away for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from tests.support.api_client import ApiClient, serve_api
from tests.support.harness import Harness, quick_settings

from cograil import fault_injection
from cograil.http.auth.authentication import KeyAuthenticator
from cograil.store import database, session_settings

JOBS = "/api/v1/jobs"
HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"
CROWD = 60
WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


@asynccontextmanager
async def held(harness: Harness, table: str) -> AsyncIterator[None]:
    """Nobody reads this table meanwhile."""
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute(f"lock table cograil.{table} in access exclusive mode".encode())
        yield


async def waiting(harness: Harness) -> int:
    return int((await harness.rows(WAITING))[0][0])


@pytest.fixture
async def shop(api: ApiClient) -> ApiClient:
    assert (await api.post("/api/v1/workflows", {"source": HELLO})).status == 201
    return api


@pytest.mark.parametrize("has_key", [False, True])
async def test_a_crowd_of_callers_is_recognised_with_one_look(
    shop: ApiClient, eventually: Any, has_key: bool
) -> None:
    key = await shop.make_key("viewer") if has_key else ""
    keys = shop.context.keys
    assert isinstance(keys, KeyAuthenticator)
    keys._has_keys = None
    async with held(shop.harness, "keys"):
        callers = [asyncio.create_task(shop.get(JOBS, key=key)) for _ in range(CROWD)]
        await eventually(lambda: len(keys._single_flight._tasks) == 1)
        await eventually(lambda: waiting(shop.harness))
        assert await all_came_in(shop, eventually, CROWD)
        assert await waiting(shop.harness) == 1
    assert Counter(answer.status for answer in await asyncio.gather(*callers)) == {200: CROWD}


async def all_came_in(shop: ApiClient, eventually: Any, count: int) -> bool:
    """Whether this number of requests is being answered."""

    def under_way() -> bool:
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
        return names.count("RequestResponseCycle.run_asgi") >= count

    return bool(await eventually(under_way))


@pytest.mark.parametrize("path", [JOBS, "/api/v1/submit"])
async def test_a_crowd_under_one_key_takes_one_turn(shop: ApiClient, eventually: Any, path: str) -> None:
    """While they wait for it there are connections for the others."""
    body = {"workflow_id": "hello", "idempotency_key": "the-one"}
    if path != JOBS:
        body |= {"request_id": str(uuid4()), "submitted_by": "me"}
    await shop.get(JOBS)
    async with held(shop.harness, "idempotency"):
        callers = [asyncio.create_task(shop.post(path, body)) for _ in range(CROWD)]
        await eventually(lambda: waiting(shop.harness))
        assert await all_came_in(shop, eventually, CROWD)
        assert await waiting(shop.harness) == 1
        assert (await shop.get(JOBS)).status == 200
    answers = await asyncio.gather(*callers)
    assert Counter(answer.status for answer in answers) == {202: 1, 200: CROWD - 1}
    assert len({answer.raw for answer in answers}) == 1
    assert len((await shop.get(JOBS)).body["jobs"]) == 1
    other = await shop.post(path, body | {"priority": 3})
    assert (other.status, other.code) == (409, "idempotency_conflict")


async def test_a_caller_of_a_crowd_may_go_away(shop: ApiClient, eventually: Any) -> None:
    """Also the one that came first: the others are answered all the same."""
    flights, end = shop.context.single_flight, asyncio.Event()

    async def ask() -> int:
        await end.wait()
        return 7

    first, second = (asyncio.create_task(flights.run("x", ask)) for _ in range(2))
    await eventually(lambda: len(flights._tasks) == 1)
    first.cancel()
    end.set()
    assert await second == (7, False)
    assert await flights.run("x", ask) == (7, True), "what is over is asked again"


async def test_a_connection_that_is_lost_is_not_the_crowds_fault(shop: ApiClient) -> None:
    """Under a key it can be asked again: the record knows whether it was done."""
    for point, status in (("find_record", 202), ("write_changes", 202), ("commit.after", 200)):
        count = 1 if point != "commit.after" else 2  # the first one has only looked
        fault_injection.arm(f"submit.{point}:{count}:raise")
        try:
            answer = await shop.post(JOBS, {"workflow_id": "hello", "idempotency_key": point})
        finally:
            fault_injection.arm(None)
        assert answer.status == status, answer.raw
    assert len((await shop.get(JOBS)).body["jobs"]) == 3


@pytest.mark.parametrize(("point", "status"), [("write_changes", 202), ("commit.after", 200)])
async def test_a_request_whose_connection_is_lost_is_asked_again_under_its_id(
    shop: ApiClient, point: str, status: int
) -> None:
    """A caller behind the gateway would never learn the id of its job."""
    request = {"workflow_id": "hello", "submitted_by": "me", "request_id": str(uuid4())}
    fault_injection.arm(f"submit.{point}:1:raise")
    try:
        answer = await shop.post("/api/v1/submit", request)
    finally:
        fault_injection.arm(None)
    assert (answer.status, answer.body["request_id"]) == (status, request["request_id"])
    assert [job["job_id"] for job in (await shop.get(JOBS)).body["jobs"]] == [answer.body["job_id"]]


async def test_when_no_connection_is_free_callers_are_told_to_come_back(
    harness: Harness, dsn: str, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "POOL_SECONDS", 0.3)
    settings = quick_settings(database={"pool_size": 1})
    async with serve_api(harness, dsn, settings) as api:
        assert (await api.get(JOBS)).status == 200
        async with held(harness, "jobs"):
            first = asyncio.create_task(api.get(JOBS))
            await eventually(lambda: waiting(harness))
            answer = await api.get(JOBS)
            assert (answer.status, answer.code) == (503, "overloaded")
            assert answer.headers["retry-after"] == "1"
        assert (await first).status == 200


@pytest.mark.parametrize("body", [{}, {"idempotency_key": "k"}])
async def test_nobody_waits_for_the_database_for_ever(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch, body: dict[str, str]
) -> None:
    monkeypatch.setattr(session_settings, "DOOR_SECONDS", 0.3)
    async with serve_api(harness, dsn) as api:
        await api.post("/api/v1/workflows", {"source": HELLO})
        async with held(harness, "jobs"):
            answers = [await api.get(JOBS), await api.post(JOBS, body | {"workflow_id": "hello"})]
            assert {(answer.status, answer.code) for answer in answers} == {(503, "database_unavailable")}
            assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        assert (await api.post(JOBS, body | {"workflow_id": "hello"})).status == 202
        assert len((await api.get(JOBS)).body["jobs"]) == 1


async def test_a_session_that_was_idle_for_too_long_is_no_fault_of_ours(shop: ApiClient) -> None:
    """PostgreSQL ends it in the middle of a transaction; the caller may come back."""

    async def be_late() -> None:
        async with shop.context.db.transaction("test") as tx:
            await tx.connection.execute(b"set local idle_in_transaction_session_timeout = 1")
            await asyncio.sleep(0.2)  # for once this is the point
            await tx.connection.execute(b"select 1")

    with pytest.raises(database.LOST):
        await be_late()
