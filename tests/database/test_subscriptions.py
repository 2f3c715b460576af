"""Who is told what happens to a tenant, and events of apps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.webhook_receiver import (
    ReceivedRequest,
    WebhookReceiver,
    http_response,
    open_receiver,
    relay_settings,
    respond_in_turn,
    run_relay,
)

from cograil.delivery.outbox_fan_out import fan_out
from cograil.errors import InvalidInput, SubscriptionNotFound
from cograil.model.ids import new_id
from cograil.settings import Settings
from cograil.verbs import outbox
from cograil.verbs.callback_targets import Receiver as Address

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world}\n"
OTHER = "workflow_id: other\nnodes:\n  greet: {handler: hello_world}\n"
ASK = "workflow_id: ask\nnodes:\n  may: {type: approval, approval: {message: May I?}}\n"
COMPLETED = "cograil.job.completed"


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


async def subscribe(
    harness: Harness, receiver: WebhookReceiver, tenant: str = "default", **more: Any
) -> dict[str, Any]:
    async with harness.db.transaction("test") as tx:
        address = Address(receiver.url)
        return await outbox.subscribe(tx, tenant, address, harness.settings.outbound, by="test", **more)


async def subscriptions(harness: Harness, tenant: str = "default") -> list[dict[str, Any]]:
    async with harness.db.transaction("test") as tx:
        return await outbox.list_subscriptions(tx, tenant)


async def counted(harness: Harness, state: str) -> int:
    rows = await harness.rows("select count(*) from cograil.deliveries where state = %(s)s", s=state)
    return int(rows[0][0])


async def test_a_subscriber_hears_what_it_asked_for_signed_with_its_secret(
    harness: Harness, eventually: Any
) -> None:
    async with open_receiver() as all_of_it, open_receiver() as some, harness.running(), run_relay(harness):
        made = await subscribe(harness, all_of_it)
        await subscribe(harness, some, types=["job.completed"], workflow_id="other")
        for text in (HELLO, OTHER):
            await harness.ended(await harness.submit(text))
        await eventually(lambda: (len(all_of_it.requests), len(some.requests)) == (6, 1))
        await eventually(lambda: counted(harness, "delivered"))
    assert all(request.is_signed(made["secret"]) for request in all_of_it.requests)
    (only,) = some.requests
    assert (only.event["type"], only.event["data"]["workflow_id"]) == (COMPLETED, "other")
    shown = await subscriptions(harness)
    assert [subscription["types"] for subscription in shown] == [[], [COMPLETED]]
    assert all("secret" not in subscription for subscription in shown)


async def test_a_tenant_hears_nothing_of_another(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as ours, open_receiver() as theirs:
        await subscribe(harness, ours)
        await subscribe(harness, theirs, "other")
        async with harness.db.transaction("test") as tx:  # both are spread at once
            await outbox.tell(tx, "default", "a.ours", "x", {})
            await outbox.tell(tx, "other", "a.theirs", "x", {})
        async with run_relay(harness):
            await eventually(lambda: ours.requests and theirs.requests)
    assert (ours.types(), theirs.types()) == (["a.ours"], ["a.theirs"])
    assert ours.requests[0].event["source"] == "/tenants/default"
    (other,) = await subscriptions(harness, "other")
    async with harness.db.transaction("test") as tx:
        with pytest.raises(SubscriptionNotFound):
            await outbox.unsubscribe(tx, "default", other["subscription_id"])


async def test_a_subscriber_that_is_gone_is_disabled_and_the_others_are_told(
    harness: Harness, eventually: Any
) -> None:
    async with (
        open_receiver(respond_in_turn(http_response(410))) as gone,
        open_receiver() as there,
        harness.running(),
        run_relay(harness),
    ):
        made = await subscribe(harness, gone)
        await subscribe(harness, there)
        await harness.ended(await harness.submit(HELLO))
        await eventually(lambda: "cograil.subscription.disabled" in there.types())
        assert len(gone.requests) == 1
        disabled = (await subscriptions(harness))[0]
        assert disabled["disabled_reason"] == "the receiver answered 410 Gone"
        notice = next(request.event for request in there.requests if "disabled" in request.event["type"])
        assert notice["data"]["subscription_id"] == notice["subject"] == made["subscription_id"]
        await harness.ended(await harness.submit(HELLO))
        await eventually(lambda: len(there.requests) == 7)
        assert len(gone.requests) == 1
        gone.script = respond_in_turn(http_response(200))
        async with harness.db.transaction("test") as tx:
            await outbox.enable_subscription(tx, "default", made["subscription_id"])
        await harness.ended(await harness.submit(HELLO))
        await eventually(lambda: len(gone.requests) == 4)


async def test_a_removed_subscription_takes_what_was_on_its_way_along(
    harness: Harness, eventually: Any
) -> None:
    async with (
        open_receiver(respond_in_turn(http_response(500))) as receiver,
        harness.running(),
        run_relay(harness, pace=1.0),
    ):
        made = await subscribe(harness, receiver)
        await harness.ended(await harness.submit(HELLO))
        await eventually(lambda: receiver.requests)
        async with harness.db.transaction("test") as tx:
            await outbox.unsubscribe(tx, "default", made["subscription_id"])
        assert await counted(harness, "pending") == 0
        await harness.ended(await harness.submit(HELLO))
    assert await harness.rows("select count(*) from cograil.outbox") == [(0,)]


A_DAY_LATER = """
update cograil.subscriptions set old_secrets = (
  select jsonb_agg(o || jsonb_build_object('until', (o ->> 'until')::timestamptz - interval '1 day'))
  from jsonb_array_elements(old_secrets) as o)
"""


async def rotate(harness: Harness, made: dict[str, Any], **more: Any) -> str:
    async with harness.db.transaction("test") as tx:
        done = await outbox.rotate_subscription(tx, "default", made["subscription_id"], **more)
    return str(done["secret"])


async def tell_once(harness: Harness, receiver: WebhookReceiver, eventually: Any) -> ReceivedRequest:
    """What the receiver is sent now."""
    count = len(receiver.requests)
    async with harness.db.transaction("test") as tx:
        assert await outbox.tell(tx, "default", "a.thing", "x", {})
    await eventually(lambda: len(receiver.requests) > count)
    return receiver.requests[-1]


async def test_both_secrets_sign_while_one_is_replaced_and_then_the_new_one_alone(
    harness: Harness, eventually: Any
) -> None:
    async with open_receiver() as receiver, run_relay(harness):
        made = await subscribe(harness, receiver)
        first = made["secret"]
        second = await rotate(harness, made)
        event = await tell_once(harness, receiver, eventually)
        assert [event.signature_of(second), event.signature_of(first)] == event.signatures
        assert event.is_signed(second)  # X-Signature-256 too
        third = await rotate(harness, made)
        event = await tell_once(harness, receiver, eventually)
        assert [event.signature_of(secret) for secret in (third, second, first)] == event.signatures
        await harness.rows(A_DAY_LATER)
        event = await tell_once(harness, receiver, eventually)
        assert [event.signature_of(third)] == event.signatures
        assert await harness.rows("select jsonb_array_length(old_secrets) from cograil.subscriptions") == [
            (2,)
        ]
        await rotate(harness, made, overlap_hours=0)
        assert await harness.rows("select jsonb_array_length(old_secrets) from cograil.subscriptions") == [
            (0,)
        ]


async def test_pending_deliveries_are_signed_with_the_current_secret(
    harness: Harness, eventually: Any
) -> None:
    """It may be sent days later, when its receiver has long forgotten the old one; the bytes stay."""
    async with open_receiver(respond_in_turn(http_response(500), http_response(200))) as receiver:
        made = await subscribe(harness, receiver)
        async with run_relay(harness, pace=100.0):
            await tell_once(harness, receiver, eventually)
            await eventually(
                lambda: harness.rows("select id from cograil.deliveries where last_status = 500")
            )
        new = await rotate(harness, made, overlap_hours=0)
        await harness.rows("update cograil.deliveries set not_before = now()")
        async with run_relay(harness):
            await eventually(lambda: len(receiver.requests) == 2)
    before, after = receiver.requests
    assert before.signatures == [before.signature_of(made["secret"])]
    assert after.is_signed(new)
    assert after.signatures == [after.signature_of(new)]
    assert (before.body, before.headers["webhook-id"]) == (after.body, after.headers["webhook-id"])


async def test_a_secret_that_no_receiver_could_check_is_refused(harness: Harness) -> None:
    async with open_receiver() as receiver:
        made = await subscribe(harness, receiver)
    for wrong in ({"secret": "short"}, {"secret": ""}, {"overlap_hours": 169}, {"overlap_hours": -1}):
        with pytest.raises(InvalidInput):
            await rotate(harness, made, **wrong)
    with pytest.raises(SubscriptionNotFound):
        await rotate(harness, {"subscription_id": new_id()})


async def test_an_approval_is_told_with_its_question(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        await subscribe(harness, receiver, types=["job.approval_requested"])
        job_id = await harness.submit(ASK)
        await eventually(lambda: receiver.requests)
        await harness.cancel(job_id)
    data = receiver.requests[0].event["data"]
    assert (data["node_id"], data["status"]) == ("may", "running")
    assert "May I?" in str(data["approval"])


async def test_a_subscription_that_is_removed_while_it_is_spread_to_leaves_nothing(harness: Harness) -> None:
    async with open_receiver() as receiver:
        made = await subscribe(harness, receiver)
    async with harness.db.transaction("test") as tx:
        await outbox.tell(tx, "default", "a.b", "x", {})

    async def remove() -> None:
        async with harness.db.transaction("test") as tx:
            await outbox.unsubscribe(tx, "default", made["subscription_id"])

    async with harness.db.transaction("test") as tx:
        assert (await fan_out(tx, 1)).deliveries == 1
        removing = asyncio.create_task(remove())
        done, _ = await asyncio.wait({removing}, timeout=0.2)
        assert not done, "it waits for the spread"
    await removing
    assert await counted(harness, "pending") == 0


# -- events of apps ---------------------------------------------------------------------------------------


async def test_an_app_tells_in_its_own_transaction_or_not_at_all(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as receiver, run_relay(harness):
        async with harness.db.transaction("test") as tx:
            assert not await outbox.tell(tx, "default", "captures.sealed", "c1", {})  # nobody listens
        await subscribe(harness, receiver, types=["captures.sealed"])
        async with harness.db.transaction("test") as tx:
            assert await outbox.tell(tx, "default", "captures.sealed", "c2", {"size": 2**53 + 1}, sequence=7)
            assert await outbox.tell(tx, "default", "captures.lost", "c3", {})
        await eventually(lambda: counted(harness, "delivered"))
    (request,) = receiver.requests
    event = request.event
    assert (event["type"], event["subject"], event["data"]) == ("captures.sealed", "c2", {"size": 2**53 + 1})
    assert (event["source"], int(event["sequence"])) == ("/tenants/default", 7)


@pytest.mark.parametrize(
    ("kind", "subject", "data"),
    [
        ("cograil.job.completed", "x", {}),
        ("sealed", "x", {}),
        ("A.b", "x", {}),
        ("a.b", "", {}),
        ("a.b", "x" * 257, {}),
        ("a.b", "x", {"x": "y" * 300_000}),
        ("a.b", "x", {"x": float("nan")}),
    ],
)
async def test_an_invalid_subscription_is_refused(
    harness: Harness, kind: str, subject: str, data: Any
) -> None:
    async with harness.db.transaction("test") as tx:
        with pytest.raises(InvalidInput):
            await outbox.tell(tx, "default", kind, subject, data)


async def test_old_deliveries_are_pruned_and_pending_ones_are_not(harness: Harness, eventually: Any) -> None:
    from cograil.store.outbox_queries import prune_deliveries

    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        await subscribe(harness, receiver)
        await harness.ended(await harness.submit(HELLO))
        await eventually(lambda: len(receiver.requests) == 3)
    await harness.rows(
        "update cograil.deliveries set state = 'pending', ended_at = null where type like '%%created'"
    )
    await harness.rows("update cograil.deliveries set state = 'dead' where type like '%%started'")
    await harness.rows(
        "update cograil.deliveries set ended_at = now() - interval '4 days' where ended_at is not null"
    )
    async with harness.db.single("test") as tx:
        assert await prune_deliveries(tx, 3, 30) == 1
        assert await prune_deliveries(tx, 3, 3.5) == 1
    assert await harness.rows("select state from cograil.deliveries") == [("pending",)]
