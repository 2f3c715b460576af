"""A relay whose connection breaks at any of its points goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lab import Lab
from receivers import receiving, relay_settings, relaying

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
def lab_settings() -> Settings:
    return relay_settings()


@pytest.fixture(autouse=True)
def disarmed(lab: Lab) -> Iterator[None]:
    lab.engine_context.outbound = lab.settings.outbound
    yield
    fault_injection.arm(None)


async def delivered(lab: Lab) -> bool:
    rows = await lab.rows("select count(*) from cograil.deliveries where state = 'delivered'")
    return rows == [(2,)]


@pytest.mark.parametrize(
    "fault",
    [*[f"{point}:1:raise" for point in BROKEN], *[f"{point}:1:commit_unknown" for point in UNKNOWN]],
)
async def test_a_broken_connection_costs_nothing_and_sends_nothing_twice(
    lab: Lab, eventually: Any, fault: str
) -> None:
    """What was answered is recorded when the database is back: the receiver is not asked again."""
    async with receiving() as receiver:
        await lab.submit(HELLO, callback=receiver.callback())
        fault_injection.arm(fault)
        async with relaying(lab):
            await eventually(lambda: delivered(lab))
    assert receiver.types() == KINDS


async def test_an_answer_that_was_lost_on_the_way_is_followed_by_the_same_event(
    lab: Lab, eventually: Any
) -> None:
    async with receiving() as receiver:
        await lab.submit(HELLO, callback=receiver.callback())
        fault_injection.arm("relay.sent:1:raise")
        async with relaying(lab):
            await eventually(lambda: delivered(lab))
    assert receiver.types() == [KINDS[0], *KINDS]
    assert len({(request.event["id"], request.body) for request in receiver.requests}) == 2


async def test_a_claim_whose_answer_was_lost_is_sent_when_it_is_over(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver:
        await lab.submit(HELLO, callback=receiver.callback())
        fault_injection.arm("claim_deliveries.commit.after:1:commit_unknown")
        async with relaying(lab):

            async def is_claimed() -> bool:
                query = "select count(*) from cograil.deliveries where lease_until is not null and tries = 1"
                return (await lab.rows(query))[0][0] == 1

            await eventually(is_claimed)
            assert receiver.requests == []
            await lab.rows("update cograil.deliveries set not_before = now(), lease_until = null")
            await eventually(lambda: delivered(lab), timeout=15)
    assert receiver.types() == KINDS
