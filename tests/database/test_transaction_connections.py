"""`ctx.transaction()`: whose connection it is, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.support.booking_rows import conninfo_as_role, insert_booking, list_bookings
from tests.support.harness import Harness, quick_settings
from tests.support.one_node import one

from cograil.runners.context import Context
from cograil.store import handler_transactions

# -- whose connection -------------------------------------------------------------------------------------


@pytest.fixture
async def handlers(shop: Harness) -> AsyncIterator[str]:
    """How to connect as a role that may use the tables of the user and make the report, no more of ours."""
    await shop.rows("create role handlers login")
    try:
        await shop.rows("grant usage on schema cograil to handlers")
        await shop.rows("grant execute on function cograil.report to handlers")
        await shop.rows("grant insert on bookings to handlers")
        yield conninfo_as_role(shop.db.conninfo, "handlers")
    finally:
        await shop.rows("drop owned by handlers")
        await shop.rows("drop role handlers")


async def test_a_handler_may_bring_its_own_connection_and_role(shop: Harness, handlers: str) -> None:
    async def pay(ctx: Context) -> None:
        async with (
            await psycopg.AsyncConnection.connect(handlers, row_factory=dict_row) as connection,
            ctx.transaction(connection) as tx,
        ):
            await insert_booking(connection, ctx)
            await tx.complete({"paid": True})

    shop.registry.register(pay)
    async with shop.running():
        assert (await shop.ended(await shop.submit(one("pay"))))["result"]["a"] == {"paid": True}
    assert await list_bookings(shop) == [(1, 5)]
    async with await psycopg.AsyncConnection.connect(handlers) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await connection.execute("select * from cograil.tasks")


async def test_a_worker_gives_its_handlers_the_role_it_was_told(shop: Harness, handlers: str) -> None:
    """`COGRAIL_DATABASE__HANDLER_URL`: what the worker may do, they may not."""

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await insert_booking(tx, ctx)
            ((role,),) = await (await tx.execute("select current_user")).fetchall()
        return {"as": role}

    async def pry(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("delete from cograil.jobs")

    settings = quick_settings(database={"handler_url": handlers})
    shop.registry.register(pay)
    shop.registry.register(pry)
    async with shop.orchestrator(), shop.worker(settings=settings):
        for _ in range(2):
            assert (await shop.ended(await shop.submit(one("pay"))))["result"]["a"] == {"as": "handlers"}
        ended = await shop.ended(await shop.submit(one("pry")))
    assert ended["status"] == "failed"
    assert "permission denied" in ended["error"]["message"]
    assert await list_bookings(shop) == [(1, 5), (1, 5)]


async def test_a_role_of_another_database_is_refused_and_told_why(shop: Harness, postgres: str) -> None:
    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction():
            return {}

    settings = quick_settings(database={"handler_url": postgres})
    shop.registry.register(pay)
    async with shop.orchestrator(), shop.worker(settings=settings):
        for _ in range(2):
            ended = await shop.ended(await shop.submit(one("pay")))
            assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_transaction")
            assert "HANDLER_URL leads to another database" in ended["error"]["message"]


async def test_the_report_is_for_nobody_who_was_not_granted_it(shop: Harness) -> None:
    await shop.rows("create role stranger login")
    try:
        await shop.rows("grant usage on schema cograil to stranger")
        async with await psycopg.AsyncConnection.connect(
            conninfo_as_role(shop.db.conninfo, "stranger")
        ) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute("select cograil.report(1, 1, 1, 'x', '{}')")
    finally:
        await shop.rows("drop owned by stranger")
        await shop.rows("drop role stranger")


async def test_a_connection_of_ones_own_must_say_that_it_is_complete(shop: Harness) -> None:
    """Its owner might commit it before us: rows without a result."""

    async def pay(ctx: Context) -> dict[str, Any]:
        async with (
            await psycopg.AsyncConnection.connect(shop.db.conninfo) as connection,
            ctx.transaction(connection),
        ):
            await insert_booking(connection, ctx)
            return {"paid": True}

    shop.registry.register(pay)
    async with shop.running():
        ended = await shop.ended(await shop.submit(one("pay")))
    assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_transaction")
    assert "tx.complete" in ended["error"]["message"]
    assert await list_bookings(shop) == []


async def test_another_database_is_refused_and_told_why(shop: Harness, postgres: str) -> None:
    async def pay(ctx: Context) -> dict[str, Any]:
        async with (
            await psycopg.AsyncConnection.connect(postgres) as connection,
            ctx.transaction(connection) as tx,
        ):
            await tx.complete({})
        return {}

    shop.registry.register(pay)
    async with shop.running():
        ended = await shop.ended(await shop.submit(one("pay")))
    assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_transaction")
    assert "another database" in ended["error"]["message"]


async def test_an_invalid_transaction_connection_is_refused(shop: Harness) -> None:
    async def twice(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await insert_booking(tx, ctx)
        async with ctx.transaction():
            pass

    def in_a_thread(ctx: Context) -> None:
        ctx.transaction()

    async def not_a_connection(ctx: Context) -> None:
        async with ctx.transaction("postgresql://"):
            pass

    async with shop.running():
        for handler in (twice, in_a_thread, not_a_connection):
            shop.registry.register(handler)
            ended = await shop.ended(await shop.submit(one(handler.__name__)))
            assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_transaction")
    assert await list_bookings(shop) == []


async def test_a_transaction_that_sits_idle_is_ended_by_the_database(
    shop: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(handler_transactions.SETTINGS, "idle_in_transaction_session_timeout", "100ms")

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await insert_booking(tx, ctx)
            ((limit,),) = await (await tx.execute("show idle_in_transaction_session_timeout")).fetchall()
        if ctx.attempt == 1:
            await asyncio.sleep(1)
        return {"limit": limit}

    assert handler_transactions.IDLE_SECONDS == 10
    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay"))
        assert (await shop.ended(job))["result"]["a"] == {"limit": "100ms"}
    (failure,) = [e["data"]["error"] for e in await shop.events(job) if e["event_type"] == "task_failed"]
    assert failure["code"] == "transaction_failed"
    assert await list_bookings(shop) == [(2, 5)]
