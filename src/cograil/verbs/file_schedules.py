"""Schedules of workflow files: created, changed and paused to match the file.

The file of the newest published version counts. A schedule that leaves the file is paused and kept, because
its history and its last job are still useful. It resumes when the file contains it again, or when a user
detaches it from the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from cograil.definitions.cron import next_moment
from cograil.errors import Conflict
from cograil.model.schedule import FileChange, Schedule, SchedulePlan
from cograil.model.workflow import Workflow
from cograil.store import schedule_queries as store
from cograil.store import workflow_queries
from cograil.store.database import Transaction
from cograil.verbs.advance import EngineContext
from cograil.verbs.schedules import checked_next

REMOVED_BY = "workflow file"
REMOVED_REASON = "removed from the workflow file"

VERBS: dict[FileChange, str] = {
    "created": "create",
    "changed": "change",
    "resumed": "resume",
    "paused": "pause",
}


class ScheduleChange(NamedTuple):
    """The effect of publishing a file on one schedule."""

    name: str
    change: FileChange

    @property
    def verb(self) -> str:
        """Return the verb of the audit log, which is also the name of the command."""
        return VERBS[self.change]


async def sync_schedules(
    tx: Transaction,
    engine_context: EngineContext,
    workflow: Workflow,
    tenant: str = "default",
    *,
    by: str = "",
) -> list[ScheduleChange]:
    """Make the schedules of this workflow match its file, and return the changes.

    Changes nothing when a newer version is published, because the newer file counts. Raises Conflict for a
    name that another schedule uses, and InvalidInput when a job of the schedule would be refused.
    """
    if workflow.app is not None:
        return []
    newest = await workflow_queries.find_workflow(tx, tenant, workflow.workflow_id, None)
    if newest is None or newest.version != workflow.version:
        return []
    locked = await store.lock_file_schedules(tx, tenant, workflow.workflow_id, list(workflow.schedules))
    known = {schedule.name: schedule for schedule in locked}
    _require_free_names(workflow, known)
    changes = []
    for name, plan in workflow.schedules.items():
        change = await _write(tx, engine_context, tenant, name, plan, known.get(name), by)
        if change is not None:
            changes.append(ScheduleChange(name, change))
    return changes + await _pause_removed(tx, workflow, locked)


def _require_free_names(workflow: Workflow, known: Mapping[str, Schedule]) -> None:
    for name in workflow.schedules:
        schedule = known.get(name)
        if schedule is None or (
            schedule.origin == "file" and schedule.plan.workflow_id == workflow.workflow_id
        ):
            continue
        owner = (
            f"is in the file of workflow {schedule.plan.workflow_id!r}"
            if schedule.origin == "file"
            else "exists"
        )
        raise Conflict(
            f"a schedule {name!r} {owner} already; use another name in the file of "
            f"{workflow.workflow_id!r}, or remove it with `cograil schedules remove {name}`"
        )


async def _write(
    tx: Transaction,
    engine_context: EngineContext,
    tenant: str,
    name: str,
    plan: SchedulePlan,
    old: Schedule | None,
    by: str,
) -> FileChange | None:
    """Write one schedule of the file. An unchanged schedule is not written, so its next firing stays."""
    if old is None:
        next_at = await checked_next(tx, engine_context, tenant, plan)
        await store.add_schedule(tx, tenant, name, plan, next_at, by, "file")
        return "created"
    is_same = _comparable(old.plan) == _comparable(plan)
    if not is_same:
        next_at = await checked_next(tx, engine_context, tenant, plan)
        await store.change_schedule(tx, tenant, name, plan, next_at)
    await store.return_to_file(tx, tenant, name)
    if old.paused_by == REMOVED_BY:
        await store.resume_schedule(tx, tenant, name, next_moment(plan.cron, plan.timezone, tx.now))
        return "resumed"
    return None if is_same else "changed"


def _comparable(plan: SchedulePlan) -> bytes:
    return orjson.dumps(plan, option=orjson.OPT_SORT_KEYS)


async def _pause_removed(
    tx: Transaction, workflow: Workflow, locked: Sequence[Schedule]
) -> list[ScheduleChange]:
    removed = [
        schedule
        for schedule in locked
        if schedule.name not in workflow.schedules and schedule.left_file_at is None
    ]
    for schedule in removed:
        await store.leave_file(tx, schedule.tenant_id, schedule.name, REMOVED_BY, REMOVED_REASON)
    return [ScheduleChange(schedule.name, "paused") for schedule in removed if schedule.paused_by is None]
