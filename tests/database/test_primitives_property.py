"""Lease, slots and idempotency under any order of submit, claim, kill, retry, cancel and expiry.

A small model says after each step who must hold what; the database is asked for everything, and time
passes by moving the times in it. `test_primitives_concurrency.py` makes such moves from many connections.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.harness import Harness, ManualWorker, open_harness
from tests.support.state_machines import LONG, ONE, Died

from cograil.definitions import read_workflow
from cograil.model.outcome import Failed, WorkItem
from cograil.store.database import Transaction
from cograil.verbs import idempotency, leases, slots
from cograil.verbs.idempotency import Attach, Conflict, Decision, Key, New, Replay
from cograil.verbs.leases import Acquired, Taken
from cograil.verbs.publish import keep_draft
from cograil.verbs.slots import Full, Slot
from cograil.verbs.submit import Submission, submit

POLICY = idempotency.attach(keep_seconds=LONG, turn_seconds=LONG)
NUMBERS = itertools.count()
T = TypeVar("T")

some = st.integers(0, 1_000)  # which of a list, modulo its length
limits = st.integers(1, 3)
payloads = st.sampled_from(["aaa", "bbb"])
dies = st.booleans()


@dataclass
class Hold:
    """That somebody has a lease or a slot; `job` None: for a time."""

    fence: int
    job: str | None
    is_over: bool = False


@dataclass
class Turn:
    """The record of the key."""

    fence: int
    payload: str
    job: str | None = None
    is_over: bool = False
    is_open: bool = True
    is_expired: bool = False


class Primitives(RuleBasedStateMachine):
    """The model, and the real thing beside it."""

    def __init__(self, runner: asyncio.Runner, harness: Harness) -> None:
        super().__init__()
        self.runner, self.harness = runner, harness
        self.name = f"n{next(NUMBERS)}"
        self.key = Key("default", "property", self.name)
        self.jobs: list[str] = []
        self.live: set[str] = set()
        self.claimed: list[tuple[ManualWorker, WorkItem]] = []
        self.lease: Hold | None = None
        self.lease_fences = [0]
        self.slots: dict[int, Hold] = {}
        self.granted: list[Slot] = []
        self.turn: Turn | None = None
        self.turn_fences = [0]
        self.highest_limit = 0

    def run(self, coroutine: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await coroutine

        return self.runner.run(awaited())

    async def in_transaction(self, move: Any, *args: Any, dies: bool = False, **more: Any) -> Any:
        """What the move answers, or Died."""
        try:
            async with self.harness.db.transaction("property") as tx:
                answer = await move(tx, *args, **more)
                if dies:
                    raise Died
                return answer
        except Died:
            return Died

    def move(self, move: Any, *args: Any, **more: Any) -> Any:
        return self.run(self.in_transaction(move, *args, **more))

    def is_held(self, hold: Hold | None) -> bool:
        if hold is None:
            return False
        return hold.job in self.live if hold.job else not hold.is_over

    def is_turn_live(self) -> bool:
        turn = self.turn
        if turn is None or not turn.is_open:
            return False
        return turn.job in self.live if turn.job else not turn.is_over

    def held_slots(self) -> dict[int, Hold]:
        return {number: hold for number, hold in self.slots.items() if self.is_held(hold)}

    # -- jobs ---------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        query = "select id::text from cograil.jobs where finished_at is null and id::text = any(%(ids)s)"
        self.live = {job_id for (job_id,) in self.run(self.harness.rows(query, ids=self.jobs))}

    def a_live_job(self, which: int) -> str | None:
        live = [job for job in self.jobs if job in self.live]
        return live[which % len(live)] if live else None

    async def _submit_holding(self, tx: Transaction, limit: int, payload: str) -> tuple[Any, ...]:
        """What an app does: decide, take a slot, acquire the lease, submit, give all of it to the job."""
        decision = await idempotency.decide(tx, self.key, payload, POLICY)
        if not isinstance(decision, New):
            return (decision,)
        lease = await leases.acquire(tx, self.name, "app", LONG)
        slot = await slots.take(tx, self.name, limit, "app", LONG)
        if isinstance(lease, Taken) or isinstance(slot, Full):
            raise Died
        draft = await keep_draft(tx, read_workflow(ONE), ONE)
        submission = Submission("w", {}, definition_id=draft.definition_id)
        (job,) = await submit(tx, self.harness.engine_context, [submission])
        assert await idempotency.give(tx, self.key, decision.fence, job)
        assert await leases.give(tx, self.name, lease.fence, job)
        assert await slots.give(tx, self.name, slot, job)
        return decision, lease, slot, job

    @rule(limit=limits, payload=payloads, dies=dies)
    def submit_holding(self, limit: int, payload: str, dies: bool) -> None:
        expected = self.expected_decision(payload)
        is_free = not self.is_held(self.lease) and len(self.held_slots()) < limit
        got = self.move(self._submit_holding, limit, payload, dies=dies)
        if got is Died:
            assert dies or (expected is New and not is_free)
            return
        assert type(got[0]) is expected
        if expected is New:
            decision, lease, slot, job = got
            self.jobs.append(job)
            self.began(decision, payload)
            assert self.turn is not None
            self.turn.job = job
            self.acquired(lease, job)
            self.took(slot, job, limit)
        self.refresh()

    @rule()
    def submit_alone(self) -> None:
        self.jobs.append(self.run(self.harness.submit(ONE)))
        self.refresh()

    @precondition(lambda self: self.live)
    @rule()
    def claim(self) -> None:
        worker = self.run(self.harness.manual_worker(f"{self.name}-{len(self.claimed)}"))
        self.claimed += [(worker, item) for item in self.run(worker.claim(1))]

    @precondition(lambda self: self.claimed)
    @rule(which=some)
    def kill_worker(self, which: int) -> None:
        worker, _ = self.claimed.pop(which % len(self.claimed))
        self.run(self.harness.expire_worker(worker))
        self.run(self.harness.advance())
        self.refresh()

    @precondition(lambda self: self.claimed)
    @rule(which=some, fails=st.booleans())
    def report(self, which: int, fails: bool) -> None:
        worker, item = self.claimed.pop(which % len(self.claimed))
        self.run(worker.report(item, Failed("oops", "no", retryable=False) if fails else {}))
        self.run(self.harness.advance())
        self.refresh()

    @precondition(lambda self: self.live)
    @rule(which=some)
    def cancel(self, which: int) -> None:
        job = self.a_live_job(which)
        assert job is not None
        self.run(self.harness.cancel(job))
        self.refresh()

    @precondition(lambda self: len(self.jobs) > len(self.live))
    @rule(which=some)
    def retry(self, which: int) -> None:
        ended = [job for job in self.jobs if job not in self.live]
        job = ended[which % len(ended)]
        if self.run(self.harness.job(job))["status"] != "completed":
            self.jobs.append(self.run(self.harness.retry(job)))
            self.refresh()

    # -- lease --------------------------------------------------------------------------------------------

    def acquired(self, got: Acquired, job: str | None) -> None:
        assert got.fence > self.lease_fences[-1]
        self.lease_fences.append(got.fence)
        self.lease = Hold(got.fence, job)

    @rule(by_job=st.booleans(), which=some, dies=dies)
    def acquire(self, by_job: bool, which: int, dies: bool) -> None:
        job = self.a_live_job(which) if by_job else None
        got = self.move(leases.acquire, self.name, "one", LONG, job, dies=dies)
        if got is Died:
            return
        assert isinstance(got, Taken if self.is_held(self.lease) else Acquired)
        if isinstance(got, Acquired):
            self.acquired(got, job)

    @rule(which=some)
    def use_some_lease(self, which: int) -> None:
        fence = self.lease_fences[which % len(self.lease_fences)]
        is_mine = self.is_held(self.lease) and self.lease is not None and self.lease.fence == fence
        assert self.move(leases.heartbeat, self.name, fence, LONG) == is_mine
        assert self.move(leases.check, self.name, fence) == is_mine

    @rule(which=some)
    def release_some_lease(self, which: int) -> None:
        fence = self.lease_fences[which % len(self.lease_fences)]
        is_mine = self.lease is not None and self.lease.fence == fence
        assert self.move(leases.release, self.name, fence) == is_mine
        if is_mine:
            self.lease = None

    @rule()
    def lease_expires(self) -> None:
        self.expire("leases", "lease_until")
        if self.lease is not None:
            self.lease.is_over = True

    # -- slots --------------------------------------------------------------------------------------------

    def took(self, got: Slot, job: str | None, limit: int) -> None:
        assert len(self.held_slots()) < limit
        assert got.number not in self.held_slots()
        assert got.fence > max((old.fence for old in self.granted if old.number == got.number), default=0)
        self.slots[got.number] = Hold(got.fence, job)
        self.granted.append(got)
        self.highest_limit = max(self.highest_limit, limit)

    @rule(limit=limits, by_job=st.booleans(), which=some, dies=dies)
    def take_slot(self, limit: int, by_job: bool, which: int, dies: bool) -> None:
        job = self.a_live_job(which) if by_job else None
        got = self.move(slots.take, self.name, limit, "one", LONG, job, dies=dies)
        if got is Died:
            return
        assert isinstance(got, Slot if len(self.held_slots()) < limit else Full)
        if isinstance(got, Slot):
            self.took(got, job, limit)

    @precondition(lambda self: self.granted)
    @rule(which=some)
    def heartbeat_some_slot(self, which: int) -> None:
        slot = self.granted[which % len(self.granted)]
        hold = self.held_slots().get(slot.number)
        is_mine = hold is not None and hold.fence == slot.fence
        assert self.move(slots.heartbeat, self.name, slot, LONG) == is_mine

    @precondition(lambda self: self.granted)
    @rule(which=some)
    def release_some_slot(self, which: int) -> None:
        slot = self.granted[which % len(self.granted)]
        hold = self.slots.get(slot.number)
        is_mine = hold is not None and hold.fence == slot.fence
        assert self.move(slots.release, self.name, slot) == is_mine
        if is_mine:
            del self.slots[slot.number]

    @rule(number=limits)
    def slot_expires(self, number: int) -> None:
        self.expire("slots", "lease_until", f"and number = {number}")
        if number in self.slots:
            self.slots[number].is_over = True

    # -- the record ---------------------------------------------------------------------------------------

    def expected_decision(self, payload: str) -> type[Decision]:
        turn = self.turn
        if turn is None or (turn.is_expired and not self.is_turn_live()):
            return New
        if turn.payload != payload:
            return Conflict
        if not turn.is_open:
            return Replay
        return Attach if self.is_turn_live() else New

    def began(self, new: New, payload: str) -> None:
        assert new.fence > self.turn_fences[-1]
        self.turn_fences.append(new.fence)
        self.turn = Turn(new.fence, payload)

    @rule(payload=payloads, dies=dies)
    def decide(self, payload: str, dies: bool) -> None:
        got = self.move(idempotency.decide, self.key, payload, POLICY, dies=dies)
        if got is Died:
            return
        assert type(got) is self.expected_decision(payload)
        if isinstance(got, New):
            self.began(got, payload)

    @rule(which=some, ends=st.sampled_from([idempotency.answer, idempotency.give_back]))
    def end_some_turn(self, which: int, ends: Any) -> None:
        fence = self.turn_fences[which % len(self.turn_fences)]
        turn = self.turn
        is_mine = turn is not None and turn.fence == fence and turn.is_open
        more = ({"n": fence},) if ends is idempotency.answer else ()
        assert self.move(ends, self.key, fence, *more) == is_mine
        if turn is not None and is_mine:
            turn.is_open = turn.is_expired = False
            if ends is idempotency.give_back:
                self.turn = None

    @rule()
    def turn_ends(self) -> None:
        self.expire("idempotency", "turn_until")
        if self.turn is not None:
            self.turn.is_over = True

    @rule()
    def record_expires(self) -> None:
        self.expire("idempotency", "expires_at")
        if self.turn is not None:
            self.turn.is_expired = True

    @rule()
    def prune(self) -> None:
        is_old = self.turn is not None and self.turn.is_expired and not self.is_turn_live()
        self.move(idempotency.prune)
        query = "select 1 from cograil.idempotency where key = %(name)s"
        assert bool(self.run(self.harness.rows(query, name=self.name))) == (
            self.turn is not None and not is_old
        )
        if is_old:
            self.turn = None

    # -- what always holds --------------------------------------------------------------------------------

    def expire(self, table: str, column: str, more: str = "") -> None:
        """Move this time of ours into the past, where there is one."""
        name = "key" if table == "idempotency" else "name"
        query = f"""update cograil.{table} set {column} = clock_timestamp() - interval '1 s'
                    where {name} = %(name)s and {column} is not null {more}"""
        self.run(self.harness.rows(query, name=self.name))

    @invariant()
    def the_lease_is_held_as_the_model_says(self) -> None:
        lease = self.move(leases.find, self.name)
        held = self.lease if self.is_held(self.lease) else None
        assert (lease and (lease.fence, lease.job_id)) == (held and (held.fence, held.job))

    @invariant()
    def the_slots_are_held_as_the_model_says(self) -> None:
        holders = self.move(slots.holders, self.name)
        held = {number: (hold.fence, hold.job) for number, hold in self.held_slots().items()}
        assert {holder.number: (holder.fence, holder.job_id) for holder in holders} == held
        assert len(holders) <= self.highest_limit

    def teardown(self) -> None:
        for job in self.live:
            self.run(self.harness.cancel(job))


def test_any_order_of_moves_leaves_what_the_model_says(dsn: str) -> None:
    with asyncio.Runner() as runner:
        opened = open_harness(dsn)
        harness = runner.run(opened.__aenter__())
        try:
            run_state_machine_as_test(
                lambda: Primitives(runner, harness),  # type: ignore[arg-type]  # any callable will do
                settings=settings(max_examples=40, stateful_step_count=40, deadline=None),
            )
            assert [str(finding) for finding in runner.run(harness.findings())] == []
        finally:
            runner.run(opened.__aexit__(None, None, None))
