"""Relays as real processes: killed at each of their points, and followed by another."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.acceptance.instances import Running, Start
from tests.support.harness import Harness, open_harness
from tests.support.webhook_receiver import (
    WebhookReceiver,
    http_response,
    open_receiver,
    relay_settings,
    run_relay,
)
from tests.torture.reachable import reachable_points

from cograil.verbs import outbox
from cograil.verbs.callback_targets import Receiver as Address

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world, params: {name: Ada}}\n"
HERE = {
    "COGRAIL_DATABASE__ALLOW_UNSAFE": "true",
    "COGRAIL_DATABASE__IDLE_IN_TRANSACTION_SECONDS": "0.5",
    "COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8",
    "COGRAIL_RELAY__PACE": "0.01",
    "COGRAIL_LOG__FORMAT": "json",
}
POINTS = [
    "spread.try_turn",
    "spread.take_outbox",
    "spread.load_subscriptions",
    "spread.insert_deliveries",
    "spread.commit.before",
    "spread.commit.after",
    "claim_deliveries.claim_deliveries",
    "claim_deliveries.commit.after",
    "relay.sent",
    "record_deliveries.record_deliveries",
    "record_deliveries.commit.after",
]
GONE_POINTS = [
    "record_gone.record_deliveries",
    "record_gone.lock_subscription",
    "record_gone.end_subscription",
    "record_gone.end_callback",
    "record_gone.insert_outbox",
    "record_gone.commit.before",
    "record_gone.commit.after",
]
# Not passed here: `load_related_jobs` only reads, for requests of the gateway; the others are for a row that
# cannot be told, which has a test in tests/database/test_sql_submit_checks.py.
NOT_HERE = {"spread.load_related_jobs", "spread.oldest_in_outbox", "spread.set_aside"}
AFTER_THE_POST = {
    "relay.sent",
    "record_deliveries.record_deliveries",
    *GONE_POINTS[:-1],
}


def test_no_point_of_a_relay_is_forgotten() -> None:
    transactions = {point.split(".")[0] for point in POINTS + GONE_POINTS}
    reachable = {point for point in reachable_points() if point.split(".")[0] in transactions}
    assert reachable == {*POINTS, *GONE_POINTS, *NOT_HERE}


@pytest.fixture
async def lab(dsn: str) -> AsyncIterator[Harness]:
    async with open_harness(dsn, relay_settings()) as lab:
        lab.engine_context.outbound = lab.settings.outbound
        yield lab


async def end_claims(lab: Harness) -> None:
    """What takes half a minute of silence otherwise."""
    await lab.rows(
        "update cograil.deliveries set not_before = now(), lease_until = null where lease_until is not null"
    )


async def unfinished(lab: Harness) -> int:
    query = """select (select count(*) from cograil.outbox)
                    + (select count(*) from cograil.deliveries where state = 'pending')"""
    return int((await lab.rows(query))[0][0])


async def died(relay: Running) -> bool:
    return relay.process.poll() == -signal.SIGKILL


async def killed_at(start: Start, eventually: Any, dsn: str, point: str) -> None:
    victim = start("relay", COGRAIL_DATABASE_URL=dsn, COGRAIL_FAULT=f"{point}:1:kill9", **HERE)
    await eventually(lambda: died(victim), timeout=30)


async def recovered(lab: Harness, eventually: Any) -> None:
    await end_claims(lab)
    async with run_relay(lab):

        async def is_over() -> bool:
            return await unfinished(lab) == 0

        await eventually(is_over, timeout=20)


@pytest.mark.timeout(240)
async def test_a_relay_that_is_killed_at_any_point_loses_nothing(
    start: Start, eventually: Any, dsn: str, lab: Harness
) -> None:
    for point in POINTS:
        async with open_receiver() as receiver:
            job_id = await lab.submit(HELLO, callback=receiver.callback())
            await killed_at(start, eventually, dsn, point)
            await recovered(lab, eventually)
        _check(receiver, job_id, point)


def _check(receiver: WebhookReceiver, job_id: str, point: str) -> None:
    kinds = list(dict.fromkeys(receiver.types(job_id)))
    assert kinds == ["cograil.job.created", "cograil.job.started"], point
    assert len({(request.event["id"], request.body) for request in receiver.requests}) == 2, point
    assert all(request.is_signed() for request in receiver.requests), point
    times = Counter(receiver.ids())
    assert max(times.values()) <= (2 if point in AFTER_THE_POST else 1), point
    assert (len(receiver.requests) == 3) is (point in AFTER_THE_POST), point


@pytest.mark.timeout(120)
async def test_deliveries_to_a_gone_receiver_end_wholly_or_not_at_all(
    start: Start, eventually: Any, dsn: str, lab: Harness
) -> None:
    for point in GONE_POINTS:
        async with open_receiver(lambda _: http_response(410)) as gone, open_receiver() as there:
            for receiver in (gone, there):
                async with lab.db.transaction("test") as tx:
                    policy = lab.settings.outbound
                    await outbox.subscribe(tx, "default", Address(receiver.url), policy)
            await lab.submit(HELLO, callback=gone.callback())
            await killed_at(start, eventually, dsn, point)
            await recovered(lab, eventually)
            kinds = [kind for kind, _ in set(zip(there.types(), there.ids(), strict=True))]  # some told twice
            assert kinds.count("cograil.subscription.disabled") == 1, point
            assert kinds.count("cograil.callback.disabled") == 1, point
            assert set(gone.types()) <= {"cograil.job.created", "cograil.callback.disabled"}, point
        active = await lab.rows("select url from cograil.subscriptions where disabled_at is null")
        assert active == [(there.url,)], point
        await lab.rows("delete from cograil.subscriptions")


async def test_another_relay_goes_on_when_one_is_killed_while_it_sends(
    start: Start, eventually: Any, dsn: str, lab: Harness
) -> None:
    async with open_receiver() as receiver:
        first = start("relay", COGRAIL_DATABASE_URL=dsn, **HERE)
        await eventually(first.is_ready, timeout=30)
        known = await lab.submit(
            HELLO, callback=receiver.callback()
        )  # then it is sent more than one at a time
        await eventually(lambda: len(receiver.types(known)) == 2)
        receiver.gate.clear()
        receiver.requests.clear()
        jobs = await lab.submit_many(HELLO, [{} for _ in range(20)], callback=receiver.callback())
        await eventually(lambda: len(receiver.requests) >= 8)
        second = start("relay", COGRAIL_DATABASE_URL=dsn, **HERE)
        await eventually(second.is_ready, timeout=30)
        first.send(signal.SIGKILL)
        first.ended()
        receiver.gate.set()
        await end_claims(lab)

        async def is_over() -> bool:
            return await unfinished(lab) == 0

        await eventually(is_over, timeout=20)
        second.send(signal.SIGTERM)
        assert await asyncio.to_thread(second.ended) == 0
    for job_id in jobs:
        kinds = list(dict.fromkeys(receiver.types(job_id)))
        assert kinds == ["cograil.job.created", "cograil.job.started"]
    assert len(set(receiver.ids())) == 40
    assert max(Counter(receiver.ids()).values()) <= 2


async def test_a_relay_answers_the_probes_and_ends_in_time(start: Start, eventually: Any, dsn: str) -> None:
    relay = start("relay", "--health-port", "0", COGRAIL_DATABASE_URL=dsn, **HERE)
    await eventually(relay.is_ready, timeout=30)
    relay.send(signal.SIGTERM)
    assert await asyncio.to_thread(relay.ended) == 0
    assert "stopped" in relay.events()
