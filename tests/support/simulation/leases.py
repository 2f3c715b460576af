"""Named leases and slots in the simulated database, and those who take them.

A lease is the only slot of its name: acquire_lease.sql and take_slot.sql have the same rules. The
holder acts under its fence; what it writes to refuses a lower fence than the last, or asks `check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tests.support.simulation.processes import AnswerLost, Process, Steps
from tests.support.simulation.rows import ensure

from cograil.model.states import JOB_TERMINAL

if TYPE_CHECKING:
    from tests.support.simulation.database import Database
    from tests.support.simulation.simulator import Simulation

SECONDS = 4.0
ACTS = 5


class Slot(NamedTuple):
    """What a holder knows of his."""

    name: str
    number: int
    fence: int


@dataclass(slots=True)
class Row:
    fence: int
    holder: Holder | None
    job: int | None
    until: datetime | None


@dataclass(slots=True)
class Grant:
    """For the invariants only: who got it last, and whether he has let go of it himself."""

    slot: Slot
    holder: Holder
    job: int | None
    until: datetime
    is_released: bool = False
    has_written: bool = False


class Leases:
    """One row for each number of a name, kept for its fence."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.rows: dict[tuple[str, int], Row] = {}
        self.grants: dict[tuple[str, int], Grant] = {}
        self.seen: dict[tuple[str, int], int] = {}  # the highest fence that whatever it guards has seen

    def _is_held(self, row: Row | None) -> bool:
        if row is None or row.holder is None:
            return False
        if row.job is not None:
            return self.db.jobs[row.job].status not in JOB_TERMINAL
        return row.until is not None and row.until > self.db.now

    def take(self, name: str, limit: int, holder: Holder, job: int | None) -> Slot | None:
        """The lowest free one, if fewer than `limit` are held."""
        numbers = {number for owner, number in self.rows if owner == name}
        held = {number for number in numbers if self._is_held(self.rows[name, number])}
        if "slot taken over" in self.db.mutants:
            held = set()
        if len(held) >= limit or (job is not None and self.db.jobs[job].status in JOB_TERMINAL):
            return None
        place = (name, min(set(range(1, limit + 1)) - held))
        before = self.rows.get(place)
        fence = 1 if before is None else before.fence + ("fence not raised" not in self.db.mutants)
        until = self.db.now + timedelta(seconds=SECONDS)
        self.rows[place] = Row(fence, holder, job, until)
        slot = Slot(*place, fence)
        self._check_grant(slot, limit)
        self.grants[place] = Grant(slot, holder, job, until)
        return slot

    def _mine(self, slot: Slot) -> Row | None:
        row = self.rows[slot.name, slot.number]
        return row if row.fence == slot.fence and self._is_held(row) else None

    def heartbeat(self, slot: Slot) -> bool:
        row = self._mine(slot)
        if row is None:
            return False
        row.until = self.grants[slot.name, slot.number].until = self.db.now + timedelta(seconds=SECONDS)
        return True

    def release(self, slot: Slot) -> None:
        row = self.rows[slot.name, slot.number]
        if row.fence == slot.fence:
            row.holder = None
            self.grants[slot.name, slot.number].is_released = True

    def write_after_check(self, slot: Slot, holder: Holder) -> bool:
        """check_lease.sql and a write, in one transaction: nobody takes it over in between."""
        if self._mine(slot) is None and "no lease check" not in self.db.mutants:
            return False
        grant = self.grants[slot.name, slot.number]
        ensure(grant.holder is holder and self._is_live(grant), "only who holds the lease writes under it")
        return True

    def write_with_fence(self, slot: Slot, holder: Holder) -> bool:
        """Something outside that remembers the highest fence it has seen."""
        place = (slot.name, slot.number)
        if slot.fence < self.seen.get(place, 0):
            return False
        self.seen[place] = slot.fence
        grant = self.grants[place]
        if grant.holder is holder:
            grant.has_written = True
        ensure(grant.holder is holder or not grant.has_written, "the act of a replaced holder is refused")
        return True

    # -- what must hold ------------------------------------------------------------------------------

    def _is_live(self, grant: Grant) -> bool:
        if grant.is_released:
            return False
        if grant.job is not None:
            return self.db.jobs[grant.job].status not in JOB_TERMINAL
        return grant.until > self.db.now

    def _check_grant(self, slot: Slot, limit: int) -> None:
        before = self.grants.get((slot.name, slot.number))
        if before is not None:
            ensure(not self._is_live(before), "nobody is replaced before his time is over")
        others = [grant for (name, _), grant in self.grants.items() if name == slot.name]
        ensure(len([1 for grant in others if self._is_live(grant)]) < limit, "no more slots than allowed")


class Holder(Process):
    """Somebody who wants a lease or a slot, and acts while he believes that he has it."""

    def __init__(self, world: Simulation, name: str, limit: int, job: int | None, after: float) -> None:
        super().__init__(world)
        self.leases = world.db.leases
        self.spawn(self.run(name, limit, job), after)

    def run(self, name: str, limit: int, job: int | None) -> Steps:
        for _ in range(3):
            try:
                slot = yield from self.call(self.leases.take, name, limit, self, job)
                if slot is not None:
                    yield from self._act(slot)
                    return
            except AnswerLost:
                pass  # he may have it and not know: its time will end
            yield self.world.pick((0.5, 3.0, 5.0))

    def _act(self, slot: Slot) -> Steps:
        """Some acts, as careless as a fence allows: he does not look at his own clock."""
        for _ in range(ACTS):
            write = self.world.pick((self.leases.write_after_check, self.leases.write_with_fence))
            try:
                if not (yield from self.call(write, slot, self)):
                    return
                yield self.world.pick((0.1, 1.5, 3.0, 6.0))
                if self.world.roll() < 0.5 and not (yield from self.call(self.leases.heartbeat, slot)):
                    return
            except AnswerLost:
                continue
        if self.world.roll() < 0.5:
            self.leases.release(slot)
