"""Limits in the simulated database: verbs/limits.py, and the statements that it uses.

Each statement is as weak as its original: `held_keys` is read before the lock of a name is taken, and what
is let go is seen by others when it commits.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import orjson
from tests.support.simulation.rows import Admission, Blocked, Bucket, HeldKey, Letting, Task, ensure

from cograil.engine.limit_keys import limit_name
from cograil.model.job import Resumed, TaskLimit
from cograil.model.states import JOB_TERMINAL

if TYPE_CHECKING:
    from tests.support.simulation.database import Database

A_HAIR = 1e-6  # what adding up times loses


class Limits:
    """What is held back, who has a place, and the buckets."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.admissions: dict[int, Admission] = {}
        self.buckets: dict[str, Bucket] = {}
        self.locks: dict[tuple[str, str], Letting] = {}
        self.begun: dict[str, list[datetime]] = {}  # for the invariants only: when what was let go

    # -- what waits ----------------------------------------------------------------------------------

    def hold_job(self, job: int) -> None:
        """hold_jobs.sql: a new job under a limit of its workflow waits until it is admitted."""
        rows = self.db.jobs[job]
        limit = rows.workflow.limit
        assert limit is not None
        key = None if limit.key is None else limit.key.render({"inputs": orjson.loads(rows.input_text)})
        name = limit_name("default", rows.workflow.workflow_id, "", key)
        limited = TaskLimit(name, limit.concurrency, limit.rate, limit.per_seconds)
        self.admissions[job] = Admission(job, limited)

    def leave(self, job: int) -> None:
        """leave_lines.sql: a job that ends waits no longer, and has no place."""
        if "cancelled counted" not in self.db.mutants:
            self.admissions.pop(job, None)

    def has_held(self) -> bool:
        if any([not admission.is_admitted for admission in self.admissions.values()]):
            return True
        return any([task.state == "held" for task in self.db.tasks.values()])

    def held_keys(self) -> list[HeldKey]:
        """Those that seem to have a place, in the order in which they are to be locked."""
        waiting: dict[tuple[str, str], list[TaskLimit]] = {}
        for task in self.db.tasks.values():
            if task.state == "held" and task.limit is not None:
                waiting.setdefault((task.limit.key, "task"), []).append(task.limit)
        for admission in self.admissions.values():
            if not admission.is_admitted:
                waiting.setdefault((admission.limit.key, "job"), []).append(admission.limit)
        lines = [
            HeldKey(what, key, held_limits[0], len(held_limits))
            for (key, what), held_limits in sorted(waiting.items())
        ]
        return [held for held in lines if self._free(held)]

    # -- letting go ----------------------------------------------------------------------------------

    def lock(self, tx: Letting, held: HeldKey) -> None:
        self.db.use(tx)
        name = (held.what, held.key)
        holder = self.locks.get(name)
        if holder is not None and self.db.is_silent(holder):
            self.db.rollback(holder)
        elif holder is not None and "no limit lock" not in self.db.mutants:
            raise Blocked
        self.locks[name] = tx
        tx.keys.append(name)

    def count_places(self, tx: Letting, held: HeldKey) -> int:
        """How many more the concurrency allows: counted again under the lock, by whatever lets go."""
        self.db.use(tx)
        return self._free(held)

    def _free(self, held: HeldKey) -> int:
        if held.limit.concurrency is None:
            return held.waiting
        return max(0, min(held.waiting, held.limit.concurrency - self._holders(held.what, held.key)))

    def _holders(self, what: str, key: str) -> int:
        mutants, jobs = self.db.mutants, self.db.jobs
        if what == "task":
            states = ("running",) if "ready not counted" in mutants else ("ready", "running")
            tasks = self.db.tasks.values()
            return len([1 for t in tasks if t.limit is not None and t.limit.key == key and t.state in states])
        over = ("completed", "failed") if "cancelled counted" in mutants else JOB_TERMINAL
        admitted = [
            admission
            for admission in self.admissions.values()
            if admission.is_admitted and admission.limit.key == key
        ]
        return len([1 for admission in admitted if jobs[admission.job].status not in over])

    def take_tokens(self, tx: Letting, held: HeldKey, wanted: int) -> tuple[int, float]:
        """How many may go by the rate, and in how many seconds the next one."""
        self.db.use(tx)
        limit, name = held.limit, f"{held.what}/{held.key}"
        if limit.rate is None or not wanted:
            return wanted, 0.0
        capacity, per_second = max(1.0, limit.rate), limit.rate / limit.per_seconds
        bucket = tx.buckets.get(name) or self.buckets.get(name) or Bucket(capacity, self.db.now)
        passed = (self.db.now - bucket.refilled_at).total_seconds()
        tokens = min(capacity, bucket.tokens + passed * per_second)
        taken = min(wanted, int(tokens + A_HAIR))
        if "tokens not kept" not in self.db.mutants:
            tx.buckets[name] = Bucket(tokens - taken, self.db.now)
        return taken, 0.0 if taken == wanted else max(A_HAIR, (1 - (tokens - taken)) / per_second)

    def let_go(self, tx: Letting, held: HeldKey, places: int) -> int:
        """let_go_tasks.sql, admit_jobs.sql: those that others have locked are passed over."""
        self.db.use(tx)
        if held.what == "job":
            return self._admit_jobs(tx, held.key, places)
        chosen = [task for task in self.db.tasks.values() if _waits(task, held.key)][:places]
        for task in chosen:
            task.locked_by = tx
        tx.tasks += chosen
        return len(chosen)

    def _admit_jobs(self, tx: Letting, key: str, places: int) -> int:
        jobs = self.db.jobs
        here = [admission for admission in self.admissions.values() if admission.limit.key == key]
        open_ones = [
            admission
            for admission in here
            if not admission.is_admitted and jobs[admission.job].status not in JOB_TERMINAL
        ]
        chosen = [
            admission for admission in open_ones if (jobs[admission.job].not_before or tx.now) <= tx.now
        ][:places]
        for admission in chosen:
            if not self.db.is_free(admission.job):
                raise Blocked  # the update of its row waits for the writer of the job
        tx.admitted += chosen
        for admission in chosen:
            self.db.lock(tx, admission.job)
        return len(chosen)

    def commit(self, tx: Letting) -> None:
        self.db.use(tx)
        self.buckets.update(tx.buckets)
        for task in tx.tasks:
            assert task.limit is not None
            task.state = "ready"
            self._note(tx, "task", task.limit)
        for admission in tx.admitted:
            admission.is_admitted, self.db.jobs[admission.job].is_held = True, False
            self._note(tx, "job", admission.limit)
            self.db.tell(admission.job, Resumed())
        if tx.tasks:
            self.db.notify("tasks")
        self.db.rollback(tx)
        self.check()

    def unlock(self, tx: Letting) -> None:
        """At the end of the transaction, whatever it was."""
        for task in tx.tasks:
            if task.locked_by is tx:
                task.locked_by = None
        for name in tx.keys:
            if self.locks.get(name) is tx:
                del self.locks[name]

    # -- what must hold ------------------------------------------------------------------------------

    def check(self) -> None:
        """Whatever is let go and not gone has a place, and there are no more places than the limit says."""
        places: dict[tuple[str, str], int] = {}
        for task in self.db.tasks.values():
            if task.limit is not None and task.state != "held":
                self._count(places, "task", task.limit)
        for job, admission in self.admissions.items():
            if admission.is_admitted and self.db.jobs[job].status not in JOB_TERMINAL:
                self._count(places, "job", admission.limit)

    @staticmethod
    def _count(places: dict[tuple[str, str], int], what: str, limit: TaskLimit) -> None:
        name = (what, limit.key)
        places[name] = places.get(name, 0) + 1
        ensure(limit.concurrency is None or places[name] <= limit.concurrency, "no more at once than allowed")

    def _note(self, tx: Letting, what: str, limit: TaskLimit) -> None:
        """A rate allows its capacity at once, and over any span of time as many as flow in: no more."""
        if limit.rate is None:
            return
        name = f"{what}/{limit.key}"
        at = tx.buckets[name].refilled_at if name in tx.buckets else self.db.now
        begun = self.begun.setdefault(name, [])
        begun.append(at)
        for before, first in enumerate(begun):
            allowed = max(1.0, limit.rate) + (at - first).total_seconds() * limit.rate / limit.per_seconds
            ensure(len(begun) - before <= allowed + A_HAIR, "no more in a span of time than the rate allows")


def _waits(task: Task, key: str) -> bool:
    held = task.state == "held" and task.locked_by is None
    return held and task.limit is not None and task.limit.key == key
