"""Every visit of every point, in every mode."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.torture.enumeration import (
    CLIENTS,
    PROCESSES,
    every_visit,
    record,
    strike_all,
    strike_of,
    strikes,
)
from tests.torture.lane import open_lanes
from tests.torture.results import keep

pytestmark = pytest.mark.torture

LANES = 4
MODES = ("kill9", "stop", "raise", "commit_unknown", "pgkill")
MORE_MODES = {
    "dag": ("wake",),
    "fan": ("wake",),
    "steps": ("wake",),
    "telling": ("wake",),
    "booked": ("wake",),
    "limits": ("pause",),
}
MODES_OF_CLIENTS = ("kill9", "stop", "pause", "raise", "commit_unknown", "pgkill")


def modes_of(scenario: str, role: str) -> tuple[str, ...]:
    """What can happen to this role; to be woken in the middle takes a job that another goes on with.

    TORTURE_MODES=kill9,stop names those to try, where the time is short.
    """
    modes = MODES_OF_CLIENTS if role == "client" else (*MODES, *MORE_MODES.get(scenario, ()))
    only = os.environ.get("TORTURE_MODES")
    return tuple(mode for mode in modes if only is None or mode in only.split(","))


@pytest.mark.parametrize(("scenario", "role"), PROCESSES + CLIENTS)
async def test_a_job_survives_whatever_happens_to_a_process(
    postgres: str, template: str, tmp_path: Path, scenario: str, role: str
) -> None:
    """Right after the fault and in the end all invariants hold, and the job ends as it must.

    Each point is struck in one mode at least: some come by luck (who is first to take a piece of news),
    and not again in each mode. The page counts them as never come.
    """
    violations: dict[str, list[str]] = {}
    wanted, struck = set[str](), set[str]()
    async with open_lanes(postgres, template, tmp_path, LANES) as lanes:
        strike = strike_of(scenario, role)
        points = await record(lanes, strike)
        for mode in modes_of(scenario, role):
            faults = every_visit(points, mode)
            tally = await strike_all(lanes, strikes(strike, faults))
            keep(f"{scenario}-{role}-{mode}", tally, scenario=scenario, role=role, mode=mode, visits=points)
            violations |= tally.violations
            wanted |= {fault.name for fault in faults}
            struck |= tally.names()
    assert violations == {}
    assert wanted - struck == set()
