"""What is kept, and for how long: steps, rows of handlers, jobs that ended long ago, losses of workers."""

from __future__ import annotations

import time
from datetime import timedelta

from tests.torture.exclusive_tasks import ALONE
from tests.torture.forked_processes import Child
from tests.torture.lane import Lane
from tests.torture.scenarios import AGAIN, Scenario, submit_behind_a_gate

from cograil.store.partition_queries import PARENTS, list_partitions
from cograil.store.retention_queries import first_id, first_id_at
from cograil.verbs.partitions import DAY_MILLIS, MissingPartition, make

STEPS = f"""
workflow_id: steps
nodes:
  first: {{handler: stepping, {AGAIN}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

TELLING = f"""
workflow_id: telling
nodes:
  first: {{handler: telling, {AGAIN}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

BOOKED = f"""
workflow_id: booked
nodes:
  first: {{handler: booking, {AGAIN}, next: last}}
  last: {{handler: booking_elsewhere, {AGAIN}, next: END}}
"""

GATED = f"""
workflow_id: gated
nodes:
  slow: {{handler: until_told, {AGAIN}, next: END}}
"""

# One job with something in every table.
DAWDLE = f"""
workflow_id: dawdle
nodes:
  count: {{handler: counting, {AGAIN}}}
"""


# -- steps -------------------------------------------------------------------------------------------


async def _see_steps(lane: Lane, job: str) -> list[str]:
    """A step that was kept is not done by any later attempt, which has its result from the one before."""
    violations = []
    for what, query in WRONG_STEPS.items():
        if rows := await lane.lab.rows(query, job=job):
            violations.append(f"{what}: {rows}")
    output = (await lane.lab.nodes(job))["first"]["output"]
    query = "select name, output from cograil.steps where job_id = %(job)s"
    kept = {name: int(value) for name, value in await lane.lab.rows(query, job=job)}
    if len(kept) != 3 or any(output[name] != value for name, value in kept.items()):
        violations.append(f"the steps that were kept are {kept}, but the output is {output}")
    return violations


WRONG_STEPS = {
    "a step that was kept was done again": (
        "select r.step, r.attempt, s.attempt from torture.runs r join cograil.steps s"
        " on s.job_id = r.job and s.node_id = r.node and s.name = r.step"
        " where r.job = %(job)s and r.attempt > s.attempt"
    ),
    "a step was done more than twice": (
        "select step, count(*) from torture.runs where job = %(job)s group by step having count(*) > 2"
    ),
    "an attempt did a step twice": (
        "select step, attempt from torture.runs where job = %(job)s group by 1, 2 having count(*) > 1"
    ),
}


# -- events of handlers ------------------------------------------------------------------------------

NUMBERS = """
select array(select (data ->> 'number')::int from cograil.outbox
             where job_id = %(job)s and type = 'torture.number' order by id),
       coalesce((select data::text::int from cograil.checkpoints where job_id = %(job)s), 0)
"""


async def _submit_to_be_told(lane: Lane, scenario: Scenario) -> str:
    """Of a job whose events somebody wants; nobody takes them, so they stay where they are."""
    return await lane.submit(scenario.text, callback={"url": "https://nobody.example/"})


async def _see_told(lane: Lane, job: str) -> list[str]:
    """What was told is what the checkpoint says, each once and in order, at any moment."""
    ((sequence, checkpoint),) = await lane.lab.rows(NUMBERS, job=job)
    return (
        []
        if sequence == list(range(1, checkpoint + 1))
        else [f"told are {sequence}, the checkpoint is {checkpoint}"]
    )


async def _see_all_told(lane: Lane, job: str) -> list[str]:
    """In the end; and then it is taken away, for the relays of other scenarios have nobody to tell it."""
    ((sequence, _),) = await lane.lab.rows(NUMBERS, job=job)
    violations = await _see_told(lane, job) + ([] if sequence == [1, 2, 3] else [f"told are {sequence}"])
    await lane.lab.rows("delete from cograil.outbox where job_id = %(job)s", job=job)
    await lane.lab.rows("update cograil.jobs set callback = null where id = %(job)s", job=job)
    return violations


# -- rows of handlers --------------------------------------------------------------------------------

# Which nodes have reported, and which have booked: two sets that must be one at any moment.
HALVES = """
with reported as (
  select node_id, attempt from cograil.inbox where job_id = %(job)s and kind = 'report' and error is null
  union select node_id, attempt from cograil.nodes where job_id = %(job)s and status = 'completed'
), booked as (
  select node, attempt from torture.bookings where job = %(job)s
)
(select 'not booked', * from reported except all select 'not booked', * from booked)
union all
(select 'not reported', * from booked except all select 'not reported', * from reported)
"""


async def _see_halves(lane: Lane, job: str) -> list[str]:
    """The rows of a handler and its result are both there, once, or both not."""
    return [f"{what}: {node} {attempt}" for what, node, attempt in await lane.lab.rows(HALVES, job=job)]


# -- old jobs ----------------------------------------------------------------------------------------

TABLES = {"jobs": "id", "nodes": "job_id", "events": "job_id", "checkpoints": "job_id", "progress": "job_id"}
BEFORE_ALL_PERIODS = 75  # days ago: no partition can be made where rows of the default one are, see below
COUNTS = ", ".join(
    f"(select count(*) from cograil.{name} where {key} = o.old)" for name, key in TABLES.items()
)
ROWS_OF_OLD = f"""
select is_kept and j.finished_at is null, {COUNTS} from torture.old o join cograil.jobs j on j.id = o.job
where o.job = %(job)s
"""


async def _submit_beside_old_ones(lane: Lane, scenario: Scenario) -> str:
    """Two jobs ended long ago. The one that begins now was made by a retry of one of them, which is kept."""
    ended = [await lane.submit(DAWDLE) for _ in range(2)]
    async with lane.helped():
        for old_job in ended:
            await lane.ended(old_job)
    job = await submit_behind_a_gate(lane, scenario)
    gone, kept = [await _grow_old(lane, old_job, BEFORE_ALL_PERIODS) for old_job in ended]
    await lane.lab.rows("update cograil.jobs set retry_of = %(kept)s where id = %(job)s", kept=kept, job=job)
    query = "insert into torture.old values (%(job)s, %(gone)s, false), (%(job)s, %(kept)s, true)"
    await lane.lab.rows(query, job=job, gone=gone, kept=kept)
    return job


async def _grow_old(lane: Lane, job: str, days: int) -> str:
    """As if it had been made and had ended `days` days ago; its id, which says so as well."""
    ((moment,),) = await lane.lab.rows(f"select now() - interval '{days} days'")
    old = first_id_at(moment)[:18] + job[18:]
    for table, key in TABLES.items():
        query = f"update cograil.{table} set {key} = %(old)s where {key} = %(job)s"
        await lane.lab.rows(query, old=old, job=job)
    moments = ("created_at", "started_at", "finished_at")
    earlier = ", ".join(f"{name} = {name} - interval '{days} days'" for name in moments)
    await lane.lab.rows(f"update cograil.jobs set {earlier} where id = %(old)s", old=old)
    return old


async def _open_when_swept(lane: Lane, job: str, victim: Child) -> None:
    """The job goes on when the old one is gone, whichever process is dead by then."""
    query = (
        "select 1 where not exists (select 1 from cograil.jobs j join torture.old o on o.old = j.id"
        " where o.job = %(job)s and not o.is_kept)"
    )
    await lane.until(query, lane.watchdog_seconds, job=job)
    await lane.set_gate(job, is_closed=False)


async def _see_old_ones(lane: Lane, job: str) -> list[str]:
    """What is old is there in full or not at all; what something active was made of is there in full."""
    violations = []
    for is_kept, *counts in await lane.lab.rows(ROWS_OF_OLD, job=job):
        if not all(counts) and (is_kept or any(counts)):
            left = dict(zip(TABLES, counts, strict=True))
            violations.append(f"of an old job{' that is still needed' if is_kept else ''} there is {left}")
    return violations


async def _see_them_gone(lane: Lane, job: str) -> list[str]:
    query = (
        "select 1 from torture.old o join cograil.jobs j on j.id = o.old where job = %(job)s and not is_kept"
    )
    left = ["the old job was never deleted"] if await lane.lab.rows(query, job=job) else []
    return [*left, *await _see_old_ones(lane, job)]


# -- periods -----------------------------------------------------------------------------------------

PERIOD_DAYS = 7  # as the settings say for 30 days
LONG_AGO, LONGER_AGO = 40, 54  # days, of two periods that are over
LEFT_OF_PERIODS = """
select count(*) from torture.old o where o.job = %(job)s and not o.is_kept and (
  exists (select 1 from cograil.jobs j where j.id = o.old)
  or exists (select 1 from cograil.nodes n where n.job_id = o.old)
  or exists (select 1 from cograil.events e where e.job_id = o.old))
"""
LATER = "select count(*) from cograil.partitions where first > %(now)s"


async def _submit_beside_periods(lane: Lane, scenario: Scenario) -> str:
    """Of one period that is over nothing stays; of the other a job that what begins now was made of.

    The partitions of the period to come are not there yet.
    """
    for days in (LONG_AGO, LONGER_AGO):
        await _make_period(lane, days)
    ended = [await lane.submit(DAWDLE) for _ in range(3)]
    async with lane.helped():
        for old_job in ended:
            await lane.ended(old_job)
    job = await submit_behind_a_gate(lane, scenario)
    kept, gone = [await _grow_old(lane, old_job, LONG_AGO) for old_job in ended[:2]]
    also_gone = await _grow_old(lane, ended[2], LONGER_AGO)
    await lane.lab.rows("update cograil.jobs set retry_of = %(kept)s where id = %(job)s", kept=kept, job=job)
    for old in (kept, gone, also_gone):
        query = "insert into torture.old values (%(job)s, %(old)s, %(is_kept)s)"
        await lane.lab.rows(query, job=job, old=old, is_kept=old == kept)
    for (name,) in await lane.lab.rows(
        "select name from cograil.partitions where first > %(now)s", now=await _now(lane)
    ):
        await lane.lab.rows(f"drop table cograil.{name}")
    return job


async def _make_period(lane: Lane, days: int) -> None:
    """Make the partitions of the week of `days` days ago, if they are not there."""
    async with lane.lab.db.transaction("test") as tx:
        then = int((tx.now - timedelta(days=days)).timestamp() * 1000)
        first = then // (PERIOD_DAYS * DAY_MILLIS) * PERIOD_DAYS * DAY_MILLIS
        there = {(partition.parent, partition.first) for partition in await list_partitions(tx)}
        for parent in PARENTS:
            missing = MissingPartition(parent, first_id(first), first_id(first + PERIOD_DAYS * DAY_MILLIS))
            if (parent, missing.first) not in there and (result := await make(tx, missing)) != "made":
                raise AssertionError(f"the period of {days} days ago was not made: {result}")


async def _now(lane: Lane) -> str:
    ((moment,),) = await lane.lab.rows("select now()")
    return first_id_at(moment)


async def _open_when_dropped(lane: Lane, job: str, victim: Child) -> None:
    """The job goes on when old partitions are gone and new ones are there, whichever process is dead."""
    until = time.monotonic() + lane.watchdog_seconds
    while await _see_periods(lane, job) and time.monotonic() < until:
        await lane.until("select 1 where false", 0.02)
    await lane.set_gate(job, is_closed=False)


async def _see_kept(lane: Lane, job: str) -> list[str]:
    """A job that is there is there in full; what something active was made of is there."""
    violations = []
    for is_kept, *counts in await lane.lab.rows(ROWS_OF_OLD, job=job):
        if not all(counts) and (is_kept or counts[0]):
            violations.append(f"of an old job there is {dict(zip(TABLES, counts, strict=True))}")
    return violations


async def _see_periods(lane: Lane, job: str) -> list[str]:
    """Nothing is left of the jobs that are gone, and the next period has its partitions."""
    violations = await _see_kept(lane, job)
    ((left,),) = await lane.lab.rows(LEFT_OF_PERIODS, job=job)
    ((later,),) = await lane.lab.rows(LATER, now=await _now(lane))
    if left:
        violations.append(f"something is left of {left} old jobs")
    if later != len(PARENTS):
        violations.append(f"there are {later} partitions for the time to come")
    if not left and await _has_partitions(lane):
        violations.append("a period of which nothing stays was not dropped")
    return violations


async def _has_partitions(lane: Lane) -> bool:
    ((moment,),) = await lane.lab.rows(f"select now() - interval '{LONGER_AGO} days'")
    query = "select 1 from cograil.partitions where first <= %(id)s and until > %(id)s"
    return bool(await lane.lab.rows(query, id=first_id_at(moment)))


_DONE = {"first": "completed", "last": "completed"}
RETAINED_DATA = {
    scenario.name: scenario
    for scenario in (
        ALONE,
        Scenario(
            "steps", STEPS, "completed", _DONE, {"first": 2, "last": 1}, roles=("worker",), look=_see_steps
        ),
        Scenario(
            "telling",
            TELLING,
            "completed",
            _DONE,
            {"first": 2, "last": 1},
            roles=("worker",),
            begin=_submit_to_be_told,
            look_at_once=_see_told,
            look=_see_all_told,
        ),
        Scenario(
            "booked",
            BOOKED,
            "completed",
            _DONE,
            {"first": 1, "last": 1},
            roles=("worker",),
            look_at_once=_see_halves,
            look=_see_halves,
            is_torn=True,
        ),
        Scenario(
            "booked_unheard",
            BOOKED,
            "completed",
            _DONE,
            {
                "first": 2,
                "last": 2,
            },  # struck before its commit, the first node meets the second stumble
            roles=("worker",),
            look_at_once=_see_halves,
            look=_see_halves,
            is_torn=True,
            stumbles=("handler.commit.after:1", "handler.commit.before:2"),
        ),
        Scenario(
            "old",
            GATED,
            "completed",
            {"slow": "completed"},
            {"slow": 1},
            roles=("orchestrator",),
            begin=_submit_beside_old_ones,
            meddle=_open_when_swept,
            look_at_once=_see_old_ones,
            look=_see_them_gone,
            order={"sweeps": True},
        ),
        Scenario(
            "periods",
            GATED,
            "completed",
            {"slow": "completed"},
            {"slow": 1},
            roles=("orchestrator",),
            begin=_submit_beside_periods,
            meddle=_open_when_dropped,
            look_at_once=_see_kept,
            look=_see_periods,
            order={"sweeps": True},
        ),
    )
}
