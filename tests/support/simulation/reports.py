"""Reports in the simulation: report_tasks.sql, end_jobs.sql, find_reported.sql."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.simulation.rows import Item, Task, ensure

from cograil.model.job import Late, Reported
from cograil.model.outcome import Completed, Failed

if TYPE_CHECKING:
    from tests.support.simulation.database import Database


class Reports:
    """How attempts end by the word of their workers."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def end(self, worker: int, item: Item, outcome: Completed | Failed) -> bool:
        """Whether this was the success of a last task, and the job has ended with it. Waits for nobody."""
        db, task = self._db, self._db.tasks.get(item.task_id)
        if task is None or task.last_at is None or not isinstance(outcome, Completed):
            return False
        is_free = task.locked_by is None and db.is_free(task.job)
        if not (is_free or "ends what is locked" in db.mutants):
            return False
        if db.jobs[task.job].seq != task.last_at or not db.is_mine(task, worker, item.fence):
            return False
        self._accept(worker, item, task, outcome)
        db.write_end(task.job, _told(worker, task, outcome))
        return True

    def report(self, worker: int, item: Item, outcome: Completed | Failed) -> bool:
        """Whether it counted; if not, the job is told of a late result."""
        db, task = self._db, self._db.row(item.task_id)
        if task is None or not db.is_mine(task, worker, item.fence):
            db.tell(item.job, Late(item.node, item.attempt, item.task_id, "result", str(worker)))
            return False
        self._accept(worker, item, task, outcome)
        db.tell(task.job, _told(worker, task, outcome))
        return True

    def _accept(self, worker: int, item: Item, task: Task, outcome: Completed | Failed) -> None:
        """It counts: the task is gone."""
        db, diary = self._db, self._db.diary
        holder = diary.holders.get(item.task_id)
        ensure(holder == (worker, item.fence), "the report of a replaced worker never counts")
        ensure(item.task_id not in diary.accepted, "an attempt is reported once")
        is_success = isinstance(outcome, Completed)
        diary.accepted[item.task_id] = is_success
        if is_success:
            diary.succeeded.add((task.job, task.node))
        if "kept after report" in db.mutants:
            task.state, task.worker = "ready", None
        else:
            del db.tasks[item.task_id]

    def find(self, item: Item) -> bool:
        """Asked after a report whose answer was lost."""
        news = self._db.inbox[item.job]
        if any(isinstance(notice, Reported) and notice.task_id == item.task_id for notice in news):
            return True
        return any(
            event.task_id == item.task_id and event.type in ("node_completed", "task_failed")
            for event in self._db.jobs[item.job].events
        )


def _told(worker: int, task: Task, outcome: Completed | Failed) -> Reported:
    return Reported(task.node, task.attempt, task.task_id, outcome, str(worker), task.started_at)
