"""Control groups, version 1 or 2: how much memory and processor time and how many processes a sandbox has."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PERIOD = 100_000  # microseconds within which processor time is counted
OURS, CONTROL = "cograil", "cgroup.subtree_control"
CONTROLLERS = ("memory", "cpu", "pids")
BESIDE = 1  # bwrap itself runs in the group, where an engine has no process


@dataclass(frozen=True, slots=True)
class Groups:
    """Where groups can be made on this machine: the directory of each controller."""

    places: dict[str, Path]
    is_second: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """The controllers whose limits cannot be set."""
        return tuple(name for name in CONTROLLERS if name not in self.places)

    def prepare(self) -> None:
        """Make the directory of ours; version 2 wants controllers handed down to it. Raises OSError."""
        for place in set(self.places.values()):
            place.mkdir(exist_ok=True)
            if self.is_second:
                _hand_down(place.parent, self.places)
                _hand_down(place, self.places)

    def plan(self, name: str, *, memory_mb: int, cpus: float, processes: int) -> list[dict[str, Any]]:
        """The groups of one sandbox as its supervisor makes them."""
        limits = _second(memory_mb, cpus, processes) if self.is_second else _first(memory_mb, cpus, processes)
        by_path: dict[str, dict[str, Any]] = {}
        for controller, place in self.places.items():
            group = by_path.setdefault(
                str(place / name), {"path": str(place / name), "limits": [], "oom": None}
            )
            group["limits"] += limits[controller]
            if controller == "memory":
                group["oom"] = "memory.events" if self.is_second else "memory.oom_control"
        return list(by_path.values())


Limits = dict[str, list[tuple[str, str, bool]]]


def _first(memory_mb: int, cpus: float, processes: int) -> Limits:
    memory = str(memory_mb * 1024 * 1024)
    return {
        "memory": [("memory.limit_in_bytes", memory, True), ("memory.memsw.limit_in_bytes", memory, False)],
        "cpu": [("cpu.cfs_period_us", str(PERIOD), True), ("cpu.cfs_quota_us", str(_quota(cpus)), True)],
        "pids": [("pids.max", str(processes + BESIDE), True)],
    }


def _second(memory_mb: int, cpus: float, processes: int) -> Limits:
    memory = str(memory_mb * 1024 * 1024)
    return {
        "memory": [("memory.max", memory, True), ("memory.swap.max", "0", False)],
        "cpu": [("cpu.max", f"{_quota(cpus)} {PERIOD}", True)],
        "pids": [("pids.max", str(processes + BESIDE), True)],
    }


def _quota(cpus: float) -> int:
    return max(1000, int(cpus * PERIOD))  # the kernel takes no less


def find_groups(mounts: Path = Path("/proc/self/mounts")) -> Groups:
    """Where groups can be made. Nothing is made yet."""
    first: dict[str, Path] = {}
    second: Path | None = None
    for line in mounts.read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            first |= {name: Path(place) for name in CONTROLLERS if name in options.split(",")}
        elif kind == "cgroup2":
            second = Path(place)
    if second is not None and (usable := _usable_second(second)):
        return Groups(usable, is_second=True)
    usable = {name: root / OURS for name, root in first.items() if _may_be_made(root)}
    return Groups(usable, is_second=False)


def _usable_second(root: Path) -> dict[str, Path]:
    """The controllers of version 2 that can be handed down to a directory of ours."""
    if not _may_be_made(root) or not os.access(root / CONTROL, os.W_OK):
        return {}
    there = (root / "cgroup.controllers").read_text().split()
    return {name: root / OURS for name in CONTROLLERS if name in there}


def _may_be_made(root: Path) -> bool:
    return os.access(root / OURS if (root / OURS).is_dir() else root, os.W_OK)


def _hand_down(directory: Path, wanted: Iterable[str]) -> None:
    control = directory / CONTROL
    if missing := set(wanted) - set(control.read_text().split()):
        control.write_text(" ".join(f"+{name}" for name in sorted(missing)))


def kill_all(groups: Iterable[Mapping[str, Any]]) -> None:
    """Kill whatever is in these groups, if they are still there."""
    for group in groups:
        with suppress(OSError):
            for process in (Path(group["path"]) / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
