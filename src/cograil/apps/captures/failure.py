"""The end of a capture that was given up: its state, its entry in the audit log, and who is told."""

from __future__ import annotations

from typing import Any

from cograil.apps.captures import audit, queries, states
from cograil.apps.captures.audit import Entry, Happening
from cograil.apps.captures.queries import Capture
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.verbs.outbox import tell


async def give_up(tx: Transaction, capture: Capture, code: str, error: str) -> bool:
    """Write down why this capture was given up; False when it had ended."""
    if not await queries.fail_capture(tx, capture, code, error):
        return False
    await note(tx, capture, "CAPTURE_FAILED", {"error_code": code, "error": error})
    told = facts_of(capture, states.FAILED) | {"error_code": code, "error": error}
    await tell(tx, capture.tenant_id, "captures.failed", capture.capture_id, told)
    return True


async def note(tx: Transaction, capture: Capture, event: str, payload: dict[str, Any]) -> Entry:
    """One more entry of this capture's chain."""
    happening = Happening(
        event, capture.tenant_id, capture.user_id, capture.capture_id, event_payload=payload
    )
    return await audit.append(tx, capture.id, happening)


def facts_of(capture: Capture, state: str) -> dict[str, Json]:
    """What everybody is told of it."""
    return {
        "capture_event_id": capture.id,
        "capture_id": capture.capture_id,
        "user_id": capture.user_id,
        "state": state,
    }
