"""Orchestrators and workers on virtual time, with everything going wrong that can.

Processes are made of strands (the main loop, the pulse thread, one for each handler), and a strand is a
generator that stops before and after every statement. The scheduler picks any strand that is due, so
every interleaving of statements can happen; between two statements it kills or stops whole processes. A
statement's answer may be lost, before or after it was done. Notices may be lost. One seed, one run:

    Simulation(seed).run()      raises Violation when an invariant does not hold
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator
from datetime import datetime, timedelta
from random import Random
from typing import Any

import orjson
from one_job import T0
from simulated_database import Aborted, Blocked, Database, Item, Transaction, Violation
from simulated_workflows import WORKFLOWS

from cograil.engine.states import JOB_TERMINAL
from cograil.model.job import CancelAsked, Happening, Reported, RetryAsked
from cograil.model.outcome import Completed, Failed

Steps = Generator[float, None, Any]

FOR_EVER = math.inf
PULSE = TICK = 5.0
MOST_STEPS = 4000


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

    def advance(self, jobs: Callable[[Transaction], Steps], *signals: Happening, revoke: bool = False) -> Steps:
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
        yield from self.call(self.db.decide, tx, job, [*news, *self.world.echoes_of(job, news), *signals])


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
    """Somebody who cancels a job, or retries a failed node of it."""

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
            elif failed:
                yield from self.advance(self._the_job, RetryAsked(self.random.choice(failed)))
        except (AnswerLost, Aborted):
            return

    def _the_job(self, tx: Transaction) -> Steps:
        yield from self.call(self.db.lock_job, tx, self.job)
        if self.db.jobs[self.job].status in JOB_TERMINAL:
            raise Aborted  # AlreadyTerminal


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
        is_repeat = False
        while True:
            try:
                if is_repeat and (yield from self.call(self.db.find_reported, item)):
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
            if unknown and "no reconcile" not in self.db.mutants:
                yield from self.call(self.db.release, worker, unknown)


class Simulation:
    """A small world: some jobs, two orchestrators, two workers, and a number of faults."""

    def __init__(self, seed: int, mutants: Collection[str] = (), *, echoes: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.time = 0.0
        self.strands: list[Strand] = []
        self.db = Database(T0, self.random.random, mutants)
        self.db.notify = self._notify
        self.faults_left = self.random.choice([0, 1, 2, 4, 8])
        self.loses_notices = self.random.random() < 0.3
        self.trouble = self.random.choice([0.0, 0.3, 0.6])  # how many attempts do not go well
        self._echoes = echoes
        self._heard: dict[int, list[Happening]] = {}
        self.orchestrators = [Orchestrator(self) for _ in range(self.random.choice([1, 2, 2]))]
        self.workers = [Worker(self) for _ in range(2)]
        for _ in range(self.random.choice([1, 1, 2])):
            job = self.db.submit(self.random.choice(WORKFLOWS), {"list": [1] * self.random.randrange(4)})
            if self.random.random() < 0.25:
                Client(self, job, self.random.choice(["cancel", "retry", "retry"]), self.random.uniform(0, 12))

    def run(self) -> None:
        """Until all is quiet, then check what is left."""
        try:
            for _ in range(MOST_STEPS):
                if self._step() and self._is_over():
                    break
            self.db.check_end()
        except Exception as error:
            raise Violation(f"seed {self.seed}: {error}") from error

    def _is_over(self) -> bool:
        return self.db.is_quiet() and not any(worker.held for worker in self.workers) and not self.db.locks

    def _statuses(self) -> list[dict[str, str]]:
        return [{name: row.status for name, row in rows.nodes.items()} for rows in self.db.jobs]

    def _step(self) -> bool:
        """Let any strand that is due go on; or the time pass until one is, and say so."""
        now = self.time
        due = [strand for strand in self.strands if strand.at <= now]
        if not due:
            self._pass_time(min(strand.at for strand in self.strands))
            return True
        strand = due[int(self.random.random() * len(due))]
        owner = strand.owner
        if owner.stopped_until > now:
            strand.at = owner.stopped_until
            return False
        if self.faults_left and self.random.random() < 0.02 and self._strike(owner):
            return False
        try:
            strand.at = self.time + next(strand.steps)
        except StopIteration:
            if strand in self.strands:
                self.strands.remove(strand)
        return False

    def _pass_time(self, until: float) -> None:
        if until == FOR_EVER:
            raise Violation(f"nobody will ever do anything again: {self._statuses()}")
        self.time = until
        self.db.now = T0 + timedelta(seconds=until)

    # -- what goes wrong ---------------------------------------------------------------------------------

    def _strike(self, process: Process) -> bool:
        """kill -9, SIGSTOP for a while, or SIGTERM. False: not this one."""
        self.faults_left -= 1
        match self.random.choice(["kill", "stop", "stop", "term"]):
            case "kill":
                process.die()
            case "stop":
                process.stopped_until = self.time + self.random.choice([0.5, 3, 12, 20, 60])
            case "term" if isinstance(process, Worker) and process.identity is not None:
                process.is_draining = True
                process.wake()
            case _:
                return False
        return True

    def lose_answer(self) -> str:
        """Whether the connection breaks at this statement, and when."""
        if self.random.random() < 0.01:
            self.faults_left -= 1
            return self.random.choice(["before", "after"])
        return ""

    def _notify(self, channel: str) -> None:
        if self.loses_notices and self.random.random() < 0.5:
            return
        for process in self.orchestrators if channel == "news" else self.workers:
            process.wake()

    def fate(self) -> tuple[str, float, bool]:
        """How an attempt ends, after how long, and whether it ignores being told to stop."""
        random = self.random
        seconds = random.choice([0.0, 0.1, 1.5, 4.0])
        if random.random() >= self.trouble:
            return "ok", seconds, random.random() < 0.5
        fate = random.choice(["error", "error", "fatal", "kill", "slow"])
        return fate, 100.0 if fate == "slow" else seconds, random.random() < 0.5

    def echoes_of(self, job: int, news: list[Happening]) -> list[Happening]:
        """News that were heard before, heard again: no database of ours does that, advance bears it."""
        if not self._echoes:
            return []
        heard = self._heard.setdefault(job, [])
        echoes = self.random.sample(heard, min(len(heard), 2))
        heard.extend(one for one in news if isinstance(one, Reported))
        return echoes

    # -- what the processes ask --------------------------------------------------------------------------

    def restart(self, process: Process) -> None:
        """Somebody watches over the processes."""
        if isinstance(process, Orchestrator):
            self.orchestrators.remove(process)
            self.orchestrators.append(Orchestrator(self))
        elif isinstance(process, Worker):
            self.workers.remove(process)
            self.workers.append(Worker(self))
