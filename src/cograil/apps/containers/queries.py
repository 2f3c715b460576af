"""Container jobs by the ids of their callers, and which of their runs are still needed."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import orjson

from cograil.model.workflow import Json
from cograil.store.array_params import ints, texts, uuids
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

TAKE_CONTAINER_ID = statement("take_container_id", package="cograil.apps.containers")
FIND_CONTAINER_JOBS = statement("find_container_jobs", package="cograil.apps.containers")
LOCK_CONTAINER_JOB = statement("lock_container_job", package="cograil.apps.containers")
SETTLE_CONTAINER_JOB = statement("settle_container_job", package="cograil.apps.containers")
UNSETTLED_CONTAINER_JOBS = statement("unsettled_container_jobs", package="cograil.apps.containers")
PRUNE_CONTAINER_JOBS = statement("prune_container_jobs", package="cograil.apps.containers")
NEEDED_RUNS = statement("needed_runs", package="cograil.apps.containers")
SAMPLE_CONTAINER_METRICS = statement("sample_container_metrics", package="cograil.apps.containers")

AT_A_TIME = 200


class ContainerJob(NamedTuple):
    """A container job; `status`, `exit_code` and `error` are set once it is settled, the rest before."""

    id: str
    job_id: str
    status: str | None
    exit_code: int | None
    error: str | None
    job_status: str | None  # None: the job was deleted
    job_error: Json
    checkpoint: Json
    number: int
    meta: Json
    seconds: float  # from its acceptance to its end, or until now


class ContainerRunId(NamedTuple):
    """Identifies a container run: job, node, run number."""

    job_id: str
    node_id: str
    run: int


async def take_container_id(
    tx: Transaction, tenant: str, id: str, job_id: str, retention_seconds: float
) -> bool:
    """Reserve this id for this job; False when another job has it."""
    params = {"tenant": tenant, "id": id, "job": job_id, "retention": retention_seconds}
    return bool(await tx.fetch(TAKE_CONTAINER_ID, **params))


async def find_container_jobs(
    tx: Transaction, tenant: str, retention_seconds: float, id: str | None = None, limit: int = 1
) -> list[ContainerJob]:
    """The container job of this id, or the newest ones."""
    params = {"tenant": tenant, "retention": retention_seconds, "id": id, "limit": limit}
    return [_job(row) for row in await tx.fetch(FIND_CONTAINER_JOBS, **params)]


def _job(row: Row) -> ContainerJob:
    *plain_columns, job_error, checkpoint, number, meta, seconds = row
    parsed = (_json(job_error), _json(checkpoint), number or 0, _json(meta), seconds)
    return ContainerJob._make((*plain_columns, *parsed))


def _json(text: bytes | None) -> Json:
    return None if text is None else orjson.loads(text)


async def lock_container_job(tx: Transaction, tenant: str, id: str) -> bool:
    """Lock it until the end of the transaction; False when it is settled or does not exist."""
    return bool(await tx.fetch(LOCK_CONTAINER_JOB, tenant=tenant, id=id))


async def settle_container_job(
    tx: Transaction, tenant: str, id: str, status: str, exit_code: int | None, error: str | None
) -> None:
    """Write the end of a container job."""
    params = {"status": status, "exit_code": exit_code, "error": error}
    await tx.execute(SETTLE_CONTAINER_JOB, tenant=tenant, id=id, **params)


async def unsettled_container_jobs(tx: Transaction) -> list[tuple[str, str]]:
    """Tenant and id of some ended jobs that are not settled."""
    rows = await tx.fetch(UNSETTLED_CONTAINER_JOBS, limit=AT_A_TIME)
    return [(tenant, id) for tenant, id in rows]


async def prune_container_jobs(tx: Transaction, retention_seconds: float) -> int:
    """Delete some rows of jobs that ended before the retention; return how many."""
    return await tx.execute(PRUNE_CONTAINER_JOBS, retention=retention_seconds, limit=AT_A_TIME)


async def needed_runs(tx: Transaction, place: str, runs: Collection[ContainerRunId]) -> set[ContainerRunId]:
    """The runs among these on this machine that are still needed."""
    rows = await tx.fetch(
        NEEDED_RUNS,
        place=place,
        jobs=uuids([run.job_id for run in runs]),
        nodes=texts([run.node_id for run in runs]),
        runs=ints([run.run for run in runs]),
    )
    return {ContainerRunId(*row) for row in rows}


async def sample_container_metrics(tx: Transaction) -> list[tuple[str, str, str, float]]:
    """Return the database samples of container jobs for /metrics: (name, first label, second label, value)."""
    rows = await tx.fetch(SAMPLE_CONTAINER_METRICS)
    return [(name, first, second, value) for name, first, second, value in rows]
