"""Pauses of queues, workflows and jobs."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from cograil.store.database import Transaction
from cograil.store.statements import statement

PAUSE_JOB = statement("pause_job")
RESUME_JOB = statement("resume_job")
PAUSE_NAME = statement("pause_name")
RESUME_NAME = statement("resume_name")
TELL_RESUMED = statement("tell_resumed")
LIST_PAUSES = statement("list_pauses")


class Paused(NamedTuple):
    """A pause. `kind` is queue, workflow or job."""

    kind: str
    name: str
    by: str
    reason: str
    at: datetime


async def pause_job(tx: Transaction, job_id: str, by: str, reason: str) -> bool:
    """Pause a job; return False when it was paused already or has finished."""
    return bool(await tx.fetch(PAUSE_JOB, job=job_id, by=by, reason=reason))


async def resume_job(tx: Transaction, job_id: str) -> bool:
    """Resume a job; return whether it was paused."""
    return bool(await tx.fetch(RESUME_JOB, job=job_id))


async def pause_name(tx: Transaction, tenant: str, kind: str, name: str, by: str, reason: str) -> bool:
    """Pause a queue or workflow; return False when it was paused already."""
    return bool(await tx.fetch(PAUSE_NAME, tenant=tenant, kind=kind, name=name, by=by, reason=reason))


async def resume_name(tx: Transaction, tenant: str, kind: str, name: str) -> bool:
    """Resume a queue or workflow; return whether it was paused. Notifies the jobs that waited for it."""
    if not await tx.fetch(RESUME_NAME, tenant=tenant, kind=kind, name=name):
        return False
    await tx.fetch(TELL_RESUMED, tenant=tenant, kind=kind, name=name)
    return True


async def list_pauses(tx: Transaction, tenant: str = "default") -> list[Paused]:
    """Return every pause."""
    return [Paused(*row) for row in await tx.fetch(LIST_PAUSES, tenant=tenant)]
