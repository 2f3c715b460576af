"""The response schemas of captures."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Json, Moment

State = Literal["UPLOADED", "SEALING", "SEALED", "FAILED"]


class IngestedCapture(TypedDict):
    """An accepted capture, new or known."""

    capture_event_id: str
    capture_id: str
    state: State
    payload_canonical_sha256: str


class CaptureView(TypedDict):
    """A capture as its owner sees it."""

    capture_event_id: str
    capture_id: str
    device_id: str
    state: State
    job_id: str
    payload_canonical_sha256: str
    content_hash: str
    kek_id: str
    mime_type: str
    size_bytes: int
    upload_object_key: str
    timestamp_device: Moment
    skew_ms: int
    signature_status: str
    reconciliation_attempts: int
    last_reconciled_at: Moment | None
    error_code: str | None
    error: str | None
    sealed_at: Moment | None
    created_at: Moment
    updated_at: Moment


class AuditTrailEntry(TypedDict):
    """An entry of the audit trail, bound to the previous entry by its hash."""

    chain: str
    seq: int
    at: Moment
    event: str
    tenant_id: str | None
    user_id: str | None
    capture_id: str | None
    http_status: int | None
    source_ip: str | None
    event_payload: dict[str, Json]
    previous_hash: str
    hash: str


class AuditTrail(TypedDict):
    """A page of the audit trail of a capture, and its first broken entry."""

    capture_id: str
    chain: str
    entries: list[AuditTrailEntry]
    broken_at: int | None
    next_after: int | None
