"""All points of a scenario: record them, then strike each of them, several lanes at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.torture.bulk_operations import BULK_OPERATIONS
from tests.torture.child_jobs import CHILD_JOBS
from tests.torture.clients import ACTS, API_CALLS, crash_client
from tests.torture.crash import OTHER, Fault, Run, crash
from tests.torture.held_jobs import HELD_JOBS
from tests.torture.lane import Lane
from tests.torture.relays import RELAYS
from tests.torture.retained_data import RETAINED_DATA
from tests.torture.scenarios import SCENARIOS
from tests.torture.sql_submissions import SQL_SUBMISSIONS

Strike = Callable[[Lane, Fault | None], Awaitable[Run]]
Task = tuple[str, Callable[[Lane], Awaitable[Run]]]
RECORDINGS = 2
TRIES = 3  # a point that depends on timing may not come the first time
PATIENCE = 3  # times the usual wait, where nobody is struck: who is late there is only slow
Victim = tuple[str, str]  # scenario, role
ALL = SCENARIOS | CHILD_JOBS | HELD_JOBS | RETAINED_DATA | SQL_SUBMISSIONS | BULK_OPERATIONS
PROCESSES: list[Victim] = [(scenario.name, role) for scenario in ALL.values() for role in scenario.roles]
PROCESSES += [(act, "server") for act in API_CALLS] + [(act, "relay") for act in RELAYS]
CLIENTS: list[Victim] = [(act, "client") for act in ACTS]


@dataclass
class Tally:
    """The sum of many runs."""

    points: int = 0
    runs: int = 0
    missed: list[str] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)
    struck: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, label: str, run: Run) -> None:
        """Count this run."""
        self.runs += 1
        if run.struck:
            self.struck.append(label)
        if run.violations:
            self.violations[label] = run.violations

    def names(self) -> set[str]:
        """The points at which at least one visit was struck."""
        return {label.split(":")[0] for label in self.struck}


def strike_of(scenario: str, role: str) -> Strike:
    """How to strike this role of this scenario."""
    if role not in OTHER:
        return lambda lane, fault: crash_client(lane, scenario, fault)
    return lambda lane, fault: crash(lane, ALL[scenario], role, fault)


async def record(lanes: Sequence[Lane], strike: Strike, recordings: int = RECORDINGS) -> Counter[str]:
    """How often each point is passed; the most of a few runs. These runs must be without fault, too."""
    points: Counter[str] = Counter()
    lane = lanes[0]
    usual, lane.watchdog_seconds = lane.watchdog_seconds, PATIENCE * lane.watchdog_seconds
    for _ in range(recordings):
        run = await strike(lane, None)
        if run.violations:
            raise AssertionError(f"without any fault: {run.violations}")
        points |= Counter(run.points)
    lane.watchdog_seconds = usual
    return points


async def record_all(lanes: Sequence[Lane], victims: Iterable[Victim]) -> dict[Victim, Counter[str]]:
    """The same for each of these in one run, several at a time."""
    waiting = list(victims)[::-1]
    visits: dict[Victim, Counter[str]] = {}

    async def work_off(lane: Lane) -> None:
        while waiting:
            victim = waiting.pop()
            visits[victim] = await record([lane], strike_of(*victim), recordings=1)

    async with asyncio.TaskGroup() as group:
        for lane in lanes:
            group.create_task(work_off(lane))
    return visits


def every_visit(points: Counter[str], mode: str) -> list[Fault]:
    """Each visit of each point at which this mode does something."""
    return [Fault(name, count, mode) for name in _names(points, mode) for count in range(1, points[name] + 1)]


def each_name_once(points: Counter[str], mode: str) -> list[Fault]:
    """One visit of each point, in the middle of its visits."""
    return [Fault(name, (points[name] + 1) // 2, mode) for name in _names(points, mode)]


def _names(points: Counter[str], mode: str) -> list[str]:
    return [name for name in sorted(points) if mode != "commit_unknown" or name.endswith(".commit.after")]


def strikes(strike: Strike, faults: Iterable[Fault]) -> list[Task]:
    """These faults as tasks for lanes."""
    return [(str(fault), partial(_flipped, strike, fault)) for fault in faults]


async def _flipped(strike: Strike, fault: Fault, lane: Lane) -> Run:
    return await strike(lane, fault)


async def strike_all(lanes: Sequence[Lane], tasks: Sequence[Task]) -> Tally:
    """Do each of these once, as many at a time as there are lanes."""
    started, waiting = time.monotonic(), list(tasks)[::-1]
    tally = Tally(points=len(waiting))
    async with asyncio.TaskGroup() as group:
        for lane in lanes:
            group.create_task(_work_off(lane, waiting, tally))
    tally.seconds = round(time.monotonic() - started, 1)
    return tally


async def _work_off(lane: Lane, waiting: list[Task], tally: Tally) -> None:
    while waiting:
        label, strike = waiting.pop()
        for _ in range(TRIES):
            run = await strike(lane)
            tally.add(label, run)
            if run.struck or run.violations:
                break
        else:
            tally.missed.append(label)
