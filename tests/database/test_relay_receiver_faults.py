"""What receivers can do to us: refuse, send elsewhere, lead elsewhere (F33 to F37 of the faults we name)."""

from __future__ import annotations

import ipaddress
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.webhook_receiver import (
    SECRET,
    http_response,
    open_receiver,
    relay_settings,
    respond_in_turn,
    run_relay,
)

from cograil.egress import PublicOnly
from cograil.egress.ssrf_guard import Address
from cograil.settings import OutboundSettings, Settings
from cograil.verbs import outbox
from cograil.verbs.callback_targets import Receiver

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world}\n"
CREATED = ["job.created"]
TO_CALLBACK = """
select state, last_error from cograil.deliveries where job_id = %(job)s::uuid and destination = 'callback'
"""


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


@pytest.fixture(autouse=True)
def callbacks_may_lead_here(harness: Harness) -> None:
    harness.engine_context.outbound = harness.settings.outbound


async def delivery(harness: Harness) -> tuple[Any, ...]:
    rows = await harness.rows("select state, tries, last_status, last_error from cograil.deliveries")
    return rows[0] if rows else ("none", 0, None, None)


async def is_tried(harness: Harness, state: str, tries: int, status: int) -> bool:
    return (await delivery(harness))[:3] == (state, tries, status)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 500, 502, 503])
async def test_a_refusal_of_any_kind_is_recorded_and_tried_again(
    harness: Harness, eventually: Any, status: int
) -> None:
    """F33, F34."""
    async with open_receiver(respond_in_turn(http_response(status), http_response(200))) as receiver:
        async with run_relay(harness, pace=100.0):
            await harness.submit(HELLO, callback=receiver.callback(events=CREATED))
            await eventually(lambda: is_tried(harness, "pending", 1, status))
        await harness.rows("update cograil.deliveries set not_before = now()")
        async with run_relay(harness):
            await eventually(lambda: is_tried(harness, "delivered", 2, 200))
    assert len({request.body for request in receiver.requests}) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("target", ["other", "http://169.254.169.254/", "http://10.0.0.5/"])
async def test_a_redirect_is_recorded_and_not_followed(
    harness: Harness, eventually: Any, status: int, target: str
) -> None:
    """F36, F37: also where the other host might be asked."""
    async with open_receiver() as other, open_receiver() as receiver:
        location = other.url if target == "other" else target
        receiver.script = respond_in_turn(http_response(status, Location=location))
        async with run_relay(harness, pace=100.0):
            await harness.submit(HELLO, callback=receiver.callback(events=CREATED))
            await eventually(lambda: is_tried(harness, "pending", 1, status))
        assert (len(receiver.requests), other.connections) == (1, 0)
        assert "redirect" in (await delivery(harness))[3]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_inside_is_blocked_three_times_and_then_dead(
    harness: Harness, eventually: Any, address: str
) -> None:
    """F37."""
    connected = []

    async def resolve(host: str, port: int) -> list[Address]:
        connected.append((host, port))
        return [ipaddress.ip_address(address)]

    async with (
        open_receiver() as receiver,
        run_relay(harness, PublicOnly(OutboundSettings(), resolve), pace=0.0001),
    ):
        callback = {"url": f"http://inside.test:{receiver.port}/hook", "events": CREATED}
        await harness.submit(HELLO, callback=callback)

        async def is_dead() -> bool:
            return bool((await delivery(harness))[0] == "dead")

        await eventually(is_dead)
        assert receiver.connections == 0
    state, tries, status, error = await delivery(harness)
    assert (state, tries, status, len(connected)) == ("dead", 3, None, 3)
    assert error.startswith("blocked (blocked_address)")


@pytest.mark.parametrize("tenant", ["default", "other"])
async def test_receivers_that_never_answer_hold_up_nobody(
    harness: Harness, eventually: Any, tenant: str
) -> None:
    """F32: neither those of another tenant nor the next one of theirs, of which nothing is known yet."""
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(open_receiver()) for _ in range(40)]
        healthy = await stack.enter_async_context(open_receiver())
        for receiver in silent:
            receiver.is_silent = True
            await harness.submit_many(HELLO, [{}] * 10, callback=receiver.callback(events=CREATED))
        await stack.enter_async_context(run_relay(harness, timeout_seconds=60))
        await eventually(lambda: sum(len(receiver.requests) for receiver in silent) >= 30)
        callback, begun = healthy.callback(events=CREATED), time.monotonic()
        await harness.submit_many(HELLO, [{}] * 20, callback=callback, tenant=tenant)
        await eventually(lambda: len(healthy.requests) == 20, timeout=3)
        assert time.monotonic() - begun < 3
        assert max(receiver.most_in_hand for receiver in silent) == 1
    await harness.rows("delete from cograil.deliveries")


@pytest.mark.parametrize("style", ["cloudevents", "platform"])
async def test_a_callback_that_is_gone_is_told_nothing_more_and_subscribers_hear_of_it(
    harness: Harness, eventually: Any, style: str
) -> None:
    """F35: what was on its way to it is dead, and so is what happens later; other jobs have their own."""
    async with (
        open_receiver(respond_in_turn(http_response(410))) as gone,
        open_receiver() as there,
        run_relay(harness),
    ):
        async with harness.db.transaction("test") as tx:
            receiver = Receiver(there.url, SECRET, style=style)
            await outbox.subscribe(tx, "default", receiver, harness.settings.outbound)
        job_id = await harness.submit(HELLO, callback=gone.callback(), correlation_id="request-7")
        await eventually(lambda: "cograil.callback.disabled" in there.types())
        async with harness.running():
            await harness.ended(job_id)
        await eventually(lambda: "cograil.job.completed" in there.types())
        assert len(gone.requests) == 1
        gone.script = respond_in_turn(http_response(200))
        await harness.submit(HELLO, callback=gone.callback(events=CREATED))
        await eventually(lambda: len(gone.requests) == 2)
    deliveries = await harness.rows(TO_CALLBACK, job=job_id)
    assert set(deliveries) <= {("dead", "gone"), ("dead", "the receiver answered 410 Gone")}
    assert 1 <= len(deliveries) <= 2, "of what it was told before it ended only"
    disabled = next(
        request.event for request in there.requests if request.event["type"] == "cograil.callback.disabled"
    )
    known = {"job_id": job_id} if style == "cloudevents" else {"request_id": "request-7"}
    assert disabled["data"] == known | {"reason": "the receiver answered 410 Gone"}
    assert disabled["subject"] in known.values()
