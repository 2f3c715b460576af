"""The harness has teeth: every mistake it is shown, it sees."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.torture.crash import Fault, Run
from tests.torture.enumeration import Strike, Task, every_visit, record, strike_all, strike_of, strikes
from tests.torture.lane import Lane, open_lanes
from tests.torture.more_mutants import NO_FAULT
from tests.torture.mutants import MUTANTS, Mutant
from tests.torture.pairs import Pair, record_recovery
from tests.torture.results import keep

pytestmark = pytest.mark.torture

LANES = 4
WATCHDOG_SECONDS = 8.0


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_mistake_in_the_protocol_is_seen(
    postgres: str, template: str, tmp_path: Path, name: str
) -> None:
    mutant = MUTANTS[name]
    async with open_lanes(postgres, template, tmp_path, LANES, mutant=name) as lanes:
        tasks = await (_recoveries(lanes, mutant) if mutant.victim == "recovery" else _singles(lanes, mutant))
        for lane in lanes:  # from here on a job that does not end is what we look for
            lane.watchdog_seconds = WATCHDOG_SECONDS
        tally = await strike_all(lanes, tasks)
    keep(f"mutant-{name}", tally, mode="mutant", mistake=mutant.mistake)
    assert tally.violations


async def _singles(lanes: list[Lane], mutant: Mutant) -> list[Task]:
    strike = strike_of(mutant.scenario, mutant.victim)
    if mutant.mode == NO_FAULT:
        return [("without any fault", partial(_unstruck, strike))]
    points = await record(lanes, strike)
    return strikes(strike, [f for f in every_visit(points, mutant.mode) if f.name.startswith(mutant.where)])


async def _unstruck(strike: Strike, lane: Lane) -> Run:
    return await strike(lane, None)


async def _recoveries(lanes: list[Lane], mutant: Mutant) -> list[Task]:
    """A mistake in the recovery shows only when the recovery itself is killed."""
    pair = Pair(mutant.scenario, "worker", "orchestrator", Fault("report.report_tasks", 2, mutant.mode))
    points = await record_recovery(lanes[0], pair)
    faults = [fault for fault in every_visit(points, mutant.mode) if fault.name.startswith(mutant.where)]
    pairs = [Pair(pair.scenario, pair.first, pair.second, pair.before, fault) for fault in faults]
    return [(str(pair), pair.strike) for pair in pairs]
