"""kill -9 at every rename and every transaction: no file is lost, doubled or overwritten, and no job is.

Each victim is a real process, killed at one point that it passes. Another one then does what is left. All
points are torture. In `make test` a few of each scenario are struck in turn: the process that does the rest is
killed as well, at the next one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.apps.documents.crash_scenarios import (
    SCENARIOS,
    Range,
    Scenario,
)
from tests.conftest import Databases


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_kill_9_at_a_few_points_loses_no_document(
    databases: Databases, tmp_path: Path, scenario: Scenario
) -> None:
    Range(databases, tmp_path, scenario).strike_in_turn(scenario.sample)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_kill_9_at_every_point_loses_no_document(
    databases: Databases, tmp_path: Path, scenario: Scenario
) -> None:
    shots = Range(databases, tmp_path, scenario)
    points = shots.points()
    struck = [point for point in points if shots.strike(point)]
    print(f"{scenario.name}: killed at {len(struck)} of {len(points)} points")
    assert len(struck) >= 0.8 * len(points)  # loops do not pass all of theirs every time


@pytest.mark.parametrize("scenario", SCENARIOS[:2], ids=lambda scenario: scenario.name)
def test_a_full_disk_loses_nothing(databases: Databases, tmp_path: Path, scenario: Scenario) -> None:
    """No file may be written to, as on a disk that is full; renames work. Then there is room again."""
    Range(databases, tmp_path, scenario).starve()
