"""Our tables in memory, with the statements of `store/sql` and what PostgreSQL promises about them.

A worker's statement is a transaction of its own. An advance is several statements: what it locks others
wait for or pass over, what it writes nobody sees before the commit, and a rollback leaves no trace. A
transaction whose process is silent for too long is ended by the server. The tables also keep a diary
(`Diary`) that no statement reads: the invariants are checked against it.

`mutants` names mechanisms to leave out, to show that the simulation notices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from job_rows import T0, Rows
from simulated_families import Families
from simulated_rows import Aborted, Blocked, Diary, Item, Process, Task, Transaction, ensure

from cograil import engine
from cograil.engine.states import JOB_TERMINAL
from cograil.model.job import (
    Bounds,
    Changes,
    Happening,
    Late,
    Lost,
    More,
    Reported,
    Started,
    Submitted,
)
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Workflow

LEASE = timedelta(seconds=15)
GRACE = timedelta(seconds=10)
IDLE_IN_TRANSACTION = timedelta(seconds=10)
ONE_SECOND = timedelta(seconds=1)
BOUNDS = Bounds(chunk=2)


class Database:
    """The tables, and the statements."""

    def __init__(self, now: datetime, dice: Callable[[], float], mutants: Collection[str] = ()) -> None:
        self.now = now
        self.dice = dice
        self.mutants = frozenset(mutants)
        self.advance: Callable[..., Changes] = engine.advance
        self.jobs: list[Rows] = []
        self.locks: dict[int, Transaction] = {}
        self.tasks: dict[int, Task] = {}
        self.inbox: list[list[Happening]] = []
        self.processes: dict[int, Process] = {}
        self.diary = Diary()
        self.families = Families(self)
        self.notify: Callable[[str], None] = lambda channel: None
        self.is_thorough = False  # whether the whole history is read again after every commit
        self._last_id = 0

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # -- jobs ----------------------------------------------------------------------------------------

    def submit(self, workflow: Workflow, given: object) -> int:
        """The job and its first advance."""
        rows = Rows(workflow, given, self.now)
        self.jobs.append(rows)
        self.inbox.append([])
        job = len(self.jobs) - 1
        self.write(job, self._decide(job, [Submitted()], self.now, is_revoked=True))
        return job

    def begin(self) -> Transaction:
        return Transaction(self.now, self.now)

    def lock_jobs_with_news(self, tx: Transaction) -> None:
        """Those locked by others are passed over."""
        self._use(tx)
        for job, rows in enumerate(self.jobs):
            is_due = rows.wake_at is not None and rows.wake_at <= tx.now
            if (is_due or self.inbox[job]) and self._is_free(job):
                self._lock(tx, job)

    def lock_job(self, tx: Transaction, job: int) -> None:
        """One job, waiting for its writer."""
        self._use(tx)
        if not self._is_free(job):
            raise Blocked
        self._lock(tx, job)

    def revoke_tasks(self, tx: Transaction, job: int) -> None:
        self._use(tx)
        for task in self.tasks.values():
            if task.job == job:
                task.locked_by = tx
                tx.revoked.append(task)

    def take_inbox(self, tx: Transaction, job: int, limit: int | None = None) -> list[Happening]:
        self._use(tx)
        tx.taken[job] = self.inbox[job][:limit]
        return tx.taken[job]

    def is_past_deadline(self, tx: Transaction, job: int) -> bool:
        rows = self.jobs[job]
        return rows.status not in JOB_TERMINAL and rows.deadline is not None and rows.deadline <= tx.now

    def decide(
        self, tx: Transaction, job: int, news: Sequence[Happening], is_revoked: bool = False
    ) -> Changes:
        """Load and decide. Written at the commit."""
        self._use(tx)
        tx.changes[job] = self._decide(job, news, tx.now, is_revoked=is_revoked)
        return tx.changes[job]

    def _decide(self, job: int, news: Sequence[Happening], now: datetime, *, is_revoked: bool) -> Changes:
        prepare, rows = self.families.prepare, self.jobs[job]
        return rows.decide(news, now, self.dice, BOUNDS, self.advance, is_revoked=is_revoked, prepare=prepare)

    def commit(self, tx: Transaction) -> None:
        self._use(tx)
        for job, taken in tx.taken.items():
            ids = {id(news) for news in taken}
            self.inbox[job] = [news for news in self.inbox[job] if id(news) not in ids]
        for task in tx.revoked:
            self.tasks.pop(task.task_id, None)
            self.diary.holders.pop(task.task_id, None)
        for job, changes in tx.changes.items():
            self.write(job, changes)
        self.families.check()
        self.rollback(tx)

    def rollback(self, tx: Transaction) -> None:
        """Give back all locks; what was not committed never was."""
        tx.is_over = True
        for task in tx.revoked:
            task.locked_by = None
        for job in tx.jobs:
            if self.locks.get(job) is tx:
                del self.locks[job]

    def _use(self, tx: Transaction) -> None:
        if tx.is_over or self.now - tx.touched_at > IDLE_IN_TRANSACTION:
            self.rollback(tx)
            raise Aborted
        tx.touched_at = self.now

    def _is_free(self, job: int) -> bool:
        holder = self.locks.get(job)
        if holder is not None and self.now - holder.touched_at > IDLE_IN_TRANSACTION:
            self.rollback(holder)
            holder = None
        return holder is None or "no lock" in self.mutants

    def _lock(self, tx: Transaction, job: int) -> None:
        self.locks[job] = tx
        tx.jobs.append(job)

    def write(self, job: int, changes: Changes) -> None:
        """All that was decided for one job."""
        rows = self.jobs[job]
        ensure(changes.seq == rows.seq + len(changes.events), "events are numbered without gaps")
        ensure(changes.seq == rows.seq or changes.events[0].seq == rows.seq + 1, "no number is used twice")
        ensure(rows.status not in JOB_TERMINAL or changes.status == rows.status, "an end is final")
        if "no wake" in self.mutants:
            changes.wake_at = None
        rows.write(changes, self.now)
        for new in changes.tasks:
            rows.params(new)
            ensure((job, new.node_id) not in self.diary.succeeded, "nothing is handed out after its success")
            ensure(
                not any(task.job == job and task.node == new.node_id for task in self.tasks.values()),
                "a node has one task at most",
            )
            task = Task(self.new_id(), job, new.node_id, new.attempt, new.timeout_seconds)
            self.tasks[task.task_id] = task
        self.inbox[job].extend(More(name) for name in changes.more)
        self.families.write(job, changes)
        if self.is_thorough:
            rows.check()
        if rows.status in JOB_TERMINAL:
            ensure(not any(task.job == job for task in self.tasks.values()), "an ended job has no tasks")
        if changes.tasks:
            self.notify("tasks")
        if changes.more or changes.wake_at is not None:
            self.notify("news")

    # -- workers -------------------------------------------------------------------------------------

    def register(self) -> int:
        process = self.new_id()
        self.processes[process] = Process(self.now + LEASE)
        return process

    def leave(self, process: int, state: str) -> None:
        if self.processes[process].state in ("alive", "draining"):
            self.processes[process].state = state

    def claim(self, worker: int, slots: int) -> list[Item]:
        if self.processes[worker].state != "alive":
            return []
        ready = [t for t in self.tasks.values() if t.state == "ready" and t.locked_by is None][:slots]
        for task in ready:
            task.state, task.worker, task.fence = "running", worker, task.fence + 1
            task.started_at = self.now
            task.deadline = self.now + timedelta(seconds=task.timeout)
            ensure(task.fence > self.diary.fences.get(task.task_id, 0), "fences grow")
            ensure((task.job, task.node) not in self.diary.succeeded, "nothing runs again after its success")
            self.diary.fences[task.task_id] = task.fence
            self.diary.holders[task.task_id] = (worker, task.fence)
        return [Item(t.task_id, t.fence, t.job, t.node, t.attempt, t.timeout) for t in ready]

    def report(self, worker: int, item: Item, outcome: Completed | Failed) -> bool:
        """Whether it counted; if not, the job is told of a late result."""
        task = self._row(item.task_id)
        if not self._is_mine(task, worker, item.fence):
            self.tell(item.job, Late(item.node, item.attempt, item.task_id, "result", str(worker)))
            return False
        assert task is not None
        holder = self.diary.holders.get(item.task_id)
        ensure(holder == (worker, item.fence), "the report of a replaced worker never counts")
        ensure(item.task_id not in self.diary.accepted, "an attempt is reported once")
        is_success = isinstance(outcome, Completed)
        self.diary.accepted[item.task_id] = is_success
        if is_success:
            self.diary.succeeded.add((task.job, task.node))
        if "kept after report" in self.mutants:
            task.state, task.worker = "ready", None
        else:
            del self.tasks[item.task_id]
        self.tell(
            task.job,
            Reported(task.node, task.attempt, task.task_id, outcome, str(worker), task.started_at),
        )
        return True

    def find_reported(self, item: Item) -> bool:
        """Asked after a report whose answer was lost."""
        news = self.inbox[item.job]
        if any(isinstance(one, Reported) and one.task_id == item.task_id for one in news):
            return True
        return any(
            event.task_id == item.task_id and event.type in ("node_completed", "task_failed")
            for event in self.jobs[item.job].events
        )

    def release(self, worker: int, task_ids: Collection[int]) -> None:
        for task_id in task_ids:
            task = self._row(task_id)
            if task is not None and task.worker == worker and task.state == "running":
                task.state, task.worker, task.started_at, task.deadline = "ready", None, None, None
                self.diary.holders.pop(task_id, None)
                self.notify("tasks")

    def pulse(self, worker: int) -> tuple[bool, set[int], bool]:
        """Whether the lease is held, the tasks that are this worker's, and whether any are ready."""
        process = self.processes[worker]
        is_alive = process.state in ("alive", "draining")
        running = [t for t in self.tasks.values() if t.worker == worker and t.state == "running"]
        if is_alive:
            process.lease_until = self.now + LEASE
            for task in running:
                self._announce(task)
        return is_alive, {t.task_id for t in running}, any(t.state == "ready" for t in self.tasks.values())

    def _announce(self, task: Task) -> None:
        """Tell the job once that this runs. A pulse never waits for a lock: that would cost the lease."""
        assert task.started_at is not None
        is_free = task.locked_by is None and not task.is_announced
        if is_free and task.started_at < self.now - ONE_SECOND:
            task.is_announced = True
            news = Started(task.node, task.attempt, task.task_id, str(task.worker), task.started_at)
            self.tell(task.job, news)

    def tick(self, orchestrator: int) -> tuple[bool, float]:
        """Rescue what dead workers hold and what is far over its time; are there news, and the next wake."""
        self.processes[orchestrator].lease_until = self.now + LEASE
        for name, process in self.processes.items():
            is_live = process.state in ("alive", "draining")
            if name != orchestrator and is_live and process.lease_until < self.now:
                process.state = "dead"
        for task in list(self.tasks.values()):
            if task.state != "running" or task.locked_by is not None:
                continue
            assert task.worker is not None
            assert task.deadline is not None
            is_dead = self.processes[task.worker].state in ("dead", "stopped")
            if is_dead or task.deadline < self.now - GRACE:
                self._rescue(task, "worker_lost" if is_dead else "timeout")
        wakes = [(rows.wake_at - T0).total_seconds() for rows in self.jobs if rows.wake_at is not None]
        return any(self.inbox), min(wakes, default=math.inf)

    def _rescue(self, task: Task, reason: str) -> None:
        del self.tasks[task.task_id]
        self.diary.holders.pop(task.task_id, None)
        news = Lost(task.node, task.attempt, task.task_id, reason, str(task.worker), task.started_at)
        self.tell(task.job, news)

    def _row(self, task_id: int) -> Task | None:
        task = self.tasks.get(task_id)
        if task is not None and task.locked_by is not None:
            if self.now - task.locked_by.touched_at <= IDLE_IN_TRANSACTION:
                raise Blocked
            self.rollback(task.locked_by)
        return task

    def _is_mine(self, task: Task | None, worker: int, fence: int) -> bool:
        if task is None:
            return False
        if "no fence" in self.mutants:
            return True
        return task.state == "running" and task.worker == worker and task.fence == fence

    def tell(self, job: int, news: Happening) -> None:
        """A row in the inbox of this job."""
        self.inbox[job].append(news)
        self.notify("news")

    # -- the end -------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        return not any(self.inbox) and all(rows.status in JOB_TERMINAL for rows in self.jobs)

    def check_end(self) -> None:
        """Every job ended, and its events tell exactly what was accepted."""
        recorded: dict[int, int] = {}
        for job, rows in enumerate(self.jobs):
            ensure(rows.status in JOB_TERMINAL, f"every job ends; job {job} is {rows.status}")
            nodes = rows.check()
            done = {name for owner, name in self.diary.succeeded if owner == job}
            ensure(all(nodes[name] == "completed" for name in done), "a success is never lost")
            for event in rows.events:
                if event.type in ("node_completed", "task_failed") and event.task_id is not None:
                    recorded[event.task_id] = recorded.get(event.task_id, 0) + 1
            self._check_attempts(rows)
            self.families.check_end(job, rows)
        for task_id in self.diary.accepted:
            ensure(recorded.get(task_id) == 1, "what was accepted is recorded once")

    @staticmethod
    def _check_attempts(rows: Rows) -> None:
        for row in rows.nodes.values():
            if row.status != "cancelled":
                allowed = row.budget_from + rows.workflow.nodes[row.parent or row.node_id].retry.max_attempts
                ensure(row.attempt <= allowed, "no more attempts than allowed")
