"""What is inside a job, for those who tell of it to people who must not know."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from cograil.store.database import Transaction
from cograil.store.statements import statement

FIND_INSIDES = statement("find_insides")


class Inside(NamedTuple):
    """The other jobs that have to do with it, the tasks of all of them, and the nodes of their workflows."""

    jobs: tuple[str, ...] = ()
    task_ids: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()


async def find_insides(tx: Transaction, jobs: Collection[str]) -> dict[str, Inside]:
    """What is inside each of these jobs that is still there."""
    if not jobs:
        return {}
    return {
        job_id: Inside(
            tuple(one for one in family if one != job_id), frozenset(map(str, task_ids)), tuple(nodes)
        )
        for job_id, family, task_ids, nodes in await tx.fetch(FIND_INSIDES, jobs=list(jobs))
    }
