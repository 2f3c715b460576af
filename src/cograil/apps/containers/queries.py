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

AT_A_TIME = 200


class ContainerJob(NamedTuple):
    """What is known of one; `status` and what follows once it is settled, the rest while it runs."""

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


class RunName(NamedTuple):
    """One run of a container: of which job and node, and the how manieth."""

    job_id: str
    node_id: str
    run: int


async def take_container_id(
    tx: Transaction, tenant: str, id: str, job_id: str, retention_seconds: float
) -> bool:
    """Let this id lead to this job; False when another job has it."""
    given = {"tenant": tenant, "id": id, "job": job_id, "retention": retention_seconds}
    return bool(await tx.fetch(TAKE_CONTAINER_ID, **given))


async def find_container_jobs(
    tx: Transaction, tenant: str, retention_seconds: float, id: str | None = None, limit: int = 1
) -> list[ContainerJob]:
    """The one of this id, or the newest."""
    given = {"tenant": tenant, "retention": retention_seconds, "id": id, "limit": limit}
    return [_job(row) for row in await tx.fetch(FIND_CONTAINER_JOBS, **given)]


def _job(row: Row) -> ContainerJob:
    job_error, checkpoint, number, meta, seconds = row[6:]
    rest = (_json(job_error), _json(checkpoint), number or 0, _json(meta), seconds)
    return ContainerJob._make((*row[:6], *rest))


def _json(text: bytes | None) -> Json:
    return None if text is None else orjson.loads(text)


async def lock_container_job(tx: Transaction, tenant: str, id: str) -> bool:
    """Hold it until the end of the transaction; False when it is settled, or not there."""
    return bool(await tx.fetch(LOCK_CONTAINER_JOB, tenant=tenant, id=id))


async def settle_container_job(
    tx: Transaction, tenant: str, id: str, status: str, exit_code: int | None, error: str | None
) -> None:
    """Write how it ended."""
    given = {"status": status, "exit_code": exit_code, "error": error}
    await tx.execute(SETTLE_CONTAINER_JOB, tenant=tenant, id=id, **given)


async def unsettled_container_jobs(tx: Transaction) -> list[tuple[str, str]]:
    """Tenants and ids of some that have ended."""
    return [(row[0], row[1]) for row in await tx.fetch(UNSETTLED_CONTAINER_JOBS, limit=AT_A_TIME)]


async def prune_container_jobs(tx: Transaction, retention_seconds: float) -> int:
    """Forget some of those that ended longer ago; how many."""
    return await tx.execute(PRUNE_CONTAINER_JOBS, retention=retention_seconds, limit=AT_A_TIME)


async def needed_runs(tx: Transaction, place: str, runs: Collection[RunName]) -> set[RunName]:
    """Those of these runs on this machine that somebody still needs."""
    rows = await tx.fetch(
        NEEDED_RUNS,
        place=place,
        jobs=uuids([one.job_id for one in runs]),
        nodes=texts([one.node_id for one in runs]),
        runs=ints([one.run for one in runs]),
    )
    return {RunName(*row) for row in rows}
