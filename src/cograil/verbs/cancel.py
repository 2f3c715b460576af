"""Cancel: stop a job in whatever state it is."""

from __future__ import annotations

from cograil.errors import AlreadyTerminal, JobNotFound
from cograil.model.job import CancelRequested
from cograil.model.states import JOB_TERMINAL
from cograil.store import locked_jobs as store
from cograil.store.database import Transaction
from cograil.verbs.advance import EngineContext, advance_locked


async def cancel(
    tx: Transaction, engine_context: EngineContext, job_id: str, *, by: str = "", reason: str = ""
) -> str:
    """Cancel the job; return its status after this transaction.

    Reports that arrived before count: a job whose last result had arrived is `completed`, not cancelled.
    Raises JobNotFound, or AlreadyTerminal when the job had ended before. The worker's next heartbeat, which
    is requested at once, cancels running handlers. Child jobs receive an input and end a moment later.
    """
    locked = await store.lock_jobs(tx, [job_id])
    if job_id not in locked.states:
        raise JobNotFound(job_id)
    status = locked.states[job_id].status
    if status in JOB_TERMINAL:
        raise AlreadyTerminal(job_id, status)
    signals = {job_id: [CancelRequested(by, reason)]}
    changes = await advance_locked(tx, engine_context, locked, signals=signals, revoke=[job_id])
    return changes[job_id].status
