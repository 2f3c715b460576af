"""Deliveries in the database: who may claim what, whose record counts, and by which way they are found."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from psycopg import AsyncRawCursor
from tests.support.harness import Harness
from tests.support.webhook_receiver import relay_settings

from cograil.definitions import read_workflow
from cograil.delivery.outbox_fan_out import FanOutResult, fan_out
from cograil.settings import Settings
from cograil.store import outbox_queries as store
from cograil.store.outbox_queries import LaneRoom, Room, TenantRoom
from cograil.store.statements import native, statement
from cograil.verbs import outbox
from cograil.verbs.callback_targets import Receiver
from cograil.verbs.publish import keep_draft
from cograil.verbs.submit import Submission, submit

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world}\n"
PLENTY = Room(limit=10, usual=8, most_fresh=100, room=100, fresh=100)
WAITING = """
insert into cograil.deliveries
  (id, tenant_id, job_id, seq, type, destination, origin, url, sending, body, not_before)
select gen_random_uuid(), %(tenant)s, gen_random_uuid(), 1, 't', 'callback', %(origin)s, 'u', '{}', '{}',
  now() - %(hours)s * interval '1 h' from generate_series(1, %(count)s::int)
"""


# Jobs that have much to say, to one origin.
TALKING = """
insert into cograil.deliveries
  (id, tenant_id, job_id, seq, type, destination, origin, url, sending, body, not_before)
select gen_random_uuid(), 'default', j.id, n, 't', 'callback', 'http://up:80', 'u', '{}', n::text::json,
  now() - interval '1 h' + n * interval '1 ms'
from (select gen_random_uuid() as id from generate_series(1, %(jobs)s)) j, generate_series(1, %(events)s) n
"""
UP = LaneRoom("http://up:80", 64, is_proven=True)
TALKED_TO = PLENTY._replace(limit=100, lanes=[UP], following=3)


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


@pytest.fixture(autouse=True)
def callbacks_may_lead_here(harness: Harness) -> None:
    harness.engine_context.outbound = harness.settings.outbound


async def states(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select state, tries, last_status from cograil.deliveries order by seq")


async def wait(
    harness: Harness, count: int, origin: str, tenant: str = "default", hours: float = 1.0
) -> None:
    """Insert this number of deliveries that have been due for this long."""
    await harness.rows(WAITING, origin=origin, count=count, tenant=tenant, hours=hours)


async def claim(harness: Harness, room: Room) -> list[store.Claimed]:
    async with harness.db.single("test") as tx:
        return await store.claim_deliveries(tx, room, 30.0)


async def test_a_relay_that_lost_its_claim_records_in_vain(harness: Harness) -> None:
    await harness.submit(HELLO, callback={"url": "http://127.0.0.1:9/", "events": ["job.created"]})
    async with harness.db.transaction("test") as tx:
        assert (await fan_out(tx, 1)).deliveries == 1
    async with harness.db.single("test") as tx:
        (first,) = await store.claim_deliveries(tx, PLENTY, 0.0)
        (second,) = await store.claim_deliveries(tx, PLENTY, 60.0)
        assert (first.delivery_id, first.body) == (second.delivery_id, second.body)
        assert await store.claim_deliveries(tx, PLENTY, 60.0) == []
        late = store.Tried(first.delivery_id, first.fence, "delivered", status=200)
        assert await store.record_deliveries(tx, [late], 30.0) == 0
        assert await states(harness) == [("pending", 2, None)]
        assert await store.record_deliveries(tx, [late._replace(fence=second.fence)], 30.0) == 1
    assert await states(harness) == [("delivered", 2, 200)]


async def test_one_relay_at_a_time_spreads_the_outbox(harness: Harness) -> None:
    """Else a later event of a job could become a delivery before an earlier one."""
    await harness.submit(HELLO, callback={"url": "http://127.0.0.1:9/"})
    async with harness.db.transaction("test") as first:
        assert (await fan_out(first, 1, limit=1)).deliveries == 1
        async with harness.db.transaction("test") as second:
            assert await fan_out(second, 1) == FanOutResult()
    async with harness.db.transaction("test") as tx:
        assert (await fan_out(tx, 1)).deliveries == 1
    await harness.rows("delete from cograil.deliveries")


async def test_a_claim_reads_by_index_whatever_waits_elsewhere(harness: Harness) -> None:
    await wait(harness, 20_000, "http://down:80")
    await wait(harness, 20, "http://up:80")
    text, names = native(statement("claim_deliveries").text)
    room = PLENTY._replace(lanes=[LaneRoom("http://down:80", 0, False)])
    values = {"lease": 30.0} | room.params()
    async with harness.db.transaction("test") as tx:
        cursor = AsyncRawCursor(tx.connection)
        explain = f"explain (analyze, format text, timing off) {text}"
        await cursor.execute(explain.encode(), [values[name] for name in names])
        plan = "\n".join(line for (line,) in await cursor.fetchall())
    assert "Seq Scan on deliveries" not in plan
    removed = [int(number) for number in re.findall(r"Rows Removed by Filter: (\d+)", plan)]
    assert max(removed, default=0) < 100, plan
    async with harness.db.single("test") as tx:
        claimed = await store.claim_deliveries(tx, room, 30.0)
    assert [delivery.origin for delivery in claimed] == ["http://up:80"] * 8
    await harness.rows("delete from cograil.deliveries")


def bodies(claimed: list[store.Claimed]) -> list[int]:
    return [int(delivery.body) for delivery in claimed]


async def test_with_an_event_come_those_that_follow_it(harness: Harness) -> None:
    """In their order, and to nobody else; but only to who has shown that it takes them."""
    await harness.rows(TALKING, jobs=1, events=6)
    assert bodies(await claim(harness, TALKED_TO)) == [1, 2, 3, 4]
    assert await claim(harness, TALKED_TO) == []
    await harness.rows("delete from cograil.deliveries where seq <= 4")
    assert bodies(await claim(harness, TALKED_TO._replace(lanes=[UP._replace(is_proven=False)]))) == [5]
    await harness.rows("delete from cograil.deliveries")


@pytest.mark.parametrize(
    "change",
    [
        "holds_until = now() + interval '1 h', not_before = now() + interval '1 h'",  # it failed
        "not_before = now() + interval '1 h'",
        "holds_until = now() - interval '1 h'",  # it failed a while ago: who comes first takes it
        "origin = 'http://elsewhere:80'",
    ],
)
async def test_following_deliveries_end_at_the_first_that_is_not_free(harness: Harness, change: str) -> None:
    await harness.rows(TALKING, jobs=1, events=6)
    await harness.rows(f"update cograil.deliveries set {change} where seq = 3")
    claimed = await claim(harness, TALKED_TO)
    assert bodies([delivery for delivery in claimed if delivery.origin == "http://up:80"]) == [1, 2]
    await harness.rows("delete from cograil.deliveries")


async def test_a_delivery_that_has_failed_before_has_no_followers(harness: Harness) -> None:
    """Another relay may have taken what follows: it did not have to wait any more."""
    await harness.rows(TALKING, jobs=1, events=3)
    await harness.rows("update cograil.deliveries set holds_until = now() + interval '1 s' where seq = 1")
    assert bodies(await claim(harness, TALKED_TO)) == [1]
    await harness.rows("delete from cograil.deliveries")


async def test_a_plan_made_while_there_was_nothing_serves_when_there_is_much(harness: Harness) -> None:
    """Claims of jobs that say much: joined, each waiting event was compared with all others, for seconds."""
    text, names = native(statement("claim_deliveries").text)
    values = {"lease": 30.0} | TALKED_TO.params()
    arguments = [values[name] for name in names]
    async with harness.db.transaction("test") as tx:
        cursor = AsyncRawCursor(tx.connection)
        for _ in range(8):
            await cursor.execute(text.encode(), arguments, prepare=True)
        await harness.rows(TALKING, jobs=10, events=200)
        before = await pages_read(cursor)
        await cursor.execute(text.encode(), arguments, prepare=True)
        assert len(await cursor.fetchall()) == 40
        read = await pages_read(cursor) - before
    assert read < 60_000, f"{read} pages for 2,000 deliveries"
    await harness.rows("delete from cograil.deliveries")


async def pages_read(cursor: AsyncRawCursor[Any]) -> int:
    """By this session, of deliveries and their indexes, as far as it has told."""
    await cursor.execute(
        "select pg_stat_get_xact_blocks_hit('cograil.deliveries'::regclass)"
        " + sum(pg_stat_get_xact_blocks_hit(indexrelid)) from pg_index"
        " where indrelid = 'cograil.deliveries'::regclass"
    )
    ((block_count,),) = await cursor.fetchall()
    return int(block_count)


async def test_tenants_take_turns_however_long_the_others_have_waited(harness: Harness) -> None:
    """At the same receiver, and at receivers of their own."""
    await wait(harness, 100, "http://shared:80", "greedy", hours=5)
    await wait(harness, 100, "http://greedy:80", "greedy", hours=5)
    await wait(harness, 3, "http://shared:80", "small")
    await wait(harness, 3, "http://small:80", "late", hours=0.1)
    lanes = [LaneRoom(f"http://{name}:80", 8, True) for name in ("shared", "greedy", "small")]
    claimed = await claim(harness, PLENTY._replace(limit=9, lanes=lanes))
    assert Counter(delivery.tenant_id for delivery in claimed) == {"greedy": 3, "small": 3, "late": 3}
    await harness.rows("delete from cograil.deliveries")


async def test_a_tenant_with_many_claims_waits_for_the_others_and_leaves_them_room(harness: Harness) -> None:
    for number in range(20):
        await wait(harness, 5, f"http://silent{number}:80", "greedy", hours=5)
    await wait(harness, 5, "http://fresh:80", "small")
    room = Room(limit=20, usual=1, most_fresh=6, room=20, fresh=3)
    claimed = await claim(harness, room._replace(tenants=[TenantRoom("greedy", 10, 20, 4)]))
    assert Counter(delivery.tenant_id for delivery in claimed) == {"greedy": 4, "small": 1}
    assert len({delivery.origin for delivery in claimed}) == 5, "one of each that has not taken anything yet"
    assert len(await claim(harness, room._replace(fresh=100))) == 6, "the sum of the shares"
    assert await claim(harness, room._replace(most_fresh=0)) == []
    await harness.rows("delete from cograil.deliveries")


async def test_a_door_submits_and_subscribes_in_its_role_and_sees_its_own_only(harness: Harness) -> None:
    """As the API does: in a role that owns nothing, bound to one tenant."""
    await harness.submit(HELLO, callback={"url": "http://127.0.0.1:9/"})
    policy = harness.settings.outbound
    async with harness.db.transaction("test") as tx:
        draft = await keep_draft(tx, read_workflow(HELLO), HELLO, "other")
        await tx.connection.execute(b"set local role cograil_server")
        await tx.connection.execute(b"select set_config('cograil.tenant', 'other', true)")
        submission = Submission(
            "hello", {}, definition_id=draft.definition_id, callback={"url": "http://127.0.0.1:9/"}
        )
        await submit(tx, harness.engine_context, [submission], "other")
        made = await outbox.subscribe(tx, "other", Receiver("http://127.0.0.1:9/"), policy)
        assert await outbox.tell(tx, "other", "a.b", "x", {})
        rows = await (await tx.connection.execute(b"select tenant_id from cograil.outbox")).fetchall()
        assert set(rows) == {("other",)}
        assert [
            subscription["subscription_id"] for subscription in await outbox.list_subscriptions(tx, "other")
        ] == [made["subscription_id"]]
        assert await outbox.list_subscriptions(tx, "default") == []
        assert await outbox.list_deliveries(tx, "other") == []
