"""A relay that is struck: what happened is told at least once, in its order, and marked as told only then.

The receivers are real ones, in the process of the test, and outlive every relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator

from tests.support.webhook_receiver import WebhookReceiver, http_response, open_receiver
from tests.torture import oracles
from tests.torture.client_strikes import STOPPED_SECONDS
from tests.torture.crash import SLACK_SECONDS, ZOMBIE_SECONDS, Run
from tests.torture.forked_processes import Child
from tests.torture.lane import Lane, Stuck
from tests.torture.operator_actions import Act
from tests.torture.scenarios import AGAIN

from cograil.verbs import outbox
from cograil.verbs.callback_targets import Receiver as Address

TOLD = f"""
workflow_id: told
nodes:
  last: {{handler: step, {AGAIN}, next: END}}
"""
DISABLED = ("cograil.subscription.disabled", "cograil.callback.disabled")
UNFINISHED = """
select (select count(*) from cograil.outbox) +
       (select count(*) from cograil.deliveries where state = 'pending' or id = %(old)s)
"""
ALL_DELIVERED = """
select 1 from cograil.deliveries where url = %(url)s and state = 'delivered' having count(*) = 3
"""
# What takes half a minute of silence otherwise.
END_CLAIMS = """
update cograil.deliveries set not_before = now(), lease_until = null where lease_until is not null
"""
OLD_LETTER = """
insert into cograil.deliveries (id, type, destination, origin, url, sending, body, seq, state, ended_at)
values (gen_random_uuid(), 'torture.old', 'nobody', 'http://127.0.0.1:9', 'http://127.0.0.1:9', '{}', '{}', 0,
        'dead', now() - interval '40 days') returning id::text
"""


async def _deliver(lane: Lane, run: Run) -> None:
    """The callbacks of two jobs, and a letter that died long ago and is to be forgotten."""
    async with _receiving(lane) as receiver:
        jobs = [await lane.submit(TOLD, callback=receiver.callback()) for _ in range(2)]
        for job in jobs:
            await lane.ended(job)
        recorded = await _relay(lane, run, jobs, receiver)
    run.violations += oracles.wrong_tellings(receiver, jobs, recorded)


async def _relay(lane: Lane, run: Run, jobs: list[str], receiver: WebhookReceiver) -> set[str]:
    """Strike the relay, let another finish; the ids that were marked as told when it was struck."""
    fault = run.fault
    ((old,),) = await lane.lab.rows(OLD_LETTER)
    seconds = STOPPED_SECONDS if fault is not None and fault.mode == "stop" else 5.0
    victim = await lane.fork("relay", fault=fault and fault.order, idle_seconds=seconds)
    await _until_struck(lane, run, victim, old)
    run.violations += await oracles.at_once(lane)
    run.violations += await oracles.untold(lane, jobs, receiver)
    recorded: set[str] = set()
    if victim.stopped.is_set() or victim.ended.is_set():
        recorded = await oracles.marked_as_told(lane, receiver)
        await lane.fork("relay")
        await lane.lab.rows(END_CLAIMS)
    await _finished(lane, old)
    run.points = victim.points()
    run.struck = any(point.startswith("!") for point in run.points)
    if victim.stopped.is_set():
        await _live_on(lane, run, victim)
    is_killed = fault is not None and fault.mode == "kill9"
    if victim.ended.is_set() and not is_killed:
        run.violations.append(f"the relay ended by itself with {victim.code}")
    return recorded


async def _until_struck(lane: Lane, run: Run, victim: Child, old: str) -> None:
    """Return when the relay is stopped or gone, or when all is told; a claim that it did not hear of ends."""
    until = time.monotonic() + lane.watchdog_seconds
    is_unheard = run.fault is not None and run.fault.name.startswith("claim_deliveries.commit")
    while not (victim.stopped.is_set() or victim.ended.is_set()):
        if await _unfinished(lane, old) == 0:
            await victim.struck_within(SLACK_SECONDS if run.fault else 0.0)
            return
        if is_unheard and any(point.startswith("!") for point in victim.points()):
            await lane.lab.rows(END_CLAIMS)
            is_unheard = False
        if time.monotonic() > until:
            raise Stuck("the relay neither delivers nor dies")
        await asyncio.sleep(0.01)


async def _unfinished(lane: Lane, old: str) -> int:
    return int((await lane.lab.rows(UNFINISHED, old=old))[0][0])


async def _finished(lane: Lane, old: str) -> None:
    until = time.monotonic() + lane.watchdog_seconds
    while left := await _unfinished(lane, old):
        if time.monotonic() > until:
            raise Stuck(f"{left} events are never told")
        await asyncio.sleep(0.01)


async def _live_on(lane: Lane, run: Run, victim: Child) -> None:
    """Alone with the events of a new job, a relay that was replaced becomes useful again."""
    for child in lane.passing:
        if child is not victim:
            await child.kill()
    async with open_receiver() as receiver:
        job = await lane.submit(TOLD, callback=receiver.callback())
        await lane.ended(job)
        victim.resume()
        await lane.until(ALL_DELIVERED, ZOMBIE_SECONDS, url=receiver.url)
    deliveries = Counter(receiver.ids())
    if len(deliveries) != len(oracles.TOLD_OF_A_JOB) or max(deliveries.values()) > 1:
        run.violations.append(f"the woken relay told {receiver.types()}")


@contextlib.asynccontextmanager
async def _receiving(lane: Lane) -> AsyncIterator[WebhookReceiver]:
    """A receiver; what is left of what it was to be told goes with it."""
    try:
        async with open_receiver() as receiver:
            yield receiver
    finally:
        for table in ("outbox", "deliveries", "subscriptions"):
            await lane.lab.rows(f"delete from cograil.{table}")
        await lane.lab.rows("update cograil.jobs set callback = null where callback is not null")


async def _end(lane: Lane, run: Run) -> None:
    """A receiver says that it is gone: subscription and callback end, and the others are told, once."""
    async with _receiving(lane) as there, open_receiver(lambda _: http_response(410)) as gone:
        for receiver in (gone, there):
            async with lane.lab.db.transaction("test") as tx:
                await outbox.subscribe(tx, "default", Address(receiver.url), lane.lab.settings.outbound)
        job = await lane.submit(TOLD, callback=gone.callback())
        await lane.ended(job)
        await _relay(lane, run, [job], there)
        for kind in DISABLED:
            if (
                times := len(
                    {request.event["id"] for request in there.requests if request.event["type"] == kind}
                )
            ) != 1:
                run.violations.append(f"the others were told {times} times of {kind}")
        query = "select url from cograil.subscriptions where disabled_at is null"
        if (active := await lane.lab.rows(query)) != [(there.url,)]:
            run.violations.append(f"there are subscriptions of {active}")
    if oracles.TOLD_OF_A_JOB[0] not in gone.types(job) or oracles.TOLD_OF_A_JOB[-1] in gone.types(job):
        run.violations.append(f"who is gone was told {gone.types(job)}")
    kinds = [kind for kind in dict.fromkeys(there.types(job)) if kind not in DISABLED]
    if kinds != list(oracles.TOLD_OF_A_JOB):
        run.violations.append(f"who is there was told {kinds}")


RELAYS: dict[str, Act] = {"relay": _deliver, "relay_gone": _end}
