"""Orchestrators and workers on virtual time, with everything going wrong that can.

The scheduler picks any strand of any process that is due, so every interleaving of statements can happen;
between two statements it kills or stops whole processes. A statement's answer may be lost, before or
after it was done. Notices may be lost. One seed, one run:

    Simulation(seed).run()      raises Violation when an invariant does not hold
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from random import Random

from job_rows import T0
from simulated_database import Database
from simulated_processes import FOR_EVER, Client, Orchestrator, Process, Strand, Worker
from simulated_rows import Violation
from simulated_workflows import WORKFLOWS

from cograil.model.job import Happening, Reported

MOST_STEPS = 4000


class Simulation:
    """A small world: some jobs, two orchestrators, two workers, and a number of faults."""

    def __init__(self, seed: int, mutants: Collection[str] = (), *, echoes: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.roll = self.random.random
        self.time = 0.0
        self.strands: list[Strand] = []
        self.db = Database(T0, self.random.random, mutants)
        self.db.notify = self._notify
        self.db.is_thorough = seed % 8 == 0
        self.faults_left = self.random.choice([0, 1, 2, 4, 8])
        self.loses_notices = self.random.random() < 0.3
        self.trouble = self.random.choice([0.0, 0.3, 0.6])  # how many attempts do not go well
        self._echoes = echoes
        self._heard: dict[int, list[Happening]] = {}
        self.orchestrators = [Orchestrator(self) for _ in range(self.random.choice([1, 2, 2]))]
        self.workers = [Worker(self) for _ in range(2)]
        for _ in range(self.random.choice([1, 1, 1, 2])):
            workflow = self.random.choice(WORKFLOWS)
            job = self.db.submit(workflow, {"list": [1] * self.random.randrange(4)})
            if "q" in workflow.nodes:
                for _ in range(self.random.randrange(3)):
                    Client(self, job, "answer", self.random.choice([0.1, 1.5, 4.0, 5.5, 6.5]))
            if self.random.random() < 0.25:
                wish = self.random.choice(["cancel", "retry"])
                Client(self, job, wish, self.random.choice([0.0, 0.1, 1.5, 1.6, 4.0, 5.5, 12.0]))

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
            self._pass_time(min([strand.at for strand in self.strands]))
            return True
        strand = due[int(self.roll() * len(due))] if len(due) > 1 else due[0]
        owner = strand.owner
        if owner.stopped_until > now:
            strand.at = owner.stopped_until
            return False
        if self.faults_left and self.roll() < 0.02 and self._strike(owner):
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
