"""Scan cursors: where the next read of a queue starts, so that it skips index entries of deleted rows.

Deleted rows stay in the indexes until every older snapshot has ended, and a scan from the beginning reads all
of them. So while a queue holds more than one read takes, the next read starts where the last one ended. It may
miss rows: inserted early and committed late, released, or of a higher priority. So a claim resets its cursor
when it finds less than it could take, an orchestrator pass when it finds nothing, and both at least every half
second. The next read then starts at the beginning.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

RESET_SECONDS = 0.5  # at most this long between two reads from the beginning
MIN_RANK = -32767
TaskPosition = tuple[int, int]  # rank and id of a task
BEGINNING: TaskPosition = (MIN_RANK, 0)


@dataclass(slots=True)
class ClaimCursors:
    """The last claimed task of a worker, for each kind of slot: it has claimed all ready tasks up to there."""

    clock: Callable[[], float] = time.monotonic
    _after: dict[str, TaskPosition] = field(default_factory=dict)
    _reset_at: float = 0.0

    def after(self, kind: str) -> TaskPosition:
        """Return the position after which the next claim for this kind of slot starts."""
        return self._after.get(kind, BEGINNING)

    def begin(self) -> bool:
        """Reset the cursors when that is due; return whether the next claim starts after the beginning."""
        now = self.clock()
        if now >= self._reset_at:
            self._after.clear()
            self._reset_at = now + RESET_SECONDS
        return bool(self._after)

    def reset(self) -> None:
        """Start the next claim at the beginning."""
        self._after.clear()

    def record(self, kind: str, slots: int, claimed: Sequence[TaskPosition]) -> None:
        """Record what a claim with this many free slots took, in the order of the queue."""
        if slots and len(claimed) >= slots:
            self._after[kind] = claimed[-1]
        elif slots:
            self._after.pop(kind, None)


@dataclass(slots=True)
class InboxCursor:
    """The first inbox row that an orchestrator reads: earlier rows were taken, or other orchestrators hold them."""

    clock: Callable[[], float] = time.monotonic
    _first: int = 0
    _reset_at: float = 0.0

    def begin(self) -> int:
        """Return the id of the first inbox row to read; 0 reads all."""
        now = self.clock()
        if now >= self._reset_at:
            self._first = 0
            self._reset_at = now + RESET_SECONDS
        return self._first

    def record(self, first: int | None) -> None:
        """Record the first row that a pass took, or None when there was none.

        The pass may still roll back, and the next read must find its rows: so it starts with this row, not
        after the last one.
        """
        self._first = first or 0

    def seconds_to_reset(self) -> float:
        """Return in how many seconds the rows before the cursor have to be read, without any notification."""
        return max(0.0, self._reset_at - self.clock()) if self._first else math.inf
