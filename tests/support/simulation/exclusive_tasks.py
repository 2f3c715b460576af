"""Tasks that run alone, in the simulation: what a claim may take, and why one of them may be lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tests.support.simulation.rows import Diary, Task, ensure


def claimable(tasks: Collection[Task], worker: int, is_empty: bool, mutants: Collection[str]) -> list[Task]:
    """claim_alone.sql for a worker that holds nothing; if that finds none, claim_tasks.sql."""
    ready = [task for task in tasks if task.state == "ready" and task.locked_by is None]
    if "none alone" in mutants or not _has_alone(tasks):
        return ready
    mine = [task for task in tasks if task.state == "running" and task.worker == worker]
    alone = [task for task in ready if task.is_exclusive] if is_empty and not mine else []
    if alone or _has_alone(mine):
        return alone[:1]
    return [task for task in ready if not task.is_exclusive]


def _has_alone(tasks: Iterable[Task]) -> bool:
    return any([task.is_exclusive for task in tasks])


def check_loss(diary: Diary, task: Task) -> None:
    """One more loss makes it poison: it killed its worker itself, or somebody outside did."""
    is_its_doing = (task.job, task.node) in diary.killers or task.worker in diary.struck
    ensure(not task.is_exclusive or is_its_doing, "a task that never kills is never failed as poison")
