"""Who is told what happens to a tenant, and events of apps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import Lab
from receivers import Receiver, Request, answer, receiving, relay_settings, relaying, script_of

from cograil.delivery.outbox_fan_out import spread
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
def lab_settings() -> Settings:
    return relay_settings()


async def subscribe(lab: Lab, receiver: Receiver, tenant: str = "default", **more: Any) -> dict[str, Any]:
    async with lab.db.transaction("test") as tx:
        address = Address(receiver.url)
        return await outbox.subscribe(tx, tenant, address, lab.settings.outbound, by="test", **more)


async def subscriptions(lab: Lab, tenant: str = "default") -> list[dict[str, Any]]:
    async with lab.db.transaction("test") as tx:
        return await outbox.list_subscriptions(tx, tenant)


async def counted(lab: Lab, state: str) -> int:
    rows = await lab.rows("select count(*) from cograil.deliveries where state = %(s)s", s=state)
    return int(rows[0][0])


async def test_a_subscriber_hears_what_it_asked_for_signed_with_its_secret(lab: Lab, eventually: Any) -> None:
    async with receiving() as all_of_it, receiving() as some, lab.running(), relaying(lab):
        made = await subscribe(lab, all_of_it)
        await subscribe(lab, some, types=["job.completed"], workflow_id="other")
        for text in (HELLO, OTHER):
            await lab.ended(await lab.submit(text))
        await eventually(lambda: (len(all_of_it.requests), len(some.requests)) == (6, 1))
        await eventually(lambda: counted(lab, "delivered"))
    assert all(request.is_signed(made["secret"]) for request in all_of_it.requests)
    (only,) = some.requests
    assert (only.event["type"], only.event["data"]["workflow_id"]) == (COMPLETED, "other")
    shown = await subscriptions(lab)
    assert [subscription["types"] for subscription in shown] == [[], [COMPLETED]]
    assert all("secret" not in subscription for subscription in shown)


async def test_a_tenant_hears_nothing_of_another(lab: Lab, eventually: Any) -> None:
    async with receiving() as ours, receiving() as theirs:
        await subscribe(lab, ours)
        await subscribe(lab, theirs, "other")
        async with lab.db.transaction("test") as tx:  # both are spread at once
            await outbox.tell(tx, "default", "a.ours", "x", {})
            await outbox.tell(tx, "other", "a.theirs", "x", {})
        async with relaying(lab):
            await eventually(lambda: ours.requests and theirs.requests)
    assert (ours.types(), theirs.types()) == (["a.ours"], ["a.theirs"])
    assert ours.requests[0].event["source"] == "/tenants/default"
    (other,) = await subscriptions(lab, "other")
    async with lab.db.transaction("test") as tx:
        with pytest.raises(SubscriptionNotFound):
            await outbox.unsubscribe(tx, "default", other["subscription_id"])


async def test_a_subscriber_that_is_gone_is_disabled_and_the_others_are_told(
    lab: Lab, eventually: Any
) -> None:
    async with receiving(script_of(answer(410))) as gone, receiving() as there, lab.running(), relaying(lab):
        made = await subscribe(lab, gone)
        await subscribe(lab, there)
        await lab.ended(await lab.submit(HELLO))
        await eventually(lambda: "cograil.subscription.disabled" in there.types())
        assert len(gone.requests) == 1
        disabled = (await subscriptions(lab))[0]
        assert disabled["disabled_reason"] == "the receiver answered 410 Gone"
        notice = next(request.event for request in there.requests if "disabled" in request.event["type"])
        assert notice["data"]["subscription_id"] == notice["subject"] == made["subscription_id"]
        await lab.ended(await lab.submit(HELLO))
        await eventually(lambda: len(there.requests) == 7)
        assert len(gone.requests) == 1
        gone.script = script_of(answer(200))
        async with lab.db.transaction("test") as tx:
            await outbox.enable_subscription(tx, "default", made["subscription_id"])
        await lab.ended(await lab.submit(HELLO))
        await eventually(lambda: len(gone.requests) == 4)


async def test_a_removed_subscription_takes_what_was_on_its_way_along(lab: Lab, eventually: Any) -> None:
    async with receiving(script_of(answer(500))) as receiver, lab.running(), relaying(lab, pace=1.0):
        made = await subscribe(lab, receiver)
        await lab.ended(await lab.submit(HELLO))
        await eventually(lambda: receiver.requests)
        async with lab.db.transaction("test") as tx:
            await outbox.unsubscribe(tx, "default", made["subscription_id"])
        assert await counted(lab, "pending") == 0
        await lab.ended(await lab.submit(HELLO))
    assert await lab.rows("select count(*) from cograil.outbox") == [(0,)]


A_DAY_LATER = """
update cograil.subscriptions set old_secrets = (
  select jsonb_agg(o || jsonb_build_object('until', (o ->> 'until')::timestamptz - interval '1 day'))
  from jsonb_array_elements(old_secrets) as o)
"""


async def rotate(lab: Lab, made: dict[str, Any], **more: Any) -> str:
    async with lab.db.transaction("test") as tx:
        done = await outbox.rotate_subscription(tx, "default", made["subscription_id"], **more)
    return str(done["secret"])


async def tell_once(lab: Lab, receiver: Receiver, eventually: Any) -> Request:
    """What the receiver is sent now."""
    count = len(receiver.requests)
    async with lab.db.transaction("test") as tx:
        assert await outbox.tell(tx, "default", "a.thing", "x", {})
    await eventually(lambda: len(receiver.requests) > count)
    return receiver.requests[-1]


async def test_both_secrets_sign_while_one_is_replaced_and_then_the_new_one_alone(
    lab: Lab, eventually: Any
) -> None:
    async with receiving() as receiver, relaying(lab):
        made = await subscribe(lab, receiver)
        first = made["secret"]
        second = await rotate(lab, made)
        event = await tell_once(lab, receiver, eventually)
        assert [event.signature_of(second), event.signature_of(first)] == event.signatures
        assert event.is_signed(second)  # X-Signature-256 too
        third = await rotate(lab, made)
        event = await tell_once(lab, receiver, eventually)
        assert [event.signature_of(secret) for secret in (third, second, first)] == event.signatures
        await lab.rows(A_DAY_LATER)
        event = await tell_once(lab, receiver, eventually)
        assert [event.signature_of(third)] == event.signatures
        assert await lab.rows("select jsonb_array_length(old_secrets) from cograil.subscriptions") == [(2,)]
        await rotate(lab, made, overlap_hours=0)
        assert await lab.rows("select jsonb_array_length(old_secrets) from cograil.subscriptions") == [(0,)]


async def test_what_is_on_its_way_is_signed_with_the_secret_of_the_day(lab: Lab, eventually: Any) -> None:
    """It may be sent days later, when its receiver has long forgotten the old one; the bytes stay."""
    async with receiving(script_of(answer(500), answer(200))) as receiver:
        made = await subscribe(lab, receiver)
        async with relaying(lab, pace=100.0):
            await tell_once(lab, receiver, eventually)
            await eventually(lambda: lab.rows("select id from cograil.deliveries where last_status = 500"))
        new = await rotate(lab, made, overlap_hours=0)
        await lab.rows("update cograil.deliveries set not_before = now()")
        async with relaying(lab):
            await eventually(lambda: len(receiver.requests) == 2)
    before, after = receiver.requests
    assert before.signatures == [before.signature_of(made["secret"])]
    assert after.is_signed(new)
    assert after.signatures == [after.signature_of(new)]
    assert (before.body, before.headers["webhook-id"]) == (after.body, after.headers["webhook-id"])


async def test_a_secret_that_no_receiver_could_check_is_refused(lab: Lab) -> None:
    async with receiving() as receiver:
        made = await subscribe(lab, receiver)
    for wrong in ({"secret": "short"}, {"secret": ""}, {"overlap_hours": 169}, {"overlap_hours": -1}):
        with pytest.raises(InvalidInput):
            await rotate(lab, made, **wrong)
    with pytest.raises(SubscriptionNotFound):
        await rotate(lab, {"subscription_id": new_id()})


async def test_an_approval_is_told_with_its_question(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver, lab.running(), relaying(lab):
        await subscribe(lab, receiver, types=["job.approval_requested"])
        job_id = await lab.submit(ASK)
        await eventually(lambda: receiver.requests)
        await lab.cancel(job_id)
    data = receiver.requests[0].event["data"]
    assert (data["node_id"], data["status"]) == ("may", "running")
    assert "May I?" in str(data["approval"])


async def test_a_subscription_that_is_removed_while_it_is_spread_to_leaves_nothing(lab: Lab) -> None:
    async with receiving() as receiver:
        made = await subscribe(lab, receiver)
    async with lab.db.transaction("test") as tx:
        await outbox.tell(tx, "default", "a.b", "x", {})

    async def remove() -> None:
        async with lab.db.transaction("test") as tx:
            await outbox.unsubscribe(tx, "default", made["subscription_id"])

    async with lab.db.transaction("test") as tx:
        assert (await spread(tx, 1)).deliveries == 1
        removing = asyncio.create_task(remove())
        done, _ = await asyncio.wait({removing}, timeout=0.2)
        assert not done, "it waits for the spread"
    await removing
    assert await counted(lab, "pending") == 0


# -- events of apps ---------------------------------------------------------------------------------------


async def test_an_app_tells_in_its_own_transaction_or_not_at_all(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver, relaying(lab):
        async with lab.db.transaction("test") as tx:
            assert not await outbox.tell(tx, "default", "captures.sealed", "c1", {})  # nobody listens
        await subscribe(lab, receiver, types=["captures.sealed"])
        async with lab.db.transaction("test") as tx:
            assert await outbox.tell(tx, "default", "captures.sealed", "c2", {"size": 2**53 + 1}, sequence=7)
            assert await outbox.tell(tx, "default", "captures.lost", "c3", {})
        await eventually(lambda: counted(lab, "delivered"))
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
async def test_what_cannot_be_told_is_refused(lab: Lab, kind: str, subject: str, data: Any) -> None:
    async with lab.db.transaction("test") as tx:
        with pytest.raises(InvalidInput):
            await outbox.tell(tx, "default", kind, subject, data)


async def test_what_ended_long_ago_is_forgotten_and_what_waits_is_not(lab: Lab, eventually: Any) -> None:
    from cograil.store.outbox_queries import prune_deliveries

    async with receiving() as receiver, lab.running(), relaying(lab):
        await subscribe(lab, receiver)
        await lab.ended(await lab.submit(HELLO))
        await eventually(lambda: len(receiver.requests) == 3)
    await lab.rows(
        "update cograil.deliveries set state = 'pending', ended_at = null where type like '%%created'"
    )
    await lab.rows("update cograil.deliveries set state = 'dead' where type like '%%started'")
    await lab.rows(
        "update cograil.deliveries set ended_at = now() - interval '4 days' where ended_at is not null"
    )
    async with lab.db.single("test") as tx:
        assert await prune_deliveries(tx, 3, 30) == 1
        assert await prune_deliveries(tx, 3, 3.5) == 1
    assert await lab.rows("select state from cograil.deliveries") == [("pending",)]
