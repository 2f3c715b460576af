"""A process dies, and the one that recovers from that dies as well: some hundred of all the pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torture.crash import Fault
from tests.torture.enumeration import every_visit, record, strike_all, strike_of
from tests.torture.lane import open_lanes
from tests.torture.pairs import Pair, record_recovery, some_pairs
from tests.torture.results import keep

pytestmark = pytest.mark.torture

LANES = 4
SEED = 20261116
START = {
    "worker": Fault("report.report_tasks", 2, "kill9"),
    "orchestrator": Fault("advance.write_changes", 3, "kill9"),
}


@pytest.mark.parametrize(
    ("scenario", "first", "second", "count"),
    [
        ("dag", "worker", "orchestrator", 120),
        ("dag", "orchestrator", "orchestrator", 60),
        ("dag", "worker", "worker", 60),
        ("fan", "worker", "orchestrator", 60),
    ],
)
async def test_a_recovery_may_be_killed_as_well(
    postgres: str, template: str, tmp_path: Path, scenario: str, first: str, second: str, count: int
) -> None:
    async with open_lanes(postgres, template, tmp_path, LANES) as lanes:
        befores = every_visit(await record(lanes, strike_of(scenario, first)), "kill9")
        pair = Pair(scenario, first, second, START[first])
        afters = every_visit(await record_recovery(lanes[0], pair), "kill9")
        pairs = some_pairs(pair, befores, afters, count, SEED)
        tally = await strike_all(lanes, [(str(pair), pair.strike) for pair in pairs])
    keep(
        f"pairs-{scenario}-{first}-{second}",
        tally,
        scenario=scenario,
        role=f"{first}, {second}",
        mode="pairs",
        seed=SEED,
    )
    assert tally.violations == {}
    assert len(tally.missed) < count / 2
