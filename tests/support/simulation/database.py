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
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta

from tests.support.job_rows import T0, Rows
from tests.support.simulation.child_jobs import Families
from tests.support.simulation.exclusive_tasks import check_loss, claimable
from tests.support.simulation.leases import Leases
from tests.support.simulation.limits import Limits
from tests.support.simulation.reports import Reports
from tests.support.simulation.rows import (
    Aborted,
    Blocked,
    Diary,
    Item,
    Letting,
    Process,
    Task,
    Transaction,
    ensure,
)

from cograil import engine
from cograil.model.job import (
    Bounds,
    Changes,
    ExpandMore,
    Input,
    Lost,
    Reported,
    Started,
    Submitted,
    TaskWrite,
)
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Workflow

LEASE = timedelta(seconds=15)
GRACE = timedelta(seconds=10)
IDLE_IN_TRANSACTION = timedelta(seconds=10)
ONE_SECOND = timedelta(seconds=1)
BOUNDS = Bounds(chunk=2, poison_limit=2)
FIRST: dict[tuple[int, bytes], Changes] = {}


class Database:
    """The tables, and the statements."""

    def __init__(self, now: datetime, random: Callable[[], float], mutants: Collection[str] = ()) -> None:
        self.now = now
        self.random = random
        self.mutants = frozenset(mutants)
        self.advance: Callable[..., Changes] = engine.advance
        self.jobs: list[Rows] = []
        self.locks: dict[int, Transaction] = {}
        self.tasks: dict[int, Task] = {}
        self.inbox: list[list[Input]] = []
        self.processes: dict[int, Process] = {}
        self.diary = Diary()
        self.families = Families(self)
        self.limits = Limits(self)
        self.leases = Leases(self)
        self.reports = Reports(self)
        self.notify: Callable[[str], None] = lambda channel: None
        self.is_thorough = False  # whether the whole history is read again after every commit
        self._last_id = 0

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # -- jobs ----------------------------------------------------------------------------------------

    def submit(self, workflow: Workflow, inputs: object) -> int:
        """The job and its first advance."""
        job = self.add(Rows(workflow, inputs, self.now))
        self.write(job, self._decide_first(job))
        return job

    def _decide_first(self, job: int) -> Changes:
        """Advance is a pure function: what it says of a new job is asked once for each workflow and input."""
        rows = self.jobs[job]
        known = FIRST.get((id(rows.workflow), rows.input_text))
        if known is None or self.now != T0 or self.is_thorough:
            first = self._decide(job, [Submitted()], self.now, is_revoked=True)
            if self.now != T0 or first.children:
                return first
            known = FIRST[id(rows.workflow), rows.input_text] = first
        new = copy(known)
        new.nodes = [replace(write, state=write.state.copy()) for write in known.nodes]
        return new

    def add(self, rows: Rows) -> int:
        """A new job; under a limit of its workflow it waits until it is admitted."""
        self.jobs.append(rows)
        self.inbox.append([])
        job = len(self.jobs) - 1
        if rows.is_held:
            self.limits.hold_job(job)
            self.notify("held")
        return job

    def lock_jobs_with_news(self, tx: Transaction) -> None:
        """Those locked by others are passed over."""
        self.use(tx)
        now, inbox = tx.now, self.inbox
        for job, rows in enumerate(self.jobs):
            wake_at = rows.wake_at
            if (inbox[job] or (wake_at is not None and wake_at <= now)) and self.is_free(job):
                self.lock(tx, job)

    def lock_job(self, tx: Transaction, job: int) -> None:
        """One job, waiting for its writer."""
        self.use(tx)
        if not self.is_free(job):
            raise Blocked
        self.lock(tx, job)

    def revoke_tasks(self, tx: Transaction, job: int) -> list[Input]:
        """That those had begun which were running. Waits for the process that lets one of them go."""
        self.use(tx)
        mine = [task for task in self.tasks.values() if task.job == job]
        for task in mine:
            if task.locked_by is not tx:
                self.row(task.task_id)
        for task in mine:
            task.locked_by = tx
        tx.revoked += mine
        return [
            Started(task.node, task.attempt, task.task_id, str(task.worker), task.started_at)
            for task in mine
            if task.state == "running"
        ]

    def take_inbox(self, tx: Transaction, job: int, limit: int | None = None) -> list[Input]:
        self.use(tx)
        tx.taken[job] = self.inbox[job][:limit]
        return tx.taken[job]

    def is_past_deadline(self, tx: Transaction, job: int) -> bool:
        rows = self.jobs[job]
        return rows.status not in JOB_TERMINAL and rows.deadline is not None and rows.deadline <= tx.now

    def decide(self, tx: Transaction, job: int, news: Sequence[Input], is_revoked: bool = False) -> Changes:
        """Load and decide. Written at the commit."""
        self.use(tx)
        tx.changes[job] = self._decide(job, news, tx.now, is_revoked=is_revoked)
        return tx.changes[job]

    def _decide(self, job: int, news: Sequence[Input], now: datetime, *, is_revoked: bool) -> Changes:
        prepare, rows = self.families.prepare, self.jobs[job]
        return rows.decide(
            news, now, self.random, BOUNDS, self.advance, is_revoked=is_revoked, prepare=prepare
        )

    def commit(self, tx: Transaction) -> None:
        self.use(tx)
        for job, taken in tx.taken.items():
            ids = {id(news) for news in taken}
            self.inbox[job] = [news for news in self.inbox[job] if id(news) not in ids]
        for task in tx.revoked:
            self.tasks.pop(task.task_id, None)
            self.diary.holders.pop(task.task_id, None)
        for job, changes in tx.changes.items():
            self.write(job, changes)
        for task in tx.revoked:
            self._check_start(task)
        self.families.check()
        self.rollback(tx)

    def _check_start(self, task: Task) -> None:
        if task.state != "running":
            return
        events = [event for event in self.jobs[task.job].events if event.task_id == task.task_id]
        has_started = any(event.type == "node_started" for event in events)
        ensure(has_started or "take before revoke" in self.mutants, "what was cut short had started")

    def rollback(self, tx: Transaction) -> None:
        """Give back all locks; what was not committed never was."""
        if tx.is_over:
            return
        tx.is_over = True
        for task in tx.revoked:
            task.locked_by = None
        for job in tx.jobs:
            if self.locks.get(job) is tx:
                del self.locks[job]
        if isinstance(tx, Letting):
            self.limits.unlock(tx)

    def is_silent(self, tx: Transaction) -> bool:
        return tx.touched_at is not self.now and self.now - tx.touched_at > IDLE_IN_TRANSACTION

    def use(self, tx: Transaction) -> None:
        """A statement of this transaction, if the server has not ended it."""
        if tx.is_over or self.is_silent(tx):
            self.rollback(tx)
            raise Aborted
        tx.touched_at = self.now

    def is_free(self, job: int) -> bool:
        """Whether nobody is the writer of this job."""
        holder = self.locks.get(job)
        if holder is not None and self.is_silent(holder):
            self.rollback(holder)
            holder = None
        return holder is None or "no lock" in self.mutants

    def lock(self, tx: Transaction, job: int) -> None:
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
            self._add_task(job, rows, new, changes.seq)
        self.inbox[job].extend(ExpandMore(name) for name in changes.to_expand)
        self.families.write(job, changes)
        if self.is_thorough:
            rows.check()
        if rows.status in JOB_TERMINAL:
            left = [task for task in self.tasks.values() if task.job == job]
            ensure(not left, "an ended job has no tasks")
            self.limits.leave(job)
        if changes.tasks:
            is_held = [new.limit is not None for new in changes.tasks]
            if not all(is_held):
                self.notify("tasks")
            if any(is_held):
                self.notify("held")
        if changes.to_expand or changes.wake_at is not None:
            self.notify("news")

    def write_end(self, job: int, news: Reported) -> None:
        """What advance says of this, written at once: end_jobs.sql writes the same rows."""
        changes = self._decide(job, [news], self.now, is_revoked=False)
        ensure(changes.status == "completed", "with the success of its last task a job is over")
        self.write(job, changes)

    def _add_task(self, job: int, rows: Rows, new: TaskWrite, seq: int) -> None:
        rows.params(new)
        node = new.node_id
        ensure((job, node) not in self.diary.succeeded, "nothing is handed out after its success")
        for task in self.tasks.values():
            ensure(task.job != job or task.node != node, "a node has one task at most")
        task = Task(self.new_id(), job, node, new.attempt, new.timeout_seconds, new.limit, new.is_exclusive)
        if new.limit is not None:
            task.state = "held"
        elif new.is_last and not new.is_exclusive:
            task.last_at = seq
        self.tasks[task.task_id] = task

    # -- workers -------------------------------------------------------------------------------------

    def register(self) -> int:
        process = self.new_id()
        self.processes[process] = Process(self.now + LEASE)
        return process

    def leave(self, process: int, state: str) -> None:
        if self.processes[process].state in ("alive", "draining"):
            self.processes[process].state = state

    def claim(self, worker: int, slots: int, is_empty: bool) -> list[Item]:
        if self.processes[worker].state != "alive":
            return []
        ready = claimable(self.tasks.values(), worker, is_empty, self.mutants)[:slots]
        for task in ready:
            task.state, task.worker, task.fence = "running", worker, task.fence + 1
            task.started_at = self.now
            task.deadline = self.now + timedelta(seconds=task.timeout)
            ensure(task.fence > self.diary.fences.get(task.task_id, 0), "fences grow")
            ensure((task.job, task.node) not in self.diary.succeeded, "nothing runs again after its success")
            is_first = task.fence == 1 or "no fence" in self.mutants
            ensure(is_first, "an attempt number is handed to one worker")
            self.diary.fences[task.task_id] = task.fence
            self.diary.holders[task.task_id] = (worker, task.fence)
        return [Item(t.task_id, t.fence, t.job, t.node, t.attempt, t.timeout) for t in ready]

    def release(self, worker: int, task_ids: Collection[int]) -> None:
        for task_id in task_ids:
            task = self.row(task_id)
            if task is not None and task.worker == worker and task.state == "running":
                if self.mutants & {"kept number", "no fence"}:
                    task.state, task.worker, task.started_at, task.deadline = "ready", None, None, None
                    self.diary.holders.pop(task_id, None)
                    self.notify("tasks")
                else:
                    self._lose(task, "released")

    def heartbeat(self, worker: int) -> tuple[bool, set[int], bool]:
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
        """Tell the job once that this runs. A heartbeat never waits for a lock: that would cost the lease."""
        assert task.started_at is not None
        is_free = task.locked_by is None and not task.is_announced
        if is_free and task.started_at < self.now - ONE_SECOND:
            task.is_announced = True
            news = Started(task.node, task.attempt, task.task_id, str(task.worker), task.started_at)
            self.tell(task.job, news)

    def tick(self, orchestrator: int) -> tuple[bool, float, bool]:
        """Rescue what dead workers hold and what is far over its time.

        The answer: are there news, when is the next wake, and do limits hold something back.
        """
        self.processes[orchestrator].lease_until = self.now + LEASE
        now = self.now
        for name, process in self.processes.items():
            if process.lease_until < now and name != orchestrator and process.state in ("alive", "draining"):
                process.state = "dead"
        for task in list(self.tasks.values()):
            if task.state != "running" or task.locked_by is not None:
                continue
            assert task.worker is not None
            assert task.deadline is not None
            is_dead = self.processes[task.worker].state in ("dead", "stopped")
            if is_dead or task.deadline < self.now - GRACE:
                self._rescue(task, "worker_lost" if is_dead else "timeout")
        wakes = [rows.wake_at for rows in self.jobs if rows.wake_at is not None]
        wake_at = (min(wakes) - T0).total_seconds() if wakes else math.inf
        return any(self.inbox), wake_at, self.limits.has_held()

    def _rescue(self, task: Task, reason: str) -> None:
        if reason == "worker_lost":
            check_loss(self.diary, task)
        self._lose(task, reason)

    def _lose(self, task: Task, reason: str) -> None:
        """The attempt is gone, and its job is told why."""
        del self.tasks[task.task_id]
        self.diary.holders.pop(task.task_id, None)
        news = Lost(task.node, task.attempt, task.task_id, reason, str(task.worker), task.started_at)
        self.tell(task.job, news)

    def row(self, task_id: int) -> Task | None:
        task = self.tasks.get(task_id)
        if task is not None and task.locked_by is not None:
            if not self.is_silent(task.locked_by):
                raise Blocked
            self.rollback(task.locked_by)
        return task

    def is_mine(self, task: Task | None, worker: int, fence: int) -> bool:
        if task is None:
            return False
        if "no fence" in self.mutants:
            return True
        return task.state == "running" and task.worker == worker and task.fence == fence

    def tell(self, job: int, news: Input) -> None:
        """A row in the inbox of this job."""
        self.inbox[job].append(news)
        self.notify("news")

    # -- the end -------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        return not any(self.inbox) and all([rows.status in JOB_TERMINAL for rows in self.jobs])

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
            self.families.check_end(job, rows)
        for task_id in self.diary.accepted:
            ensure(recorded.get(task_id) == 1, "what was accepted is recorded once")
