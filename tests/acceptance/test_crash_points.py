"""kill -9 and SIGSTOP at every point of a job's life, each point once. `make torture` has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.torture.enumeration import each_name_once, record, strike_all, strike_of, strikes
from tests.torture.lane import open_lanes

LANES = 4
PAGE = Path(__file__).parents[2] / "docs" / "crash-points.md"


@pytest.mark.parametrize("role", ["orchestrator", "worker"])
@pytest.mark.parametrize("mode", ["kill9", "stop"])
async def test_a_job_survives_whatever_happens_to_a_process(
    postgres: str, template: str, tmp_path: Path, role: str, mode: str
) -> None:
    """Right after the fault and in the end all invariants hold, and the job ends as it must.

    A process that was stopped, replaced and woken is refused, and useful again afterwards.
    """
    async with open_lanes(postgres, template, tmp_path, LANES) as lanes:
        strike = strike_of("dag", role)
        points = await record(lanes, strike)
        tally = await strike_all(lanes, strikes(strike, each_name_once(points, mode)))
    assert tally.violations == {}
    assert tally.names() == set(points)
    assert set(points) <= _points_in_the_page()


def _points_in_the_page() -> set[str]:
    return set(re.findall(r"`([a-z]+\.[a-z_]+(?:\.[a-z]+)?)`", PAGE.read_text()))
