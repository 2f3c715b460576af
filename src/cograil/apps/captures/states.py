"""The states of a capture, and every move there is. Nothing moves back."""

from __future__ import annotations

from typing import Final

CAPTURED: Final = "CAPTURED"
UPLOADING: Final = "UPLOADING"
UPLOADED: Final = "UPLOADED"
DEFERRED: Final = "DEFERRED"
SEALING: Final = "SEALING"
SEALED: Final = "SEALED"
ANCHORED: Final = "ANCHORED"
FAILED: Final = "FAILED"

# The states before UPLOADED belong to the device: here a capture begins when its object is uploaded. ANCHORED is not
# used yet.
MOVES: dict[str, frozenset[str]] = {
    CAPTURED: frozenset({UPLOADING, FAILED}),
    UPLOADING: frozenset({UPLOADED, DEFERRED, FAILED}),
    DEFERRED: frozenset({UPLOADING, FAILED}),
    UPLOADED: frozenset({SEALING, FAILED}),
    SEALING: frozenset({SEALED, FAILED}),
    SEALED: frozenset({ANCHORED}),
    ANCHORED: frozenset(),
    FAILED: frozenset(),
}
FINAL = frozenset({SEALED, ANCHORED, FAILED})  # for the job that seals
