"""kill -9 where a rename is two steps, as some file systems know none that spares: all is as elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.apps.documents import crash_scenarios
from tests.apps.documents.crash_scenarios import SCENARIOS, Range, Scenario
from tests.conftest import Databases

from cograil.apps.documents import atomic_files, safe_rename, staged_files

LINKED, RESERVED = "documents.rename.linked", "documents.rename.reserved"
IN_TWO_STEPS = {
    "arrivals": (LINKED, RESERVED, LINKED, "documents.hold.before", LINKED, RESERVED),
    "arrivals from another file system": (LINKED, RESERVED, LINKED),
    "the end of a document": (LINKED, LINKED, LINKED),
    "a folder that fails": (RESERVED, RESERVED),
}


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose renames do not spare: they are two steps there."""
    monkeypatch.setattr(atomic_files, "_rename", safe_rename.rename_without_kernel)
    monkeypatch.setattr(staged_files, "LINK_SECONDS", -1)


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize("name", IN_TWO_STEPS)
def test_kill_9_between_the_two_steps_of_a_rename_loses_no_document(
    databases: Databases, tmp_path: Path, name: str
) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    Range(databases, tmp_path, scenario).strike_in_turn(IN_TWO_STEPS[name])


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_kill_9_between_the_steps_of_every_rename_loses_no_document(
    databases: Databases, tmp_path: Path, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_scenarios, "MAX_VISITS", 100)
    shots = Range(databases, tmp_path, scenario)
    points = [point for point in shots.points() if point.startswith((LINKED, RESERVED))]
    struck = [point for point in points if shots.strike(point)]
    print(f"{scenario.name}: killed at {len(struck)} of {len(points)} points")
    assert struck
