"""Schedules under crashes: a moment leads to one job, and what people do to a schedule is as the log says."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from tests.torture.caller_sessions import caller_session
from tests.torture.callers import PLAIN_SCENARIO
from tests.torture.client_strikes import all_end, nothing, struck
from tests.torture.crash import Run
from tests.torture.lane import NUMBERS, Lane
from tests.torture.operator_actions import Act
from tests.torture.scenarios import PLAIN

from cograil.model.schedule import SchedulePlan
from cograil.verbs import schedules

DUE = "update cograil.schedules set next_at = %(moment)s where name = %(name)s returning 1"
UNDER_WAY = """
update cograil.firings set due_at = due_at - interval '1 minute' where schedule = %(name)s returning 1
"""
LOST = "update cograil.schedules set timezone = 'Atlantis/Poseidonis' where name = %(name)s returning 1"
PAUSED = "select paused_at is not null from cograil.schedules where name = %(name)s"
FIRINGS = """
select (select count(*) from cograil.firings where schedule = %(name)s and outcome = 'submitted'),
       (select count(*) from cograil.jobs where labels ->> 'schedule' = %(name)s)
from cograil.schedules where name = %(name)s
"""
FIRED = """
select 1 from cograil.firings where schedule = %(name)s and outcome = 'submitted' having count(*) >= %(times)s
"""
JOBS = """
select id::text from cograil.jobs where labels ->> 'schedule' = %(name)s and status <> 'cancelled'
"""
LOG = """
select count(*) filter (where action = 'create schedule')
         - count(*) filter (where action = 'remove schedule'),
       (select count(*) from cograil.schedules where name = %(name)s),
       count(*) filter (where action = 'remove schedule') > 0
from cograil.audit_log where request_id = %(mark)s
"""


async def _uneven(lane: Lane, name: str) -> list[str]:
    """As many jobs as moments that led to one, while the schedule is there: its moments go with it."""
    counts = await lane.lab.rows(FIRINGS, name=name)
    return [f"{firings} moments led to {jobs} jobs" for firings, jobs in counts if firings != jobs]


async def _due_once(lane: Lane, name: str, **more: str) -> datetime:
    """Make a schedule that is due this minute, and then for a year no more; its moment."""
    await lane.publish(PLAIN)
    async with lane.lab.db.transaction("test") as tx:
        moment = tx.now.replace(second=0, microsecond=0)
        plan = SchedulePlan("plain", f"{moment:%-M %-H %-d %-m} *", **more)  # type: ignore[arg-type]
        await schedules.create_schedule(tx, lane.lab.engine_context, "default", name, plan)
    await lane.help_with()  # or an orchestrator would fire it first, and a worker end the last job
    await lane.lab.rows(DUE, name=name, moment=moment)
    return moment


async def _fire(lane: Lane, run: Run, *, overlap: str) -> None:
    """The struck process has fired all of it or nothing; the next one to look does the rest."""
    name = f"schedule-{next(NUMBERS)}"
    moment = await _due_once(lane, name, overlap=overlap)
    if overlap == "cancel":
        async with lane.lab.db.transaction("test") as tx:
            await schedules.fire_due(tx, lane.lab.engine_context)
        await lane.lab.rows(UNDER_WAY, name=name)
        await lane.lab.rows(DUE, name=name, moment=moment)
    answer = await struck(lane, run, "fire", name, meanwhile=nothing)
    await lane.help_with("orchestrator", "worker")
    run.violations += await _uneven(lane, name)
    async with lane.lab.db.transaction("test") as tx:
        await schedules.fire_due(tx, lane.lab.engine_context)
    run.violations += await _uneven(lane, name)
    if answer == "0":
        run.violations.append("nothing was fired, though it was due")
    times = 2 if overlap == "cancel" else 1
    await lane.until(FIRED, lane.watchdog_seconds, name=name, times=times)  # who has it in hand commits soon
    jobs = [job_id for (job_id,) in await lane.lab.rows(JOBS, name=name)]
    if not 1 <= len(jobs) <= 2:
        run.violations.append(f"there are {len(jobs)} jobs")
    await all_end(lane, run, PLAIN_SCENARIO, jobs)
    await lane.lab.rows("delete from cograil.schedules where name = %(name)s returning 1", name=name)


async def _fire_unknown(lane: Lane, run: Run) -> None:
    """A schedule with an unknown time zone is paused by the first process that looks; the others are fired."""
    name = f"lost-{next(NUMBERS)}"
    await _due_once(lane, name)
    await lane.lab.rows(LOST, name=name)
    await _fire(lane, run, overlap="skip")
    if await lane.lab.rows(PAUSED, name=name) != [(True,)]:
        run.violations.append("a schedule whose moments cannot be worked out is not paused")
    await lane.lab.rows("delete from cograil.schedules where name = %(name)s returning 1", name=name)


async def _schedule(lane: Lane, run: Run) -> None:
    """Create, change, pause, resume, make good, remove: each once, as the log says."""
    name = mark = f"mark_{next(NUMBERS)}"
    await lane.publish(PLAIN)
    body = {"workflow_id": "plain", "cron": "0 0 1 1 *"}

    async def look() -> list[str]:
        """A server that is woken late makes it again, after it was removed; that one led to nothing yet."""
        ((logged, there, was_removed),) = await lane.lab.rows(LOG, mark=mark, name=name)
        violations = [] if logged == there else [f"there are {there} schedules, the log says {logged}"]
        return violations + ([] if was_removed else await _uneven(lane, name))

    async with caller_session(lane, run, mark, look) as session:
        async with lane.lab.db.transaction("test") as tx:
            day = tx.now.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
        ends = {
            "first": (day - timedelta(days=1)).isoformat(),
            "until": (day + timedelta(days=1)).isoformat(),
        }
        for path, content, method in (
            ("/schedules", body | {"name": name}, "POST"),
            (f"/schedules/{name}", body | {"priority": 1}, "POST"),
            (f"/schedules/{name}/pause", {}, "POST"),
            (f"/schedules/{name}/resume", {}, "POST"),
            (f"/schedules/{name}/backfill", ends, "POST"),
            (f"/schedules/{name}", None, "DELETE"),
        ):
            reply = await session.ask(path, content, method=method)
            if reply.status not in (200, 201) and not (reply.status in (404, 409) and reply.times > 1):
                run.violations.append(f"{method} {path}: the caller was told {reply}")
    run.violations += await look()
    jobs = [job_id for (job_id,) in await lane.lab.rows(JOBS, name=name)]
    if len(jobs) != 1:
        run.violations.append(f"one moment led to {len(jobs)} jobs")
    await all_end(lane, run, PLAIN_SCENARIO, jobs)


SCHEDULE_FIRINGS: dict[str, Act] = {
    "fire": partial(_fire, overlap="skip"),
    "fire_over": partial(_fire, overlap="cancel"),
    "fire_unknown": _fire_unknown,
}
SCHEDULE_CALLS: dict[str, Act] = {"door_schedule": _schedule}
