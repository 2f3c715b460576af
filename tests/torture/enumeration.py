"""All points of a scenario: record them, then strike each of them, several lanes at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.torture.clients import crash_client
from tests.torture.crash import Fault, Run, crash
from tests.torture.lane import Lane
from tests.torture.scenarios import SCENARIOS

Strike = Callable[[Lane, Fault | None], Awaitable[Run]]
RECORDINGS = 2
TRIES = 3  # a point that depends on timing may not come the first time


@dataclass
class Tally:
    """The sum of many runs."""

    points: int = 0
    runs: int = 0
    missed: list[str] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    names: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """Count this run."""
        self.runs += 1
        self.seconds += run.seconds
        if run.violations:
            self.violations[str(run.fault)] = run.violations


def strike_of(scenario: str, role: str) -> Strike:
    """How to strike this role of this scenario."""
    if role == "client":
        return lambda lane, fault: crash_client(lane, scenario, fault)
    return lambda lane, fault: crash(lane, SCENARIOS[scenario], role, fault)


async def record(lanes: Sequence[Lane], strike: Strike) -> Counter[str]:
    """How often each point is passed; the most of a few runs. These runs must be without fault, too."""
    points: Counter[str] = Counter()
    for _ in range(RECORDINGS):
        run = await strike(lanes[0], None)
        if run.violations:
            raise AssertionError(f"without any fault: {run.violations}")
        points |= Counter(run.points)
    return points


def every_visit(points: Counter[str], mode: str) -> list[Fault]:
    """Each visit of each point at which this mode does something."""
    return [
        Fault(name, count, mode) for name in _names(points, mode) for count in range(1, points[name] + 1)
    ]


def each_name_once(points: Counter[str], mode: str) -> list[Fault]:
    """One visit of each point, in the middle of its visits."""
    return [Fault(name, (points[name] + 1) // 2, mode) for name in _names(points, mode)]


def _names(points: Counter[str], mode: str) -> list[str]:
    return [name for name in sorted(points) if mode != "commit_unknown" or name.endswith(".commit.after")]


async def strike_all(lanes: Sequence[Lane], strike: Strike, faults: Iterable[Fault]) -> Tally:
    """Strike each point once, as many at a time as there are lanes."""
    tally, waiting = Tally(), list(faults)[::-1]
    tally.points = len(waiting)
    tally.names = sorted({fault.name for fault in waiting})
    await asyncio.gather(*(_work_off(lane, strike, waiting, tally) for lane in lanes))
    return tally


async def _work_off(lane: Lane, strike: Strike, waiting: list[Fault], tally: Tally) -> None:
    with contextlib.suppress(IndexError):
        while True:
            fault = waiting.pop()
            for _ in range(TRIES):
                run = await strike(lane, fault)
                tally.add(run)
                if run.struck or run.violations:
                    break
            else:
                tally.missed.append(str(fault))
