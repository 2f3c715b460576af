"""Callbacks of requests from outside are signed, each with the secret of the key that made the request."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.api_client import ApiClient
from tests.support.harness import Harness
from tests.support.webhook_receiver import open_receiver, relay_settings, run_relay

from cograil import Context
from cograil.settings import Settings
from cograil.verbs.callback_secrets import secret_of_key
from cograil.verbs.key_management import split_key

FLOW = "workflow_id: w\nnodes:\n  inner: {handler: echo}\n"


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


async def secret_of(harness: Harness, key: str) -> str:
    parts = split_key(key)
    assert parts is not None
    async with harness.db.transaction("test") as tx:
        secret = await secret_of_key(tx, parts[0])
    assert secret is not None
    return secret


async def test_the_callback_of_a_request_is_signed_with_the_secret_of_its_key(
    api: ApiClient, eventually: Any
) -> None:
    harness = api.harness
    await harness.publish(FLOW)
    async with open_receiver() as receiver, harness.running(), run_relay(harness):

        async def ask(key: str) -> str:
            body = {"workflow_id": "w", "submitted_by": "shop", "request_id": str(uuid4())}
            answer = await api.post("/api/v1/submit", body | {"callback_url": receiver.url}, key=key)
            assert answer.status == 202, answer.raw
            return body["request_id"]

        unsigned = await ask("")
        keys = [await api.make_key("gateway", name=name) for name in ("shop", "bank")]
        request_keys = {await ask(key): key for key in keys}
        await eventually(lambda: len(receiver.requests) == 9)
    secrets = {key: await secret_of(harness, key) for key in keys}
    assert len(set(secrets.values())) == 2
    for request in receiver.requests:
        event = request.event
        if event["subject"] == unsigned:
            assert "webhook-signature" not in request.headers
            continue
        own = request_keys[event["subject"]]
        assert [request.is_signed(secrets[key]) for key in keys] == [key == own for key in keys]
        assert not any(secret in request.body.decode() for secret in secrets.values())


async def gossiping(ctx: Context) -> dict[str, Any]:
    """Tells of its node, and of what it can name."""
    named = {
        "job_id": ctx.job_id,
        "node_id": ctx.node_id,
        "text": f"{ctx.job_id} did it",
        "number": 2**53 + 1,
    }
    await ctx.tell("shop.counted", named)
    await ctx.tell("shop.shipped", {"parcel": "p-7"}, subject="p-7")
    return {}


async def test_a_handler_event_says_nothing_of_jobs_to_the_platform(api: ApiClient, eventually: Any) -> None:
    harness = api.harness
    harness.registry.register(gossiping)
    await harness.publish(FLOW.replace("echo", "gossiping"))
    request = str(uuid4())
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        body = {"workflow_id": "w", "submitted_by": "shop", "request_id": request}
        answer = await api.post("/api/v1/submit", body | {"callback_url": receiver.url})
        await eventually(lambda: len(receiver.requests) == 5)
    events = {sent.event["type"]: sent.event for sent in receiver.requests if "shop." in sent.event["type"]}
    counted, shipped = events["shop.counted"], events["shop.shipped"]
    assert (counted["subject"], shipped["subject"]) == (request, "p-7")
    assert counted["data"] == {"text": f"{request} did it", "number": 2**53 + 1}
    assert shipped["data"] == {"parcel": "p-7"}
    for sent in receiver.requests:
        assert answer.body["job_id"] not in sent.body.decode()
        assert "inner" not in sent.body.decode().replace('"result":{"inner":', "")


async def test_the_gateway_cannot_read_what_the_secrets_are_made_of(api: ApiClient, dsn: str) -> None:
    reader = make_conninfo(dsn, options="-c role=cograil_gateway")
    with psycopg.connect(reader) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("select value from cograil.door_secrets")
    ((kept,),) = await api.harness.rows("select count(*) from cograil.door_secrets where name = 'callback'")
    assert kept == 1
