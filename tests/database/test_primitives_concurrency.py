"""Lease, slots and idempotency used by several processes at once, in generated orders.

Nobody can say who wins, but the winner leaves a trace: what is written under a lease is numbered, each
turn is counted when its transaction committed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.harness import Harness, open_harness

from cograil.verbs import buckets, idempotency, leases, slots
from cograil.verbs.idempotency import Key, New
from cograil.verbs.leases import Acquired
from cograil.verbs.slots import Slot

LONG = 100_000.0
LIMIT = 2
TOKENS = 4
ONCE = Key("default", "at once", "once")
AGAIN = Key("default", "at once", "again")
AGAIN_POLICY = idempotency.attach(turn_seconds=LONG)

WITNESS = "create table witness (id bigint generated always as identity, fence bigint not null)"
CLEAR = """
truncate witness, cograil.leases, cograil.slots, cograil.buckets, cograil.idempotency
"""


class Died(Exception):
    """The process ends before its transaction."""


@dataclass
class Trace:
    """What was committed."""

    lease_fences: list[int] = field(default_factory=list)
    granted: list[Slot] = field(default_factory=list)
    once: int = 0
    turns: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    tokens: int = 0


class Actor:
    """One process: it knows only what it got itself."""

    def __init__(self, harness: Harness, name: str, trace: Trace) -> None:
        self.harness, self.name, self.trace = harness, name, trace
        self.fence: int | None = None
        self.slot: Slot | None = None
        self.turn: int | None = None

    async def play(self, moves: list[tuple[str, bool]]) -> None:
        for move, dies in moves:
            await getattr(self, move)(dies)
            await self.look()

    async def commit(self, move: Any, *args: Any, dies: bool = False) -> Any:
        try:
            async with self.harness.db.transaction("actor") as tx:
                answer = await move(tx, *args)
                if dies:
                    raise Died
                return answer
        except Died:
            return None

    async def look(self) -> None:
        async with self.harness.db.single("actor") as tx:
            assert len(await slots.holders(tx, "n")) <= LIMIT

    async def acquire(self, dies: bool) -> None:
        got = await self.commit(leases.acquire, "n", self.name, LONG, dies=dies)
        if isinstance(got, Acquired):
            self.fence = got.fence
            self.trace.lease_fences.append(got.fence)
            await self.write(False, looks=0)

    async def write(self, dies: bool, looks: int = 15) -> None:
        """Something under the lease; meanwhile its time may end."""

        async def checked(tx: Any) -> None:
            if self.fence is not None and await leases.check(tx, "n", self.fence):
                if looks:
                    await self.expire_lease(False)
                for _ in range(looks):  # time enough for another to take over and write, if he could
                    await self.look()
                await tx.connection.execute(b"insert into witness (fence) values (%s)", [self.fence])

        await self.commit(checked, dies=dies)

    async def heartbeat(self, _: bool) -> None:
        if self.fence is not None:
            await self.commit(leases.heartbeat, "n", self.fence, LONG)
        if self.slot is not None:
            await self.commit(slots.heartbeat, "n", self.slot, LONG)

    async def release(self, dies: bool) -> None:
        if self.fence is not None:
            await self.commit(leases.release, "n", self.fence, dies=dies)
        if self.slot is not None:
            await self.commit(slots.release, "n", self.slot, dies=dies)

    async def expire_lease(self, _: bool) -> None:
        await self.past("leases", "lease_until")

    async def expire_slots(self, _: bool) -> None:
        await self.past("slots", "lease_until")

    async def expire_turn(self, _: bool) -> None:
        await self.past("idempotency", "turn_until")

    async def past(self, table: str, column: str) -> None:
        await self.harness.rows(
            f"update cograil.{table} set {column} = clock_timestamp() where {column} is not null"
        )

    async def take(self, dies: bool) -> None:
        got = await self.commit(slots.take, "n", LIMIT, self.name, LONG, dies=dies)
        if isinstance(got, Slot):
            self.slot = got
            self.trace.granted.append(got)

    async def take_token(self, dies: bool) -> None:
        got = await self.commit(buckets.take, "n", TOKENS, 1e-9, dies=dies)
        self.trace.tokens += got == 0.0

    async def ask_once(self, dies: bool) -> None:
        got = await self.commit(idempotency.decide, ONCE, "aaa", idempotency.replay(), dies=dies)
        self.trace.once += isinstance(got, New)

    async def ask_again(self, dies: bool) -> None:
        got = await self.commit(idempotency.decide, AGAIN, "aaa", AGAIN_POLICY, dies=dies)
        if isinstance(got, New):
            self.turn = got.fence
            self.trace.turns.append(got.fence)

    async def answer(self, dies: bool) -> None:
        if self.turn is not None and await self.commit(
            idempotency.answer, AGAIN, self.turn, self.turn, dies=dies
        ):
            self.trace.answered.append(self.turn)


MOVES = [
    name
    for name in vars(Actor)
    if not name.startswith("_") and name not in ("play", "commit", "look", "past")
]
plans = st.lists(
    st.lists(st.tuples(st.sampled_from(MOVES), st.booleans()), min_size=2, max_size=12),
    min_size=2,
    max_size=6,
)


async def play(harness: Harness, plan: list[list[tuple[str, bool]]]) -> Trace:
    await harness.rows(CLEAR)
    trace = Trace()
    actors = [Actor(harness, f"actor {number}", trace) for number in range(len(plan))]
    async with asyncio.TaskGroup() as group:
        for actor, moves in zip(actors, plan, strict=True):
            group.create_task(actor.play(moves))
    return trace


def test_several_at_once_never_hold_what_one_may_hold(dsn: str) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plans)
    def check(plan: list[list[tuple[str, bool]]]) -> None:
        trace = runner.run(play(harness, plan))
        assert len(trace.lease_fences) == len(set(trace.lease_fences)), "each fence is given once"
        written = [fence for (fence,) in runner.run(harness.rows("select fence from witness order by id"))]
        assert written == sorted(written), "nobody writes under a lease that another has had since"
        assert max(Counter(trace.granted).values(), default=1) == 1
        assert trace.once <= 1, "exactly one is new"
        assert len(trace.turns) == len(set(trace.turns))
        assert len(trace.answered) <= 1, "an answered turn is the last one"
        assert trace.tokens <= TOKENS

    with asyncio.Runner() as runner:
        opened = open_harness(dsn)
        harness = runner.run(opened.__aenter__())
        try:
            runner.run(harness.rows(WITNESS))
            check()
        finally:
            runner.run(opened.__aexit__(None, None, None))
