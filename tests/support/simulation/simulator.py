"""Orchestrators and workers on virtual time, with everything going wrong that can.

The scheduler picks any strand of any process that is due, so every interleaving of statements can happen;
between two statements it kills or stops whole processes. A statement's answer may be lost, before or
after it was done. Notices may be lost. One seed, one run:

    Simulation(seed).run()      raises Violation when an invariant does not hold

    python -m tests.support.simulation.simulator --seeds 10000     how many seeds a second, on all processors
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from heapq import heappop, heappush
from math import log
from random import Random
from typing import Any, TypeVar

from tests.support.job_rows import T0
from tests.support.simulation.clients import Client
from tests.support.simulation.database import Database
from tests.support.simulation.leases import Holder
from tests.support.simulation.processes import FOR_EVER, AnswerLost, Orchestrator, Process, Strand, Worker
from tests.support.simulation.rows import Violation
from tests.support.simulation.workflows import LIMITED, MIX

from cograil.model.job import Input, Reported

MAX_PASSINGS = 1000  # of time
MAX_STEPS = 1000  # at one moment
NEVER = 500  # statements, then it is asked again
T = TypeVar("T")


class Simulation:
    """A small world: some jobs, two orchestrators, two workers, and a number of faults."""

    def __init__(self, seed: int, mutants: Collection[str] = (), *, echoes: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.roll = self.random.random
        self.time = 0.0
        self.due: list[Strand] = []
        self.asleep: list[tuple[float, int, Strand]] = []
        self._tickets = 0
        self.db = Database(T0, self.roll, mutants)
        self.db.notify = self._notify
        self.db.is_thorough = seed % 8 == 0
        self.faults_left = self.pick((0, 1, 2, 4, 8))
        self.strike_in = self.loss_in = 0
        self._plan_faults()
        self.loses_notices = self.roll() < 0.3
        self.trouble = self.pick((0.0, 0.3, 0.6))  # how many attempts do not go well
        self._echoes = echoes
        self._heard: dict[int, list[Input]] = {}
        self.orchestrators = [Orchestrator(self) for _ in range(self.pick((1, 2, 2)))]
        self.workers = [Worker(self), Worker(self)]
        self._begin()

    def _begin(self) -> None:
        """Submit some jobs, and let some people meddle with them."""
        count, workflow = self.pick((1, 1, 1, 2)), None
        if self.roll() < 0.1:
            count, workflow = self.pick((1, 2, 2, 3)), self.pick(LIMITED)
        for _ in range(count):
            chosen = workflow or self.pick(MIX)
            job = self.db.submit(chosen, {"list": [1] * int(self.roll() * 4), "key": self.pick(("x", "y"))})
            if "q" in chosen.nodes:
                for _ in range(int(self.roll() * 3)):
                    Client(self, job, "answer", self.pick((0.1, 1.5, 4.0, 5.5, 6.5)))
            if self.roll() < 0.25:
                wish = self.pick(("cancel", "cancel", "retry"))
                Client(self, job, wish, self.pick((0.0, 0.1, 1.5, 1.6, 4.0, 5.5, 12.0)))
        if self.roll() < 0.05:
            name, limit = self.pick((("lease", 1), ("slots", 2)))
            for _ in range(limit + 1):
                by = self.pick((None, None, 0))
                Holder(self, name, limit, by, self.pick((0.0, 0.1, 1.5, 4.0)))

    def pick(self, some: Sequence[T]) -> T:
        return some[int(self.roll() * len(some))]

    # -- time --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until all is quiet, then check what is left."""
        try:
            for _ in range(MAX_PASSINGS):
                self._act()
                self._pass_time()
                if self._is_over():
                    break
            self.db.check_end()
        except Exception as error:
            raise Violation(f"seed {self.seed}: {error}") from error

    def _is_over(self) -> bool:
        db = self.db
        if not db.is_quiet() or db.locks or db.limits.locks:
            return False
        return not any([worker.held for worker in self.workers])

    def _act(self) -> None:
        """Let strands that are due go on, any of them at a time, until none is."""
        due, roll, now = self.due, self.roll, self.time
        for _ in range(MAX_STEPS):
            if not due:
                return
            strand = due.pop()
            if due:
                chosen = int(roll() * (len(due) + 1))
                if chosen < len(due):
                    strand, due[chosen] = due[chosen], strand
            owner = strand.owner
            self.strike_in -= 1
            if owner.is_dead or (self.strike_in <= 0 and self._strike(owner) and owner.is_dead):
                continue
            if owner.stopped_until > now:
                self.sleep(strand, owner.stopped_until - now)
                continue
            pause = next(strand.steps, FOR_EVER)
            if pause:
                self.sleep(strand, pause)
            else:
                due.append(strand)
        raise Violation("they go round in circles")

    def has_to_wait(self) -> bool:
        """Whether others may go first, or something may strike, before the next statement."""
        if self.due or self.strike_in <= 0:
            return True
        self.strike_in -= 1
        return False

    def sleep(self, strand: Strand, seconds: float) -> None:
        """Let it be due in this number of seconds."""
        strand.at = at = self.time + seconds
        if at != FOR_EVER:
            self._tickets += 1
            strand.ticket = self._tickets
            heappush(self.asleep, (at, self._tickets, strand))

    def rouse(self, strand: Strand) -> None:
        """Let it be due now, if it sleeps."""
        if strand.at > self.time:
            strand.at, strand.ticket = self.time, 0
            self.due.append(strand)

    def _pass_time(self) -> None:
        """To the next moment at which somebody is due."""
        asleep = self.asleep
        while asleep and (asleep[0][2].ticket != asleep[0][1] or asleep[0][2].owner.is_dead):
            heappop(asleep)
        if not asleep:
            states = [{name: row.status for name, row in rows.nodes.items()} for rows in self.db.jobs]
            raise Violation(f"nobody will ever do anything again: {states}")
        self.time = now = asleep[0][0]
        self.db.now = T0 + timedelta(seconds=now)
        while asleep and asleep[0][0] <= now:
            _, ticket, strand = heappop(asleep)
            if strand.ticket == ticket and not strand.owner.is_dead:
                self.due.append(strand)

    # -- what goes wrong ---------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        """After how many statements one strikes, and one answer is lost."""
        if self.faults_left <= 0:
            self.strike_in, self.loss_in = NEVER, -1
            return
        if self.strike_in <= 0:
            self.strike_in = 1 + int(log(1.0 - self.roll()) / LOG_STRIKE)
        if self.loss_in <= 0:
            self.loss_in = 1 + int(log(1.0 - self.roll()) / LOG_LOSS)

    def _strike(self, process: Process) -> bool:
        """kill -9, SIGSTOP for a while, or SIGTERM. False: not this one."""
        if self.faults_left <= 0:
            self._plan_faults()
            return False
        self.faults_left -= 1
        self._plan_faults()
        if isinstance(process, Worker):
            self.db.diary.struck.add(process.identity)
        match self.pick(("kill", "stop", "stop", "term")):
            case "kill":
                process.die()
            case "stop":
                process.stopped_until = self.time + self.pick((0.5, 3, 12, 20, 60))
            case "term" if isinstance(process, Worker) and process.identity is not None:
                process.is_draining = True
                process.wake()
            case _:
                return False
        return True

    def lose_answer(self, statement: Callable[..., Any], *arguments: Any) -> Any:
        """The connection breaks at this statement: before it was done, or after."""
        self.faults_left -= 1
        self._plan_faults()
        if self.roll() < 0.5:
            statement(*arguments)
        raise AnswerLost

    def _notify(self, channel: str) -> None:
        if self.loses_notices and self.roll() < 0.5:
            return
        if channel == "tasks":
            for worker in self.workers:
                worker.wake()
            return
        for orchestrator in self.orchestrators:
            if channel == "held":
                orchestrator.sees_limits = True
            orchestrator.wake()

    def fate(self) -> tuple[str, float, bool]:
        """How an attempt ends, after how long, and whether it ignores being told to stop."""
        seconds = self.pick((0.0, 0.1, 1.5, 4.0))
        if self.roll() >= self.trouble:
            return "ok", seconds, self.roll() < 0.5
        fate = self.pick(("error", "error", "fatal", "kill", "slow"))
        return fate, 100.0 if fate == "slow" else seconds, self.roll() < 0.5

    def echoes_of(self, job: int, news: list[Input]) -> list[Input]:
        """News that were heard before, heard again: no database of ours does that, advance bears it."""
        if not self._echoes:
            return []
        heard = self._heard.setdefault(job, [])
        echoes = self.random.sample(heard, min(len(heard), 2))
        heard.extend(notice for notice in news if isinstance(notice, Reported))
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


LOG_STRIKE, LOG_LOSS = log(1 - 0.04), log(1 - 0.015)


def run_all(seeds: Iterable[int], *, echoes: bool = False) -> None:
    """Each of them to its end."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # as our processes do: most of what they make is soon forgotten
    for seed in seeds:
        Simulation(seed, echoes=echoes).run()


@contextmanager
def print_rate(count: int) -> Iterator[None]:
    """Print the rate, by the time that this process really had."""
    began = time.process_time()
    yield
    print(f"{count} seeds, {count / (time.process_time() - began):.0f} a second")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a number of seeds, and say how many a second.")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    last, parts = options.first + options.seeds, options.processes
    began = time.perf_counter()
    with ProcessPoolExecutor(parts) as pool:
        for _ in pool.map(run_all, [range(options.first + part, last, parts) for part in range(parts)]):
            pass
    seconds = time.perf_counter() - began
    print(f"{options.seeds} seeds, {options.seeds / seconds:.0f} a second on {parts} processors")


if __name__ == "__main__":
    main()
