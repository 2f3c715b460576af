"""Fail a capture: its state, its entry in the audit log, and its event."""

from __future__ import annotations

from typing import Any

from cograil.apps.captures import audit, queries, states
from cograil.apps.captures.audit import AuditEvent, ChainEntry
from cograil.apps.captures.queries import Capture
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.verbs.outbox import tell


async def give_up(tx: Transaction, capture: Capture, code: str, error: str) -> bool:
    """Mark this capture as failed with this reason; False when it had ended."""
    if not await queries.fail_capture(tx, capture, code, error):
        return False
    await append_entry(tx, capture, "CAPTURE_FAILED", {"error_code": code, "error": error})
    data = event_data_of(capture, states.FAILED) | {"error_code": code, "error": error}
    await tell(tx, capture.tenant_id, "captures.failed", capture.capture_id, data)
    return True


async def append_entry(tx: Transaction, capture: Capture, event: str, payload: dict[str, Any]) -> ChainEntry:
    """Append an entry to this capture's chain."""
    audit_event = AuditEvent(
        event, capture.tenant_id, capture.user_id, capture.capture_id, event_payload=payload
    )
    return await audit.append(tx, capture.id, audit_event)


def event_data_of(capture: Capture, state: str) -> dict[str, Json]:
    """The common data of events about a capture."""
    return {
        "capture_event_id": capture.id,
        "capture_id": capture.capture_id,
        "user_id": capture.user_id,
        "state": state,
    }
