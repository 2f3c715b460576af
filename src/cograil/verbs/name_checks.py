"""Validate the names of leases, slots, buckets and keys, and the job that is to hold one."""

from __future__ import annotations

from cograil.errors import AlreadyTerminal, InvalidInput, JobNotFound, Problem
from cograil.model.ids import is_id
from cograil.model.states import JOB_TERMINAL
from cograil.store import job_queries
from cograil.store.database import Transaction

MAX_BYTES = 512  # three of them fit into one entry of an index


def check_names(**names: str) -> None:
    """Raise InvalidInput for a name that is empty, too long, or not storable as text."""
    problems = [
        Problem("invalid_value", f"{what} must have 1 to {MAX_BYTES} bytes of text without NUL", f"/{what}")
        for what, name in names.items()
        if not _is_name(name)
    ]
    if problems:
        raise InvalidInput(problems)


def _is_name(name: str) -> bool:
    try:
        return 0 < len(name.encode()) <= MAX_BYTES and "\0" not in name
    except UnicodeEncodeError:
        return False


async def require_live_job(tx: Transaction, tenant: str, job_id: str) -> None:
    """Raise JobNotFound, or AlreadyTerminal for a job whose holdings would be free at once."""
    statuses = await job_queries.status_of_jobs(tx, [job_id], tenant) if is_id(job_id) else {}
    if not statuses:
        raise JobNotFound(job_id)
    status = next(iter(statuses.values()))
    if status in JOB_TERMINAL:
        raise AlreadyTerminal(job_id, status)
