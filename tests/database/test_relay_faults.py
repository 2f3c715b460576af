"""A relay whose connection breaks at any of its points goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.webhook_receiver import open_receiver, relay_settings, run_relay

from cograil import fault_injection
from cograil.settings import Settings

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world}\n"
KINDS = ["cograil.job.created", "cograil.job.started"]
BROKEN = [
    *("spread.try_turn", "spread.take_outbox", "spread.load_subscriptions", "spread.insert_deliveries"),
    *("spread.commit.before", "claim_deliveries.claim_deliveries", "next_delivery.next_delivery"),
    *("record_deliveries.record_deliveries",),
]
UNKNOWN = ["spread.commit.after", "record_deliveries.commit.after"]


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


@pytest.fixture(autouse=True)
def disarmed(harness: Harness) -> Iterator[None]:
    harness.engine_context.outbound = harness.settings.outbound
    yield
    fault_injection.arm(None)


async def delivered(harness: Harness) -> bool:
    rows = await harness.rows("select count(*) from cograil.deliveries where state = 'delivered'")
    return rows == [(2,)]


@pytest.mark.parametrize(
    "fault",
    [*[f"{point}:1:raise" for point in BROKEN], *[f"{point}:1:commit_unknown" for point in UNKNOWN]],
)
async def test_a_broken_connection_costs_nothing_and_sends_nothing_twice(
    harness: Harness, eventually: Any, fault: str
) -> None:
    """What was answered is recorded when the database is back: the receiver is not asked again."""
    async with open_receiver() as receiver:
        await harness.submit(HELLO, callback=receiver.callback())
        fault_injection.arm(fault)
        async with run_relay(harness):
            await eventually(lambda: delivered(harness))
    assert receiver.types() == KINDS


async def test_an_answer_that_was_lost_on_the_way_is_followed_by_the_same_event(
    harness: Harness, eventually: Any
) -> None:
    async with open_receiver() as receiver:
        await harness.submit(HELLO, callback=receiver.callback())
        fault_injection.arm("relay.sent:1:raise")
        async with run_relay(harness):
            await eventually(lambda: delivered(harness))
    assert receiver.types() == [KINDS[0], *KINDS]
    assert len({(request.event["id"], request.body) for request in receiver.requests}) == 2


async def test_a_claim_whose_answer_was_lost_is_sent_when_it_is_over(
    harness: Harness, eventually: Any
) -> None:
    async with open_receiver() as receiver:
        await harness.submit(HELLO, callback=receiver.callback())
        fault_injection.arm("claim_deliveries.commit.after:1:commit_unknown")
        async with run_relay(harness):

            async def is_claimed() -> bool:
                query = "select count(*) from cograil.deliveries where lease_until is not null and tries = 1"
                ((count,),) = await harness.rows(query)
                return bool(count == 1)

            await eventually(is_claimed)
            assert receiver.requests == []
            await harness.rows("update cograil.deliveries set not_before = now(), lease_until = null")
            await eventually(lambda: delivered(harness), timeout=15)
    assert receiver.types() == KINDS
