"""Ingest: a capture that is posted any number of times is made once.

The decision is that of the engine's idempotency record, with this app's fingerprint, under the lock of user
and id. What is new gets its row, its job and its first audit entry in one transaction, or nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import structlog

from cograil.apps.captures import audit, queries, states
from cograil.apps.captures.audit import Happening
from cograil.apps.captures.fingerprint import canonical_fingerprint
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.request import NewCapture
from cograil.definitions import read_workflow
from cograil.errors import CograilError, UsageError
from cograil.errors import Conflict as Refused
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


class CaptureConflict(Refused):
    """The id is taken, by another payload or by somebody else; which of them is not told."""

    code = "capture_conflict"

    def __init__(self, own: Capture | None = None) -> None:
        super().__init__("capture_id already used with different payload")
        self.own = own  # the caller's capture of this id, if it is theirs


class ClockSkewed(UsageError):
    """The clock of the device is too far from ours."""

    code, status = "clock_skewed", 422


class RateExceeded(CograilError):
    """This user sends more than the rate allows."""

    code, status = "capture_rate_exceeded", 429

    def __init__(self, wait_seconds: float) -> None:
        super().__init__("too many new captures; come again later")
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True)
class Asked:
    """Who posts, from where, and what is allowed."""

    tenant: str
    user: str
    address: str
    rate_per_minute: float
    is_stamped: bool
    entry: AuditRecord  # what the engine's own audit log says of a submit


@dataclass(frozen=True, slots=True)
class Ingested:
    """A capture that is there, new or not."""

    capture_event_id: str
    capture_id: str
    state: str
    payload_canonical_sha256: str
    is_new: bool


@cache
def workflow() -> Workflow:
    """What seals a capture."""
    return read_workflow(WORKFLOW, app=APP)


async def publish_workflow(tx: Transaction, tenant: str) -> int:
    """Let this tenant have it; the id of its definition."""
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
    tx: Transaction, engine_context: EngineContext, definition_id: int, capture: NewCapture, asked: Asked
) -> Ingested:
    """Make this capture, or find it. Raises CaptureConflict, ClockSkewed or RateExceeded."""
    capture_id, found = capture.fields.capture_id, canonical_fingerprint(capture.fields)
    await queries.act_for_user(tx, asked.user)
    await queries.lock_capture(tx, asked.user, capture_id)
    decision = await idempotency.decide(tx, Key(asked.tenant, SCOPE, capture_id), found, idempotency.replay())
    if isinstance(decision, New):
        return await _create(tx, engine_context, definition_id, capture, found, asked)
    own = await queries.find_capture(tx, asked.tenant, capture_id)
    if own is not None and own.user_id != asked.user:
        own = None  # row-level security shows nobody else's: this is for where a role is not bound by it
    if own is None or own.payload_canonical_sha256 != found:
        _warn(capture_id, own, found)
        raise CaptureConflict(own)
    payload = {"payload_canonical_sha256": found, "state": own.state}
    happening = Happening(
        "CAPTURE_REPLAYED", asked.tenant, asked.user, capture_id, 200, asked.address, payload
    )
    await audit.append(tx, own.id, happening)
    log.info(
        "capture replayed",
        capture_id=capture_id,
        capture_event_id=own.id,
        state=own.state,
        sha256=found[:SHOWN],
    )
    return Ingested(own.id, capture_id, own.state, found, is_new=False)


def _warn(capture_id: str, own: Capture | None, found: str) -> None:
    stored = own.payload_canonical_sha256[:SHOWN] if own is not None else "of another user"
    log.warning("capture conflicts", capture_id=capture_id, stored=stored, received=found[:SHOWN])


async def _create(
    tx: Transaction,
    engine_context: EngineContext,
    definition_id: int,
    capture: NewCapture,
    fingerprint: str,
    asked: Asked,
) -> Ingested:
    skew_ms = _skew_ms(tx, capture)
    id, capture_id = new_id(), capture.fields.capture_id
    submission = submission_of(id, capture_id, asked.user, definition_id, is_stamped=asked.is_stamped)
    (made,) = await submit_each(
        tx, engine_context, [submission], asked.tenant, entries=[asked.entry], is_all_or_none=True
    )
    assert isinstance(made, NewJobRow)
    facts = {"id": id, "tenant": asked.tenant, "user": asked.user, "job_id": made.job_id}
    if not await queries.add_capture(tx, capture, **facts, fingerprint=fingerprint, skew_ms=skew_ms):
        raise CaptureConflict
    payload = {"payload_canonical_sha256": fingerprint, "state": states.UPLOADED, "skew_ms": skew_ms}
    happening = Happening(
        "CAPTURE_RECEIVED", asked.tenant, asked.user, capture_id, 202, asked.address, payload
    )
    await audit.begin_chain(tx, id, happening)
    await _take_token(tx, asked)
    return Ingested(id, capture_id, states.UPLOADED, fingerprint, is_new=True)


def _skew_ms(tx: Transaction, capture: NewCapture) -> int:
    """By how much the device is ahead of the database. Raises ClockSkewed."""
    skew_ms = round((capture.captured_at - tx.now).total_seconds() * 1000)
    if abs(skew_ms) > MAX_SKEW_MS:
        raise ClockSkewed(
            f"timestamp_device is more than {MAX_SKEW_MS // 1000} s away from the time here, "
            f"{audit.moment(tx.now)}"
        )
    return skew_ms


async def _take_token(tx: Transaction, asked: Asked) -> None:
    """Last: the bucket is ours until the commit. Raises RateExceeded, and then nothing was made."""
    rate = asked.rate_per_minute
    wait = await buckets.take(tx, f"captures:{asked.user}", max(1.0, rate), rate / 60, tenant=asked.tenant)
    if wait:
        raise RateExceeded(wait)
