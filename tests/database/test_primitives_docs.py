"""The worked examples of docs/reference/primitives.md run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.verbs import idempotency, leases

PAGE = Path(__file__).parents[2] / "docs/reference/primitives.md"
PLAIN = "workflow_id: {}\nnodes:\n  a: {{handler: echo}}\n"


@pytest.fixture
def shown() -> dict[str, Any]:
    """Everything the page defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        exec(block, names)
    return names


async def test_the_second_to_enrich_gets_the_first_ones_job(harness: Harness, shown: dict[str, Any]) -> None:
    await harness.publish(PLAIN.format("enrich"))
    first = await shown["enrich"](harness.db, harness.engine_context, "552032534")
    assert await shown["enrich"](harness.db, harness.engine_context, "552032534") == first
    assert await shown["enrich"](harness.db, harness.engine_context, "552100554") != first
    await harness.cancel(first)
    assert await shown["enrich"](harness.db, harness.engine_context, "552032534") != first


async def test_a_line_is_appended_under_the_lease_only(harness: Harness, shown: dict[str, Any]) -> None:
    await harness.rows("create table ledger (line text)")
    async with harness.db.transaction("test") as tx:
        got = await leases.acquire(tx, "ledger", "me", 60)
    assert isinstance(got, leases.Acquired)
    assert await shown["append_under_lease"](harness.db, "ledger", got.fence, "one")
    assert not await shown["append_under_lease"](harness.db, "ledger", got.fence + 1, "two")
    assert await harness.rows("select line from ledger") == [("one",)]


async def test_three_convert_and_the_fourth_learns_who(harness: Harness, shown: dict[str, Any]) -> None:
    inside, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def work() -> None:
        inside.release()
        await go_on.wait()

    running = [asyncio.create_task(shown["convert"](harness.db, work, str(number))) for number in range(3)]
    for _ in running:
        await inside.acquire()
    assert sorted(await shown["convert"](harness.db, work, "fourth")) == ["0", "1", "2"]
    go_on.set()
    assert await asyncio.gather(*running) == [None] * 3
    assert await shown["convert"](harness.db, work, "fourth") is None


async def test_the_registry_is_called_as_often_as_it_allows(
    harness: Harness, shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def pass_time(seconds: float) -> None:
        waits.append(seconds)
        await harness.rows("update cograil.buckets set refilled_at = refilled_at - interval '1 s'")

    async def call() -> str:
        return "called"

    monkeypatch.setattr(shown["asyncio"], "sleep", pass_time)
    assert [await shown["call_registry"](harness.db, call) for _ in range(21)] == ["called"] * 21
    assert all(0 < wait <= 1 / 7 for wait in waits)


async def test_a_documented_double_submit_makes_one_job(harness: Harness, shown: dict[str, Any]) -> None:
    await harness.publish(PLAIN.format("w"))
    ask = shown["submit_once"]
    code, job = await ask(harness.db, harness.engine_context, "default", "k", "w", {"a": 1, "b": 2})
    assert code == 202
    assert await ask(harness.db, harness.engine_context, "default", "k", "w", {"b": 2, "a": 1}) == (200, job)
    assert await ask(harness.db, harness.engine_context, "default", "k", "w", {"a": 2}) == (409, None)
    assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]


async def test_a_quote_is_fetched_once_and_refreshed_by_one(harness: Harness, shown: dict[str, Any]) -> None:
    fetched: list[int] = []

    async def fetch() -> int:
        fetched.append(len(fetched))
        return fetched[-1]

    assert [await shown["quote"](harness.db, "X", fetch) for _ in range(3)] == [0, 0, 0]
    age = "update cograil.idempotency set answered_at = answered_at - interval '61 s'"
    await harness.rows(age)
    answers = await asyncio.gather(*(shown["quote"](harness.db, "X", fetch) for _ in range(5)))
    assert set(answers) <= {0, 1}, "stale, or fresh for who asked after the refresh"
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*(task for task in others if "refresh" in repr(task)))
    assert await shown["quote"](harness.db, "X", fetch) == 1
    assert fetched == [0, 1]
    async with harness.db.transaction("test") as tx:
        assert await idempotency.find(tx, idempotency.Key("default", "quotes", "X")) is not None
