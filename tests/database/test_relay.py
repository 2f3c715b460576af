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
from lab import Lab
from receivers import SECRET, Receiver, answer, receiving, relay_settings, relaying, script_of

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
def lab_settings() -> Settings:
    return relay_settings()


@pytest.fixture(autouse=True)
def callbacks_may_lead_here(lab: Lab) -> None:
    lab.engine_context.outbound = lab.settings.outbound


async def states(lab: Lab) -> list[tuple[Any, ...]]:
    return await lab.rows("select state, tries, last_status from cograil.deliveries order by seq")


async def test_a_job_with_a_callback_is_told_signed_and_in_order(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver, lab.running(), relaying(lab):
        job_id = await lab.submit(HELLO, callback=receiver.callback(headers={"X-Own": "mine"}))
        await lab.ended(job_id)
        await eventually(lambda: len(receiver.requests) == 3)
        await eventually(lambda: delivered(lab, 3))
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


async def delivered(lab: Lab, count: int) -> bool:
    rows = await lab.rows("select count(*) from cograil.deliveries where state = 'delivered'")
    return rows == [(count,)]


async def test_nothing_is_kept_when_nobody_listens(lab: Lab) -> None:
    async with lab.running():
        await lab.ended(await lab.submit(HELLO))
    assert await lab.rows("select count(*) from cograil.outbox") == [(0,)]


async def test_the_outbox_row_commits_with_the_move_or_not_at_all(lab: Lab) -> None:
    callback = {"url": "http://127.0.0.1:9/"}
    await lab.submit(HELLO, callback=callback)
    before = await lab.rows("select type from cograil.outbox order by id")
    assert before == [("cograil.job.created",), ("cograil.job.started",)]
    with contextlib.suppress(ZeroDivisionError):
        async with lab.db.transaction("test") as tx:
            await submit(
                tx, lab.engine_context, [Submission("hello", {}, definition_id=1, callback=callback)]
            )
            raise ZeroDivisionError
    assert await lab.rows("select type from cograil.outbox order by id") == before
    await lab.rows("delete from cograil.outbox")


async def test_only_the_events_that_were_asked_for_are_sent(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver, lab.running(), relaying(lab):
        wanted = receiver.callback(events=["job.failed", "job_completed"])
        for text in (HELLO, BROKEN):
            await lab.ended(await lab.submit(text, callback=wanted))
        await eventually(lambda: delivered(lab, 2))
    assert sorted(receiver.types()) == ["cograil.job.completed", "cograil.job.failed"]
    failed = next(request.event["data"] for request in receiver.requests if "failed" in request.event["type"])
    assert "it broke" in str(failed["error"])


@pytest.mark.parametrize(
    "refusal",
    [
        answer(500),
        answer(404),
        answer(302, Location="http://127.0.0.1:1/"),
        answer(429, Retry_After="0"),
        answer(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
        b"HTTP/1.1 200 OK\r\nContent-Len",  # cut in the middle of its headers
        b"",
        b"hello\r\n",  # HTTP/0.9
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 200) for n in range(1000)) + b"\r\n",
    ],
    ids=["500", "404", "302", "429", "503", "truncated", "closed", "0.9", "headers"],
)
async def test_what_was_not_taken_is_sent_again_with_the_same_id_and_bytes(
    lab: Lab, eventually: Any, refusal: bytes
) -> None:
    script = script_of(
        refusal, answer(204)
    )  # the pauses before later tries are longer, and tested by themselves
    async with receiving(script) as receiver, lab.running(), relaying(lab, pace=0.1):
        job_id = await lab.submit(HELLO, callback=receiver.callback())
        await lab.ended(job_id)
        await eventually(lambda: delivered(lab, 3))
    assert receiver.types()[:2] == [ALL[0]] * 2
    assert by_sequence(receiver, job_id) == ALL
    assert (
        len({(request.event["id"], request.body) for request in receiver.requests})
        == 3
        == len(receiver.requests) - 1
    )
    assert all(request.is_signed() for request in receiver.requests)
    assert (await states(lab))[0] == ("delivered", 2, 204)


async def test_an_event_that_is_taken_at_the_second_try_is_still_the_first(lab: Lab, eventually: Any) -> None:
    script = script_of(answer(500), answer(200))
    async with receiving(script) as receiver, lab.running(), relaying(lab, pace=0.1):
        await lab.ended(await lab.submit(HELLO, callback=receiver.callback()))
        await eventually(lambda: delivered(lab, 3))
    assert receiver.types() == [ALL[0], *ALL]


@pytest.mark.parametrize("kind", ["endless", "packed without end", "bomb"])
async def test_an_answer_without_end_is_cut_off_and_no_answer(lab: Lab, eventually: Any, kind: str) -> None:
    """B137, which says more of it than F38b: a receiver that answers so has not understood the request."""
    packed = gzip.compress(bytes(10_000_000))
    encoding, length = ("identity", 10**10) if kind == "endless" else ("gzip", 10**10)
    if kind == "bomb":
        length = len(packed)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n".encode()
    response = head + packed if kind == "bomb" else head
    async with receiving(lambda _: response) as receiver, lab.running(), relaying(lab, pace=0.1):
        if kind != "bomb":
            receiver.endless = os.urandom(65536) if kind == "endless" else packed
        await lab.ended(await lab.submit(HELLO, callback=receiver.callback(events=["job.completed"])))
        await eventually(lambda: is_refused(lab))
        await eventually(lambda: receiver.open_now == 0)
        receiver.script, receiver.endless = script_of(answer(200)), b""
        await eventually(lambda: delivered(lab, 1))


async def is_refused(lab: Lab) -> bool:
    query = "select 1 from cograil.deliveries where last_error = 'answered 200 with more than 64 KiB'"
    return bool(await lab.rows(query))


async def test_a_receiver_that_never_answers_costs_one_timeout_and_harms_nobody_else(
    lab: Lab, eventually: Any
) -> None:
    async with (
        receiving() as slow,
        receiving() as quick,
        lab.running(),
        relaying(lab, timeout_seconds=0.5, per_destination=2),
    ):
        slow.is_silent = True
        for _ in range(5):
            await lab.submit(HELLO, callback=slow.callback(events=["job.completed"]))
        await eventually(lambda: len(slow.requests) >= 2)
        await lab.ended(await lab.submit(HELLO, callback=quick.callback()))
        await eventually(lambda: len(quick.requests) == 3, timeout=2)
        await eventually(lambda: failed_once(lab))
        assert slow.most_in_hand <= 2
        slow.is_silent = False
        await eventually(lambda: delivered(lab, 8), timeout=20)
    assert len(set(slow.ids())) == 5


async def failed_once(lab: Lab) -> bool:
    query = "select count(*) from cograil.deliveries where last_error like 'no whole answer within%%'"
    return (await lab.rows(query))[0][0] > 0


async def test_a_receiver_that_was_down_gets_all_of_it_in_order(lab: Lab, eventually: Any) -> None:
    """As after an hour: pauses are a thousandth, and the breaker opens and closes on the way."""
    async with receiving() as receiver:
        port = receiver.port
    callback = receiver.callback()
    async with lab.running(), relaying(lab, pace=0.001):
        jobs = [await lab.submit(HELLO, callback=callback) for _ in range(20)]
        for job_id in jobs:
            await lab.ended(job_id)
        await eventually(lambda: tried(lab, 3))
        async with receiving(port=port) as back:
            await eventually(lambda: delivered(lab, 60), timeout=30)
    assert len(set(back.ids())) == len(back.requests) == 60
    assert [by_sequence(back, job_id) for job_id in jobs] == [ALL] * 20


def by_sequence(receiver: Receiver, job_id: str) -> list[str]:
    """What a receiver heard of a job, each once, as the numbers of the events order it.

    In pauses this short one overtakes another: the number is what tells them apart.
    """
    heard = [request.event for request in receiver.requests if request.event["data"].get("job_id") == job_id]
    numbered = {event["sequence"]: event["type"] for event in heard}
    assert all(len(number) == 10 for number in numbered)
    assert len(numbered) == len({event["id"] for event in heard})
    return [numbered[number] for number in sorted(numbered)]


async def tried(lab: Lab, times: int) -> bool:
    return (await lab.rows("select max(tries) from cograil.deliveries"))[0][0] >= times


async def test_a_failing_event_holds_the_later_ones_of_its_job_for_a_while_only(
    lab: Lab, eventually: Any
) -> None:
    def script(request: Any) -> bytes:
        return answer(500 if request.event["type"] == ALL[0] else 200)

    async with receiving(script) as receiver, lab.running(), relaying(lab, pace=0.02):  # 30 s are 0.6 s
        await lab.ended(await lab.submit(HELLO, callback=receiver.callback()))
        await eventually(lambda: delivered(lab, 2))
        first = receiver.requests[0].at
        later = [request.at for request in receiver.requests if request.event["type"] != ALL[0]]
        assert min(later) - first >= 0.5
        assert [event_type for event_type in receiver.types() if event_type != ALL[0]] == ALL[1:]
        assert (await states(lab))[0][0] == "pending"
    await lab.rows("delete from cograil.deliveries where state = 'pending'")


async def test_the_events_of_a_job_go_one_at_a_time(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver, lab.running(), relaying(lab), relaying(lab):
        receiver.gate.clear()
        await lab.ended(await lab.submit(HELLO, callback=receiver.callback()))
        await eventually(lambda: len(receiver.requests) == 1)
        await asyncio.sleep(0.1)  # nothing more may come; no event tells of that
        assert receiver.types() == ALL[:1]
        receiver.gate.set()
        await eventually(lambda: delivered(lab, 3))
    assert receiver.most_in_hand == 1
    assert receiver.types() == ALL


async def test_what_was_taken_together_waits_behind_one_that_fails(lab: Lab, eventually: Any) -> None:
    """Many events of a job come in one claim: none is sent before the one that failed, and none was tried."""
    failed: list[str] = []

    def script(request: Any) -> bytes:
        is_refused = request.event["data"] == {"n": 20} and not failed
        failed.extend([request.event["id"]] if is_refused else [])
        return answer(500 if is_refused else 200)

    async with receiving(script) as receiver, relaying(lab):
        job = await lab.submit(HELLO, callback=receiver.callback(events=["job.created", "cograil.counted"]))
        await lab.rows(COUNTED, job=job)
        await eventually(lambda: delivered(lab, 41), timeout=30)
    taken = [
        request.event["data"]["n"]
        for request in receiver.requests
        if request.event["type"] == "cograil.counted"
    ]
    assert taken == [*range(1, 21), *range(20, 41)]
    assert receiver.most_in_hand == 1
    tries = await lab.rows("select tries, count(*) from cograil.deliveries group by tries order by tries")
    assert tries == [(1, 40), (2, 1)]


COUNTED = """
insert into cograil.outbox (job_id, seq, type, subject, data)
select %(job)s::uuid, 1000 + n, 'cograil.counted', %(job)s, json_build_object('n', n)
from generate_series(1, 40) n
"""


async def test_two_relays_send_nothing_twice(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver, lab.running(), relaying(lab), relaying(lab):
        ids = await lab.submit_many(HELLO, [{} for _ in range(50)], callback=receiver.callback())
        await eventually(lambda: delivered(lab, 150), timeout=30)
    assert len(set(receiver.ids())) == len(receiver.requests) == 150
    assert all(receiver.types(job_id) == ALL for job_id in ids)


async def test_retry_after_is_honoured(lab: Lab, eventually: Any) -> None:
    script = script_of(answer(429, Retry_After="1"), answer(200))
    async with receiving(script) as receiver, lab.running(), relaying(lab):
        await lab.ended(await lab.submit(HELLO, callback=receiver.callback(events=["job.created"])))
        await eventually(lambda: delivered(lab, 1))
    first, second = receiver.requests
    assert second.at - first.at >= 0.95


async def test_what_is_not_delivered_in_days_is_a_dead_letter_and_can_be_sent_again(
    lab: Lab, eventually: Any
) -> None:
    async with (
        receiving(script_of(answer(500))) as receiver,
        lab.running(),
        relaying(lab, give_up_hours=0.0001),
    ):
        await lab.ended(await lab.submit(HELLO, callback=receiver.callback(events=["job.completed"])))
        await eventually(lambda: in_state(lab, "dead"))
        sent = receiver.requests[0]
        receiver.script = script_of(answer(200))
        async with lab.db.transaction("test") as tx:
            (dead,) = await outbox.list_deliveries(tx, "default", state="dead")
            assert (dead["last_status"], dead["destination"]) == (500, "callback")
            with pytest.raises(DeliveryNotFound):
                await outbox.resend(tx, "other", dead["delivery_id"])
            again = await outbox.resend(tx, "default", dead["delivery_id"])
            assert (again["state"], again["tries"]) == ("pending", 0)
            with pytest.raises(Conflict):
                await outbox.resend(tx, "default", dead["delivery_id"])
        await eventually(lambda: delivered(lab, 1))
    assert receiver.requests[-1].body == sent.body
    assert receiver.requests[-1].headers["webhook-id"] == sent.headers["webhook-id"]


async def in_state(lab: Lab, state: str) -> bool:
    rows = await lab.rows("select count(*) from cograil.deliveries where state = %(s)s", s=state)
    return bool(rows[0][0])


async def test_a_refusal_is_final_for_callbacks_of_the_orchestrator_style(lab: Lab, eventually: Any) -> None:
    async with receiving(script_of(answer(404))) as receiver, lab.running(), relaying(lab):
        own = {"url": receiver.url, "secret": "k\u00e9y", "style": "orchestrator", "events": ["job.created"]}
        await lab.ended(await lab.submit(HELLO, callback=own))
        await eventually(lambda: in_state(lab, "dead"))
    (request,) = receiver.requests
    digest = hmac.new("k\u00e9y".encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-signature-256"] == f"sha256={digest}"
    assert request.headers["ce-id"] == request.event["id"]
    assert "webhook-signature" not in request.headers


async def test_a_platform_callback_knows_no_job_id(lab: Lab, eventually: Any) -> None:
    async with receiving() as receiver, lab.running(), relaying(lab):
        own = receiver.callback(style="platform")
        job_id = await lab.submit(HELLO, callback=own, correlation_id="request-7")
        await eventually(lambda: delivered(lab, 3))
        assert "Hello, Ada!" in str(receiver.requests[-1].event["data"]["result"])
        await lab.submit(BROKEN, callback=own, correlation_id="request-7")
        await eventually(lambda: delivered(lab, 6))
        assert "wrong" not in receiver.requests[-1].body.decode()
    assert [request.body for request in receiver.requests if job_id in request.body.decode()] == []
    assert all(job_id not in str(request.headers) for request in receiver.requests)
    assert {request.event["data"]["request_id"] for request in receiver.requests} == {"request-7"}


async def test_big_numbers_and_other_scripts_are_signed_as_they_are_sent(lab: Lab, eventually: Any) -> None:
    text = 'workflow_id: echo\nnodes:\n  say: {handler: echo, params: {it: "{{ inputs.it }}"}}\n'
    async with receiving() as receiver, lab.running(), relaying(lab):
        inputs = {"it": [9007199254740993, "\u00fc \u2028 \U0001f600"]}
        await lab.ended(await lab.submit(text, inputs, callback=receiver.callback(events=["job.completed"])))
        await eventually(lambda: delivered(lab, 1))
    (request,) = receiver.requests
    assert b"9007199254740993" in request.body
    assert request.is_signed(SECRET)


async def test_a_large_result_is_left_out_and_said_to_be(lab: Lab, eventually: Any) -> None:
    text = 'workflow_id: big\nnodes:\n  say: {handler: echo, params: {it: "{{ inputs.it }}"}}\n'
    async with receiving() as receiver, lab.running(), relaying(lab):
        inputs = {"it": "x" * 300_000}
        await lab.ended(await lab.submit(text, inputs, callback=receiver.callback(events=["job.completed"])))
        await eventually(lambda: delivered(lab, 1))
    data = receiver.requests[0].event["data"]
    assert (data["result"], data["is_result_left_out"]) == (None, True)


async def test_a_stopped_relay_gives_back_what_it_was_sending(
    lab: Lab, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cograil.delivery.relay.GRACE_SECONDS", 0.2)
    async with receiving() as receiver, lab.running():
        receiver.is_silent = True
        async with relaying(lab, timeout_seconds=60):
            await lab.submit(HELLO, callback=receiver.callback(events=["job.created"]))
            await eventually(lambda: receiver.requests)
        assert await states(lab) == [("pending", 0, None)]
        receiver.is_silent = False
        async with relaying(lab):
            await eventually(lambda: delivered(lab, 1))
    assert len(set(receiver.ids())) == 1


async def test_a_receiver_that_is_down_is_left_alone_for_a_while(lab: Lab, eventually: Any) -> None:
    async with receiving(script_of(answer(503))) as receiver, relaying(lab, pace=1.0, per_destination=1):
        callback = receiver.callback(events=["job.created"])
        await lab.submit_many(HELLO, [{} for _ in range(20)], callback=callback)
        await eventually(lambda: len(receiver.requests) == FAILURES)
        await asyncio.sleep(0.3)  # nothing more may come; no event tells of that
        assert len(receiver.requests) == FAILURES
    await lab.rows("delete from cograil.deliveries")


async def test_a_callback_that_leads_where_nothing_may_go_is_refused_at_submit(lab: Lab) -> None:
    lab.engine_context.outbound = OutboundSettings()
    with pytest.raises(InvalidInput) as refused:
        await lab.submit(HELLO, callback={"url": "http://127.0.0.1:9/"})
    assert [problem.code for problem in refused.value.problems] == ["callback_blocked_address"]
    assert await lab.rows("select count(*) from cograil.jobs") == [(0,)]


async def test_a_cancelled_job_and_the_retry_of_one_are_told(lab: Lab, eventually: Any) -> None:
    slow = "workflow_id: slow\nnodes:\n  nap: {handler: nobody_has_this}\n"
    async with receiving() as receiver, relaying(lab):
        job_id = await lab.submit(slow, callback=receiver.callback(events=["job.created", "job.cancelled"]))
        await lab.cancel(job_id)
        again = await lab.retry(job_id)
        await eventually(lambda: delivered(lab, 3))
        await lab.cancel(again)
        await eventually(lambda: delivered(lab, 4))
    assert receiver.types(job_id) == ["cograil.job.created", "cograil.job.cancelled"]
    assert receiver.types(again) == receiver.types(job_id)
    made = next(request.event for request in receiver.requests if request.event["subject"] == again)
    assert made["data"]["retry_of"] == job_id
