"""Schedules of workflow files: created, changed and paused so that they are what the file says.

The file of the newest published version counts. A schedule that leaves the file is paused and kept, for its
history and its last job are still of use; one that comes back goes on. Until then it is resumed only by
somebody who detaches it from the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from cograil.definitions.calendar import next_moment
from cograil.errors import Conflict
from cograil.model.schedules import FileChange, Plan, Schedule
from cograil.model.workflow import Workflow
from cograil.store import schedules as store
from cograil.store import workflows
from cograil.store.database import Transaction
from cograil.verbs.advance import Decider
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
    """What publishing a file did to one schedule."""

    name: str
    change: FileChange

    @property
    def verb(self) -> str:
        """For the audit log, which names what was done as commands do."""
        return VERBS[self.change]


async def sync_schedules(
    tx: Transaction, decider: Decider, workflow: Workflow, tenant: str = "default", *, by: str = ""
) -> list[ScheduleChange]:
    """Make the schedules of this workflow what its file says, and return what changed.

    Nothing changes where a newer version is published: its file counts. Raises Conflict for a name that
    another schedule has, and InvalidInput where the jobs would be refused.
    """
    if workflow.app is not None:
        return []
    newest = await workflows.find_workflow(tx, tenant, workflow.workflow_id, None)
    if newest is None or newest.version != workflow.version:
        return []
    locked = await store.lock_file_schedules(tx, tenant, workflow.workflow_id, list(workflow.schedules))
    known = {one.name: one for one in locked}
    _require_free_names(workflow, known)
    changes = []
    for name, plan in workflow.schedules.items():
        change = await _write(tx, decider, tenant, name, plan, known.get(name), by)
        if change is not None:
            changes.append(ScheduleChange(name, change))
    return changes + await _pause_removed(tx, workflow, locked)


def _require_free_names(workflow: Workflow, known: Mapping[str, Schedule]) -> None:
    for name in workflow.schedules:
        one = known.get(name)
        if one is None or (one.origin == "file" and one.plan.workflow_id == workflow.workflow_id):
            continue
        owner = f"is in the file of workflow {one.plan.workflow_id!r}" if one.origin == "file" else "exists"
        raise Conflict(
            f"a schedule {name!r} {owner} already; use another name in the file of "
            f"{workflow.workflow_id!r}, or remove it with `cograil schedules remove {name}`"
        )


async def _write(
    tx: Transaction, decider: Decider, tenant: str, name: str, plan: Plan, old: Schedule | None, by: str
) -> FileChange | None:
    """Write one schedule of the file. One that is the same already is not touched: its next moment stays."""
    if old is None:
        next_at = await checked_next(tx, decider, tenant, plan)
        await store.add_schedule(tx, tenant, name, plan, next_at, by, "file")
        return "created"
    is_same = _comparable(old.plan) == _comparable(plan)
    if not is_same:
        next_at = await checked_next(tx, decider, tenant, plan)
        await store.change_schedule(tx, tenant, name, plan, next_at)
    await store.return_to_file(tx, tenant, name)
    if old.paused_by == REMOVED_BY:
        await store.resume_schedule(tx, tenant, name, next_moment(plan.cron, plan.timezone, tx.now))
        return "resumed"
    return None if is_same else "changed"


def _comparable(plan: Plan) -> bytes:
    return orjson.dumps(plan, option=orjson.OPT_SORT_KEYS)


async def _pause_removed(
    tx: Transaction, workflow: Workflow, locked: Sequence[Schedule]
) -> list[ScheduleChange]:
    removed = [one for one in locked if one.name not in workflow.schedules and one.left_file_at is None]
    for one in removed:
        await store.leave_file(tx, one.tenant_id, one.name, REMOVED_BY, REMOVED_REASON)
    return [ScheduleChange(one.name, "paused") for one in removed if one.paused_by is None]
