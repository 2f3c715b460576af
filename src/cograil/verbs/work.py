"""What a worker does to the database: claim, report, release, pulse, checkpoint, tell, steps, progress.

Each is one statement, so each is its own transaction; reports may be two. Fences are checked in the statement
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cograil import tracing
from cograil.model.outcome import Completed, WorkItem
from cograil.store import tasks
from cograil.store.database import Database
from cograil.store.places import ClaimPlaces
from cograil.store.reading import workflows_of
from cograil.store.tasks import (
    Lanes,
    Pulse,
    Report,
    Step,
    Tick,
    register_process,
    report_here,
)
from cograil.store.tasks import leave_process as leave
from cograil.store.tasks import pulse_worker as pulse
from cograil.store.tasks import save_checkpoint as checkpoint
from cograil.store.tasks import save_progress as note_progress
from cograil.store.tasks import tell_of_attempt as tell
from cograil.store.tasks import tick_orchestrator as tick
from cograil.verbs.measuring import note_ended

__all__ = [
    "Lanes",
    "Pulse",
    "Report",
    "Step",
    "Tick",
    "checkpoint",
    "claim",
    "claim_alone",
    "leave",
    "note_progress",
    "pulse",
    "register_process",
    "release",
    "report",
    "report_again",
    "report_here",
    "report_news",
    "save_steps",
    "tell",
    "tick",
    "was_reported",
    "workflows_of",
]


async def claim(db: Database, worker: int, lanes: Lanes, places: ClaimPlaces | None = None) -> list[WorkItem]:
    """Take due tasks. A claim whose answer was lost is mended by the pulse: see `Pulse.task_ids`.

    With `places` it goes on where the last one ended while there is much to do; nothing there is no answer,
    so then it looks from the beginning.
    """
    places = places or ClaimPlaces()
    is_ahead = places.begin()
    async with db.single("claim") as tx:
        items = await tasks.claim_tasks(tx, worker, lanes, places)
    if items or not is_ahead:
        return items
    places.leave()
    async with db.single("claim") as tx:
        return await tasks.claim_tasks(tx, worker, lanes, places)


async def claim_alone(db: Database, worker: int, lanes: Lanes) -> list[WorkItem]:
    """Take one task that must run alone, for a worker that holds nothing. Beside it `claim` takes nothing."""
    async with db.single("claim") as tx:
        return await tasks.claim_alone(tx, worker, lanes)


async def report(db: Database, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Record these outcomes; the ids of the tasks that counted. The others were late.

    A job that is over with the success of its last task ends in the same statement, and no orchestrator need
    look at it. All else is news for one, and so is a last task if something else has happened to its job.
    """
    last = [(item, end.output) for item, end in reports if item.is_last and isinstance(end, Completed)]
    ended: set[int] = set()
    if last and not tracing.is_on():
        async with db.single("report") as tx:
            jobs = await tasks.end_jobs(tx, worker, name, last)
        note_ended(jobs)
        ended = {job.task_id for job in jobs}
    news = [one for one in reports if one.item.task_id not in ended]
    return ended | (await report_news(db, worker, name, news) if news else set())


async def report_news(db: Database, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Put these outcomes into the inboxes of their jobs; the ids of the tasks that counted."""
    async with db.single("report") as tx:
        return await tasks.report_tasks(tx, worker, name, reports)


async def report_again(db: Database, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Report once more after an error: that commit may have happened, so ask before calling it late."""
    async with db.single("report") as tx:
        recorded = await tasks.find_reported(tx, reports)
    rest = [one for one in reports if one.item.task_id not in recorded]
    return recorded | (await report(db, worker, name, rest) if rest else set())


async def release(db: Database, worker: int, fences: Mapping[int, int]) -> set[int]:
    """Hand tasks back unfinished; their jobs are told, and do not count these attempts."""
    async with db.single("release") as tx:
        return await tasks.release_tasks(tx, worker, fences)


async def save_steps(db: Database, worker: int, name: str, steps: Sequence[Step]) -> set[int]:
    """Keep these for later attempts; the places of those that count. The others' attempts were lost."""
    async with db.single("steps") as tx:
        return await tasks.save_steps(tx, worker, name, steps)


async def was_reported(db: Database, worker: int, item: WorkItem) -> bool | None:
    """After a commit whose answer was lost: True, it counted; False, it never will; None, lost meanwhile.

    Whoever may still be committing it has the task locked: we wait for that first.
    """
    async with db.single("report") as tx:
        if await tasks.await_task(tx, worker, item):
            return False
    async with db.single("report") as tx:
        report = Report(item, Completed(b"{}"))
        return True if await tasks.find_reported(tx, [report]) else None
