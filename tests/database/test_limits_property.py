"""Limits under any order of submit, claim, report, kill, retry, cancel, pause and resume, by the real verbs.

After each step nothing has more places than its limit says, counted here from the rows and not by the
verbs, and no token of a rate is gone for nothing. In the end all that was held back is let go and done.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.harness import Harness, ManualWorker, admit_now, open_harness

from cograil.errors import CograilError
from cograil.model.outcome import Failed, WorkItem
from cograil.verbs import pause
from cograil.verbs.advance import advance_due
from cograil.verbs.cancel import cancel

TASKS = """
workflow_id: {name}-tasks
nodes:
  a: {{handler: echo, limits: {{concurrency: 2, key: "{{{{ inputs.who }}}}"}}}}
"""
JOBS = """
workflow_id: {name}-jobs
limits: {{concurrency: 2, key: "{{{{ inputs.who }}}}"}}
nodes:
  a: {{handler: echo, next: b}}
  b: {{handler: echo}}
"""
BOTH = """
workflow_id: {name}-both
limits: {{concurrency: 1}}
nodes:
  f: {{type: fan_out, source: [1, 2, 3], task: {{handler: echo}}, limits: {{concurrency: 2}}}}
"""
RATED = """
workflow_id: {name}-rated
limits: {{rate: 2/h}}
nodes:
  a: {{handler: echo}}
"""
LATER = timedelta(days=300)
MAX_ROUNDS = 60
AS_FOUND = (Phase.explicit, Phase.reuse, Phase.generate)  # to make it shorter would take minutes
NUMBERS = itertools.count()
T = TypeVar("T")

OVER = """
select limit_key from cograil.tasks where state <> 'held' and limit_key is not null
group by limit_key having count(*) > min(limit_concurrency)
union all
select workflow_id || (input ->> 'who') from cograil.jobs
where status = 'running' and workflow_id like any(array['%%-jobs', '%%-both'])
group by workflow_id, input ->> 'who'
having count(*) > case when workflow_id like '%%-jobs' then 2 else 1 end
"""
some = st.integers(0, 1_000)  # which of a list, modulo its length
dies = st.booleans()


class Died(Exception):
    """The process ends before its transaction."""


class Limits(RuleBasedStateMachine):
    """Jobs under limits, and everything that happens to them."""

    def __init__(self, runner: asyncio.Runner, harness: Harness) -> None:
        super().__init__()
        self.runner, self.harness = runner, harness
        self.name = f"l{next(NUMBERS)}"
        self.jobs: list[str] = []
        self.live: set[str] = set()
        self.claimed: list[tuple[ManualWorker, WorkItem]] = []
        self.tokens = 2
        self.begun = 0

    def run(self, coroutine: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await coroutine

        return self.runner.run(awaited())

    def rows(self, query: str, **params: Any) -> list[tuple[Any, ...]]:
        return self.run(self.harness.rows(query, **params))

    async def _move(self, move: Any, *args: Any, dies: bool) -> Any:
        async with self.harness.db.transaction("property") as tx:
            answer = await move(tx, *args)
            if dies:
                raise Died
            return answer

    def move(self, move: Any, *args: Any, dies: bool = False) -> Any:
        """What the move answers; what it refuses, and a process that died in it, are no answer."""
        try:
            return self.run(self._move(move, *args, dies=dies))
        except (Died, CograilError):
            return None

    def a_live_job(self, which: int) -> str:
        live = sorted(self.live)
        return live[which % len(live)]

    def refresh(self) -> None:
        query = "select id::text from cograil.jobs where finished_at is null and id::text = any(%(ids)s)"
        self.live = {job_id for (job_id,) in self.rows(query, ids=self.jobs)}

    # -- jobs ---------------------------------------------------------------------------------------------

    @initialize()
    def a_crowd(self) -> None:
        for text, count in ((TASKS, 3), (JOBS, 3), (BOTH, 2)):
            self.submit(text=text, who="x", count=count)

    @rule(
        text=st.sampled_from([TASKS, JOBS, BOTH]),
        who=st.sampled_from(["x", "x", "y"]),
        count=st.integers(1, 3),
    )
    def submit(self, text: str, who: str, count: int) -> None:
        inputs = [{"who": "x" if text is BOTH else who}] * count
        self.jobs += self.run(self.harness.submit_many(text.format(name=self.name), inputs))
        self.refresh()

    @rule(later=st.booleans(), count=st.integers(1, 2))
    def submit_under_a_rate(self, later: bool, count: int) -> None:
        more: dict[str, Any] = {"not_before": datetime.now(UTC) + LATER} if later else {}
        self.jobs += self.run(self.harness.submit_many(RATED.format(name=self.name), [{}] * count, **more))
        self.refresh()

    @precondition(lambda self: self.live)
    @rule(which=some, dies=dies)
    def cancel(self, which: int, dies: bool) -> None:
        self.move(cancel, self.harness.engine_context, self.a_live_job(which), dies=dies)
        self.refresh()

    @precondition(lambda self: len(self.jobs) > len(self.live))
    @rule(which=some)
    def retry(self, which: int) -> None:
        ended = [job for job in self.jobs if job not in self.live]
        job = ended[which % len(ended)]
        if self.run(self.harness.job(job))["status"] != "completed":
            self.jobs.append(self.run(self.harness.retry(job)))
            self.refresh()

    @precondition(lambda self: self.live)
    @rule(which=some, move=st.sampled_from([pause.pause_job, pause.resume_job]))
    def pause_or_resume(self, which: int, move: Any) -> None:
        self.move(move, self.a_live_job(which))

    @rule(move=st.sampled_from([pause.pause_queue, pause.resume_queue]))
    def pause_or_resume_the_queue(self, move: Any) -> None:
        self.move(move, "default")

    # -- orchestrators ------------------------------------------------------------------------------------

    @rule(dies=dies)
    def admit(self, dies: bool) -> None:
        """Two orchestrators, one after the other; the first may die."""
        self.move(admit_now, dies=dies)
        self.move(admit_now)

    @rule()
    def advance(self) -> None:
        for _ in range(MAX_ROUNDS):
            if not self.move(advance_due, self.harness.engine_context, 100).advanced:
                self.refresh()
                return
        raise AssertionError("a job is advanced again and again")

    @rule()
    def time_passes(self) -> None:
        """What was to come later is due now, and a token flows into the bucket of the rate."""
        self.rows(
            """update cograil.jobs set not_before = now(), wake_at = now()
               where not_before > now() and finished_at is null and id::text = any(%(ids)s)""",
            ids=self.jobs,
        )
        self.rows(
            "update cograil.buckets set tokens = least(2, tokens + 1) where name like %(name)s",
            name=self.bucket,
        )
        self.tokens = min(2, self.tokens + 1)

    # -- workers ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.live)
    @rule(slots=st.integers(1, 3))
    def claim(self, slots: int) -> None:
        worker = self.run(self.harness.manual_worker(f"{self.name}-{len(self.claimed)}"))
        items = self.run(worker.claim(slots)) or self.run(worker.claim_alone())
        self.claimed += [(worker, item) for item in items]

    @precondition(lambda self: self.claimed)
    @rule(which=some)
    def kill_worker(self, which: int) -> None:
        worker, _ = self.claimed[which % len(self.claimed)]
        self.claimed = [claim for claim in self.claimed if claim[0] is not worker]
        self.run(self.harness.expire_worker(worker))

    @precondition(lambda self: self.claimed)
    @rule(which=some, how=st.sampled_from(["good", "good", "bad", "back"]))
    def end_attempt(self, which: int, how: str) -> None:
        worker, item = self.claimed.pop(which % len(self.claimed))
        if how == "back":
            self.run(worker.release(item))
        else:
            self.run(worker.report(item, {} if how == "good" else Failed("oops", "no", retryable=False)))

    # -- what always holds --------------------------------------------------------------------------------

    @property
    def bucket(self) -> str:
        return f"limit/job/default/{self.name}-rated/%"

    @invariant()
    def nothing_has_more_places_than_its_limit_says(self) -> None:
        assert self.rows(OVER, nothing=None) == []

    @invariant()
    def a_token_is_gone_for_each_that_was_let_go_and_for_no_other(self) -> None:
        query = """select count(*), (select tokens from cograil.buckets where name like %(bucket)s)
                   from cograil.jobs where workflow_id = %(name)s and not is_held"""
        ((begun, left),) = self.rows(query, name=f"{self.name}-rated", bucket=self.bucket)
        self.tokens -= begun - self.begun
        self.begun = begun
        assert left is None or abs(left - self.tokens) < 0.1

    def teardown(self) -> None:
        self.move(pause.resume_queue, "default")
        for job in self.live:
            self.move(pause.resume_job, job)
        for _ in range(MAX_ROUNDS):
            self.time_passes()
            self.admit(dies=False)
            self.advance()
            if not self.live:
                return
            self.claim(slots=10)
            while self.claimed:
                self.end_attempt(which=0, how="good")
        raise AssertionError(f"not drained: {self.live}")


@contextmanager
def a_lab(dsn: str) -> Iterator[tuple[asyncio.Runner, Harness]]:
    with asyncio.Runner() as runner:
        opened = open_harness(dsn)
        try:
            yield runner, runner.run(opened.__aenter__())
        finally:
            runner.run(opened.__aexit__(None, None, None))


def test_any_order_of_moves_keeps_the_limits_and_ends(dsn: str) -> None:
    with a_lab(dsn) as (runner, harness):
        run_state_machine_as_test(
            lambda: Limits(runner, harness),  # type: ignore[arg-type]  # any callable will do
            settings=settings(max_examples=6, stateful_step_count=20, deadline=None, phases=AS_FOUND),
        )
        assert [str(finding) for finding in runner.run(harness.findings())] == []
