"""The doctor on what others are told: what waits, what fails, what was given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from cograil.store.doctor import check_liveness


def delivery(tries: int, when: str = "", error: str = "null") -> str:
    """A statement that makes one."""
    return (
        "insert into deliveries (id, type, destination, origin, url, sending, body, tries, not_before,"
        " last_error) values (gen_random_uuid(), 'a.b', 'callback', 'http://x.y:80', 'http://x.y', 'null',"
        f" 'null', {tries}, now() {when}, {error});"
    )


FAILED = delivery(5, "+ interval '1 hour'", "'no'")
TOLD = "insert into outbox (type, subject, data, at) values ('a.b', 'x', 'null', now() - interval '{age}')"
SUBSCRIBED = "insert into subscriptions (id, url, secret) values (gen_random_uuid(), 'http://x.y', 's');"
DEAD = delivery(9) + "update deliveries set state = 'dead', ended_at = now() - interval '{age}'"

STALLS = {
    "an outbox that nobody spreads": ("L5", TOLD.format(age="1 hour")),
    "a delivery that nobody sends": ("L5", delivery(0, "- interval '1 hour'")),
    "a receiver that fails": ("L6", FAILED),
    "a dead letter": ("L7", DEAD.format(age="6 days")),
    "a subscription that is told nothing": (
        "L8",
        f"{SUBSCRIBED} update subscriptions set disabled_at = now(), disabled_reason = 'gone'",
    ),
}
USUAL = {
    "an outbox that is about to be spread": TOLD.format(age="1 second"),
    "a delivery that waits for its next try": delivery(4, "+ interval '1 hour'", "'no'"),
    "a receiver that takes again": f"{FAILED} {delivery(1)}"
    "update deliveries set state = 'delivered', delivered_at = now() + interval '1 second', ended_at = now()"
    " where tries = 1",
    "a dead letter of long ago": DEAD.format(age="8 days"),
    "a subscription": SUBSCRIBED,
}


@pytest_asyncio.fixture
async def conn(dsn: str) -> AsyncIterator[AsyncConnection[Any]]:
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("set search_path = cograil")
        yield conn


@pytest.mark.parametrize(("code", "change"), STALLS.values(), ids=STALLS)
async def test_doctor_warns_of_undelivered_events(conn: AsyncConnection[Any], code: str, change: str) -> None:
    assert await check_liveness(conn) == []
    await conn.execute(change.encode())
    (finding,) = await check_liveness(conn)
    assert (finding.code, finding.level, finding.count) == (code, "yellow", 1)


@pytest.mark.parametrize("change", USUAL.values(), ids=USUAL)
async def test_doctor_has_no_finding_for_usual_deliveries(conn: AsyncConnection[Any], change: str) -> None:
    await conn.execute(change.encode())
    assert await check_liveness(conn) == []


async def test_doctor_reports_waiting_deliveries_by_receiver_with_the_oldest(
    conn: AsyncConnection[Any],
) -> None:
    for minutes in (2, 60, 30):
        await conn.execute(delivery(0, f"- interval '{minutes} minutes'").encode())
    (finding,) = await check_liveness(conn)
    assert finding.ids[0].startswith("http://x.y:80: 3, the oldest for 360")
