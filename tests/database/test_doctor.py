"""Every invariant holds on real jobs, and each is seen when it is violated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection
from tests.support.harness import Harness, open_harness

from cograil.store.doctor import INVARIANTS, LIVENESS, check_invariants, check_liveness, examine
from cograil.verbs.cancel import cancel
from cograil.verbs.retry import retry

WIDE = """
workflow_id: wide
nodes:
  measure:
    handler: size_check
    params: {size_bytes: 5}
    next: route
  route:
    type: conditional
    condition_field: output.route
    branches:
      - {name: small, condition: "== 'light'", next: split}
      - {name: large, default: true, next: other}
  other: {handler: echo, next: last}
  split:
    type: fan_out
    source: "{{ inputs.parts }}"
    task: {handler: chunk_processor, params: {chunk_id: "{{ index }}", chunk_data: "{{ item }}"}}
    next: gather
  gather: {type: fan_in, aggregation: collect, next: last}
  pause: {type: wait, wait: {seconds: 0.01}, next: last}
  last:
    handler: echo
    depends_on: {any_of: [gather, other, pause]}
"""

FAILING = """
workflow_id: failing
nodes:
  split:
    type: fan_out
    source: [1, 2, 3]
    task:
      handler: fail
      params: {error_message: "no {{ item }}"}
      retry: {max_attempts: 2, backoff: fixed, initial_delay_seconds: 0}
    next: gather
  gather: {type: fan_in}
  fine: {handler: echo}
"""

SLOW = """
workflow_id: slow
nodes:
  quick: {handler: echo, next: nap}
  nap: {handler: sleep, params: {seconds: 60}, next: never}
  never: {handler: echo}
"""


HELD_OPEN = """
workflow_id: held_open
nodes:
  nap: {handler: sleep, params: {seconds: 60}}
  wrong: {handler: fail, retry: {max_attempts: 1}, next: after}
  after: {handler: echo}
  split:
    type: fan_out
    source: [1, 2]
    task: {handler: fail, retry: {max_attempts: 1}}
    next: gather
  gather: {type: fan_in, next: beyond}
  beyond: {handler: echo}
"""


@pytest_asyncio.fixture
async def harness(dsn: str) -> AsyncIterator[Harness]:
    async with open_harness(dsn) as harness:
        yield harness


@pytest_asyncio.fixture
async def conn(dsn: str) -> AsyncIterator[AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest_asyncio.fixture
async def done(harness: Harness) -> str:
    """A job that went through a condition, a fan-out, a wait and an any_of, and completed."""
    async with harness.running():
        job_id = await harness.submit(WIDE, {"parts": ["a", "b", "c"]})
        assert (await harness.ended(job_id))["status"] == "completed"
    return job_id


@pytest_asyncio.fixture
async def dispatched(harness: Harness) -> str:
    """A job whose first node waits for a worker."""
    return await harness.submit(SLOW)


async def codes(conn: AsyncConnection[Any]) -> set[str]:
    return {finding.code for finding in await check_invariants(conn)}


async def test_jobs_of_every_fate_keep_every_invariant(
    harness: Harness, conn: AsyncConnection[Any], done: str
) -> None:
    waiting = await harness.submit(SLOW)
    assert await check_invariants(conn) == []
    async with harness.running():
        failed = await harness.submit(FAILING)
        assert (await harness.ended(failed))["status"] == "failed"
        async with harness.db.transaction("test") as tx:
            again = await retry(tx, harness.engine_context, failed)
        assert (await harness.ended(again))["status"] == "failed"
        async with harness.db.transaction("test") as tx:
            twice = await retry(tx, harness.engine_context, done, "split__1")
        assert (await harness.ended(twice))["status"] == "completed"
        async with harness.db.transaction("test") as tx:
            assert await cancel(tx, harness.engine_context, waiting, reason="enough") == "cancelled"
    assert await check_invariants(conn) == []


async def test_the_invariants_hold_at_every_moment_of_a_running_system(
    harness: Harness, conn: AsyncConnection[Any]
) -> None:
    async with harness.running():
        jobs = [await harness.submit(WIDE, {"parts": list(range(40))}) for _ in range(5)]
        jobs += [await harness.submit(FAILING) for _ in range(5)]
        ends = asyncio.gather(*(harness.ended(job) for job in jobs))
        while not ends.done():
            assert await check_invariants(conn) == []
        await ends


@pytest.mark.parametrize("node", ["wrong", "split__1"])
async def test_a_node_that_is_retried_by_hand_keeps_every_invariant(
    harness: Harness, conn: AsyncConnection[Any], eventually: Any, node: str
) -> None:
    async def attempts() -> int:
        nodes = await harness.nodes(job_id)
        is_settled = nodes.keys() >= {"split__1", "beyond"} and all(
            nodes[name]["status"] in ("failed", "skipped") for name in ("wrong", "after", "gather", "beyond")
        )
        return int(nodes[node]["attempt"]) if is_settled else 0

    async with harness.running():
        job_id = await harness.submit(HELD_OPEN)
        for attempt in (1, 2, 3):
            await eventually(lambda wanted=attempt: _is(attempts(), wanted))
            assert await check_invariants(conn) == []
            async with harness.db.transaction("test") as tx:
                assert await retry(tx, harness.engine_context, job_id, node) == job_id
            assert await check_invariants(conn) == []
        async with harness.db.transaction("test") as tx:
            await cancel(tx, harness.engine_context, job_id)
        assert await check_invariants(conn) == []


async def _is(value: Awaitable[int], wanted: int) -> bool:
    return await value == wanted


async def test_a_view_of_a_transaction_is_used_when_one_is_given(harness: Harness, done: str) -> None:
    async with harness.db.transaction("test") as tx:
        assert await check_invariants(tx) == []
        await tx.connection.execute("update cograil.jobs set seq = seq + 1")
        assert {finding.code for finding in await check_invariants(tx)} == {"I08"}


# A violation and the check that must see it. `{job}` is a completed job, `{open}` one with a task.
TOLD = """
insert into deliveries (id, job_id, seq, type, destination, origin, url, sending, body, state, delivered_at,
  last_status, ended_at)
select gen_random_uuid(), '{{job}}', {seq}, 'cograil.job.x', 'callback', 'http://x.y:80', 'http://x.y',
  'null', 'null', s, at, status, at from (select {state}) as given(s, at, status);
"""
VIOLATIONS = {
    "a completed job without a result": ("I01", "update jobs set result = null where id = '{job}'"),
    "a pending job that has started": (
        "I01",
        "update jobs set status = 'pending' where id = '{open}'",
    ),
    "a live node under a job that has ended": (
        "I02",
        "update nodes set status = 'ready', finished_at = null where job_id = '{job}' and node_id = 'last'",
    ),
    "a task of a job that has ended": (
        "I02",
        "update tasks set job_id = '{job}', node_id = 'last' where job_id = '{open}'",
    ),
    "a dispatched node without a task": ("I03", "delete from tasks where job_id = '{open}'"),
    "a task of an attempt that is over": ("I03", "update tasks set attempt = 2 where job_id = '{open}'"),
    "a task and an outcome of the same attempt": (
        "I03",
        "insert into inbox (job_id, kind, node_id, attempt) values ('{open}', 'report', 'quick', 1)",
    ),
    "an attempt that was never handed out": (
        "I04",
        "update nodes set attempt = 2 where job_id = '{job}' and node_id = 'last'",
    ),
    "more attempts than allowed": (
        "I04",
        "update nodes set budget_from = -9 where job_id = '{job}' and node_id = 'last'",
    ),
    "a node that completed twice": (
        "I05",
        "update events set node_id = 'measure' where job_id = '{job}' and type = 'node_completed'"
        " and node_id = 'last'",
    ),
    "a winner that is not the current attempt": (
        "I05",
        "update nodes set task_id = task_id + 1000 where job_id = '{job}' and node_id = 'last'",
    ),
    "a node that ran again after its success": (
        "I05",
        "update events set type = 'node_dispatched', node_id = 'measure'"
        " where job_id = '{job}' and type = 'job_completed'",
    ),
    "a node that was ready before its dependency ended": (
        "I06",
        """update events e set data = '{{"dependencies_met": ["last"]}}'
           where job_id = '{job}' and type = 'node_ready' and node_id = 'measure'""",
    ),
    "a node that was handed out before it was ready": (
        "I06",
        "update events set type = 'warning' where job_id = '{job}' and type = 'node_ready'"
        " and node_id = 'measure'",
    ),
    "a child that is missing": ("I07", "delete from nodes where job_id = '{job}' and node_id = 'split__1'"),
    "a fan-out that miscounts": (
        "I07",
        "update nodes set ended = 2 where job_id = '{job}' and node_id = 'split'",
    ),
    "a child with the index of another": (
        "I07",
        "update nodes set idx = 0 where job_id = '{job}' and node_id = 'split__1'",
    ),
    "an event that is missing": ("I08", "delete from events where job_id = '{job}' and seq = 3"),
    "an event too many": ("I08", "insert into events (job_id, seq, type) values ('{job}', 1000, 'warning')"),
    "a job that says other than its last event": (
        "I09",
        "update events set type = 'job_failed' where job_id = '{job}' and type = 'job_completed'",
    ),
    "a job that ended before it started": (
        "I09",
        "update events set type = 'warning' where job_id = '{job}' and type = 'job_started'",
    ),
    "a node that says other than its last event": (
        "I09",
        "update nodes set status = 'skipped' where job_id = '{job}' and node_id = 'gather'",
    ),
    "a skipped node that was started": (
        "I09",
        "update events set type = 'node_skipped' where job_id = '{job}' and type = 'node_dispatched'"
        " and node_id = 'last'",
    ),
    "a node without a history": (
        "I09",
        "update events set type = 'warning' where job_id = '{job}' and node_id = 'gather'",
    ),
    "an end that nobody was told of": (
        "I10",
        """update jobs set callback = '{{"url": "http://x.y"}}' where id = '{job}'""",
    ),
    "an end that is told twice": (
        "I10",
        """insert into outbox (job_id, seq, type, to_callback)
           select job_id, seq, 'cograil.job.completed', true from events, generate_series(1, 2)
           where job_id = '{job}' and type = 'job_completed';
           update jobs set callback = '{{"url": "http://x.y"}}' where id = '{job}'""",
    ),
    "a delivery of an event that never was": (
        "I10",
        TOLD.format(seq=1000, state="'pending', null::timestamptz, null::int"),
    ),
    "a delivery that a receiver refused": ("I10", TOLD.format(seq=1, state="'delivered', now(), 500")),
    "two deliveries of one event": (
        "I10",
        TOLD.format(seq=1, state="'pending', null::timestamptz, null::int") * 2,
    ),
    "a job without its definition": ("I13", "delete from workflows where workflow_id = 'wide'"),
    "a job of another version": ("I13", "update jobs set workflow_version = 7 where id = '{job}'"),
    "two jobs of one idempotency key": ("I11", "update jobs set idempotency_key = 'same'"),
    "an event of another tenant": (
        "I12",
        "update events set tenant_id = 'other' where job_id = '{job}' and seq = 2",
    ),
    "a definition of another tenant": (
        "I12",
        "update workflows set tenant_id = 'other' where workflow_id = 'wide'",
    ),
    "news of a job that does not exist": (
        "I12",
        "insert into inbox (job_id, kind) values ('00000000-0000-7000-8000-000000000000', 'late')",
    ),
    "a task of a worker that does not exist": (
        "I12",
        "update tasks set state = 'running', worker_id = 999 where job_id = '{open}'",
    ),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
async def test_a_violation_is_seen(
    conn: AsyncConnection[Any], done: str, dispatched: str, violation: str
) -> None:
    code, change = VIOLATIONS[violation]
    assert await codes(conn) == set()
    await conn.execute("set search_path = cograil")
    await conn.execute("set session_replication_role = replica")
    await conn.execute(change.format(job=done, open=dispatched).encode())
    assert code in await codes(conn)


def test_each_invariant_has_a_violation_that_is_tested() -> None:
    assert {code for code, _ in VIOLATIONS.values()} == {check.code for check in INVARIANTS}


async def test_a_violation_names_the_first_of_the_offenders_and_counts_them_all(
    conn: AsyncConnection[Any], done: str
) -> None:
    await conn.execute(
        "insert into cograil.inbox (job_id, kind)"
        " select gen_random_uuid(), 'late' from generate_series(1, 50)"
    )
    (finding,) = await check_invariants(conn)
    assert finding.count == 50
    assert len(finding.ids) == 20
    assert str(finding).endswith("and 30 more")


STALLS = {
    "an attempt of a lost worker": (
        "L1",
        "update tasks set state = 'running', worker_id = 1, deadline = now() - interval '1 hour'"
        " where job_id = '{open}'",
    ),
    "news that nobody looks at": (
        "L2",
        "insert into inbox (job_id, kind, at) values ('{open}', 'late', now() - interval '1 hour')",
    ),
    "a job that should have been woken": (
        "L2",
        "update jobs set wake_at = now() - interval '1 hour' where id = '{open}'",
    ),
    "a job that waits for nothing": ("L3", "delete from tasks where job_id = '{open}'"),
}


@pytest.mark.parametrize("stall", STALLS)
async def test_a_stall_is_a_warning(conn: AsyncConnection[Any], dispatched: str, stall: str) -> None:
    code, change = STALLS[stall]
    assert await check_liveness(conn) == []
    await conn.execute("set search_path = cograil")
    await conn.execute(change.format(open=dispatched).encode())
    (finding,) = await check_liveness(conn)
    assert (finding.code, finding.level) == (code, "yellow")


async def test_a_session_that_sleeps_in_a_transaction_is_a_warning(
    dsn: str, conn: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [type(check)(check.code, check.statement, check.promise, -1.0) for check in LIVENESS[3:]]
    monkeypatch.setattr("cograil.store.doctor.LIVENESS", checks)
    assert await check_liveness(conn) == []
    async with await psycopg.AsyncConnection.connect(dsn) as sleeper:
        await sleeper.execute("select 1")
        assert [finding.code for finding in await check_liveness(conn)] == ["L4"]


async def test_a_server_that_may_forget_is_red(conn: AsyncConnection[Any]) -> None:
    findings = {finding.name: finding for finding in await examine(conn)}
    assert findings["server"].level == "green"
    assert findings["schema"].level == "green"
    assert findings["durability"].level == "red"
    assert findings["durability"].ids == ("fsync", "full_page_writes", "synchronous_commit")


async def test_an_empty_database_is_red_and_not_looked_at_further(empty_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as conn:
        findings = await examine(conn)
    assert [finding.name for finding in findings] == ["server", "encoding", "durability", "schema"]
    assert "cograil db migrate" in findings[-1].message
