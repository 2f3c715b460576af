"""Idempotency records under every policy, and a bucket, under any order of moves, deaths and expiries.

As in `test_primitives_property.py`: a small model says what must be answered, the database is asked for
everything, and time passes by moving the times in it.
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
from tests.support.harness import Harness, open_harness
from tests.support.state_machines import LONG, ONE, Died

from cograil.store.database import Transaction
from cograil.verbs import buckets, idempotency
from cograil.verbs.idempotency import Attach, Conflict, Held, Key, New, Policy, Record, Replay, Stale

POLICIES = {
    "replay": idempotency.replay(keep_seconds=LONG),
    "replay_in_time": idempotency.replay(keep_seconds=LONG, turn_seconds=LONG),
    "attach": idempotency.attach(keep_seconds=LONG, turn_seconds=LONG),
    "reject": idempotency.reject(keep_seconds=LONG),
    "hold": idempotency.hold(),
    "cache": idempotency.cache(LONG, LONG, LONG),
}
RATE = 1e-6  # tokens per second: none flows in while a test runs
NUMBERS = itertools.count()
T = TypeVar("T")

some = st.integers(0, 1_000)  # which of a list, modulo its length
names = st.sampled_from(sorted(POLICIES))
payloads = st.sampled_from(["aaa", "aaa", "bbb"])
dies = st.booleans()


@dataclass
class Rec:
    """A record. `job` has its turn; `is_over`: the time of the turn is."""

    policy: Policy
    fence: int
    payload: str
    is_open: bool = True
    job: str | None = None
    is_bounded: bool = False
    is_over: bool = False
    answer: int | None = None  # the fence of who answered
    is_fresh: bool = False
    is_expired: bool = False


@dataclass
class Bucket:
    """`missing` is what has to flow in until it is full by the largest capacity it was asked with."""

    tokens: int
    missing: int


class Policies(RuleBasedStateMachine):
    """The model, and the real thing beside it."""

    def __init__(self, runner: asyncio.Runner, harness: Harness) -> None:
        super().__init__()
        self.runner, self.harness = runner, harness
        self.name = f"p{next(NUMBERS)}"
        self.records: dict[str, Rec] = {}
        self.fences: dict[str, list[int]] = {name: [0] for name in POLICIES}
        self.live: list[str] = []
        self.bucket: Bucket | None = None
        self.granted = self.flowed = 0

    def run(self, coroutine: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await coroutine

        return self.runner.run(awaited())

    def move(self, move: Any, *args: Any, dies: bool = False, **more: Any) -> Any:
        """What the move answers; Died when its process ends before its transaction."""

        async def in_transaction() -> Any:
            try:
                async with self.harness.db.transaction("property") as tx:
                    answer = await move(tx, *args, **more)
                    if dies:
                        raise Died
                    return answer
            except Died:
                return Died

        return self.run(in_transaction())

    def change(self, query: str, **params: Any) -> None:
        self.run(self.harness.rows(query, name=self.name, **params))

    def key(self, name: str) -> Key:
        return Key("default", name, self.name)

    # -- the model ----------------------------------------------------------------------------------------

    def is_live(self, rec: Rec) -> bool:
        at_it = rec.job in self.live if rec.job else rec.is_bounded and not rec.is_over
        return rec.is_open and at_it

    def counts(self, rec: Rec | None) -> bool:
        return rec is not None and (not rec.is_expired or self.is_live(rec))

    def expected(self, name: str, payload: str) -> tuple[type, bool]:
        """The decision, and whether the caller gets the turn."""
        rec, kind = self.records.get(name), POLICIES[name].kind
        if rec is None or not self.counts(rec):
            return New, True
        if rec.payload != payload or kind == "reject":
            return Conflict, False
        if kind == "hold":
            return Held, False
        is_bound = kind == "replay" and (rec.job is not None or not rec.is_bounded)
        is_settled = rec.is_fresh if kind == "cache" else rec.answer is not None or is_bound
        if is_settled:
            return Replay, False
        is_servable = kind == "cache" and rec.answer is not None and not rec.is_expired
        if self.is_live(rec):
            return (Stale if is_servable else Attach), False
        return (Stale if is_servable else New), True

    def took_turn(self, name: str, payload: str, got: New | Stale) -> None:
        policy = POLICIES[name]
        assert got.fence is not None
        assert got.fence > self.fences[name][-1]
        self.fences[name].append(got.fence)
        rec = self.records.get(name)
        if isinstance(got, New) or rec is None:
            rec = self.records[name] = Rec(policy, got.fence, payload)
        rec.fence, rec.is_open, rec.job = got.fence, True, None
        rec.is_bounded, rec.is_over = policy.turn_seconds is not None, False

    # -- moves --------------------------------------------------------------------------------------------

    @rule(name=names, payload=payloads, dies=dies)
    def decide(self, name: str, payload: str, dies: bool) -> None:
        kind, is_turn = self.expected(name, payload)
        got = self.move(idempotency.decide, self.key(name), payload, POLICIES[name], dies=dies)
        if got is Died:
            return
        assert type(got) is kind, (name, got, self.records.get(name))
        assert is_turn == (isinstance(got, New) or (isinstance(got, Stale) and got.must_refresh))
        if is_turn:
            assert isinstance(got, New | Stale)
            self.took_turn(name, payload, got)

    def is_mine(self, name: str, fence: int) -> bool:
        rec = self.records.get(name)
        return rec is not None and rec.fence == fence and rec.is_open

    @rule(name=names, which=some, dies=dies)
    def answer(self, name: str, which: int, dies: bool) -> None:
        fence = self.fences[name][-1 - which % min(3, len(self.fences[name]))]
        got = self.move(idempotency.answer, self.key(name), fence, fence, dies=dies)
        if got is Died:
            return
        assert got == self.is_mine(name, fence)
        if got:
            rec = self.records[name]
            rec.answer, rec.is_fresh, rec.is_open = fence, True, False
            rec.is_bounded = rec.is_expired = False

    @rule(name=names, which=some, dies=dies)
    def give_back(self, name: str, which: int, dies: bool) -> None:
        fence = self.fences[name][-1 - which % min(3, len(self.fences[name]))]
        got = self.move(idempotency.give_back, self.key(name), fence, dies=dies)
        if got is Died:
            return
        assert got == self.is_mine(name, fence)
        if got and self.records[name].answer is None:
            del self.records[name]
        elif got:
            rec = self.records[name]
            rec.is_open, rec.job, rec.is_bounded = False, None, False

    @precondition(lambda self: self.live)
    @rule(name=names, which=some, dies=dies)
    def give(self, name: str, which: int, dies: bool) -> None:
        fence, job = self.fences[name][-1], self.live[which % len(self.live)]
        got = self.move(idempotency.give, self.key(name), fence, job, dies=dies)
        if got is Died:
            return
        assert got == self.is_mine(name, fence)
        if got:
            self.records[name].job, self.records[name].is_expired = job, False

    @rule(name=names)
    def forget(self, name: str) -> None:
        assert self.move(idempotency.forget, self.key(name)) == (name in self.records)
        self.records.pop(name, None)

    @rule()
    def prune(self) -> None:
        self.move(idempotency.prune)
        self.records = {name: rec for name, rec in self.records.items() if self.counts(rec)}

    @precondition(lambda self: len(self.live) < 3)
    @rule()
    def submit(self) -> None:
        self.live.append(self.run(self.harness.submit(ONE)))

    @precondition(lambda self: self.live)
    @rule(which=some)
    def cancel(self, which: int) -> None:
        self.run(self.harness.cancel(self.live.pop(which % len(self.live))))

    # -- time ---------------------------------------------------------------------------------------------

    def end(self, column: str, name: str) -> None:
        self.change(
            f"update cograil.idempotency set {column} = clock_timestamp() - interval '1 s'"
            f" where key = %(name)s and scope = %(scope)s and {column} is not null",
            scope=name,
        )

    @rule(name=names)
    def turn_ends(self, name: str) -> None:
        self.end("turn_until", name)
        if name in self.records:
            self.records[name].is_over = True

    @rule(name=names)
    def record_expires(self, name: str) -> None:
        self.end("expires_at", name)
        if name in self.records and POLICIES[name].keep_seconds is not None:
            self.records[name].is_expired = True

    @rule()
    def answer_grows_stale(self) -> None:
        self.change(
            f"update cograil.idempotency set answered_at = answered_at - interval '{LONG} s'"
            " where key = %(name)s and scope = 'cache'"
        )
        if "cache" in self.records:
            self.records["cache"].is_fresh = False

    # -- the bucket ---------------------------------------------------------------------------------------

    @rule(amount=st.integers(1, 3), capacity=st.sampled_from([3, 5]), dies=dies)
    def take(self, amount: int, capacity: int, dies: bool) -> None:
        had = self.bucket or Bucket(capacity, 0)
        level = min(capacity, had.tokens)
        taken = amount if level >= amount else 0
        wait = self.move(buckets.take, self.name, capacity, RATE, amount, dies=dies)
        if wait is Died:
            return
        assert (wait == 0.0) == bool(taken), (wait, had)
        if not taken:
            assert abs(wait * RATE - (amount - level)) < 0.01
        self.bucket = Bucket(level - taken, max(capacity - level + taken, had.missing + taken))
        self.granted += taken
        assert self.granted <= 5 + self.flowed, "never more than a full one, and what flowed in"

    @rule(tokens=st.integers(1, 4))
    def tokens_flow_in(self, tokens: int) -> None:
        moved = ", ".join(
            f"{column} = {column} - %(s)s * interval '1 second'" for column in ("refilled_at", "full_at")
        )
        self.change(f"update cograil.buckets set {moved} where name = %(name)s", s=tokens / RATE)
        if self.bucket is not None:
            self.bucket.tokens += tokens
            self.bucket.missing = max(0, self.bucket.missing - tokens)
            self.flowed += tokens

    @rule(dies=dies)
    def prune_buckets(self, dies: bool) -> None:
        if self.move(buckets.prune, dies=dies) is Died:
            return
        if self.bucket is not None and not self.bucket.missing:
            self.bucket = None
        query = "select 1 from cograil.buckets where name = %(name)s"
        assert bool(self.run(self.harness.rows(query, name=self.name))) == (self.bucket is not None)

    # -- what always holds --------------------------------------------------------------------------------

    @invariant()
    def the_records_are_as_the_model_says(self) -> None:
        for name, record in self.move(self._find_all).items():
            rec = self.records.get(name)
            assert (record is not None) == self.counts(rec), name
            if record is not None and rec is not None:
                stored = (record.fence, record.fingerprint, record.job_id, record.answer)
                assert stored == (rec.fence, rec.payload, rec.job, rec.answer), name

    async def _find_all(self, tx: Transaction) -> dict[str, Record | None]:
        return {name: await idempotency.find(tx, self.key(name)) for name in POLICIES}

    def teardown(self) -> None:
        for job in self.live:
            self.run(self.harness.cancel(job))


def test_any_order_of_moves_is_answered_as_the_policies_say(dsn: str) -> None:
    with asyncio.Runner() as runner:
        opened = open_harness(dsn)
        harness = runner.run(opened.__aenter__())
        try:
            run_state_machine_as_test(
                lambda: Policies(runner, harness),  # type: ignore[arg-type]  # any callable will do
                settings=settings(max_examples=30, stateful_step_count=50, deadline=None),
            )
            assert [str(finding) for finding in runner.run(harness.findings())] == []
        finally:
            runner.run(opened.__aexit__(None, None, None))
