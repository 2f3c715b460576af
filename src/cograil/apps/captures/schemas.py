"""What the doors of captures answer, for their description."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Json, Moment

State = Literal["UPLOADED", "SEALING", "SEALED", "FAILED"]


class TakenCapture(TypedDict):
    """It is there: as of now, or since it was posted first."""

    capture_event_id: str
    capture_id: str
    state: State
    payload_canonical_sha256: str


class ShownCapture(TypedDict):
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


class TrailEntry(TypedDict):
    """Something that was asked or became of it, bound to the entry before."""

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


class Trail(TypedDict):
    """Some of the trail of a capture, and the first entry that is not as it was written."""

    capture_id: str
    chain: str
    entries: list[TrailEntry]
    broken_at: int | None
    next_after: int | None
