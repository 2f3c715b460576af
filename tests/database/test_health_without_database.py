"""/health while the database is away: who asks how it is hears it at once, and hears why."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from tests.support.api_client import ApiClient, ApiResponse, serve_api
from tests.support.database_proxy import DatabaseProxy, open_database_proxy
from tests.support.harness import Harness

from cograil.http.auth import authentication

SOON = 2.0


@pytest.fixture
async def proxy(dsn: str) -> AsyncIterator[DatabaseProxy]:
    async with open_database_proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
async def far(harness: Harness, proxy: DatabaseProxy) -> AsyncIterator[ApiClient]:
    """An API whose database is at the other end of a wire."""
    async with serve_api(harness, proxy.dsn) as api:
        yield api
        await proxy.cut()


async def timed(api: ApiClient, path: str, key: str = "") -> ApiResponse:
    """Whatever it is, it comes soon."""
    begun = time.monotonic()
    answer = await api.get(path, key=key)
    assert time.monotonic() - begun < SOON, answer.raw
    return answer


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "frozen"])
async def test_the_tiers_answer_while_the_database_is_away(
    far: ApiClient, proxy: DatabaseProxy, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """The key is older than what a door believes without asking again, and still good enough for this."""
    key = await far.make_key("viewer")
    assert (await far.get("/health", key=key)).status == 503  # nobody advances jobs here
    monkeypatch.setattr(authentication, "KNOWN_SECONDS", 0.0)
    await proxy.cut() if is_cut else proxy.freeze()
    answer = await timed(far, "/health", key)
    assert answer.status == 503
    states = {name: check["status"] for name, check in answer.body["checks"].items()}
    assert (states["process"], states["database"], states["schema"]) == ("healthy", "unhealthy", "skipped")
    assert answer.body["summary"]["process"]["healthy"] == 1
    assert answer.body["summary"]["database"]["status"] == "unhealthy"
    assert (await timed(far, "/health/process", key)).status == 200
    news = await timed(far, "/health/news", key)
    assert (news.status, news.body["message"]) == (503, "the database does not answer")


async def test_without_keys_it_answers_as_soon(
    far: ApiClient, proxy: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await far.get("/health/process")).status == 200
    monkeypatch.setattr(authentication, "KNOWN_SECONDS", 0.0)
    await proxy.cut()
    assert (await timed(far, "/health/process")).status == 200


async def test_a_key_that_nobody_knew_before_is_not_believed(far: ApiClient, proxy: DatabaseProxy) -> None:
    """Nor is one that was known too long ago; and what is not about health waits for the database."""
    key = await far.make_key("viewer")
    await proxy.cut()
    answer = await timed(far, "/health/process", key)
    assert (answer.status, answer.code) == (503, "database_unavailable")


async def test_a_key_is_remembered_for_a_minute_and_no_longer(
    far: ApiClient, proxy: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await far.make_key("viewer")
    assert (await far.get("/health/process", key=key)).status == 200
    monkeypatch.setattr(authentication, "KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(authentication, "REMEMBERED_SECONDS", 0.0)
    await proxy.cut()
    assert (await timed(far, "/health/process", key)).status == 503
