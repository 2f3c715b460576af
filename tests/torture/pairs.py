"""Pairs: a process dies, and the one that mends the damage dies over it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.torture import oracles
from tests.torture.crash import OTHER, Fault, Run
from tests.torture.forked_processes import Child
from tests.torture.lane import Lane, Stuck
from tests.torture.scenarios import SCENARIOS, Scenario

SECOND_SECONDS = 3.0


async def crash_twice(
    lane: Lane, scenario: Scenario, first: tuple[str, Fault], second: tuple[str, Fault | None]
) -> Run:
    """Kill `first`; then kill the `second` while it recovers; then let healthy ones finish."""
    run, started = Run(second[1]), time.monotonic()
    await lane.help_with(OTHER[first[0]])
    try:
        await _strike_twice(lane, scenario, first, second, run)
    except Stuck as stuck:
        run.violations.append(str(stuck))
    finally:
        await lane.clear()
    run.seconds = time.monotonic() - started
    return run


async def _strike_twice(
    lane: Lane, scenario: Scenario, first: tuple[str, Fault], second: tuple[str, Fault | None], run: Run
) -> None:
    job = await scenario.begin(lane, scenario)
    victim = await lane.fork(first[0], fault=first[1].order)
    await _gone(lane, job, victim)
    if second[0] != first[0]:
        await lane.help_with()  # nobody but the second victim recovers
    fault = second[1]
    await lane.end_lease(victim)
    recovering = await lane.fork(second[0], fault=fault and fault.order)
    if second[0] != first[0]:
        await lane.fork(first[0])
    await _gone(lane, job, recovering)
    run.points = recovering.points()
    run.struck = any(point.startswith("!") for point in run.points)
    run.violations += await oracles.at_once(lane)
    if run.violations:
        await lane.give_up(job)
        return
    if run.struck:
        await lane.end_lease(recovering)
        await lane.fork("orchestrator")
        await lane.fork("worker")
    await lane.ended(job)
    crashes = [role for role, _ in (first, second)].count("worker")
    run.violations += await oracles.in_the_end(lane, scenario, job, crashes)


async def _gone(lane: Lane, job: str, child: Child) -> None:
    """Wait until it was killed, or has nothing left to do: the job is over or waits for others."""
    until = time.monotonic() + SECOND_SECONDS
    while not child.ended.is_set() and time.monotonic() < until:
        if await lane.is_over(job):
            return
        await child.struck_within(0.02)


@dataclass(frozen=True)
class Pair:
    """Who dies first, who dies recovering from it, and where both do."""

    scenario: str
    first: str
    second: str
    before: Fault
    after: Fault | None = None

    def __str__(self) -> str:
        return f"{self.before}, then {self.second} at {self.after}"

    async def strike(self, lane: Lane) -> Run:
        """Kill both."""
        first, second = (self.first, self.before), (self.second, self.after)
        return await crash_twice(lane, SCENARIOS[self.scenario], first, second)


async def record_recovery(lane: Lane, pair: Pair) -> Counter[str]:
    """The points that the second passes when it recovers from the death of the first."""
    run = await replace(pair, after=None).strike(lane)
    assert not run.violations, run.violations
    return Counter(run.points)


def some_pairs(
    pair: Pair, befores: Sequence[Fault], afters: Sequence[Fault], count: int, seed: int
) -> list[Pair]:
    """`count` pairs, any first with any second; always the same for one seed."""
    dice = random.Random(seed)
    return [replace(pair, before=dice.choice(befores), after=dice.choice(afters)) for _ in range(count)]
