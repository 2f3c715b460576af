"""A client that is an app: it decides, acquires, takes, heartbeats, answers and releases, and is struck.

What is there right after the fault is what its committed transactions say, no more and no less. Then another
process of the app does all of it again, and in the end everything was done once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.torture import oracles
from tests.torture.app import CAPACITY, App
from tests.torture.client_strikes import GONE_SECONDS, STOPPED_SECONDS, all_end, idle_seconds
from tests.torture.crash import Run
from tests.torture.forked_processes import Child
from tests.torture.lane import NUMBERS, Lane
from tests.torture.scenarios import PLAIN, Scenario

SCENARIO = Scenario(
    "plain", PLAIN, "completed", dict.fromkeys(["first", "last"], "completed"), {"first": 1, "last": 1}
)
BESIDE_SECONDS = 0.2

# What is there of everything that the app names after this mark.
STATE = """
select json_build_object(
  'began', (select count(*) from records where scope = 'work'),
  'tokens', (select round(tokens) from cograil.buckets where name = %(mark)s),
  'lease', (select count(*) from cograil.leases where name = %(mark)s and holder is not null),
  'slots', (select count(*) from cograil.slots where name = %(mark)s and holder is not null),
  'ledger', (select count(*) from torture.ledger where mark = %(mark)s),
  'answers', (select count(*) from records where scope = 'work' and not is_open),
  'turns', (select count(*) from records where scope = 'turn'),
  'cached', (select string_agg(answer #>> '{}', ',') from records where scope = 'cache'),
  'refreshing', (select count(*) from records where scope = 'cache' and is_open),
  'held', (select count(*) from records where scope = 'held'),
  'jobs', (select count(*) from cograil.jobs where correlation_id = %(mark)s),
  'of_jobs', (select count(*) from cograil.jobs j where j.correlation_id = %(mark)s
    and exists (select 1 from records r where r.scope = 'job' and r.job_id = j.id)
    and exists (select 1 from cograil.leases l where l.name = %(mark)s || ' of a job' and l.job_id = j.id)
    and exists (select 1 from cograil.slots s where s.name = %(mark)s || ' of a job' and s.job_id = j.id)),
  'grants_of_jobs', (select count(*) from records where scope = 'job')
    + (select count(*) from cograil.leases where name = %(mark)s || ' of a job')
    + (select count(*) from cograil.slots where name = %(mark)s || ' of a job'))
from (select 1) as one
"""
RECORDS = "with records as (select * from cograil.idempotency where key = %(mark)s) "
# What many seconds of silence do, at once.
END_TIMES = (
    "update cograil.leases set lease_until = now() where name = %(mark)s and lease_until is not null",
    "update cograil.slots set lease_until = now() where name = %(mark)s and lease_until is not null",
    "update cograil.idempotency set turn_until = now() where key = %(mark)s and turn_until is not null",
)
LEDGER = """
select l.holder, r.answer #>> '{}' from torture.ledger l
left join cograil.idempotency r on r.key = l.mark and r.scope = 'work' where l.mark = %(mark)s
"""
JOBS = "select id::text from cograil.jobs where correlation_id = %(mark)s"
STILL_HELD = """
select 'lease' from cograil.leases l where l.name like %(mark)s || '%%' and holder is not null and case
  when job_id is null then lease_until > now()
  else exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end
union all
select 'slot' from cograil.slots l where l.name like %(mark)s || '%%' and holder is not null and case
  when job_id is null then lease_until > now()
  else exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end
"""


async def use_primitives(lane: Lane, run: Run) -> None:
    """Strike one process of the app; another takes over, also while the first is only silent."""
    mark = f"mark-{next(NUMBERS)}."
    await lane.publish(PLAIN)
    order: dict[str, Any] = {
        "act": "app",
        "subject": mark,
        "answer": f"{lane.fork_server.directory}/{mark}said",
    }
    order |= {"fault": run.fault and run.fault.order, "idle_seconds": idle_seconds(run.fault)}
    client = await lane.fork("client", **order)
    async with asyncio.timeout(GONE_SECONDS):
        await client.struck()
    run.points = client.points()
    run.struck = any(point.startswith("!") for point in run.points)
    run.violations += await oracles.at_once(lane)
    run.violations += await _torn(lane, mark, run.points)
    answers = await _take_over(lane, run, mark, client)
    async with asyncio.timeout(GONE_SECONDS):
        await client.ended.wait()
    await _in_the_end(lane, run, mark, answers, client)


async def _torn(lane: Lane, mark: str, points: Iterable[str]) -> list[str]:
    """Each transaction of the app is there in full or not at all."""
    state, expected = await _state(lane, mark), _expected(points)
    return [
        f"at once: {what} is {state[what]}, not {value}"
        for what, value in expected.items()
        if state[what] != value
    ]


async def _state(lane: Lane, mark: str) -> dict[str, Any]:
    ((text,),) = await lane.lab.rows(RECORDS + STATE, mark=mark)
    state: dict[str, Any] = text if isinstance(text, dict) else json.loads(text)
    return state


def _expected(points: Iterable[str]) -> dict[str, Any]:
    """What the transactions that were committed say."""
    passed = set(points)

    def done(name: str) -> int:
        return int(f"app_{name}.commit.after" in passed)

    return {
        "began": done("begin"),
        "tokens": CAPACITY - 1 if done("begin") else None,
        "lease": done("begin") - done("release"),
        "slots": done("begin") - done("release"),
        "ledger": done("finish"),
        "answers": done("finish"),
        "turns": done("turn") - done("give_back"),
        "cached": "refreshed" if done("answer") else "first" if done("cache") else None,
        "refreshing": done("refresh") - done("answer"),
        "held": done("hold") - done("forget"),
        "jobs": done("give"),
        "of_jobs": done("give"),
        "grants_of_jobs": 3 * done("give"),
    }


async def _take_over(lane: Lane, run: Run, mark: str, client: Child) -> list[str]:
    """`pause`: beside the client, which has its locks. `stop`: when the server has taken them away."""
    other = App(lane.lab.db, lane.lab.engine_context, mark, "other")
    if run.fault is not None and run.fault.mode == "pause" and client.stopped.is_set():
        working = asyncio.ensure_future(other.run())
        await asyncio.wait({working}, timeout=BESIDE_SECONDS)
        client.resume()
        answers = await working
        async with asyncio.timeout(GONE_SECONDS):
            await client.ended.wait()
        return answers
    if client.stopped.is_set():
        await asyncio.sleep(STOPPED_SECONDS + 0.1)  # by then the server has ended the transaction
    for query in END_TIMES:
        await lane.lab.rows(query, mark=mark)
    answers = await other.run()
    if client.stopped.is_set():
        client.resume()
    return answers


async def _in_the_end(lane: Lane, run: Run, mark: str, answers: list[str], client: Child) -> None:
    """All was done once, and nothing is held, whichever process did it."""
    client_answer = json.loads(Path(client.answer).read_text()) if Path(client.answer).exists() else None
    if run.fault is None and client_answer is None:
        run.violations.append("nothing happened to the client, but it got no answer")
    wins = ["victim"] * (client_answer is not None and client_answer[0] == "done") + ["other"] * (
        answers[0] == "done"
    )
    rows = await lane.lab.rows(LEDGER, mark=mark)
    if len(rows) != 1 or rows[0][0] != rows[0][1] or len(wins) > 1 or (wins and rows[0][0] != wins[0]):
        run.violations.append(f"of {wins} was done and answered: {rows}")
    state = await _state(lane, mark)
    begun = {"app_begin.take_tokens", "app_begin.commit.after"} <= set(client.points())
    expected = {
        "tokens": CAPACITY - begun - (answers[0] == "done"),
        "turns": 0,
        "cached": "refreshed",
        "refreshing": 0,
        "held": 0,
    }
    expected |= {"jobs": 1, "of_jobs": 1, "grants_of_jobs": 3}
    for what, value in expected.items():
        if state[what] != value:
            run.violations.append(f"in the end {what} is {state[what]}, not {value}")
    await all_end(lane, run, SCENARIO, [job_id for (job_id,) in await lane.lab.rows(JOBS, mark=mark)])
    if held := await lane.lab.rows(STILL_HELD, mark=mark):
        run.violations.append(f"all has ended, but there is still held: {held}")
