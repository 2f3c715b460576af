"""A breaker for each origin: after some failures in a row it is left alone, then one request tries it.

Only what says that nobody is there counts: no answer, or a 5xx. A receiver that refuses one event is well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 5
OPEN_SECONDS = 30.0
MAX_KNOWN = 1000  # origins that are not well; anybody can name one that never was


@dataclass(slots=True)
class _State:
    failures: int = 0
    open_until: float = 0.0


class Breakers:
    """What is known of origins; one that is well is not kept, and of the others those that failed last."""

    def __init__(self, clock: Callable[[], float], open_seconds: float = OPEN_SECONDS) -> None:
        self._clock = clock
        self._open_seconds = open_seconds
        self._states: dict[str, _State] = {}

    def note(self, origin: str, is_well: bool) -> None:
        """Take note of how a request ended."""
        if is_well:
            self._states.pop(origin, None)
            return
        state = self._states.pop(origin, None) or _State()
        self._states[origin] = state  # the latest last
        if len(self._states) > MAX_KNOWN:
            del self._states[next(iter(self._states))]
        state.failures += 1
        if state.failures >= FAILURES:
            state.open_until = self._clock() + self._open_seconds

    def troubled(self) -> dict[str, int]:
        """How many requests may be under way to each origin that failed too often: none, or one to see."""
        now = self._clock()
        return {
            origin: 0 if state.open_until > now else 1
            for origin, state in self._states.items()
            if state.failures >= FAILURES
        }

    def is_open(self, origin: str) -> bool:
        """Whether nothing may go there now."""
        state = self._states.get(origin)
        return state is not None and state.open_until > self._clock()

    def next_look(self) -> float | None:
        """In how many seconds the first of them may be tried."""
        now = self._clock()
        waits = [state.open_until - now for state in self._states.values() if state.open_until > now]
        return min(waits, default=None)
