"""The SQL statements of captures, with one function each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

from cograil.apps.captures.fingerprint import Fields
from cograil.apps.captures.request import NewCapture
from cograil.store.database import Transaction
from cograil.store.statements import statement

ACT_FOR_USER = statement("act_for_user", package="cograil.apps.captures")
LOCK_CAPTURE = statement("lock_capture", package="cograil.apps.captures")
FIND_CAPTURE = statement("find_capture", package="cograil.apps.captures")
ADD_CAPTURE = statement("add_capture", package="cograil.apps.captures")
BEGIN_SEALING = statement("begin_sealing", package="cograil.apps.captures")
SEAL_CAPTURE = statement("seal_capture", package="cograil.apps.captures")
FAIL_CAPTURE = statement("fail_capture", package="cograil.apps.captures")
STAMP_CAPTURE = statement("stamp_capture", package="cograil.apps.captures")
LIST_CAPTURES = statement("list_captures", package="cograil.apps.captures")
FIND_PROOF = statement("find_proof", package="cograil.apps.captures")
LOCK_LEFT = statement("lock_left", package="cograil.apps.captures")
LIST_FAMILY = statement("list_family", package="cograil.apps.captures")
GIVE_JOB = statement("give_job", package="cograil.apps.captures")


@dataclass(frozen=True, slots=True)
class Capture:
    """A row of the captures table."""

    id: str
    tenant_id: str
    capture_id: str
    user_id: str
    device_id: str
    state: str
    job_id: str
    payload_canonical_sha256: str
    content_hash: str
    aes_gcm_nonce_b64: str
    aes_gcm_tag_b64: str
    dek_wrapped_b64: str
    kek_id: str
    mime_type: str
    size_bytes: int
    upload_object_key: str
    timestamp_device: datetime
    skew_ms: int
    signature_status: str
    reconciliation_attempts: int
    last_reconciled_at: datetime | None
    error_code: str | None
    error: str | None
    sealed_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def fields(self) -> Fields:
        """The fields of its fingerprint."""
        return Fields(**{name: getattr(self, name) for name in Fields.__slots__})


class RelatedJob(NamedTuple):
    """The job of a capture, or a retry of that job."""

    job_id: str
    status: str
    error: str | None  # as JSON
    finished_at: datetime | None


async def act_for_user(tx: Transaction, user: str) -> None:
    """Limit this transaction to the rows of this user, for roles bound by row-level security."""
    await tx.fetch(ACT_FOR_USER, user=user)


async def lock_capture(tx: Transaction, user: str, capture_id: str) -> None:
    """Lock this capture id of this user until the transaction ends."""
    await tx.fetch(LOCK_CAPTURE, user=user, capture=capture_id)


async def find_capture(tx: Transaction, tenant: str, id: str) -> Capture | None:
    """The capture with this capture id or event id."""
    rows = await tx.fetch(FIND_CAPTURE, tenant=tenant, id=id)
    return Capture(*rows[0]) if rows else None


class ListedCapture(NamedTuple):
    """One line of the list of captures."""

    id: str
    capture_id: str
    device_id: str
    state: str
    job_id: str
    mime_type: str
    size_bytes: int
    signature_status: str
    error_code: str | None
    error: str | None
    sealed_at: datetime | None
    created_at: datetime
    updated_at: datetime


async def list_captures(
    tx: Transaction, tenant: str, *, state: str | None, before: str | None, limit: int
) -> list[ListedCapture]:
    """The captures of the user for whom the transaction acts, newest first; `before` is an id."""
    rows = await tx.fetch(LIST_CAPTURES, tenant=tenant, state=state, before=before, limit=limit)
    return [ListedCapture(*row) for row in rows]


async def add_capture(
    tx: Transaction,
    capture: NewCapture,
    *,
    id: str,
    tenant: str,
    user: str,
    job_id: str,
    fingerprint: str,
    skew_ms: int,
) -> bool:
    """Insert a capture in state UPLOADED; False when this tenant has one with that id."""
    params = asdict(capture.fields) | {
        "id": id,
        "tenant": tenant,
        "user": user,
        "job": job_id,
        "fingerprint": fingerprint,
        "skew_ms": skew_ms,
        "device_id": capture.device_id,
        "ocr_text": capture.ocr_text,
        "ocr_confidence": capture.ocr_confidence,
        "ocr_language": capture.ocr_language,
        "timestamp_device": capture.captured_at,
    }
    return await tx.execute(ADD_CAPTURE, **params) == 1


async def begin_sealing(tx: Transaction, capture: Capture) -> bool:
    """Set the state to SEALING; False when sealing has ended."""
    return await tx.execute(BEGIN_SEALING, id=capture.id, tenant=capture.tenant_id) == 1


async def seal_capture(tx: Transaction, capture: Capture, proof: bytes, sealed_at: str) -> bool:
    """Store the proof; False when the capture is not being sealed."""
    params = {"id": capture.id, "tenant": capture.tenant_id, "proof": proof.decode()}
    return await tx.execute(SEAL_CAPTURE, **params, sealed_at=sealed_at) == 1


async def fail_capture(tx: Transaction, capture: Capture, code: str, error: str) -> bool:
    """Set the state to FAILED; False when it was sealed or had failed."""
    params = {"id": capture.id, "tenant": capture.tenant_id, "code": code, "error": error}
    return await tx.execute(FAIL_CAPTURE, **params) == 1


async def stamp_capture(tx: Transaction, capture: Capture, proof: bytes) -> bool:
    """Store the proof with its time stamp; False when it has one."""
    params = {"id": capture.id, "tenant": capture.tenant_id, "proof": proof.decode()}
    return await tx.execute(STAMP_CAPTURE, **params) == 1


async def find_proof(tx: Transaction, capture: Capture) -> str | None:
    """The proof; None before the capture is sealed."""
    rows = await tx.fetch(FIND_PROOF, id=capture.id, tenant=capture.tenant_id)
    return rows[0][0] if rows else None


async def lock_left(tx: Transaction, tenant: str, id: str) -> bool:
    """Lock an unfinished capture until the transaction ends; False when it has ended."""
    return bool(await tx.fetch(LOCK_LEFT, id=id, tenant=tenant))


async def list_family(tx: Transaction, capture: Capture) -> list[RelatedJob]:
    """Its job and all retries of that, running ones first, then the latest; empty when all were removed."""
    return [RelatedJob(*row) for row in await tx.fetch(LIST_FAMILY, job=capture.job_id)]


async def give_job(tx: Transaction, capture: Capture, job_id: str) -> None:
    """Make this the job that seals the capture."""
    await tx.execute(GIVE_JOB, id=capture.id, tenant=capture.tenant_id, job=job_id)
