"""The jobs related to a job, for redaction: their ids must not reach callers of the gateway."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from cograil.store.database import Transaction
from cograil.store.statements import statement

LOAD_RELATED_JOBS = statement("load_related_jobs")


class RelatedJobs(NamedTuple):
    """The other jobs of a family (children and retries), the tasks of all, and the nodes of their workflows."""

    jobs: tuple[str, ...] = ()
    task_ids: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()


async def load_related_jobs(tx: Transaction, jobs: Collection[str]) -> dict[str, RelatedJobs]:
    """Return the related jobs of each of these jobs that still exists."""
    if not jobs:
        return {}
    return {
        job_id: RelatedJobs(
            tuple(other for other in family if other != job_id), frozenset(map(str, task_ids)), tuple(nodes)
        )
        for job_id, family, task_ids, nodes in await tx.fetch(LOAD_RELATED_JOBS, jobs=list(jobs))
    }
