"""Schedules: made and changed by people, fired by whoever looks first, once for each moment.

Firing locks the schedule, keeps what becomes of the moment and submits the job in one transaction. Two who
look at the same time do not both fire, and one that dies in between has fired nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import orjson

from cograil.definitions.calendar import check_calendar, first_moments, moments_until, next_moment
from cograil.errors import AlreadyTerminal, CograilError, Conflict, InvalidInput, Problem, ScheduleNotFound
from cograil.model.schedules import Firing, Outcome, Plan, Schedule
from cograil.model.workflow import Json
from cograil.store import schedules as store
from cograil.store.database import Transaction
from cograil.store.schedules import View
from cograil.store.writing import MadeRow
from cograil.verbs.advance import Decider
from cograil.verbs.cancel import cancel
from cograil.verbs.making import Submission, checked, find_definition
from cograil.verbs.ownership import check_starter
from cograil.verbs.submit import submit_each

AT_ONCE = 50  # schedules of one transaction
MOST_MOMENTS = 1000  # of one schedule, that are made good at once
LATE_SECONDS = 60.0  # a moment that was looked at later than this was missed
MAX_WORD = 256
PRUNED_AT_ONCE = 5000
IS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}").fullmatch


# -- people -----------------------------------------------------------------------------------------


async def create_schedule(
    tx: Transaction, decider: Decider, tenant: str, name: str, plan: Plan, *, by: str = ""
) -> View:
    """Run this by the calendar from now on. Raises InvalidInput, WorkflowNotFound, or Conflict for a name
    that is taken.
    """
    if not IS_NAME(name):
        message = "a name is 1 to 64 letters, digits, dots, dashes and underscores"
        raise InvalidInput([Problem("invalid_name", message, "/name")])
    next_at = await checked_next(tx, decider, tenant, plan)
    if not await store.add_schedule(tx, tenant, name, plan, next_at, by):
        raise Conflict(f"there is a schedule {name!r} already")
    return await show_schedule(tx, tenant, name)


async def change_schedule(tx: Transaction, decider: Decider, tenant: str, name: str, plan: Plan) -> View:
    """Run this instead, from now on.

    Raises as `create_schedule` does, ScheduleNotFound, or Conflict for one that is in a workflow file.
    """
    await _lock_changeable(tx, tenant, name)
    return await _change(tx, decider, tenant, name, plan)


async def update_schedule(
    tx: Transaction, decider: Decider, tenant: str, name: str, facts: Mapping[str, Json]
) -> View:
    """Change these facts of the plan and keep the others; another workflow runs in its newest version.

    Raises as `change_schedule` does.
    """
    plan = await _lock_changeable(tx, tenant, name)
    if facts.get("workflow_id", plan.workflow_id) != plan.workflow_id:
        plan = replace(plan, version=None)
    return await _change(tx, decider, tenant, name, replace(plan, **facts))


async def _lock_changeable(tx: Transaction, tenant: str, name: str) -> Plan:
    """The plan of a schedule that may be changed here."""
    found = await store.lock_schedule(tx, tenant, name) if IS_NAME(name) else None
    if found is None:
        raise ScheduleNotFound(name)
    if found.origin == "file":
        raise Conflict(
            f"schedule {name!r} is in the file of workflow {found.plan.workflow_id!r}: change it there and "
            "publish the file; no new version is needed"
        )
    return found.plan


async def _change(tx: Transaction, decider: Decider, tenant: str, name: str, plan: Plan) -> View:
    next_at = await checked_next(tx, decider, tenant, plan)
    await store.change_schedule(tx, tenant, name, plan, next_at)
    return await show_schedule(tx, tenant, name)


async def checked_next(tx: Transaction, decider: Decider, tenant: str, plan: Plan) -> datetime | None:
    """When it is due first. What its jobs would be refused for is said now, and not at night."""
    check_calendar(plan.cron, plan.timezone)
    found = await find_definition(tx, tenant, plan.workflow_id, plan.version)
    workflow = await decider.catalog.get(tx, found.definition_id)
    check_starter(workflow, None)
    checked(tx, _submission("", plan, tx.now), workflow)
    return next_moment(plan.cron, plan.timezone, tx.now)


async def list_schedules(tx: Transaction, tenant: str) -> list[View]:
    """All of a tenant, by name."""
    return await store.list_schedules(tx, tenant)


async def show_schedule(tx: Transaction, tenant: str, name: str) -> View:
    """One of them. Raises ScheduleNotFound."""
    found = await store.list_schedules(tx, tenant, name) if IS_NAME(name) else []
    if not found:
        raise ScheduleNotFound(name)
    return found[0]


async def passed_over(tx: Transaction, tenant: str, name: str) -> list[View]:
    """How many moments since the last job were passed over, and why. Raises ScheduleNotFound."""
    await show_schedule(tx, tenant, name)
    found = await store.show_passed(tx, tenant, name)
    return [one | {"reason": _why_passed(one)} for one in found]


def _why_passed(one: View) -> str:
    if one["outcome"] == "missed":
        return "no orchestrator was running at the time, and the `missed` policy does not run them later"
    if one["outcome"] == "refused":
        return "the job was refused; `firings` says why"
    if one["job_id"] is None:
        return "the previous job was still running, and `overlap` is skip"
    waits = f", waiting for {one['waiting_for']}" if one["waiting_for"] else ""
    return f"job {one['job_id']} is still {one['job_status']}{waits}, and `overlap` is skip"


async def run_schedule(tx: Transaction, decider: Decider, tenant: str, name: str) -> View:
    """Submit a job of this schedule now, besides its calendar, also while it is paused.

    Raises ScheduleNotFound, or why the job is refused.
    """
    found = await store.lock_schedule(tx, tenant, name) if IS_NAME(name) else None
    if found is None:
        raise ScheduleNotFound(name)
    (made,) = await submit_each(tx, decider, [_submission(found.name, found.plan, tx.now)], tenant)
    if not isinstance(made, MadeRow):
        raise made
    await store.add_firings(tx, [Firing(tenant, name, tx.now, "submitted", False, made.job_id)])
    return {"name": name, "job_id": made.job_id, "due_at": tx.now}


async def remove_schedule(tx: Transaction, tenant: str, name: str) -> None:
    """Nothing more of it is fired; jobs that were go on. Raises ScheduleNotFound."""
    if not await store.remove_schedule(tx, tenant, name):
        raise ScheduleNotFound(name)


async def pause_schedule(tx: Transaction, tenant: str, name: str, *, by: str = "", reason: str = "") -> View:
    """Moments that come are passed over. Raises ScheduleNotFound, or Conflict when it is paused."""
    if any(len(word) > MAX_WORD or "\0" in word for word in (by, reason)):
        raise InvalidInput([Problem("invalid_value", f"more than {MAX_WORD} characters, or NUL", "/reason")])
    await show_schedule(tx, tenant, name)
    if not await store.pause_schedule(tx, tenant, name, by, reason):
        raise Conflict(f"schedule {name!r} is paused already")
    return await show_schedule(tx, tenant, name)


async def resume_schedule(tx: Transaction, tenant: str, name: str, *, detach: bool = False) -> View:
    """Run it again from now on; what was due meanwhile is not made up.

    One that was removed from its workflow file needs `detach`: it becomes a schedule of its own, which the
    file no longer changes. Raises ScheduleNotFound, or Conflict.
    """
    found = await store.lock_schedule(tx, tenant, name)
    if found is None:
        raise ScheduleNotFound(name)
    if found.left_file_at is not None and not detach:
        raise Conflict(
            f"schedule {name!r} was removed from the file of workflow {found.plan.workflow_id!r}: put it "
            "back and publish the file, or resume it without the file with "
            f"`cograil schedules resume {name} --detach` (`detach` in the API)"
        )
    if detach and not await store.detach_schedule(tx, tenant, name):
        raise Conflict(f"schedule {name!r} was not removed from a workflow file; resume it without `detach`")
    next_at = next_moment(found.plan.cron, found.plan.timezone, tx.now)
    if not await store.resume_schedule(tx, tenant, name, next_at):
        raise Conflict(f"schedule {name!r} is not paused")
    return await show_schedule(tx, tenant, name)


async def list_firings(
    tx: Transaction, tenant: str, name: str, before: datetime | None = None, limit: int = 50
) -> list[View]:
    """What became of its moments, the latest first. Raises ScheduleNotFound."""
    await show_schedule(tx, tenant, name)
    return await store.list_firings(tx, tenant, name, before, limit)


async def backfill(
    tx: Transaction,
    decider: Decider,
    tenant: str,
    name: str,
    first: datetime,
    until: datetime,
    *,
    is_preview: bool = False,
) -> View:
    """Submit a job for each moment from `first` up to `until` that has led to none, all at once.

    Raises ScheduleNotFound, or InvalidInput for a range that is none, has more than a thousand moments, or is
    not over yet.
    """
    found = await store.lock_schedule(tx, tenant, name)
    if found is None:
        raise ScheduleNotFound(name)
    wanted = _moments_between(found.plan, first, until, tx.now)
    fired = await store.find_fired(tx, tenant, name, wanted)
    left = [moment for moment in wanted if moment not in fired]
    firings = [] if is_preview else await _submit(tx, decider, found, left, is_backfill=True)
    if firings:
        await store.add_firings(tx, firings)
    submitted = len(left) if is_preview else sum(one.outcome == "submitted" for one in firings)
    return {
        "name": name,
        "submitted": submitted,
        "refused": len(left) - submitted,
        "kept": len(fired),
        "moments": left,
        "is_preview": is_preview,
    }


def _moments_between(plan: Plan, first: datetime, until: datetime, now: datetime) -> list[datetime]:
    if not first < until or until > now:
        message = "a range begins before it ends, and ends before now"
        raise InvalidInput([Problem("out_of_range", message, "/until")])
    found = first_moments(plan.cron, plan.timezone, first, until, MOST_MOMENTS + 1)
    if len(found) > MOST_MOMENTS:
        message = f"this range has more than {MOST_MOMENTS:,} moments; take a shorter one"
        raise InvalidInput([Problem("out_of_range", message, "/until")])
    return found


# -- the clock --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passed:
    """Moments of one schedule that led to no job, and why."""

    schedule: str
    outcome: str
    moments: int
    job_id: str | None = None  # the job that is in the way


@dataclass(frozen=True, slots=True)
class Fired:
    """What one look did: jobs submitted, moments passed over, and whether there may be more."""

    submitted: int = 0
    passed_over: int = 0
    is_full: bool = False
    passed: tuple[Passed, ...] = field(default=(), compare=False)


async def fire_due(tx: Transaction, decider: Decider, limit: int = AT_ONCE) -> Fired:
    """Fire what is due, of all tenants, except what is in somebody else's hands."""
    found = await store.lock_due(tx, limit)
    due = [one for one in found if await _is_known(tx, one)]
    firings = [firing for one in due for firing in await _fire(tx, decider, one)]
    if firings:
        await store.add_firings(tx, firings)
    if due:
        await store.note_fired(
            tx, [(one, next_moment(one.plan.cron, one.plan.timezone, tx.now)) for one in due]
        )
    submitted = sum(one.outcome == "submitted" for one in firings)
    return Fired(submitted, len(firings) - submitted, len(found) >= limit, _passed_of(due, firings))


def _passed_of(due: Sequence[Schedule], firings: Sequence[Firing]) -> tuple[Passed, ...]:
    under_way = {(one.tenant_id, one.name): one.job_under_way for one in due}
    counts = Counter(
        (one.tenant_id, one.schedule, one.outcome) for one in firings if one.outcome != "submitted"
    )
    return tuple(
        Passed(name, outcome, count, under_way[tenant, name] if outcome == "overlapped" else None)
        for (tenant, name, outcome), count in counts.items()
    )


async def _is_known(tx: Transaction, one: Schedule) -> bool:
    """Whether its moments can be worked out here: a host may not know a time zone that another one knows.

    One of which they cannot is paused and says why; else it would hold up all others, for good.
    """
    try:
        check_calendar(one.plan.cron, one.plan.timezone)
    except InvalidInput as error:
        await store.pause_schedule(tx, one.tenant_id, one.name, "cograil", str(error)[:MAX_WORD])
        return False
    return True


async def prune_firings(tx: Transaction, before: datetime) -> int:
    """Forget what became of moments so long ago, some at a time; how many."""
    return await store.prune_firings(tx, before, PRUNED_AT_ONCE)


async def seconds_to_next(tx: Transaction) -> float | None:
    """In how many seconds something is due; None while there is nothing."""
    return await store.seconds_to_next(tx)


async def _fire(tx: Transaction, decider: Decider, one: Schedule) -> list[Firing]:
    """What becomes of the moments of this schedule that have come."""
    assert one.next_at is not None
    plan = one.plan
    came = moments_until(plan.cron, plan.timezone, one.next_at, tx.now, MOST_MOMENTS)
    fired = await store.find_fired(tx, one.tenant_id, one.name, came)  # somebody made them good by hand
    came = [moment for moment in came if moment not in fired]
    wanted = wanted_moments(came, tx.now, plan.missed)
    firings = [_passed(one, moment, "missed") for moment in came if moment not in wanted]
    if one.job_under_way is not None and wanted:
        if plan.overlap == "skip":
            return [*firings, *[_passed(one, moment, "overlapped") for moment in wanted]]
        if plan.overlap == "cancel":
            await _cancel(tx, decider, one.job_under_way, one.name)
    if plan.overlap != "allow" and len(wanted) > 1:  # one at a time is wanted, and the last is the newest
        firings += [_passed(one, moment, "overlapped") for moment in wanted[:-1]]
        wanted = wanted[-1:]
    return firings + await _submit(tx, decider, one, wanted)


def wanted_moments(came: Sequence[datetime], now: datetime, missed: str) -> list[datetime]:
    """Those of these moments that lead to a job, of which some may have come while nobody looked."""
    on_time = [moment for moment in came if now - moment <= timedelta(seconds=LATE_SECONDS)]
    if missed == "all":
        return list(came)
    if missed == "once" and not on_time:
        return list(came[-1:])
    return on_time


async def _cancel(tx: Transaction, decider: Decider, job_id: str, name: str) -> None:
    try:
        await cancel(tx, decider, job_id, by=f"schedule {name}"[:64], reason="the next one is due")
    except AlreadyTerminal:
        return


async def _submit(
    tx: Transaction, decider: Decider, one: Schedule, due: Sequence[datetime], *, is_backfill: bool = False
) -> list[Firing]:
    """A job for each of these moments. One that is refused is kept with the reason: nobody waits for it."""
    made = await submit_each(tx, decider, [_submission(one.name, one.plan, at) for at in due], one.tenant_id)
    return [
        Firing(one.tenant_id, one.name, at, "submitted", is_backfill, job.job_id)
        if isinstance(job, MadeRow)
        else Firing(one.tenant_id, one.name, at, "refused", is_backfill, None, _reason(job))
        for at, job in zip(due, made, strict=True)
    ]


def _submission(name: str, plan: Plan, due_at: datetime) -> Submission:
    moment = due_at.isoformat().replace("+00:00", "Z")
    given = dict(plan.input or {})
    if plan.due_input is not None:
        given[plan.due_input] = moment
    one = Submission(plan.workflow_id, given, plan.version, priority=plan.priority, submitted_by="schedule")
    return replace(one, labels={"schedule": name, "due_at": moment})


def _passed(one: Schedule, moment: datetime, outcome: Outcome) -> Firing:
    return Firing(one.tenant_id, one.name, moment, outcome)


def _reason(error: CograilError) -> bytes:
    return orjson.dumps({"code": error.code, "message": str(error)[:1000]})
