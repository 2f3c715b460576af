"""The processes of the simulation: what orchestrators, workers and clients do, statement by statement.

Each follows its original line by line where it talks to the database (orchestrator/loop.py, worker/, the
verbs), and leaves the rest out. A process is made of strands: generators that stop before every statement
and yield how long they sleep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from job_rows import T0
from simulated_rows import Aborted, Blocked, Item, Transaction

from cograil.engine.approvals import is_open
from cograil.engine.states import JOB_TERMINAL
from cograil.model.job import CancelAsked, Happening, RetryAsked, Signalled
from cograil.model.outcome import Completed, Failed

if TYPE_CHECKING:
    from simulation import Simulation

Steps = Generator[float, None, Any]

FOR_EVER = math.inf
PULSE = TICK = 5.0


class AnswerLost(Exception):
    """The connection broke: the statement may have been done or not."""


def seconds_of(moment: datetime | None) -> float:
    """Virtual time of a moment."""
    return FOR_EVER if moment is None else (moment - T0).total_seconds()


class Strand:
    """Something that goes on by itself within a process; due at `at`."""

    __slots__ = ("at", "owner", "steps")

    def __init__(self, owner: Process, steps: Steps, at: float) -> None:
        self.owner = owner
        self.steps = steps
        self.at = at


class Process:
    """What is killed and stopped as one."""

    main: Strand

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.db = world.db
        self.random = world.random
        self.stopped_until = 0.0
        self.is_woken = False
        self.tx: Transaction | None = None

    def wake(self) -> None:
        """Call the main loop; a call that it does not wait for is not forgotten."""
        self.is_woken = True
        self.main.at = min(self.main.at, self.world.time)

    def spawn(self, steps: Steps, after: float = 0.0) -> Strand:
        strand = Strand(self, steps, self.world.time + after)
        self.world.strands.append(strand)
        return strand

    def call(self, statement: Callable[..., Any], *arguments: Any) -> Steps:
        """One statement, when its time has come. Waits for locks; its answer may be lost."""
        yield 0.0
        loss = self.world.lose_answer() if self.world.faults_left else ""
        if loss == "before":
            raise AnswerLost
        while True:
            try:
                answer = statement(*arguments)
                break
            except Blocked:
                yield 0.05
        if loss == "after":
            raise AnswerLost
        return answer

    def die(self) -> None:
        """kill -9: nothing is tidied up, the server rolls back."""
        if self.tx is not None:
            self.db.rollback(self.tx)
        self.world.strands[:] = [strand for strand in self.world.strands if strand.owner is not self]
        self.world.restart(self)


class Advancing(Process):
    """Whoever runs `advance`: orchestrators, and the doors for cancel and retry."""

    def advance(
        self, jobs: Callable[[Transaction], Steps], *signals: Happening, revoke: bool = False
    ) -> Steps:
        """verbs/advance.py: lock, revoke if the job is to be cut, take, decide, write, commit."""
        self.tx = tx = self.db.begin()
        try:
            yield from jobs(tx)
            for job in tx.jobs:
                yield from self._advance_job(tx, job, signals, revoke=revoke)
            if tx.jobs:
                yield from self.call(self.db.commit, tx)
        finally:
            self.db.rollback(tx)
            self.tx = None
        return len(tx.jobs), min((seconds_of(one.wake_at) for one in tx.changes.values()), default=FOR_EVER)

    def _advance_job(
        self, tx: Transaction, job: int, signals: tuple[Happening, ...], *, revoke: bool
    ) -> Steps:
        is_cut = revoke or self.db.is_past_deadline(tx, job)
        limit = None if is_cut or self.random.random() < 0.7 else 1
        if is_cut and "take before revoke" in self.db.mutants:
            news = yield from self.call(self.db.take_inbox, tx, job, limit)
            yield from self.call(self.db.revoke_tasks, tx, job)
        else:
            if is_cut:
                yield from self.call(self.db.revoke_tasks, tx, job)
            news = yield from self.call(self.db.take_inbox, tx, job, limit)
        news = [*news, *self.world.echoes_of(job, news), *signals]
        changes = yield from self.call(self.db.decide, tx, job, news, is_cut)
        if changes.needs_revoke:
            if "cut without revoking" not in self.db.mutants:
                yield from self.call(self.db.revoke_tasks, tx, job)
                news = [*(yield from self.call(self.db.take_inbox, tx, job)), *signals]
            yield from self.call(self.db.decide, tx, job, news, True)


class Orchestrator(Advancing):
    """orchestrator/loop.py."""

    def __init__(self, world: Simulation) -> None:
        super().__init__(world)
        self.main = self.spawn(self.run())

    def run(self) -> Steps:
        process_id = self.db.register()
        tick_at, wake_at = 0.0, FOR_EVER
        while True:
            self.is_woken = False
            try:
                advanced, wake = yield from self.advance(self._due)
                wake_at = min(wake_at, wake)
                if self.is_woken:
                    continue
                if self.world.time >= tick_at:
                    has_news, wake_at = yield from self.call(self.db.tick, process_id)
                    tick_at = self.world.time + TICK
                    if has_news and not advanced:
                        yield 0.05
                        continue
                pause = min(tick_at, wake_at) - self.world.time
                if wake_at <= self.world.time:
                    wake_at = FOR_EVER  # once: the job may be in the hands of another
                yield max(0.0, pause)
            except (AnswerLost, Aborted):
                yield 0.5

    def _due(self, tx: Transaction) -> Steps:
        yield from self.call(self.db.lock_jobs_with_news, tx)


class Client(Advancing):
    """Somebody who cancels a job, retries a failed node of it, or answers its approvals."""

    def __init__(self, world: Simulation, job: int, wish: str, after: float) -> None:
        super().__init__(world)
        self.job = job
        self.spawn(self.run(wish), after)

    def run(self, wish: str) -> Steps:
        rows = self.db.jobs[self.job]
        failed = sorted(name for name, row in rows.nodes.items() if row.status == "failed")
        try:
            if wish == "cancel":
                yield from self.advance(self._the_job, CancelAsked(), revoke=True)
            elif wish == "answer":
                yield from self.advance(self._the_question, Signalled("approve", "q", "ann"))
            elif failed:
                yield from self.advance(self._the_job, RetryAsked(self.random.choice(failed)))
        except (AnswerLost, Aborted):
            return

    def _the_job(self, tx: Transaction) -> Steps:
        yield from self.call(self.db.lock_job, tx, self.job)
        if self.db.jobs[self.job].status in JOB_TERMINAL:
            raise Aborted  # AlreadyTerminal

    def _the_question(self, tx: Transaction) -> Steps:
        """verbs/signal.py: refused unless the approval is open."""
        yield from self._the_job(tx)
        rows = self.db.jobs[self.job]
        if not is_open(rows.workflow.nodes["q"], rows.nodes.get("q"), tx.now):
            raise Aborted  # Conflict


class Held:
    """An attempt as its worker knows it."""

    __slots__ = ("is_ended", "lost")

    def __init__(self) -> None:
        self.is_ended = False
        self.lost = ""


class Worker(Process):
    """worker/loop.py, reporter.py and pulse.py."""

    def __init__(self, world: Simulation) -> None:
        super().__init__(world)
        self.identity: int | None = None
        self.held: dict[int, Held] = {}
        self.claims = 0
        self.is_claiming = False
        self.is_draining = False
        self.main = self.spawn(self.run())
        self.spawn(self.pulse(), PULSE)

    def run(self) -> Steps:
        while not self.is_draining:
            self.is_woken = False
            if self.identity is None:
                self.identity = self.db.register()
            try:
                items = yield from self._claim(self.identity)
            except AnswerLost:
                items = []
                yield 0.5
            if not items and not self.is_woken:
                yield FOR_EVER  # until a notice, or the pulse that saw work
        yield from self._drain()

    def _claim(self, worker: int) -> Steps:
        slots = 2 - len(self.held)
        if slots <= 0:
            return []
        self.is_claiming = True
        try:
            items = yield from self.call(self.db.claim, worker, slots)
            if items:
                yield 0.0  # the tasks are ours, and we do not know it yet
        finally:
            self.is_claiming = False
            self.claims += 1
        for item in items:
            held = self.held[item.task_id] = Held()
            self.spawn(self.attempt(worker, item, held))
        return items

    def _drain(self) -> Steps:
        """SIGTERM: finish what is quick, hand back the rest, leave."""
        worker = self.identity
        if worker is not None:
            self.db.leave(worker, "draining")
        yield self.random.choice([0.0, 2.0])
        for held in self.held.values():
            held.lost = held.lost or "shutdown"
        yield self.random.choice([1.0, 3.0])
        if worker is not None:
            self.db.leave(worker, "stopped")
        self.die()
        yield FOR_EVER

    # -- one attempt -----------------------------------------------------------------------------------

    def attempt(self, worker: int, item: Item, held: Held) -> Steps:
        """Run the handler, then report. A handler that does not listen goes on though it was told to stop."""
        fate, seconds, is_deaf = self.world.fate()
        yield min(seconds, item.timeout)
        if fate == "kill":
            self.die()
            return
        outcome: Completed | Failed
        if seconds >= item.timeout:
            outcome = Failed("timeout", "out of time")
        elif fate == "ok":
            outcome = Completed(orjson.dumps({"task": item.task_id, "fence": item.fence, "go": seconds > 1}))
        else:
            outcome = Failed(fate, fate, fate != "fatal")
        held.is_ended = True
        if held.lost == "shutdown":
            yield from self._give_back(worker, item)
        if not held.lost or is_deaf:
            yield from self._report(worker, item, outcome)
        self.held.pop(item.task_id, None)
        self.wake()

    def _give_back(self, worker: int, item: Item) -> Steps:
        try:
            yield from self.call(self.db.release, worker, [item.task_id])
        except AnswerLost:
            return

    def _report(self, worker: int, item: Item, outcome: Completed | Failed) -> Steps:
        """Until it is answered. After a lost answer ask first; whoever does not is refused, no more."""
        is_repeat = False
        while True:
            try:
                is_careful = is_repeat and self.world.roll() < 0.7
                if is_careful and (yield from self.call(self.db.find_reported, item)):
                    return
                yield from self.call(self.db.report, worker, item, outcome)
                return
            except AnswerLost:
                is_repeat = True
                yield 0.5

    # -- the pulse ---------------------------------------------------------------------------------------

    def pulse(self) -> Steps:
        while True:
            worker, epoch = self.identity, self.claims
            if worker is not None:
                try:
                    is_alive, tasks, has_ready = yield from self.call(self.db.pulse, worker)
                    yield 0.0  # the answer goes from the pulse's thread to the main one
                    yield from self._on_pulse(worker, epoch, is_alive, tasks, has_ready)
                except AnswerLost:
                    pass
            yield PULSE

    def _on_pulse(self, worker: int, epoch: int, is_alive: bool, tasks: set[int], has_ready: bool) -> Steps:
        if worker != self.identity:
            return
        if not is_alive:
            self.identity = None
            for held in self.held.values():
                held.lost = "lost"
        if (has_ready or not is_alive) and not self.is_draining:
            self.wake()
        if is_alive and epoch == self.claims and not self.is_claiming:
            for task_id, held in self.held.items():
                if task_id not in tasks and not held.is_ended:
                    held.lost = "lost"
            unknown = tasks - self.held.keys()
            if unknown:
                yield from self.call(self.db.release, worker, unknown)
