"""Schedules: workflows that run at the times of a cron expression."""

from __future__ import annotations

from typing_extensions import Unpack

from cograil.client._async.transport import Transport
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

    async def create_schedule(
        self, name: str, workflow_id: str, cron: str, **facts: Unpack[CalendarFacts]
    ) -> ShownSchedule:
        """Create a schedule."""
        body = {"name": name, "workflow_id": workflow_id, "cron": cron, **facts}
        schedule: ShownSchedule = await self._ask("POST", "/schedules", body)
        return schedule

    async def schedules(self) -> list[ShownSchedule]:
        """Return all schedules, by name."""
        schedules: list[ShownSchedule] = (await self._ask("GET", "/schedules"))["schedules"]
        return schedules

    async def schedule(self, name: str) -> ScheduleWithPassed:
        """Return one schedule."""
        schedule: ScheduleWithPassed = await self._ask("GET", f"/schedules/{step(name)}")
        return schedule

    async def change_schedule(
        self, name: str, workflow_id: str, cron: str, **facts: Unpack[CalendarFacts]
    ) -> ShownSchedule:
        """Replace all fields of a schedule."""
        body = {"workflow_id": workflow_id, "cron": cron, **facts}
        schedule: ShownSchedule = await self._ask("POST", f"/schedules/{step(name)}", body)
        return schedule

    async def update_schedule(self, name: str, **changes: Unpack[CalendarChanges]) -> ShownSchedule:
        """Change the given fields of a schedule; `input_params` is replaced as a whole."""
        schedule: ShownSchedule = await self._ask("PATCH", f"/schedules/{step(name)}", dict(changes))
        return schedule

    async def remove_schedule(self, name: str) -> RemovedSchedule:
        """Remove a schedule; its jobs continue."""
        removed: RemovedSchedule = await self._ask("DELETE", f"/schedules/{step(name)}")
        return removed

    async def pause_schedule(self, name: str, *, reason: str = "") -> ShownSchedule:
        """Pause a schedule: its times are skipped until it is resumed."""
        schedule: ShownSchedule = await self._ask(
            "POST", f"/schedules/{step(name)}/pause", {"reason": reason}
        )
        return schedule

    async def resume_schedule(self, name: str, *, detach: bool = False) -> ShownSchedule:
        """Resume a schedule; `detach` is for one that was removed from its workflow file."""
        schedule: ShownSchedule = await self._ask(
            "POST", f"/schedules/{step(name)}/resume", {"detach": detach}
        )
        return schedule

    async def run_schedule(self, name: str) -> ScheduleRun:
        """Submit a job of a schedule now, in addition to its times."""
        run: ScheduleRun = await self._ask("POST", f"/schedules/{step(name)}/run")
        return run

    async def backfill(self, name: str, first: str, until: str, *, preview: bool = False) -> Backfill:
        """Submit a job for each time of a range that has none."""
        body = {"first": first, "until": until, "preview": preview}
        result: Backfill = await self._ask("POST", f"/schedules/{step(name)}/backfill", body)
        return result

    async def firings(self, name: str, *, limit: int = 100, cursor: str | None = None) -> FiringPage:
        """Return a page of the firings of a schedule, the latest first."""
        params = {"limit": limit, "cursor": cursor}
        page: FiringPage = await self._ask("GET", f"/schedules/{step(name)}/firings", params=params)
        return page
