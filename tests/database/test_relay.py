"""What a relay promises: everything arrives, in order, with the same id and the same bytes on every try."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import hmac
import os
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.webhook_receiver import (
    SECRET,
    WebhookReceiver,
    http_response,
    open_receiver,
    relay_settings,
    respond_in_turn,
    run_relay,
)

from cograil.delivery.circuit_breaker import FAILURES
from cograil.errors import Conflict, DeliveryNotFound, InvalidInput
from cograil.settings import OutboundSettings, Settings
from cograil.verbs import outbox
from cograil.verbs.submit import Submission, submit

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world, params: {name: Ada}}\n"
BROKEN = """
workflow_id: broken
nodes:
  wrong: {handler: fail, params: {error_message: it broke}, retry: {max_attempts: 1}}
"""
ALL = ["cograil.job.created", "cograil.job.started", "cograil.job.completed"]


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


@pytest.fixture(autouse=True)
def callbacks_may_lead_here(harness: Harness) -> None:
    harness.engine_context.outbound = harness.settings.outbound


async def states(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select state, tries, last_status from cograil.deliveries order by seq")


async def test_a_job_with_a_callback_is_told_signed_and_in_order(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        job_id = await harness.submit(HELLO, callback=receiver.callback(headers={"X-Own": "mine"}))
        await harness.ended(job_id)
        await eventually(lambda: len(receiver.requests) == 3)
        await eventually(lambda: delivered(harness, 3))
    assert receiver.types() == ALL
    for request in receiver.requests:
        assert request.is_signed()
        assert request.headers["content-type"] == "application/cloudevents+json"
        assert request.headers["webhook-id"] == request.event["id"]
        assert request.headers["x-own"] == "mine"
        assert (request.event["specversion"], request.event["subject"]) == ("1.0", job_id)
        assert request.event["source"] == "/tenants/default/workflows/hello"
    sequences = [request.event["sequence"] for request in receiver.requests]
    assert sequences == sorted(sequences)
    assert [int(sequence) for sequence in sequences] == sorted({int(sequence) for sequence in sequences})
    last = receiver.requests[-1].event["data"]
    assert (last["job_id"], last["status"], last["error"]) == (job_id, "completed", None)
    assert "Hello, Ada!" in str(last["result"])
    assert receiver.requests[0].event["data"]["status"] == "pending"
    assert receiver.requests[0].event["data"]["result"] is None


async def delivered(harness: Harness, count: int) -> bool:
    rows = await harness.rows("select count(*) from cograil.deliveries where state = 'delivered'")
    return rows == [(count,)]


async def test_no_event_is_kept_when_nobody_subscribes(harness: Harness) -> None:
    async with harness.running():
        await harness.ended(await harness.submit(HELLO))
    assert await harness.rows("select count(*) from cograil.outbox") == [(0,)]


async def test_the_outbox_row_commits_with_the_move_or_not_at_all(harness: Harness) -> None:
    callback = {"url": "http://127.0.0.1:9/"}
    await harness.submit(HELLO, callback=callback)
    before = await harness.rows("select type from cograil.outbox order by id")
    assert before == [("cograil.job.created",), ("cograil.job.started",)]
    with contextlib.suppress(ZeroDivisionError):
        async with harness.db.transaction("test") as tx:
            await submit(
                tx, harness.engine_context, [Submission("hello", {}, definition_id=1, callback=callback)]
            )
            raise ZeroDivisionError
    assert await harness.rows("select type from cograil.outbox order by id") == before
    await harness.rows("delete from cograil.outbox")


async def test_only_the_events_that_were_asked_for_are_sent(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        wanted = receiver.callback(events=["job.failed", "job_completed"])
        for text in (HELLO, BROKEN):
            await harness.ended(await harness.submit(text, callback=wanted))
        await eventually(lambda: delivered(harness, 2))
    assert sorted(receiver.types()) == ["cograil.job.completed", "cograil.job.failed"]
    failed = next(request.event["data"] for request in receiver.requests if "failed" in request.event["type"])
    assert "it broke" in str(failed["error"])


@pytest.mark.parametrize(
    "refusal",
    [
        http_response(500),
        http_response(404),
        http_response(302, Location="http://127.0.0.1:1/"),
        http_response(429, Retry_After="0"),
        http_response(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
        b"HTTP/1.1 200 OK\r\nContent-Len",  # cut in the middle of its headers
        b"",
        b"hello\r\n",  # HTTP/0.9
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 200) for n in range(1000)) + b"\r\n",
    ],
    ids=["500", "404", "302", "429", "503", "truncated", "closed", "0.9", "headers"],
)
async def test_a_refused_event_is_sent_again_with_the_same_id_and_bytes(
    harness: Harness, eventually: Any, refusal: bytes
) -> None:
    script = respond_in_turn(
        refusal, http_response(204)
    )  # the pauses before later tries are longer, and tested by themselves
    async with open_receiver(script) as receiver, harness.running(), run_relay(harness, pace=0.1):
        job_id = await harness.submit(HELLO, callback=receiver.callback())
        await harness.ended(job_id)
        await eventually(lambda: delivered(harness, 3))
    assert receiver.types()[:2] == [ALL[0]] * 2
    assert by_sequence(receiver, job_id) == ALL
    assert (
        len({(request.event["id"], request.body) for request in receiver.requests})
        == 3
        == len(receiver.requests) - 1
    )
    assert all(request.is_signed() for request in receiver.requests)
    assert (await states(harness))[0] == ("delivered", 2, 204)


async def test_an_event_that_is_taken_at_the_second_try_is_still_the_first(
    harness: Harness, eventually: Any
) -> None:
    script = respond_in_turn(http_response(500), http_response(200))
    async with open_receiver(script) as receiver, harness.running(), run_relay(harness, pace=0.1):
        await harness.ended(await harness.submit(HELLO, callback=receiver.callback()))
        await eventually(lambda: delivered(harness, 3))
    assert receiver.types() == [ALL[0], *ALL]


@pytest.mark.parametrize("kind", ["endless", "packed without end", "bomb"])
async def test_an_answer_without_end_is_cut_off_and_no_answer(
    harness: Harness, eventually: Any, kind: str
) -> None:
    """B137, which says more of it than F38b: a receiver that answers so has not understood the request."""
    packed = gzip.compress(bytes(10_000_000))
    encoding, length = ("identity", 10**10) if kind == "endless" else ("gzip", 10**10)
    if kind == "bomb":
        length = len(packed)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n".encode()
    response = head + packed if kind == "bomb" else head
    async with open_receiver(lambda _: response) as receiver, harness.running(), run_relay(harness, pace=0.1):
        if kind != "bomb":
            receiver.endless = os.urandom(65536) if kind == "endless" else packed
        await harness.ended(await harness.submit(HELLO, callback=receiver.callback(events=["job.completed"])))
        await eventually(lambda: is_refused(harness))
        await eventually(lambda: receiver.open_now == 0)
        receiver.script, receiver.endless = respond_in_turn(http_response(200)), b""
        await eventually(lambda: delivered(harness, 1))


async def is_refused(harness: Harness) -> bool:
    query = "select 1 from cograil.deliveries where last_error = 'answered 200 with more than 64 KiB'"
    return bool(await harness.rows(query))


async def test_a_receiver_that_never_answers_costs_one_timeout_and_harms_nobody_else(
    harness: Harness, eventually: Any
) -> None:
    async with (
        open_receiver() as slow,
        open_receiver() as quick,
        harness.running(),
        run_relay(harness, timeout_seconds=0.5, per_destination=2),
    ):
        slow.is_silent = True
        for _ in range(5):
            await harness.submit(HELLO, callback=slow.callback(events=["job.completed"]))
        await eventually(lambda: len(slow.requests) >= 2)
        await harness.ended(await harness.submit(HELLO, callback=quick.callback()))
        await eventually(lambda: len(quick.requests) == 3, timeout=2)
        await eventually(lambda: failed_once(harness))
        assert slow.most_in_hand <= 2
        slow.is_silent = False
        await eventually(lambda: delivered(harness, 8), timeout=20)
    assert len(set(slow.ids())) == 5


async def failed_once(harness: Harness) -> bool:
    query = "select count(*) from cograil.deliveries where last_error like 'no complete response within%%'"
    ((count,),) = await harness.rows(query)
    return bool(count > 0)


async def test_a_receiver_that_was_down_gets_all_of_it_in_order(harness: Harness, eventually: Any) -> None:
    """As after an hour: pauses are a thousandth, and the breaker opens and closes on the way."""
    async with open_receiver() as receiver:
        port = receiver.port
    callback = receiver.callback()
    async with harness.running(), run_relay(harness, pace=0.001):
        jobs = [await harness.submit(HELLO, callback=callback) for _ in range(20)]
        for job_id in jobs:
            await harness.ended(job_id)
        await eventually(lambda: tried(harness, 3))
        async with open_receiver(port=port) as back:
            await eventually(lambda: delivered(harness, 60), timeout=30)
    assert len(set(back.ids())) == len(back.requests) == 60
    assert [by_sequence(back, job_id) for job_id in jobs] == [ALL] * 20


def by_sequence(receiver: WebhookReceiver, job_id: str) -> list[str]:
    """What a receiver heard of a job, each once, as the numbers of the events order it.

    In pauses this short one overtakes another: the number is what tells them apart.
    """
    heard = [request.event for request in receiver.requests if request.event["data"].get("job_id") == job_id]
    numbered = {event["sequence"]: event["type"] for event in heard}
    assert all(len(number) == 10 for number in numbered)
    assert len(numbered) == len({event["id"] for event in heard})
    return [numbered[number] for number in sorted(numbered)]


async def tried(harness: Harness, times: int) -> bool:
    ((tries,),) = await harness.rows("select max(tries) from cograil.deliveries")
    return bool(tries >= times)


async def test_a_failing_event_holds_the_later_ones_of_its_job_for_a_while_only(
    harness: Harness, eventually: Any
) -> None:
    def script(request: Any) -> bytes:
        return http_response(500 if request.event["type"] == ALL[0] else 200)

    async with (
        open_receiver(script) as receiver,
        harness.running(),
        run_relay(harness, pace=0.02),
    ):  # 30 s are 0.6 s
        await harness.ended(await harness.submit(HELLO, callback=receiver.callback()))
        await eventually(lambda: delivered(harness, 2))
        first = receiver.requests[0].at
        later = [request.at for request in receiver.requests if request.event["type"] != ALL[0]]
        assert min(later) - first >= 0.5
        assert [event_type for event_type in receiver.types() if event_type != ALL[0]] == ALL[1:]
        assert (await states(harness))[0][0] == "pending"
    await harness.rows("delete from cograil.deliveries where state = 'pending'")


async def test_the_events_of_a_job_go_one_at_a_time(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as receiver, harness.running(), run_relay(harness), run_relay(harness):
        receiver.gate.clear()
        await harness.ended(await harness.submit(HELLO, callback=receiver.callback()))
        await eventually(lambda: len(receiver.requests) == 1)
        await asyncio.sleep(0.1)  # nothing more may come; no event tells of that
        assert receiver.types() == ALL[:1]
        receiver.gate.set()
        await eventually(lambda: delivered(harness, 3))
    assert receiver.most_in_hand == 1
    assert receiver.types() == ALL


async def test_events_claimed_together_wait_behind_one_that_fails(harness: Harness, eventually: Any) -> None:
    """Many events of a job come in one claim: none is sent before the one that failed, and none was tried."""
    failed: list[str] = []

    def script(request: Any) -> bytes:
        is_refused = request.event["data"] == {"n": 20} and not failed
        failed.extend([request.event["id"]] if is_refused else [])
        return http_response(500 if is_refused else 200)

    async with open_receiver(script) as receiver, run_relay(harness):
        job = await harness.submit(
            HELLO, callback=receiver.callback(events=["job.created", "cograil.counted"])
        )
        await harness.rows(COUNTED, job=job)
        await eventually(lambda: delivered(harness, 41), timeout=30)
    taken = [
        request.event["data"]["n"]
        for request in receiver.requests
        if request.event["type"] == "cograil.counted"
    ]
    assert taken == [*range(1, 21), *range(20, 41)]
    assert receiver.most_in_hand == 1
    tries = await harness.rows("select tries, count(*) from cograil.deliveries group by tries order by tries")
    assert tries == [(1, 40), (2, 1)]


COUNTED = """
insert into cograil.outbox (job_id, seq, type, subject, data)
select %(job)s::uuid, 1000 + n, 'cograil.counted', %(job)s, json_build_object('n', n)
from generate_series(1, 40) n
"""


async def test_two_relays_send_nothing_twice(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as receiver, harness.running(), run_relay(harness), run_relay(harness):
        ids = await harness.submit_many(HELLO, [{} for _ in range(50)], callback=receiver.callback())
        await eventually(lambda: delivered(harness, 150), timeout=30)
    assert len(set(receiver.ids())) == len(receiver.requests) == 150
    assert all(receiver.types(job_id) == ALL for job_id in ids)


async def test_retry_after_is_honoured(harness: Harness, eventually: Any) -> None:
    script = respond_in_turn(http_response(429, Retry_After="1"), http_response(200))
    async with open_receiver(script) as receiver, harness.running(), run_relay(harness):
        await harness.ended(await harness.submit(HELLO, callback=receiver.callback(events=["job.created"])))
        await eventually(lambda: delivered(harness, 1))
    first, second = receiver.requests
    assert second.at - first.at >= 0.95


async def test_an_event_undelivered_for_days_is_a_dead_letter_and_can_be_sent_again(
    harness: Harness, eventually: Any
) -> None:
    async with (
        open_receiver(respond_in_turn(http_response(500))) as receiver,
        harness.running(),
        run_relay(harness, give_up_hours=0.0001),
    ):
        await harness.ended(await harness.submit(HELLO, callback=receiver.callback(events=["job.completed"])))
        await eventually(lambda: in_state(harness, "dead"))
        sent = receiver.requests[0]
        receiver.script = respond_in_turn(http_response(200))
        async with harness.db.transaction("test") as tx:
            (dead,) = await outbox.list_deliveries(tx, "default", state="dead")
            assert (dead["last_status"], dead["destination"]) == (500, "callback")
            with pytest.raises(DeliveryNotFound):
                await outbox.resend(tx, "other", dead["delivery_id"])
            again = await outbox.resend(tx, "default", dead["delivery_id"])
            assert (again["state"], again["tries"]) == ("pending", 0)
            with pytest.raises(Conflict):
                await outbox.resend(tx, "default", dead["delivery_id"])
        await eventually(lambda: delivered(harness, 1))
    assert receiver.requests[-1].body == sent.body
    assert receiver.requests[-1].headers["webhook-id"] == sent.headers["webhook-id"]


async def in_state(harness: Harness, state: str) -> bool:
    rows = await harness.rows("select count(*) from cograil.deliveries where state = %(s)s", s=state)
    return bool(rows[0][0])


async def test_a_refusal_is_final_for_callbacks_of_the_orchestrator_style(
    harness: Harness, eventually: Any
) -> None:
    async with (
        open_receiver(respond_in_turn(http_response(404))) as receiver,
        harness.running(),
        run_relay(harness),
    ):
        own = {"url": receiver.url, "secret": "k\u00e9y", "style": "orchestrator", "events": ["job.created"]}
        await harness.ended(await harness.submit(HELLO, callback=own))
        await eventually(lambda: in_state(harness, "dead"))
    (request,) = receiver.requests
    digest = hmac.new("k\u00e9y".encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-signature-256"] == f"sha256={digest}"
    assert request.headers["ce-id"] == request.event["id"]
    assert "webhook-signature" not in request.headers


async def test_a_platform_callback_knows_no_job_id(harness: Harness, eventually: Any) -> None:
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        own = receiver.callback(style="platform")
        job_id = await harness.submit(HELLO, callback=own, correlation_id="request-7")
        await eventually(lambda: delivered(harness, 3))
        assert "Hello, Ada!" in str(receiver.requests[-1].event["data"]["result"])
        await harness.submit(BROKEN, callback=own, correlation_id="request-7")
        await eventually(lambda: delivered(harness, 6))
        assert "wrong" not in receiver.requests[-1].body.decode()
    assert [request.body for request in receiver.requests if job_id in request.body.decode()] == []
    assert all(job_id not in str(request.headers) for request in receiver.requests)
    assert {request.event["data"]["request_id"] for request in receiver.requests} == {"request-7"}


async def test_big_numbers_and_other_scripts_are_signed_as_they_are_sent(
    harness: Harness, eventually: Any
) -> None:
    text = 'workflow_id: echo\nnodes:\n  say: {handler: echo, params: {it: "{{ inputs.it }}"}}\n'
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        inputs = {"it": [9007199254740993, "\u00fc \u2028 \U0001f600"]}
        await harness.ended(
            await harness.submit(text, inputs, callback=receiver.callback(events=["job.completed"]))
        )
        await eventually(lambda: delivered(harness, 1))
    (request,) = receiver.requests
    assert b"9007199254740993" in request.body
    assert request.is_signed(SECRET)


async def test_a_large_result_is_left_out_and_said_to_be(harness: Harness, eventually: Any) -> None:
    text = 'workflow_id: big\nnodes:\n  say: {handler: echo, params: {it: "{{ inputs.it }}"}}\n'
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        inputs = {"it": "x" * 300_000}
        await harness.ended(
            await harness.submit(text, inputs, callback=receiver.callback(events=["job.completed"]))
        )
        await eventually(lambda: delivered(harness, 1))
    data = receiver.requests[0].event["data"]
    assert (data["result"], data["is_result_left_out"]) == (None, True)


async def test_a_stopped_relay_gives_back_what_it_was_sending(
    harness: Harness, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cograil.delivery.relay.GRACE_SECONDS", 0.2)
    async with open_receiver() as receiver, harness.running():
        receiver.is_silent = True
        async with run_relay(harness, timeout_seconds=60):
            await harness.submit(HELLO, callback=receiver.callback(events=["job.created"]))
            await eventually(lambda: receiver.requests)
        assert await states(harness) == [("pending", 0, None)]
        receiver.is_silent = False
        async with run_relay(harness):
            await eventually(lambda: delivered(harness, 1))
    assert len(set(receiver.ids())) == 1


async def test_a_receiver_that_is_down_is_left_alone_for_a_while(harness: Harness, eventually: Any) -> None:
    async with (
        open_receiver(respond_in_turn(http_response(503))) as receiver,
        run_relay(harness, pace=1.0, per_destination=1),
    ):
        callback = receiver.callback(events=["job.created"])
        await harness.submit_many(HELLO, [{} for _ in range(20)], callback=callback)
        await eventually(lambda: len(receiver.requests) == FAILURES)
        await asyncio.sleep(0.3)  # nothing more may come; no event tells of that
        assert len(receiver.requests) == FAILURES
    await harness.rows("delete from cograil.deliveries")


async def test_a_callback_that_leads_where_nothing_may_go_is_refused_at_submit(harness: Harness) -> None:
    harness.engine_context.outbound = OutboundSettings()
    with pytest.raises(InvalidInput) as refused:
        await harness.submit(HELLO, callback={"url": "http://127.0.0.1:9/"})
    assert [problem.code for problem in refused.value.problems] == ["callback_blocked_address"]
    assert await harness.rows("select count(*) from cograil.jobs") == [(0,)]


async def test_a_cancelled_job_and_the_retry_of_one_are_told(harness: Harness, eventually: Any) -> None:
    slow = "workflow_id: slow\nnodes:\n  nap: {handler: nobody_has_this}\n"
    async with open_receiver() as receiver, run_relay(harness):
        job_id = await harness.submit(
            slow, callback=receiver.callback(events=["job.created", "job.cancelled"])
        )
        await harness.cancel(job_id)
        again = await harness.retry(job_id)
        await eventually(lambda: delivered(harness, 3))
        await harness.cancel(again)
        await eventually(lambda: delivered(harness, 4))
    assert receiver.types(job_id) == ["cograil.job.created", "cograil.job.cancelled"]
    assert receiver.types(again) == receiver.types(job_id)
    made = next(request.event for request in receiver.requests if request.event["subject"] == again)
    assert made["data"]["retry_of"] == job_id
