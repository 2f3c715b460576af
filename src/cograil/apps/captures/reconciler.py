"""Reconcile an abandoned capture: fail it like its job, or start a new job if that was removed.

The outcome of a removed job is unknown, so a new job seals the capture. An ended job is stored for days, so this
happens once.
"""

from __future__ import annotations

from datetime import timedelta

import orjson
import structlog

from cograil.apps.captures import queries
from cograil.apps.captures.failure import append_entry, give_up
from cograil.apps.captures.ingest import publish_workflow, submission_of
from cograil.apps.captures.queries import Capture, RelatedJob
from cograil.apps.captures.settings import CaptureSettings
from cograil.settings import Settings
from cograil.store.database import Database, Transaction
from cograil.verbs.advance import make_engine_context
from cograil.verbs.submit import submit

log = structlog.get_logger("captures")
MAX_ERROR = 1_000


async def reconcile(db: Database, settings: Settings, tenant: str, id: str) -> bool:
    """Fail this capture, or begin its sealing again; False when it has ended or its job may still end it."""
    async with db.transaction("reconcile_capture") as tx:
        if not await queries.lock_left(tx, tenant, id):
            return False
        capture = await queries.find_capture(tx, tenant, id)
        assert capture is not None
        family = await queries.list_family(tx, capture)
        if not family:
            return await _begin_again(tx, settings, capture)
        last, grace = family[0], timedelta(seconds=settings.section(CaptureSettings).retry_seconds)
        if last.finished_at is None or last.finished_at > tx.now - grace:
            return False
        code, error = _why(last)
        log.warning("capture was left", capture_id=capture.capture_id, job_id=last.job_id, code=code)
        return await give_up(tx, capture, code, error)


def _why(last: RelatedJob) -> tuple[str, str]:
    """The error code and message of a capture whose job ended."""
    job_error = orjson.loads(last.error) if last.error else {}
    outcome = {"cancelled": "was cancelled", "failed": "failed"}.get(last.status, "ended without sealing it")
    message = f"its job {last.job_id} {outcome}"
    if job_error.get("message"):
        message += f": {job_error['message']}"
    return str(job_error.get("code") or "left"), message[:MAX_ERROR]


async def _begin_again(tx: Transaction, settings: Settings, capture: Capture) -> bool:
    definition_id = await publish_workflow(tx, capture.tenant_id)
    is_stamped = bool(settings.section(CaptureSettings).tsa_url)
    submission = submission_of(
        capture.id, capture.capture_id, capture.user_id, definition_id, is_stamped=is_stamped
    )
    (job_id,) = await submit(tx, make_engine_context(settings), [submission], capture.tenant_id)
    await queries.give_job(tx, capture, job_id)
    log.warning("capture has no job any more, begun again", capture_id=capture.capture_id, job_id=job_id)
    await append_entry(tx, capture, "SEALING_BEGUN_AGAIN", {"job_id": job_id, "gone_job_id": capture.job_id})
    return True
