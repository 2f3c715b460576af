"""Places: where to go on reading a queue, so that what was taken from it is not walked over again.

What is deleted stays in the indexes for as long as somebody holds an old snapshot, and whoever reads a queue
from its beginning walks over all of it. So while there is more than one can take, the next look begins where
the last one ended. That may miss something: what a transaction inserted early and committed late, what was
given back, what has a higher priority. So a claim leaves its place as soon as it finds less than it could
take, a pass when it finds nothing, and both after half a second at the latest; then everything is seen again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LOOK_SECONDS = 0.5  # then it is looked at from the beginning
LEAST_RANK = -32767
Place = tuple[int, int]  # rank and id of a task
BEGINNING: Place = (LEAST_RANK, 0)


@dataclass(slots=True)
class ClaimPlaces:
    """How far a worker has claimed, lane by lane: all that was ready up to there was taken."""

    clock: Callable[[], float] = time.monotonic
    _after: dict[str, Place] = field(default_factory=dict)
    _look_at: float = 0.0

    def after(self, lane: str) -> Place:
        """The last task that this lane took; it has nothing to take up to there, as far as we know."""
        return self._after.get(lane, BEGINNING)

    def begin(self) -> bool:
        """Whether the next claim begins somewhere else than at the beginning."""
        now = self.clock()
        if now >= self._look_at:
            self._after.clear()
            self._look_at = now + LOOK_SECONDS
        return bool(self._after)

    def leave(self) -> None:
        """Begin at the beginning again."""
        self._after.clear()

    def note(self, lane: str, slots: int, taken: Sequence[Place]) -> None:
        """What this lane took, in the order of the queue, when it had so many slots."""
        if slots and len(taken) >= slots:
            self._after[lane] = taken[-1]
        elif slots:
            self._after.pop(lane, None)


@dataclass(slots=True)
class NewsPlace:
    """How far an orchestrator has taken news: those before this one were taken, or are in other hands."""

    clock: Callable[[], float] = time.monotonic
    _first: int = 0
    _look_at: float = 0.0

    def begin(self) -> int:
        """The first of the news to look at; 0 for all."""
        now = self.clock()
        if now >= self._look_at:
            self._first = 0
            self._look_at = now + LOOK_SECONDS
        return self._first

    def note(self, first: int | None) -> None:
        """The first that a pass took, or that there was none at all. It may still roll back: then the
        next look must find what it had, so it begins with this one and not behind the last."""
        self._first = first or 0

    def look_in(self) -> float:
        """In how many seconds somebody has to look at what is before the place, if nobody calls."""
        return max(0.0, self._look_at - self.clock()) if self._first else math.inf
