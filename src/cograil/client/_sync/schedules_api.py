"""Schedules: workflows that run at the times of a cron expression.

Written by `make docs` from _async/schedules_api.py; do not edit.
"""

from __future__ import annotations

from typing_extensions import Unpack

from cograil.client._sync.transport import Transport
from cograil.client.models import (
    Backfill,
    CalendarChanges,
    CalendarFacts,
    FiringPage,
    RemovedSchedule,
    ScheduleRun,
    ScheduleWithPassed,
    ShownSchedule,
    step,
)


class SchedulesApi(Transport):
    """The methods for schedules and their firings."""

    def create_schedule(
        self, name: str, workflow_id: str, cron: str, **facts: Unpack[CalendarFacts]
    ) -> ShownSchedule:
        """Create a schedule."""
        body = {"name": name, "workflow_id": workflow_id, "cron": cron, **facts}
        schedule: ShownSchedule = self._ask("POST", "/schedules", body)
        return schedule

    def schedules(self) -> list[ShownSchedule]:
        """Return all schedules, by name."""
        schedules: list[ShownSchedule] = (self._ask("GET", "/schedules"))["schedules"]
        return schedules

    def schedule(self, name: str) -> ScheduleWithPassed:
        """Return one schedule."""
        schedule: ScheduleWithPassed = self._ask("GET", f"/schedules/{step(name)}")
        return schedule

    def change_schedule(
        self, name: str, workflow_id: str, cron: str, **facts: Unpack[CalendarFacts]
    ) -> ShownSchedule:
        """Replace all fields of a schedule."""
        body = {"workflow_id": workflow_id, "cron": cron, **facts}
        schedule: ShownSchedule = self._ask("POST", f"/schedules/{step(name)}", body)
        return schedule

    def update_schedule(self, name: str, **changes: Unpack[CalendarChanges]) -> ShownSchedule:
        """Change the given fields of a schedule; `input_params` is replaced as a whole."""
        schedule: ShownSchedule = self._ask("PATCH", f"/schedules/{step(name)}", dict(changes))
        return schedule

    def remove_schedule(self, name: str) -> RemovedSchedule:
        """Remove a schedule; its jobs continue."""
        removed: RemovedSchedule = self._ask("DELETE", f"/schedules/{step(name)}")
        return removed

    def pause_schedule(self, name: str, *, reason: str = "") -> ShownSchedule:
        """Pause a schedule: its times are skipped until it is resumed."""
        schedule: ShownSchedule = self._ask("POST", f"/schedules/{step(name)}/pause", {"reason": reason})
        return schedule

    def resume_schedule(self, name: str, *, detach: bool = False) -> ShownSchedule:
        """Resume a schedule; `detach` is for one that was removed from its workflow file."""
        schedule: ShownSchedule = self._ask("POST", f"/schedules/{step(name)}/resume", {"detach": detach})
        return schedule

    def run_schedule(self, name: str) -> ScheduleRun:
        """Submit a job of a schedule now, in addition to its times."""
        run: ScheduleRun = self._ask("POST", f"/schedules/{step(name)}/run")
        return run

    def backfill(self, name: str, first: str, until: str, *, preview: bool = False) -> Backfill:
        """Submit a job for each time of a range that has none."""
        body = {"first": first, "until": until, "preview": preview}
        result: Backfill = self._ask("POST", f"/schedules/{step(name)}/backfill", body)
        return result

    def firings(self, name: str, *, limit: int = 100, cursor: str | None = None) -> FiringPage:
        """Return a page of the firings of a schedule, the latest first."""
        params = {"limit": limit, "cursor": cursor}
        page: FiringPage = self._ask("GET", f"/schedules/{step(name)}/firings", params=params)
        return page
