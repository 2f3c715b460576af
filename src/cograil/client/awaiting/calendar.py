"""Workflows that run by the calendar."""

from __future__ import annotations

from typing_extensions import Unpack

from cograil.client.awaiting.calling import Calling
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


class Calendar(Calling):
    """Schedules and their firings."""

    async def create_schedule(
        self, name: str, workflow_id: str, cron: str, **facts: Unpack[CalendarFacts]
    ) -> ShownSchedule:
        """Run a workflow by the calendar from now on."""
        body = {"name": name, "workflow_id": workflow_id, "cron": cron, **facts}
        made: ShownSchedule = await self._ask("POST", "/schedules", body)
        return made

    async def schedules(self) -> list[ShownSchedule]:
        """All of them, by name."""
        found: list[ShownSchedule] = (await self._ask("GET", "/schedules"))["schedules"]
        return found

    async def schedule(self, name: str) -> ScheduleWithPassed:
        """One of them."""
        found: ScheduleWithPassed = await self._ask("GET", f"/schedules/{step(name)}")
        return found

    async def change_schedule(
        self, name: str, workflow_id: str, cron: str, **facts: Unpack[CalendarFacts]
    ) -> ShownSchedule:
        """Change what it runs, and when; all of it is given anew."""
        body = {"workflow_id": workflow_id, "cron": cron, **facts}
        changed: ShownSchedule = await self._ask("POST", f"/schedules/{step(name)}", body)
        return changed

    async def update_schedule(self, name: str, **changes: Unpack[CalendarChanges]) -> ShownSchedule:
        """Change some of it; what is left out stays as it is, and input_params is replaced as a whole."""
        changed: ShownSchedule = await self._ask("PATCH", f"/schedules/{step(name)}", dict(changes))
        return changed

    async def remove_schedule(self, name: str) -> RemovedSchedule:
        """Fire nothing more of it; its jobs go on."""
        removed: RemovedSchedule = await self._ask("DELETE", f"/schedules/{step(name)}")
        return removed

    async def pause_schedule(self, name: str, *, reason: str = "") -> ShownSchedule:
        """Pass over its moments until it is resumed."""
        shown: ShownSchedule = await self._ask("POST", f"/schedules/{step(name)}/pause", {"reason": reason})
        return shown

    async def resume_schedule(self, name: str, *, detach: bool = False) -> ShownSchedule:
        """Run it again from now on; `detach` is for one that was removed from its workflow file."""
        shown: ShownSchedule = await self._ask("POST", f"/schedules/{step(name)}/resume", {"detach": detach})
        return shown

    async def run_schedule(self, name: str) -> ScheduleRun:
        """Submit a job of it now, besides its calendar."""
        run: ScheduleRun = await self._ask("POST", f"/schedules/{step(name)}/run")
        return run

    async def backfill(self, name: str, first: str, until: str, *, preview: bool = False) -> Backfill:
        """Submit a job for each moment of a range of time that has led to none."""
        body = {"first": first, "until": until, "preview": preview}
        done: Backfill = await self._ask("POST", f"/schedules/{step(name)}/backfill", body)
        return done

    async def firings(self, name: str, *, limit: int = 100, cursor: str | None = None) -> FiringPage:
        """A page of what became of its moments, the latest first."""
        params = {"limit": limit, "cursor": cursor}
        page: FiringPage = await self._ask("GET", f"/schedules/{step(name)}/firings", params=params)
        return page
