"""A circuit breaker for each origin: after some failures in a row it opens, then one request probes the origin.

Only no response and a 5xx count as failures. A receiver that rejects one event is available.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 5
OPEN_SECONDS = 30.0
MAX_KNOWN = 1000  # failing origins; bounded, because callers can register origins that never worked


@dataclass(slots=True)
class _State:
    failures: int = 0
    open_until: float = 0.0


class Breakers:
    """The state of failing origins; the least recently failed are dropped first."""

    def __init__(self, clock: Callable[[], float], open_seconds: float = OPEN_SECONDS) -> None:
        self._clock = clock
        self._open_seconds = open_seconds
        self._states: dict[str, _State] = {}

    def note(self, origin: str, is_available: bool) -> None:
        """Record the outcome of a request."""
        if is_available:
            self._states.pop(origin, None)
            return
        state = self._states.pop(origin, None) or _State()
        self._states[origin] = state  # the latest last
        if len(self._states) > MAX_KNOWN:
            del self._states[next(iter(self._states))]
        state.failures += 1
        if state.failures >= FAILURES:
            state.open_until = self._clock() + self._open_seconds

    def limits(self) -> dict[str, int]:
        """Return the concurrent requests allowed to each failing origin: 0 while open, then 1 as a probe."""
        now = self._clock()
        return {
            origin: 0 if state.open_until > now else 1
            for origin, state in self._states.items()
            if state.failures >= FAILURES
        }

    def is_open(self, origin: str) -> bool:
        """Return whether requests to this origin are paused."""
        state = self._states.get(origin)
        return state is not None and state.open_until > self._clock()

    def seconds_until_probe(self) -> float | None:
        """Return the seconds until the first origin may be probed; None if no breaker is open."""
        now = self._clock()
        waits = [state.open_until - now for state in self._states.values() if state.open_until > now]
        return min(waits, default=None)
