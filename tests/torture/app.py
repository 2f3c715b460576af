"""An app that uses the primitives, in transactions of its own. `app_primitives.py` strikes it while it does so.

`reachable.py` reads this file like the source: a primitive that is in no transaction here is missed.
"""

from __future__ import annotations

from dataclasses import dataclass

from cograil.store.database import Database
from cograil.verbs import buckets, idempotency, leases, slots
from cograil.verbs.advance import EngineContext
from cograil.verbs.idempotency import Key, New, Stale
from cograil.verbs.leases import Acquired
from cograil.verbs.slots import Slot
from cograil.verbs.submit import Submission, submit

LONG = 600.0  # seconds: who vanishes has it until it is ended by hand
ONE_AT_A_TIME = idempotency.attach(turn_seconds=LONG)
ALWAYS_STALE = idempotency.cache(0.0, LONG, LONG)
CAPACITY = 100.0
ALMOST_NEVER = 1e-9  # tokens per second
WORKFLOW = "plain"
LEDGER = b"insert into torture.ledger values (%s, %s, %s)"


class Late(Exception):
    """Somebody else has it by now: nothing of this transaction counts."""


@dataclass(frozen=True)
class App:
    """One process of the app. All that is named here is named after the mark."""

    db: Database
    engine_context: EngineContext
    mark: str
    holder: str

    def key(self, scope: str) -> Key:
        return Key("default", scope, self.mark)

    async def run(self) -> list[str]:
        """Do everything there is to do; what became of it."""
        answers = [await self._work_once(), await self._give_a_turn_back(), await self._refresh()]
        return [*answers, await self._hold_and_forget(), await self._begin_a_job()]

    # -- what is to be done once, by one at a time -------------------------------------------------------

    async def _work_once(self) -> str:
        begun = await self._begin()
        if begun is None:
            return "somebody else"
        turn, lease, slot = begun
        async with self.db.single("app_heartbeat") as tx:
            is_mine = await leases.heartbeat(tx, self.mark, lease, LONG)
        async with self.db.single("app_heartbeat_slot") as tx:
            is_mine = await slots.heartbeat(tx, self.mark, slot, LONG) and is_mine
        if not is_mine:
            return "late"
        try:
            await self._finish(turn, lease)
        except Late:
            return "late"
        async with self.db.transaction("app_release") as tx:
            await leases.release(tx, self.mark, lease)
            await slots.release(tx, self.mark, slot)
        return "done"

    async def _begin(self) -> tuple[int, int, Slot] | None:
        async with self.db.transaction("app_begin") as tx:
            decision = await idempotency.decide(tx, self.key("work"), "the same", ONE_AT_A_TIME)
            if not isinstance(decision, New):
                return None
            lease = await leases.acquire(tx, self.mark, self.holder, LONG)
            slot = await slots.take(tx, self.mark, 1, self.holder, LONG)
            wait = await buckets.take(tx, self.mark, CAPACITY, ALMOST_NEVER)
            if not isinstance(lease, Acquired) or not isinstance(slot, Slot) or wait:
                raise AssertionError(f"the turn is ours, but: {lease}, {slot}, {wait}")
        return decision.fence, lease.fence, slot

    async def _finish(self, turn: int, lease: int) -> None:
        """What the lease guards and what the key is answered are written together, or not at all."""
        async with self.db.transaction("app_finish") as tx:
            if not await leases.check(tx, self.mark, lease):
                raise Late
            await tx.connection.execute(LEDGER, [self.mark, self.holder, lease])
            if not await idempotency.answer(tx, self.key("work"), turn, self.holder):
                raise Late

    # -- other turns -------------------------------------------------------------------------------------

    async def _give_a_turn_back(self) -> str:
        async with self.db.transaction("app_turn") as tx:
            decision = await idempotency.decide(tx, self.key("turn"), "the same", ONE_AT_A_TIME)
        if not isinstance(decision, New):
            return "somebody else"
        async with self.db.transaction("app_give_back") as tx:
            return str(await idempotency.give_back(tx, self.key("turn"), decision.fence))

    async def _refresh(self) -> str:
        """An answer that is stale at once; one at a time refreshes it."""
        async with self.db.transaction("app_cache") as tx:
            decision = await idempotency.decide(tx, self.key("cache"), "the same", ALWAYS_STALE)
            if isinstance(decision, New):
                await idempotency.answer(tx, self.key("cache"), decision.fence, "first")
        if isinstance(decision, New):
            async with self.db.transaction("app_refresh") as tx:
                decision = await idempotency.decide(tx, self.key("cache"), "the same", ALWAYS_STALE)
        if not isinstance(decision, Stale) or decision.fence is None:
            return "somebody else"
        async with self.db.transaction("app_answer") as tx:
            return str(await idempotency.answer(tx, self.key("cache"), decision.fence, "refreshed"))

    async def _hold_and_forget(self) -> str:
        async with self.db.transaction("app_hold") as tx:
            await idempotency.decide(tx, self.key("held"), "the same", idempotency.hold())
        async with self.db.transaction("app_forget") as tx:
            return str(await idempotency.forget(tx, self.key("held")))

    # -- what a job holds --------------------------------------------------------------------------------

    async def _begin_a_job(self) -> str:
        """The job is there, and has its key, a lease and a slot; or nothing of it."""
        name = f"{self.mark} of a job"
        async with self.db.transaction("app_give") as tx:
            decision = await idempotency.decide(tx, self.key("job"), "the same", idempotency.replay())
            if not isinstance(decision, New):
                return "somebody else"
            lease = await leases.acquire(tx, name, self.holder, LONG)
            assert isinstance(lease, Acquired)
            (job,) = await submit(tx, self.engine_context, [Submission(WORKFLOW, correlation_id=self.mark)])
            slot = await slots.take(tx, name, 1, self.holder, LONG)
            assert isinstance(slot, Slot)
            await idempotency.give(tx, self.key("job"), decision.fence, job)
            await leases.give(tx, name, lease.fence, job)
            await slots.give(tx, name, slot, job)
        async with self.db.transaction("app_look") as tx:
            await leases.find(tx, name)
            await slots.holders(tx, name)
        return job
