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

# Those before UPLOADED are the device's own: here a capture begins when its object is uploaded. Nobody
# anchors yet.
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
