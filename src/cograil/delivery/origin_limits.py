"""Limits the deliveries of a relay for each origin: one at first, more while the origin accepts them.

Claimed deliveries wait here for a slot; the number of concurrent requests is limited for each origin and in
total. Claiming ahead saves a transaction for each request; only origins that accept deliveries quickly get it.

No origin can block the others. Origins that have not accepted a delivery yet (unproven) share half of the slots. A
slow request gives up its slot, and its origin becomes unproven again. Each tenant leaves as much capacity
as it uses, so that there is some for the next tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping

from cograil.store.outbox_queries import LaneRoom, Room, TenantRoom

AHEAD = 8  # deliveries claimed for each concurrent request to a proven origin
MAX_HELD = 4  # deliveries held for each concurrent request, in total
MAX_KNOWN = 1000  # remembered origins
FOLLOWING = 7  # further events of a job that are claimed with one, and sent after it
UNPROVEN = 1  # deliveries claimed for an unproven origin
SLOW_SECONDS = 0.5  # a request without a response for this long gives up its slot


class _Lane(asyncio.Semaphore):
    """The slots of one origin; when it is given up, all that wait for a slot leave."""

    is_given_up = False


class _Slot:
    """A slot for a request, released once."""

    def __init__(self, *semaphores: asyncio.Semaphore) -> None:
        self._semaphores = semaphores

    def release(self) -> None:
        semaphores, self._semaphores = self._semaphores, ()
        for semaphore in semaphores:
            semaphore.release()


class OriginLimits:
    """The limits of one relay, by origin and tenant."""

    def __init__(self, concurrency: int, per_origin: int) -> None:
        self._per_origin = per_origin
        self._max_held = MAX_HELD * concurrency
        self._all = asyncio.Semaphore(concurrency)
        self._unproven = asyncio.Semaphore(max(1, concurrency // 2))
        self._lanes: dict[str, _Lane] = {}
        self._windows: dict[str, int] = {}  # of proven origins
        self._held: Counter[tuple[str, str]] = Counter()  # by tenant and origin

    def capacity(self) -> int:
        """Return how many more deliveries may be claimed."""
        return self._max_held - self._held.total()

    def add(self, tenant: str, origin: str) -> None:
        """Count a claimed delivery."""
        self._held[tenant, origin] += 1

    def remove(self, tenant: str, origin: str) -> None:
        """Count a finished delivery."""
        self._held[tenant, origin] -= 1
        if not self._held[tenant, origin]:
            del self._held[tenant, origin]
        held = self._by_origin()
        if origin not in held:
            self._lanes.pop(origin, None)
        if len(self._windows) > MAX_KNOWN:
            self._windows = {name: size for name, size in self._windows.items() if name in held}

    def note(self, origin: str, is_delivered: bool) -> None:
        """Record an outcome: an origin that accepts gets a larger window, one that does not becomes unproven."""
        if is_delivered:
            size = self._windows.get(origin, self._per_origin) + 1
            self._windows[origin] = min(size, AHEAD * self._per_origin)
        else:
            self._windows.pop(origin, None)

    # -- claiming -------------------------------------------------------------------------------------

    def room(self, breaker_limits: Mapping[str, int]) -> Room:
        """Return how many more deliveries may be claimed: in total, for each origin, and for each tenant."""
        capacity, held = self.capacity(), self._by_origin()
        unproven_capacity = self._max_held // 2 - sum(
            count for name, count in held.items() if name not in self._windows
        )
        lanes = [
            LaneRoom(
                name, max(0, breaker_limits.get(name, self._window(name)) - held[name]), name in self._windows
            )
            for name in {*held, *self._windows, *breaker_limits}
        ]
        tenants = [
            self._of_tenant(name, capacity, unproven_capacity) for name in {name for name, _ in self._held}
        ]
        total, of_tenant = (
            (_half(capacity), UNPROVEN, max(0, unproven_capacity)),
            (_half(capacity), _half(unproven_capacity)),
        )
        return Room(*total, *of_tenant, lanes, tenants, FOLLOWING)

    def _by_origin(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for (_, origin), count in self._held.items():
            counted[origin] += count
        return counted

    def _of_tenant(self, tenant: str, capacity: int, unproven_capacity: int) -> TenantRoom:
        by_origin = {origin: count for (name, origin), count in self._held.items() if name == tenant}
        held = sum(by_origin.values())
        unproven = sum(count for origin, count in by_origin.items() if origin not in self._windows)
        return TenantRoom(tenant, held, _half(capacity - held), _half(unproven_capacity - unproven))

    def _window(self, origin: str) -> int:
        return self._windows.get(origin, UNPROVEN)

    # -- slots ---------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def slot(self, origin: str) -> AsyncIterator[bool]:
        """Wait for a slot. Yields False when the origin became slow meanwhile."""
        lane = self._lanes.setdefault(origin, _Lane(self._per_origin))
        async with lane:
            if lane.is_given_up:
                yield False
                return
            slot = await self._acquire_slot(origin)
            timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._give_up, origin, lane, slot)
            try:
                yield True
            finally:
                timer.cancel()
                slot.release()

    async def _acquire_slot(self, origin: str) -> _Slot:
        if origin in self._windows:
            await self._all.acquire()
            return _Slot(self._all)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._unproven)
            await self._all.acquire()
            stack.pop_all()
        return _Slot(self._unproven, self._all)

    def _give_up(self, origin: str, lane: _Lane, slot: _Slot) -> None:
        """Give up the slot of a slow request; it may still get a response, but nothing waits for it."""
        slot.release()
        self._windows.pop(origin, None)
        if lane.is_given_up:
            return
        lane.is_given_up = True
        if self._lanes.get(origin) is lane:
            del self._lanes[origin]
        for _ in range(self._by_origin()[origin]):
            lane.release()


def _half(count: int) -> int:
    return max(0, (count + 1) // 2)
