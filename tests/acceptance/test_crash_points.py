"""kill -9 and SIGSTOP at every point of a job's life, each point once. `make torture` has them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.torture.enumeration import (
    CLIENTS,
    PROCESSES,
    Task,
    Victim,
    each_name_once,
    record,
    record_all,
    strike_all,
    strike_of,
    strikes,
)
from tests.torture.lane import open_lanes
from tests.torture.page import points_in_the_page
from tests.torture.point_coverage import misfits, writes

from cograil import fault_injection

LANES = 4


# A heartbeat that crosses a report sees a task that is gone; giving it back finds nothing. It may not come twice.
BY_CHANCE = {"release.release_tasks", "release.commit.after"}


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
    assert set(points) - tally.names() <= BY_CHANCE
    assert set(points) <= points_in_the_page()


# Of each kind of verb one: `make test` has ten minutes.
SOME: list[Victim] = [
    ("children", "orchestrator"),
    ("limits", "orchestrator"),
    ("asked", "orchestrator"),
    ("booked", "worker"),
    ("lone", "worker"),
    ("door_submit_once", "server"),
    ("door_far_worker", "server"),
    ("relay", "relay"),
    ("retry_from", "client"),
    ("fire", "client"),
]


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(SOME, id="some"),
        pytest.param(PROCESSES + CLIENTS, id="all", marks=[pytest.mark.torture, pytest.mark.timeout(3600)]),
    ],
)
async def test_points_of_special_jobs_are_survived(
    postgres: str, template: str, tmp_path: Path, victims: list[Victim]
) -> None:
    """kill -9 at each commit and before each statement that writes, in the first scenario that passes it:
    who dies before he has written anything has changed nothing, and is left to `make torture`.

    Of all scenarios together: what the source can reach is passed in one of them, or
    tests/torture/point_coverage.py says why not.
    """
    async with open_lanes(postgres, template, tmp_path, LANES) as lanes:
        visits = await record_all(lanes, [("dag", "orchestrator"), ("dag", "worker"), *victims])
        if victims is not SOME:
            assert misfits({point for points in visits.values() for point in points}) == {}
        struck = {name for (scenario, _), points in visits.items() if scenario == "dag" for name in points}
        tasks: list[Task] = []
        for victim in victims:
            new = {name for name in visits[victim] if name not in struck and writes(name)}
            struck |= new
            points = Counter({name: visits[victim][name] for name in new})
            tasks += strikes(strike_of(*victim), each_name_once(points, "kill9"))
        tally = await strike_all(lanes, tasks)
    assert len(tasks) > 2 * len(victims) / 3
    assert tally.violations == {}
    assert tally.missed == []


@pytest.mark.parametrize("part", ["orchestrator", "worker"])
def test_a_fault_in_the_environment_strikes_the_real_command(dsn: str, tmp_path: Path, part: str) -> None:
    """And the log of points says where."""
    log = tmp_path / "points"
    environment = {
        **os.environ,
        "COGRAIL_DATABASE_URL": dsn,
        "COGRAIL_DATABASE__ALLOW_UNSAFE": "true",
        "COGRAIL_FAULT": "register.commit.after:1:kill9",
        "COGRAIL_FAULT_LOG": str(log),
    }
    command = [sys.executable, "-m", "cograil", part]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert log.read_text().splitlines()[-2:] == ["register.commit.after", "!register.commit.after"]


def test_no_fault_is_armed_by_default() -> None:
    assert fault_injection.is_on is False


def test_a_fault_of_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'explode' is not a fault"):
        fault_injection.arm("advance.write_changes:1:explode")
