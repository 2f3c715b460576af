"""Ingest: a capture that is posted any number of times is created once.

The engine's idempotency record decides, with this app's fingerprint, under a lock of user and id. A new capture gets
its row, its job and its first audit entry in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import structlog

from cograil.apps.captures import audit, queries, states
from cograil.apps.captures.audit import AuditEvent
from cograil.apps.captures.fingerprint import canonical_fingerprint
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.request import NewCapture
from cograil.definitions import read_workflow
from cograil.errors import CograilError, Conflict, UsageError
from cograil.model.ids import new_id
from cograil.model.workflow import Workflow
from cograil.store.api_keys import AuditRecord
from cograil.store.database import Transaction
from cograil.store.write_batch import NewJobRow
from cograil.verbs import buckets, idempotency
from cograil.verbs.advance import EngineContext
from cograil.verbs.idempotency import Key, New
from cograil.verbs.publish import publish
from cograil.verbs.submit import Submission, submit_each

log = structlog.get_logger("captures")
SCOPE = "captures"
MAX_SKEW_MS = 300_000
SHOWN = 16  # of a fingerprint, in the log
APP = "captures"
WORKFLOW_ID = "cograil.captures"
WORKFLOW = f"""\
workflow_id: {WORKFLOW_ID}
name: Seal one capture
inputs:
  capture_event_id: {{type: string}}
  is_stamped: {{type: boolean, default: false, description: Ask a time-stamping authority.}}
nodes:
  seal:
    handler: captures.seal
    queue: captures
    params: {{capture_event_id: "{{{{ inputs.capture_event_id }}}}"}}
    required: false
    timeout_seconds: 3600
    retry: {{max_attempts: 10, backoff: exponential, initial_delay_seconds: 1, max_delay_seconds: 300}}
    next: [settle, stamp]
  settle:
    handler: captures.settle
    queue: captures
    when: "{{{{ nodes.seal.status == 'failed' }}}}"
    params: {{capture_event_id: "{{{{ inputs.capture_event_id }}}}"}}
    retry: {{max_attempts: 10, backoff: exponential, initial_delay_seconds: 1, max_delay_seconds: 300}}
  stamp:
    handler: captures.stamp
    queue: captures
    when: "{{{{ inputs.is_stamped and nodes.seal.status == 'completed' }}}}"
    params: {{capture_event_id: "{{{{ inputs.capture_event_id }}}}"}}
    timeout_seconds: 120
    retry: {{max_attempts: 10, backoff: exponential, initial_delay_seconds: 1, max_delay_seconds: 300}}
"""


class CaptureConflict(Conflict):
    """The id is used with another payload or by another user; the error does not say which."""

    code = "capture_conflict"

    def __init__(self, own: Capture | None = None) -> None:
        super().__init__("capture_id already used with different payload")
        self.own = own  # the caller's capture of this id, if it is theirs


class ClockSkewed(UsageError):
    """The clock of the device differs too much from the server's."""

    code, status = "clock_skewed", 422


class RateExceeded(CograilError):
    """This user exceeds the rate of new captures."""

    code, status = "capture_rate_exceeded", 429

    def __init__(self, wait_seconds: float) -> None:
        super().__init__("too many new captures; retry later")
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """The caller of a post, its address and its limits."""

    tenant: str
    user: str
    address: str
    rate_per_minute: float
    is_stamped: bool
    entry: AuditRecord  # the entry for the engine's own audit log


@dataclass(frozen=True, slots=True)
class IngestResult:
    """An ingested capture, new or known."""

    capture_event_id: str
    capture_id: str
    state: str
    payload_canonical_sha256: str
    is_new: bool


@cache
def workflow() -> Workflow:
    """The workflow that seals a capture."""
    return read_workflow(WORKFLOW, app=APP)


async def publish_workflow(tx: Transaction, tenant: str) -> int:
    """Publish the workflow for this tenant; return its definition id."""
    return (await publish(tx, workflow(), WORKFLOW, tenant)).definition_id


def submission_of(id: str, capture_id: str, user: str, definition_id: int, *, is_stamped: bool) -> Submission:
    """The job that seals this capture."""
    return Submission(
        WORKFLOW_ID,
        {"capture_event_id": id, "is_stamped": is_stamped},
        definition_id=definition_id,
        submitted_by=user,
        labels={"capture_id": capture_id},
        app=APP,
    )


async def ingest(
    tx: Transaction,
    engine_context: EngineContext,
    definition_id: int,
    capture: NewCapture,
    request: IngestRequest,
) -> IngestResult:
    """Create this capture, or find it. Raises CaptureConflict, ClockSkewed or RateExceeded."""
    capture_id, fingerprint = capture.fields.capture_id, canonical_fingerprint(capture.fields)
    await queries.act_for_user(tx, request.user)
    await queries.lock_capture(tx, request.user, capture_id)
    decision = await idempotency.decide(
        tx, Key(request.tenant, SCOPE, capture_id), fingerprint, idempotency.replay()
    )
    if isinstance(decision, New):
        return await _create(tx, engine_context, definition_id, capture, fingerprint, request)
    own = await queries.find_capture(tx, request.tenant, capture_id)
    if own is not None and own.user_id != request.user:
        own = None  # row-level security hides it; this covers roles that bypass it
    if own is None or own.payload_canonical_sha256 != fingerprint:
        _warn(capture_id, own, fingerprint)
        raise CaptureConflict(own)
    payload = {"payload_canonical_sha256": fingerprint, "state": own.state}
    audit_event = AuditEvent(
        "CAPTURE_REPLAYED", request.tenant, request.user, capture_id, 200, request.address, payload
    )
    await audit.append(tx, own.id, audit_event)
    log.info(
        "capture replayed",
        capture_id=capture_id,
        capture_event_id=own.id,
        state=own.state,
        sha256=fingerprint[:SHOWN],
    )
    return IngestResult(own.id, capture_id, own.state, fingerprint, is_new=False)


def _warn(capture_id: str, own: Capture | None, fingerprint: str) -> None:
    stored = own.payload_canonical_sha256[:SHOWN] if own is not None else "of another user"
    log.warning("capture conflicts", capture_id=capture_id, stored=stored, received=fingerprint[:SHOWN])


async def _create(
    tx: Transaction,
    engine_context: EngineContext,
    definition_id: int,
    capture: NewCapture,
    fingerprint: str,
    request: IngestRequest,
) -> IngestResult:
    skew_ms = _skew_ms(tx, capture)
    id, capture_id = new_id(), capture.fields.capture_id
    submission = submission_of(id, capture_id, request.user, definition_id, is_stamped=request.is_stamped)
    (job,) = await submit_each(
        tx, engine_context, [submission], request.tenant, entries=[request.entry], is_all_or_none=True
    )
    assert isinstance(job, NewJobRow)
    columns = {"id": id, "tenant": request.tenant, "user": request.user, "job_id": job.job_id}
    if not await queries.add_capture(tx, capture, **columns, fingerprint=fingerprint, skew_ms=skew_ms):
        raise CaptureConflict
    payload = {"payload_canonical_sha256": fingerprint, "state": states.UPLOADED, "skew_ms": skew_ms}
    audit_event = AuditEvent(
        "CAPTURE_RECEIVED", request.tenant, request.user, capture_id, 202, request.address, payload
    )
    await audit.begin_chain(tx, id, audit_event)
    await _take_token(tx, request)
    return IngestResult(id, capture_id, states.UPLOADED, fingerprint, is_new=True)


def _skew_ms(tx: Transaction, capture: NewCapture) -> int:
    """By how much the device is ahead of the database. Raises ClockSkewed."""
    skew_ms = round((capture.captured_at - tx.now).total_seconds() * 1000)
    if abs(skew_ms) > MAX_SKEW_MS:
        raise ClockSkewed(
            f"timestamp_device is more than {MAX_SKEW_MS // 1000} s away from the time here, "
            f"{audit.moment(tx.now)}"
        )
    return skew_ms


async def _take_token(tx: Transaction, request: IngestRequest) -> None:
    """Take a token; call this last, since the bucket is locked until the commit. Raises RateExceeded."""
    rate = request.rate_per_minute
    wait = await buckets.take(
        tx, f"captures:{request.user}", max(1.0, rate), rate / 60, tenant=request.tenant
    )
    if wait:
        raise RateExceeded(wait)
