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
    """Something that is paused. `kind` is queue, workflow or job."""

    kind: str
    name: str
    by: str
    reason: str
    at: datetime


async def pause_job(tx: Transaction, job_id: str, by: str, reason: str) -> bool:
    """Whether it is paused by this; False when it was already, or has finished."""
    return bool(await tx.fetch(PAUSE_JOB, job=job_id, by=by, reason=reason))


async def resume_job(tx: Transaction, job_id: str) -> bool:
    """Whether it was paused."""
    return bool(await tx.fetch(RESUME_JOB, job=job_id))


async def pause_name(tx: Transaction, tenant: str, kind: str, name: str, by: str, reason: str) -> bool:
    """Whether it is paused by this; False when it was already."""
    return bool(await tx.fetch(PAUSE_NAME, tenant=tenant, kind=kind, name=name, by=by, reason=reason))


async def resume_name(tx: Transaction, tenant: str, kind: str, name: str) -> bool:
    """Whether it was paused. Jobs that waited for it are notified."""
    if not await tx.fetch(RESUME_NAME, tenant=tenant, kind=kind, name=name):
        return False
    await tx.fetch(TELL_RESUMED, tenant=tenant, kind=kind, name=name)
    return True


async def list_pauses(tx: Transaction, tenant: str = "default") -> list[Paused]:
    """Everything that is paused."""
    return [Paused(*row) for row in await tx.fetch(LIST_PAUSES, tenant=tenant)]
