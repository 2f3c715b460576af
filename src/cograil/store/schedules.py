"""Schedules and their firings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from cograil.model.schedules import Firing, Origin, Plan, Schedule
from cograil.model.workflow import Json
from cograil.store.columns import Columns, bools, jsonbs, texts, times, uuids
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

ADD_SCHEDULE = statement("add_schedule")
CHANGE_SCHEDULE = statement("change_schedule")
LIST_SCHEDULES = statement("list_schedules")
REMOVE_SCHEDULE = statement("remove_schedule")
PAUSE_SCHEDULE = statement("pause_schedule")
RESUME_SCHEDULE = statement("resume_schedule")
LOCK_SCHEDULES = statement("lock_schedules")
LOCK_SCHEDULE = statement("lock_schedule")
LOCK_FILE_SCHEDULES = statement("lock_file_schedules")
FIND_FIRED = statement("find_fired")
ADD_FIRINGS = statement("add_firings")
NOTE_FIRED = statement("note_fired")
NEXT_SCHEDULE = statement("next_schedule")
LIST_FIRINGS = statement("list_firings")
PRUNE_FIRINGS = statement("prune_firings")
SHOW_PASSED = statement("show_passed")
LEAVE_FILE = statement("leave_file")
RETURN_TO_FILE = statement("return_to_file")
DETACH_SCHEDULE = statement("detach_schedule")

SCHEDULES_CHANNEL = "cograil_schedules"
FIRED = partial(
    Columns,
    "fired",
    tenant_id=texts,
    schedule=texts,
    due_at=times,
    outcome=texts,
    is_backfill=bools,
    job_id=uuids,
    error=jsonbs,
)
NOTED = partial(Columns, "noted", tenant_id=texts, schedule=texts, next_at=times)
SHOWN = (
    "name",
    "workflow_id",
    "version",
    "input_params",
    "due_input",
    "priority",
    "cron",
    "timezone",
    "overlap",
    "missed",
    "next_at",
    "paused_at",
    "paused_by",
    "paused_for",
    "created_by",
    "created_at",
    "changed_at",
    "last_due_at",
    "last_outcome",
    "last_job_id",
    "origin",
    "left_file_at",
)

View = dict[str, Json]


def _facts(plan: Plan, next_at: datetime | None) -> dict[str, Any]:
    return {
        "workflow": plan.workflow_id,
        "version": plan.version,
        "input": orjson.dumps(plan.input or {}).decode(),
        "due_input": plan.due_input,
        "priority": plan.priority,
        "cron": plan.cron,
        "timezone": plan.timezone,
        "overlap": plan.overlap,
        "missed": plan.missed,
        "next_at": next_at,
    }


async def add_schedule(
    tx: Transaction,
    tenant: str,
    name: str,
    plan: Plan,
    next_at: datetime | None,
    by: str,
    origin: Origin = "user",
) -> bool:
    """Whether it was made; False when there is one of this name."""
    facts = _facts(plan, next_at) | {"origin": origin}
    return bool(await tx.fetch(ADD_SCHEDULE, tenant=tenant, name=name, by=by, **facts))


async def change_schedule(
    tx: Transaction, tenant: str, name: str, plan: Plan, next_at: datetime | None
) -> bool:
    """Whether there was one."""
    return bool(await tx.fetch(CHANGE_SCHEDULE, tenant=tenant, name=name, **_facts(plan, next_at)))


async def list_schedules(tx: Transaction, tenant: str, name: str | None = None) -> list[View]:
    """All of a tenant, by name; or the one of this name."""
    rows = await tx.fetch(LIST_SCHEDULES, tenant=tenant, name=name)
    views = [dict(zip(SHOWN, row, strict=True)) for row in rows]
    return [view | {"input_params": orjson.loads(view["input_params"])} for view in views]


async def remove_schedule(tx: Transaction, tenant: str, name: str) -> bool:
    """Whether there was one; its firings go with it."""
    return await tx.execute(REMOVE_SCHEDULE, tenant=tenant, name=name) == 1


async def pause_schedule(tx: Transaction, tenant: str, name: str, by: str, reason: str) -> bool:
    """Whether it is paused by this."""
    return await tx.execute(PAUSE_SCHEDULE, tenant=tenant, name=name, by=by, reason=reason) == 1


async def resume_schedule(tx: Transaction, tenant: str, name: str, next_at: datetime | None) -> bool:
    """Whether it was paused."""
    return bool(await tx.fetch(RESUME_SCHEDULE, tenant=tenant, name=name, next_at=next_at))


async def leave_file(tx: Transaction, tenant: str, name: str, by: str, reason: str) -> bool:
    """Note that it is no longer in the file of its workflow, and pause it; False when that was so before."""
    return await tx.execute(LEAVE_FILE, tenant=tenant, name=name, by=by, reason=reason) == 1


async def return_to_file(tx: Transaction, tenant: str, name: str) -> bool:
    """Note that it is in the file of its workflow again; False when it never left. A pause stays."""
    return await tx.execute(RETURN_TO_FILE, tenant=tenant, name=name) == 1


async def detach_schedule(tx: Transaction, tenant: str, name: str) -> bool:
    """Make one that was removed from its file a schedule of people; False when it was not removed."""
    return await tx.execute(DETACH_SCHEDULE, tenant=tenant, name=name) == 1


async def lock_due(tx: Transaction, limit: int) -> list[Schedule]:
    """Those that are due, of all tenants, and in nobody else's hands."""
    return [_schedule(row) for row in await tx.fetch(LOCK_SCHEDULES, limit=limit)]


async def lock_schedule(tx: Transaction, tenant: str, name: str) -> Schedule | None:
    """The one of this name."""
    rows = await tx.fetch(LOCK_SCHEDULE, tenant=tenant, name=name)
    return _schedule(rows[0]) if rows else None


async def lock_file_schedules(
    tx: Transaction, tenant: str, workflow_id: str, names: Sequence[str]
) -> list[Schedule]:
    """Those that came from the file of this workflow, and those of these names, wherever they came from."""
    rows = await tx.fetch(LOCK_FILE_SCHEDULES, tenant=tenant, workflow_id=workflow_id, names=list(names))
    return [_schedule(row) for row in rows]


def _schedule(row: Row) -> Schedule:
    tenant, name, workflow, version, given, due_input, priority, cron, timezone, overlap, missed, *rest = row
    plan = Plan(workflow, cron, timezone, orjson.loads(given), version, due_input, priority, overlap, missed)
    return Schedule(tenant, name, plan, *rest)


async def find_fired(tx: Transaction, tenant: str, name: str, moments: Sequence[datetime]) -> set[datetime]:
    """Those of these moments that have led to a job."""
    rows = await tx.fetch(FIND_FIRED, tenant=tenant, name=name, moments=times(list(moments)))
    return {row[0] for row in rows}


async def add_firings(tx: Transaction, firings: Sequence[Firing]) -> None:
    """Keep what became of these moments."""
    fired = FIRED()
    fired.rows += firings
    if await tx.execute(ADD_FIRINGS, **fired.params()) != len(firings):
        raise AssertionError("a moment of a schedule was fired twice; its lock was not held")


async def note_fired(tx: Transaction, next_moments: Sequence[tuple[Schedule, datetime | None]]) -> None:
    """When each of these is due next."""
    noted = NOTED()
    noted.rows += [(one.tenant_id, one.name, next_at) for one, next_at in next_moments]
    await tx.execute(NOTE_FIRED, **noted.params())


async def seconds_to_next(tx: Transaction) -> float | None:
    """In how many seconds the next one is due; None while there is none."""
    seconds: float | None = (await tx.fetch(NEXT_SCHEDULE))[0][0]
    return seconds


async def list_firings(
    tx: Transaction, tenant: str, name: str, before: datetime | None, limit: int
) -> list[View]:
    """What became of its moments, the latest first; `before` is the last one of the page before."""
    names = ("due_at", "outcome", "is_backfill", "job_id", "job_status", "error", "at")
    rows = await tx.fetch(LIST_FIRINGS, tenant=tenant, name=name, before=before, limit=limit)
    views = [dict(zip(names, row, strict=True)) for row in rows]
    return [view | {"error": view["error"] and orjson.loads(view["error"])} for view in views]


async def show_passed(tx: Transaction, tenant: str, name: str) -> list[View]:
    """The moments since the last job that were passed over, by outcome, and the job that is under way."""
    names = ("outcome", "moments", "job_id", "job_status", "waiting_for")
    return [
        dict(zip(names, row, strict=True)) for row in await tx.fetch(SHOW_PASSED, tenant=tenant, name=name)
    ]


async def prune_firings(tx: Transaction, before: datetime, limit: int) -> int:
    """Forget what became of moments so long ago."""
    return await tx.execute(PRUNE_FIRINGS, before=before, limit=limit)
