"""Schedules: created and changed by people, and fired once per due time by the first scheduler to lock
them.

Firing locks the schedule, records the outcome of the due time and submits the job in one transaction. Two
schedulers never fire the same due time, and a crash in between fires nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import orjson

from cograil.definitions.cron import check_calendar, first_moments, moments_until, next_moment
from cograil.errors import AlreadyTerminal, CograilError, Conflict, InvalidInput, Problem, ScheduleNotFound
from cograil.model.schedule import Firing, Outcome, Schedule, SchedulePlan
from cograil.model.workflow import Json
from cograil.store import schedule_queries as store
from cograil.store.database import Transaction
from cograil.store.schedule_queries import View
from cograil.store.write_batch import NewJobRow
from cograil.verbs.advance import EngineContext
from cograil.verbs.cancel import cancel
from cograil.verbs.new_job import Submission, checked, find_definition
from cograil.verbs.submit import submit_each
from cograil.verbs.workflow_ownership import check_starter

AT_ONCE = 50  # schedules per transaction
MAX_MOMENTS = 1000  # due times of one schedule that are made up at once
LATE_SECONDS = 60.0  # a due time that was checked later than this counts as missed
MAX_WORD = 256
PRUNED_AT_ONCE = 5000
IS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}").fullmatch


# -- people -----------------------------------------------------------------------------------------


async def create_schedule(
    tx: Transaction,
    engine_context: EngineContext,
    tenant: str,
    name: str,
    plan: SchedulePlan,
    *,
    by: str = "",
) -> View:
    """Create a schedule. Raises InvalidInput, WorkflowNotFound, or Conflict for a name that is in use."""
    if not IS_NAME(name):
        message = "a name must be 1 to 64 letters, digits, dots, dashes and underscores"
        raise InvalidInput([Problem("invalid_name", message, "/name")])
    next_at = await checked_next(tx, engine_context, tenant, plan)
    if not await store.add_schedule(tx, tenant, name, plan, next_at, by):
        raise Conflict(f"a schedule {name!r} exists already")
    return await show_schedule(tx, tenant, name)


async def change_schedule(
    tx: Transaction, engine_context: EngineContext, tenant: str, name: str, plan: SchedulePlan
) -> View:
    """Replace the plan of a schedule.

    Raises as `create_schedule` does, ScheduleNotFound, or Conflict for a schedule of a workflow file.
    """
    await _lock_changeable(tx, tenant, name)
    return await _change(tx, engine_context, tenant, name, plan)


async def update_schedule(
    tx: Transaction, engine_context: EngineContext, tenant: str, name: str, facts: Mapping[str, Json]
) -> View:
    """Change these fields of the plan and keep the others; a new workflow runs in its newest version.

    Raises as `change_schedule` does.
    """
    plan = await _lock_changeable(tx, tenant, name)
    if facts.get("workflow_id", plan.workflow_id) != plan.workflow_id:
        plan = replace(plan, version=None)
    return await _change(tx, engine_context, tenant, name, replace(plan, **facts))


async def _lock_changeable(tx: Transaction, tenant: str, name: str) -> SchedulePlan:
    """Return the plan of a schedule that may be changed here."""
    schedule = await store.lock_schedule(tx, tenant, name) if IS_NAME(name) else None
    if schedule is None:
        raise ScheduleNotFound(name)
    if schedule.origin == "file":
        raise Conflict(
            f"schedule {name!r} is in the file of workflow {schedule.plan.workflow_id!r}: change it there and "
            "publish the file; no new version is needed"
        )
    return schedule.plan


async def _change(
    tx: Transaction, engine_context: EngineContext, tenant: str, name: str, plan: SchedulePlan
) -> View:
    next_at = await checked_next(tx, engine_context, tenant, plan)
    await store.change_schedule(tx, tenant, name, plan, next_at)
    return await show_schedule(tx, tenant, name)


async def checked_next(
    tx: Transaction, engine_context: EngineContext, tenant: str, plan: SchedulePlan
) -> datetime | None:
    """Return its first due time. Raises now for jobs that would be refused later."""
    check_calendar(plan.cron, plan.timezone)
    definition = await find_definition(tx, tenant, plan.workflow_id, plan.version)
    workflow = await engine_context.definitions.get(tx, definition.definition_id)
    check_starter(workflow, None)
    checked(tx, _submission("", plan, tx.now), workflow)
    return next_moment(plan.cron, plan.timezone, tx.now)


async def list_schedules(tx: Transaction, tenant: str) -> list[View]:
    """Return all schedules of a tenant, by name."""
    return await store.list_schedules(tx, tenant)


async def show_schedule(tx: Transaction, tenant: str, name: str) -> View:
    """Return a schedule. Raises ScheduleNotFound."""
    schedules = await store.list_schedules(tx, tenant, name) if IS_NAME(name) else []
    if not schedules:
        raise ScheduleNotFound(name)
    return schedules[0]


async def passed_over(tx: Transaction, tenant: str, name: str) -> list[View]:
    """Return how many due times since the last job led to no job, and why. Raises ScheduleNotFound."""
    await show_schedule(tx, tenant, name)
    counts = await store.show_passed(tx, tenant, name)
    return [count | {"reason": _why_passed(count)} for count in counts]


def _why_passed(passed: View) -> str:
    if passed["outcome"] == "missed":
        return "no orchestrator was running at the time, and the `missed` policy does not run them later"
    if passed["outcome"] == "refused":
        return "the job was refused; `firings` says why"
    if passed["job_id"] is None:
        return "the previous job was still running, and `overlap` is skip"
    waits = f", waiting for {passed['waiting_for']}" if passed["waiting_for"] else ""
    return f"job {passed['job_id']} is still {passed['job_status']}{waits}, and `overlap` is skip"


async def run_schedule(tx: Transaction, engine_context: EngineContext, tenant: str, name: str) -> View:
    """Submit a job of this schedule now, in addition to its calendar, even while the schedule is paused.

    Raises ScheduleNotFound, or the error that refuses the job.
    """
    schedule = await store.lock_schedule(tx, tenant, name) if IS_NAME(name) else None
    if schedule is None:
        raise ScheduleNotFound(name)
    (made,) = await submit_each(
        tx, engine_context, [_submission(schedule.name, schedule.plan, tx.now)], tenant
    )
    if not isinstance(made, NewJobRow):
        raise made
    await store.add_firings(tx, [Firing(tenant, name, tx.now, "submitted", False, made.job_id)])
    return {"name": name, "job_id": made.job_id, "due_at": tx.now}


async def remove_schedule(tx: Transaction, tenant: str, name: str) -> None:
    """Remove a schedule; its jobs continue. Raises ScheduleNotFound."""
    if not await store.remove_schedule(tx, tenant, name):
        raise ScheduleNotFound(name)


async def pause_schedule(tx: Transaction, tenant: str, name: str, *, by: str = "", reason: str = "") -> View:
    """Pause a schedule: due times lead to no job. Raises ScheduleNotFound, or Conflict when it is paused."""
    if any(len(word) > MAX_WORD or "\0" in word for word in (by, reason)):
        raise InvalidInput([Problem("invalid_value", f"more than {MAX_WORD} characters, or NUL", "/reason")])
    await show_schedule(tx, tenant, name)
    if not await store.pause_schedule(tx, tenant, name, by, reason):
        raise Conflict(f"schedule {name!r} is paused already")
    return await show_schedule(tx, tenant, name)


async def resume_schedule(tx: Transaction, tenant: str, name: str, *, detach: bool = False) -> View:
    """Resume a schedule; due times during the pause are not made up.

    A schedule that was removed from its workflow file needs `detach`: it becomes independent of the file.
    Raises ScheduleNotFound, or Conflict.
    """
    schedule = await store.lock_schedule(tx, tenant, name)
    if schedule is None:
        raise ScheduleNotFound(name)
    if schedule.left_file_at is not None and not detach:
        raise Conflict(
            f"schedule {name!r} was removed from the file of workflow {schedule.plan.workflow_id!r}: put it "
            "back and publish the file, or resume it without the file with "
            f"`cograil schedules resume {name} --detach` (`detach` in the API)"
        )
    if detach and not await store.detach_schedule(tx, tenant, name):
        raise Conflict(f"schedule {name!r} was not removed from a workflow file; resume it without `detach`")
    next_at = next_moment(schedule.plan.cron, schedule.plan.timezone, tx.now)
    if not await store.resume_schedule(tx, tenant, name, next_at):
        raise Conflict(f"schedule {name!r} is not paused")
    return await show_schedule(tx, tenant, name)


async def list_firings(
    tx: Transaction, tenant: str, name: str, before: datetime | None = None, limit: int = 50
) -> list[View]:
    """Return the outcomes of its due times, the latest first. Raises ScheduleNotFound."""
    await show_schedule(tx, tenant, name)
    return await store.list_firings(tx, tenant, name, before, limit)


async def backfill(
    tx: Transaction,
    engine_context: EngineContext,
    tenant: str,
    name: str,
    first: datetime,
    until: datetime,
    *,
    is_preview: bool = False,
) -> View:
    """Submit a job for each due time from `first` up to `until` that has led to none, in one transaction.

    Raises ScheduleNotFound, or InvalidInput for a range that is empty, has more than a thousand due times,
    or ends in the future.
    """
    schedule = await store.lock_schedule(tx, tenant, name)
    if schedule is None:
        raise ScheduleNotFound(name)
    wanted = _moments_between(schedule.plan, first, until, tx.now)
    fired = await store.find_fired(tx, tenant, name, wanted)
    left = [moment for moment in wanted if moment not in fired]
    firings = [] if is_preview else await _submit(tx, engine_context, schedule, left, is_backfill=True)
    if firings:
        await store.add_firings(tx, firings)
    submitted = len(left) if is_preview else sum(firing.outcome == "submitted" for firing in firings)
    return {
        "name": name,
        "submitted": submitted,
        "refused": len(left) - submitted,
        "kept": len(fired),
        "moments": left,
        "is_preview": is_preview,
    }


def _moments_between(plan: SchedulePlan, first: datetime, until: datetime, now: datetime) -> list[datetime]:
    if not first < until or until > now:
        message = "a range must begin before it ends, and end before now"
        raise InvalidInput([Problem("out_of_range", message, "/until")])
    moments = first_moments(plan.cron, plan.timezone, first, until, MAX_MOMENTS + 1)
    if len(moments) > MAX_MOMENTS:
        message = f"this range has more than {MAX_MOMENTS:,} moments; take a shorter one"
        raise InvalidInput([Problem("out_of_range", message, "/until")])
    return moments


# -- the clock --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passed:
    """Due times of one schedule that led to no job, and why."""

    schedule: str
    outcome: str
    moments: int
    job_id: str | None = None  # the job that was still running


@dataclass(frozen=True, slots=True)
class Fired:
    """The result of one pass: jobs submitted, due times without a job, and whether there may be more."""

    submitted: int = 0
    passed_over: int = 0
    is_full: bool = False
    passed: tuple[Passed, ...] = field(default=(), compare=False)


async def fire_due(tx: Transaction, engine_context: EngineContext, limit: int = AT_ONCE) -> Fired:
    """Fire the due schedules of all tenants, except those that another process has locked."""
    schedules = await store.lock_due(tx, limit)
    due = [schedule for schedule in schedules if await _is_known(tx, schedule)]
    firings = [firing for schedule in due for firing in await _fire(tx, engine_context, schedule)]
    if firings:
        await store.add_firings(tx, firings)
    if due:
        await store.note_fired(
            tx,
            [(schedule, next_moment(schedule.plan.cron, schedule.plan.timezone, tx.now)) for schedule in due],
        )
    submitted = sum(firing.outcome == "submitted" for firing in firings)
    return Fired(submitted, len(firings) - submitted, len(schedules) >= limit, _passed_of(due, firings))


def _passed_of(due: Sequence[Schedule], firings: Sequence[Firing]) -> tuple[Passed, ...]:
    under_way = {(schedule.tenant_id, schedule.name): schedule.job_under_way for schedule in due}
    counts = Counter(
        (firing.tenant_id, firing.schedule, firing.outcome)
        for firing in firings
        if firing.outcome != "submitted"
    )
    return tuple(
        Passed(name, outcome, count, under_way[tenant, name] if outcome == "overlapped" else None)
        for (tenant, name, outcome), count in counts.items()
    )


async def _is_known(tx: Transaction, schedule: Schedule) -> bool:
    """Return whether this host knows the time zone of the schedule; hosts may know different zones.

    A schedule with an unknown zone is paused with the reason; otherwise it would block all others.
    """
    try:
        check_calendar(schedule.plan.cron, schedule.plan.timezone)
    except InvalidInput as error:
        await store.pause_schedule(tx, schedule.tenant_id, schedule.name, "cograil", str(error)[:MAX_WORD])
        return False
    return True


async def prune_firings(tx: Transaction, before: datetime) -> int:
    """Delete old outcomes of due times, in batches; return how many."""
    return await store.prune_firings(tx, before, PRUNED_AT_ONCE)


async def seconds_to_next(tx: Transaction) -> float | None:
    """Return the seconds until a schedule is due; None when none is."""
    return await store.seconds_to_next(tx)


async def _fire(tx: Transaction, engine_context: EngineContext, schedule: Schedule) -> list[Firing]:
    """Decide the outcome of the past due times of this schedule."""
    assert schedule.next_at is not None
    plan = schedule.plan
    came = moments_until(plan.cron, plan.timezone, schedule.next_at, tx.now, MAX_MOMENTS)
    fired = await store.find_fired(
        tx, schedule.tenant_id, schedule.name, came
    )  # a backfill has submitted these
    came = [moment for moment in came if moment not in fired]
    wanted = wanted_moments(came, tx.now, plan.missed)
    firings = [_passed(schedule, moment, "missed") for moment in came if moment not in wanted]
    if schedule.job_under_way is not None and wanted:
        if plan.overlap == "skip":
            return [*firings, *[_passed(schedule, moment, "overlapped") for moment in wanted]]
        if plan.overlap == "cancel":
            await _cancel(tx, engine_context, schedule.job_under_way, schedule.name)
    if plan.overlap != "allow" and len(wanted) > 1:  # one job at a time is wanted: keep the newest due time
        firings += [_passed(schedule, moment, "overlapped") for moment in wanted[:-1]]
        wanted = wanted[-1:]
    return firings + await _submit(tx, engine_context, schedule, wanted)


def wanted_moments(came: Sequence[datetime], now: datetime, missed: str) -> list[datetime]:
    """Return those of these due times that lead to a job; some may have passed while no scheduler ran."""
    on_time = [moment for moment in came if now - moment <= timedelta(seconds=LATE_SECONDS)]
    if missed == "all":
        return list(came)
    if missed == "once" and not on_time:
        return list(came[-1:])
    return on_time


async def _cancel(tx: Transaction, engine_context: EngineContext, job_id: str, name: str) -> None:
    try:
        await cancel(tx, engine_context, job_id, by=f"schedule {name}"[:64], reason="the next one is due")
    except AlreadyTerminal:
        return


async def _submit(
    tx: Transaction,
    engine_context: EngineContext,
    schedule: Schedule,
    due: Sequence[datetime],
    *,
    is_backfill: bool = False,
) -> list[Firing]:
    """Submit a job for each of these due times. A refused job is recorded with the reason, because no
    caller waits.
    """
    results = await submit_each(
        tx, engine_context, [_submission(schedule.name, schedule.plan, at) for at in due], schedule.tenant_id
    )
    return [
        Firing(schedule.tenant_id, schedule.name, at, "submitted", is_backfill, job.job_id)
        if isinstance(job, NewJobRow)
        else Firing(schedule.tenant_id, schedule.name, at, "refused", is_backfill, None, _reason(job))
        for at, job in zip(due, results, strict=True)
    ]


def _submission(name: str, plan: SchedulePlan, due_at: datetime) -> Submission:
    moment = due_at.isoformat().replace("+00:00", "Z")
    job_input = dict(plan.input or {})
    if plan.due_input is not None:
        job_input[plan.due_input] = moment
    submission = Submission(
        plan.workflow_id, job_input, plan.version, priority=plan.priority, submitted_by="schedule"
    )
    return replace(submission, labels={"schedule": name, "due_at": moment})


def _passed(schedule: Schedule, moment: datetime, outcome: Outcome) -> Firing:
    return Firing(schedule.tenant_id, schedule.name, moment, outcome)


def _reason(error: CograilError) -> bytes:
    return orjson.dumps({"code": error.code, "message": str(error)[:1000]})
