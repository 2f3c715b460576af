"""The processes of the simulation: what orchestrators, workers and clients do, statement by statement.

Each follows its original line by line where it talks to the database (orchestrator/orchestrator_loop.py,
worker/, the verbs), and leaves the rest out. A process is made of strands: generators that stop before every
statement and yield how long they sleep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from tests.support.job_rows import T0
from tests.support.simulation.rows import Aborted, Blocked, HeldKey, Item, Letting, Transaction

from cograil.model.job import Input
from cograil.model.outcome import Completed, Failed

if TYPE_CHECKING:
    from tests.support.simulation.simulator import Simulation

Steps = Generator[float, None, Any]

FOR_EVER = math.inf
HEARTBEAT = TICK = 5.0


class AnswerLost(Exception):
    """The connection broke: the statement may have been done or not."""


def seconds_of(moment: datetime | None) -> float:
    """Virtual time of a moment."""
    return FOR_EVER if moment is None else (moment - T0).total_seconds()


class Strand:
    """Something that goes on by itself within a process; due at `at`."""

    __slots__ = ("at", "owner", "steps", "ticket")

    def __init__(self, owner: Process, steps: Steps) -> None:
        self.owner = owner
        self.steps = steps
        self.at = FOR_EVER
        self.ticket = 0  # of its place among those who sleep


class Process:
    """What is killed and stopped as one."""

    main: Strand

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.db = world.db
        self.roll = world.roll
        self.has_to_wait = world.has_to_wait
        self.stopped_until = 0.0
        self.is_woken = False
        self.is_dead = False
        self.tx: Transaction | None = None

    def wake(self) -> None:
        """Call the main loop; a call that it does not wait for is not forgotten."""
        self.is_woken = True
        self.world.rouse(self.main)

    def spawn(self, steps: Steps, after: float = 0.0) -> Strand:
        strand = Strand(self, steps)
        self.world.sleep(strand, after)
        return strand

    def ask(self, statement: Callable[..., Any], *arguments: Any) -> Any:
        """One statement. Its answer may be lost, before or after it was done."""
        world = self.world
        world.loss_in -= 1
        if world.loss_in:
            return statement(*arguments)
        return world.lose_answer(statement, *arguments)

    def call(self, statement: Callable[..., Any], *arguments: Any) -> Steps:
        """One statement, when its time has come; it may have to wait for locks."""
        if self.has_to_wait():
            yield 0.0
        while True:
            try:
                return self.ask(statement, *arguments)
            except Blocked:
                yield 0.05

    def die(self) -> None:
        """kill -9: nothing is tidied up, the server rolls back."""
        if self.tx is not None:
            self.db.rollback(self.tx)
        self.is_dead = True
        self.world.restart(self)


class Advancing(Process):
    """What runs `advance`: orchestrators, and the API for cancel and retry."""

    def advance(self, lock: Callable[[Transaction], None], *signals: Input, revoke: bool = False) -> Steps:
        """verbs/advance.py: lock, revoke if the job is to be cut, take, decide, write, commit."""
        self.tx = tx = Transaction(self.db.now)
        try:
            if revoke or signals:
                yield from self.call(lock, tx)
            else:
                if self.has_to_wait():
                    yield 0.0
                self.ask(lock, tx)
            if tx.jobs:
                for job in tx.jobs:
                    yield from self._advance_job(tx, job, signals, revoke=revoke)
                if self.has_to_wait():
                    yield 0.0
                self.ask(self.db.commit, tx)
        finally:
            self.db.rollback(tx)
            self.tx = None
        return tx

    def _advance_job(self, tx: Transaction, job: int, signals: tuple[Input, ...], *, revoke: bool) -> Steps:
        db, ask = self.db, self.ask
        is_cut = revoke or db.is_past_deadline(tx, job)
        limit = None if is_cut or self.roll() < 0.7 else 1
        began: list[Input] = []
        if is_cut and "take before revoke" not in db.mutants:
            began = yield from self.call(db.revoke_tasks, tx, job)
        if self.has_to_wait():
            yield 0.0
        news = ask(db.take_inbox, tx, job, limit)
        if is_cut and "take before revoke" in db.mutants:
            yield from self.call(db.revoke_tasks, tx, job)
        news = [*news, *self.world.echoes_of(job, news), *began, *signals]
        if self.has_to_wait():
            yield 0.0
        changes = ask(db.decide, tx, job, news, is_cut)
        if changes.needs_revoke:
            if "cut without revoking" not in db.mutants:
                began = yield from self.call(db.revoke_tasks, tx, job)
                news = [*(yield from self.call(db.take_inbox, tx, job)), *began, *signals]
            yield from self.call(db.decide, tx, job, news, True)


class Orchestrator(Advancing):
    """orchestrator/orchestrator_loop.py."""

    def __init__(self, world: Simulation) -> None:
        super().__init__(world)
        self.sees_limits = False
        self.sees_limits_at = FOR_EVER
        self.tick_at = 0.0
        self.wake_at = FOR_EVER
        self.main = self.spawn(self.run())

    def run(self) -> Steps:
        process_id = self.db.register()
        while True:
            try:
                yield from self._pass(process_id)
            except (AnswerLost, Aborted):
                yield 0.5

    def _pass(self, process_id: int) -> Steps:
        was_called, self.is_woken = self.is_woken, False
        world = self.world
        if self.sees_limits or world.time >= self.sees_limits_at:
            yield from self._admit()
        if world.time >= self.tick_at:
            if self.has_to_wait():
                yield 0.0
            has_news, self.wake_at, has_held = self.ask(self.db.tick, process_id)
            self.tick_at = world.time + TICK
            self.sees_limits = self.sees_limits or has_held
            if not (has_news or has_held or was_called or self.wake_at <= world.time):
                yield self._pause(0)
                return
        tx = yield from self.advance(self.db.lock_jobs_with_news)
        for job, changes in tx.changes.items():
            self.wake_at = min(self.wake_at, seconds_of(changes.wake_at))
            self.sees_limits = self.sees_limits or self.db.jobs[job].workflow.has_limits
        if self.sees_limits:
            yield from self._admit()
        if not self.is_woken:
            yield self._pause(len(tx.jobs))

    def _pause(self, advanced: int) -> float:
        """How long nothing can be due, if nobody calls."""
        now = self.world.time
        if self.wake_at <= now:  # only the earliest is noted: the tick tells which comes next
            self.wake_at, self.tick_at = FOR_EVER, now
            return 0.0 if advanced else 0.05
        return max(0.0, min(self.tick_at, self.wake_at) - now)

    def _admit(self) -> Steps:
        """verbs/limits.py: let go what limits held back and now allow."""
        self.sees_limits, self.sees_limits_at = False, FOR_EVER
        limits = self.db.limits
        self.tx = tx = Letting(self.db.now)
        wait = FOR_EVER
        try:
            keys = yield from self.call(limits.held_keys)
            for held in keys:
                yield from self.call(limits.lock, tx, held)
            for held in keys:
                places = yield from self.call(limits.count_places, tx, held)
                places, seconds = yield from self.call(limits.take_tokens, tx, held, places)
                if places:
                    yield from self._let_go(tx, held, places)
                wait = min(wait, seconds or FOR_EVER)
            yield from self.call(limits.commit, tx)
        finally:
            self.db.rollback(tx)
            self.tx = None
        self.sees_limits_at = self.world.time + wait
        self.wake_at = min(self.wake_at, self.sees_limits_at)

    def _let_go(self, tx: Letting, held: HeldKey, places: int) -> Steps:
        """Two who wait for each other: the server ends one of them, and here it is always this one."""
        for _ in range(20):
            try:
                self.ask(self.db.limits.let_go, tx, held, places)
                return
            except Blocked:
                yield 0.05
        raise Aborted


class Held:
    """An attempt as its worker knows it."""

    __slots__ = ("is_ended", "lost")

    def __init__(self) -> None:
        self.is_ended = False
        self.lost = ""


class Worker(Process):
    """worker/worker_loop.py, reporter.py and heartbeat.py."""

    def __init__(self, world: Simulation) -> None:
        super().__init__(world)
        self.identity: int | None = None
        self.held: dict[int, Held] = {}
        self.claims = 0
        self.is_claiming = False
        self.is_draining = False
        self.main = self.spawn(self.run())
        self.spawn(self.heartbeat(), HEARTBEAT)

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
                yield FOR_EVER  # until a notice, or the heartbeat that saw work
        yield from self._drain()

    def _claim(self, worker: int) -> Steps:
        slots = 2 - len(self.held)
        if slots <= 0:
            return []
        self.is_claiming = True
        try:
            if self.has_to_wait():
                yield 0.0
            items = self.ask(self.db.claim, worker, slots, not self.held)
            if items and self.has_to_wait():
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
        yield self.world.pick((0.0, 2.0))
        for held in self.held.values():
            held.lost = held.lost or "shutdown"
        yield self.world.pick((1.0, 3.0))
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
            self.db.diary.killers.add((item.job, item.node))
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
        """Until it is answered. After a lost answer ask first; a caller that does not is refused."""
        is_repeat = False
        while True:
            try:
                is_careful = is_repeat and self.roll() < 0.7
                if is_careful and (yield from self.call(self.db.reports.find, item)):
                    return
                if not (yield from self.call(self.db.reports.end, worker, item, outcome)):
                    yield from self.call(self.db.reports.report, worker, item, outcome)
                return
            except AnswerLost:
                is_repeat = True
                yield 0.5

    # -- the heartbeat ---------------------------------------------------------------------------------------

    def heartbeat(self) -> Steps:
        while True:
            worker, epoch = self.identity, self.claims
            if worker is not None:
                try:
                    if self.has_to_wait():
                        yield 0.0
                    is_alive, tasks, has_ready = self.ask(self.db.heartbeat, worker)
                    if self.has_to_wait():
                        yield 0.0  # the answer goes from the heartbeat's thread to the main one
                    yield from self._on_heartbeat(worker, epoch, is_alive, tasks, has_ready)
                except AnswerLost:
                    pass
            yield HEARTBEAT

    def _on_heartbeat(
        self, worker: int, epoch: int, is_alive: bool, tasks: set[int], has_ready: bool
    ) -> Steps:
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
