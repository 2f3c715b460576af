"""How much a relay takes on for each origin: one at first, more while it answers well.

What is claimed waits here for its turn; so many are under way to an origin at a time, and so many in all.
Claiming ahead saves a transaction for each request; it is for those who are quick to take what they get.

Nobody holds up the others. Origins that have not taken anything yet share a half of the places. A request
that is not answered soon gives its place away, and its origin is one of those again. And each tenant leaves
as much room as it has taken, so that there is some for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping

from cograil.store.outbox_queries import LaneRoom, Room, TenantRoom

AHEAD = 8  # times what may be under way
MAX_HELD = 4  # times what may be under way in all
MAX_KNOWN = 1000  # origins of which something is remembered
FOLLOWING = 7  # more events of a job that come with one, and go out behind it
UNPROVEN = 1  # for an origin that has not taken anything yet
SLOW_SECONDS = 0.5  # without an answer: then others go on


class _Lane(asyncio.Semaphore):
    """Those under way to one origin; when it is given up, whoever waits in it goes away."""

    is_given_up = False


class _Place:
    """A place among those under way, given back once."""

    def __init__(self, *taken: asyncio.Semaphore) -> None:
        self._taken = taken

    def give_back(self) -> None:
        taken, self._taken = self._taken, ()
        for semaphore in taken:
            semaphore.release()


class Lanes:
    """One lane for each origin."""

    def __init__(self, concurrency: int, per_origin: int) -> None:
        self._per_origin = per_origin
        self._most_held = MAX_HELD * concurrency
        self._all = asyncio.Semaphore(concurrency)
        self._unproven = asyncio.Semaphore(max(1, concurrency // 2))
        self._lanes: dict[str, _Lane] = {}
        self._windows: dict[str, int] = {}  # of origins that took what they were given last
        self._held: Counter[tuple[str, str]] = Counter()  # by tenant and origin

    def hands(self) -> int:
        """How many more may be claimed."""
        return self._most_held - self._held.total()

    def hold(self, tenant: str, origin: str) -> None:
        """One of this tenant for this origin was claimed."""
        self._held[tenant, origin] += 1

    def let_go(self, tenant: str, origin: str) -> None:
        """One of them is done with."""
        self._held[tenant, origin] -= 1
        if not self._held[tenant, origin]:
            del self._held[tenant, origin]
        held = self._by_origin()
        if origin not in held:
            self._lanes.pop(origin, None)
        if len(self._windows) > MAX_KNOWN:
            self._windows = {name: size for name, size in self._windows.items() if name in held}

    def note(self, origin: str, is_delivered: bool) -> None:
        """Take on more for who took what it was given; the least for who did not."""
        if is_delivered:
            size = self._windows.get(origin, self._per_origin) + 1
            self._windows[origin] = min(size, AHEAD * self._per_origin)
        else:
            self._windows.pop(origin, None)

    # -- what may be claimed -------------------------------------------------------------------------

    def room(self, troubled: Mapping[str, int]) -> Room:
        """How many more may be claimed: in all, of each origin, and of each tenant."""
        hands, held = self.hands(), self._by_origin()
        fresh = self._most_held // 2 - sum(count for name, count in held.items() if name not in self._windows)
        lanes = [
            LaneRoom(name, max(0, troubled.get(name, self._window(name)) - held[name]), name in self._windows)
            for name in {*held, *self._windows, *troubled}
        ]
        tenants = [self._of_tenant(name, hands, fresh) for name in {name for name, _ in self._held}]
        most, of_tenant = (_half(hands), UNPROVEN, max(0, fresh)), (_half(hands), _half(fresh))
        return Room(*most, *of_tenant, lanes, tenants, FOLLOWING)

    def _by_origin(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for (_, origin), count in self._held.items():
            counted[origin] += count
        return counted

    def _of_tenant(self, tenant: str, hands: int, fresh: int) -> TenantRoom:
        mine = {origin: count for (name, origin), count in self._held.items() if name == tenant}
        held = sum(mine.values())
        unproven = sum(count for origin, count in mine.items() if origin not in self._windows)
        return TenantRoom(tenant, held, _half(hands - held), _half(fresh - unproven))

    def _window(self, origin: str) -> int:
        return self._windows.get(origin, UNPROVEN)

    # -- whose turn it is ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def turn(self, origin: str) -> AsyncIterator[bool]:
        """Wait for a place among those under way. False when its origin has become slow while it waited."""
        lane = self._lanes.setdefault(origin, _Lane(self._per_origin))
        async with lane:
            if lane.is_given_up:
                yield False
                return
            place = await self._take_place(origin)
            timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._give_up, origin, lane, place)
            try:
                yield True
            finally:
                timer.cancel()
                place.give_back()

    async def _take_place(self, origin: str) -> _Place:
        if origin in self._windows:
            await self._all.acquire()
            return _Place(self._all)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._unproven)
            await self._all.acquire()
            stack.pop_all()
        return _Place(self._unproven, self._all)

    def _give_up(self, origin: str, lane: _Lane, place: _Place) -> None:
        """It may still be answered, but nobody waits behind it."""
        place.give_back()
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
