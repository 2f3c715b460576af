"""Retention: what has ended is kept for a while and then deleted with all that is its own."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import Harness, quick_settings
from tests.support.old_jobs import DAYS, TABLES_WITH_JOBS, all_jobs, completed, make_old
from tests.support.one_node import one

from cograil import fault_injection
from cograil.errors import JobNotFound
from cograil.orchestrator import retention_sweep
from cograil.orchestrator.retention_sweep import sweep
from cograil.settings import Settings
from cograil.store.statements import statement
from cograil.verbs.retention import delete_expired

# A lease, a slot, an idempotency record or a delivery outlives the job that has it; its own time decides.
KEPT = {"leases", "slots", "idempotency", "outbox", "deliveries", "firings"}
# Apps keep their own rows, with a link to the job.
OF_APPS = {"container_jobs", "documents", "company_enrichments", "company_runs"}
TABLES_OF_APPS = """
select table_name::text from information_schema.columns
where table_schema like 'cograil\\_%%' and column_name = 'job_id'
"""
EMPTY_BY_THEN = {"tasks"}  # a finished job has none

FAN = """
workflow_id: fan
nodes:
  split: {type: fan_out, source: [1, 2, 3], task: {handler: echo, params: {steps: 2}}, next: gather}
  gather: {type: fan_in}
"""


async def link(harness: Harness, job: str, column: str, other: str) -> None:
    await harness.rows(f"update cograil.jobs set {column} = '{other}' where id = '{job}'")


# -- what goes --------------------------------------------------------------------------------------------


async def test_a_job_goes_with_all_that_is_its_own(harness: Harness) -> None:
    async with harness.running():
        job = await harness.submit(FAN)
        await harness.ended(job)
    (young,) = await completed(harness)
    await harness.rows(
        f"""insert into cograil.task_logs (job_id, node_id, attempt, lines) values ('{job}', 'a', 1, '[]');
            insert into cograil.progress (job_id, node_id, attempt) values ('{job}', 'a', 1);
            insert into cograil.inbox (job_id, kind) values ('{job}', 'late')"""
    )
    (old,) = await make_old(harness, [job])
    tables = {table for (table,) in await harness.rows(TABLES_WITH_JOBS)}

    async def left(job_id: str) -> set[str]:
        query = "select 1 from cograil.{} where job_id = '{}' limit 1"
        return {table for table in tables if await harness.rows(query.format(table, job_id))}

    assert {"nodes", "events", "checkpoints", "progress", "task_logs", "inbox"} <= await left(old)
    of_the_young = await left(young)
    assert (await sweep(harness.db, DAYS)).jobs == 1
    assert await left(old) == set()
    assert (await all_jobs(harness), await left(young)) == ({young}, of_the_young)


async def test_every_table_with_jobs_in_it_is_known_to_retention(harness: Harness) -> None:
    """A new table that keeps something of a job must say whether that goes with the job."""
    tables = {table for (table,) in await harness.rows(TABLES_WITH_JOBS)}
    text = statement("delete_jobs").text
    pruned = {table for table in tables if f"delete from cograil.{table} where job_id" in text}
    assert tables - pruned == KEPT | EMPTY_BY_THEN
    assert {table for (table,) in await harness.rows(TABLES_OF_APPS)} == OF_APPS


async def test_young_and_active_jobs_stay(harness: Harness) -> None:
    young = await completed(harness, 2)
    (queued,) = await make_old(harness, [await harness.submit(one())])
    (nearly,) = await make_old(harness, await completed_again(harness), DAYS - 0.01)
    (old,) = await make_old(harness, await completed_again(harness), DAYS + 0.01)
    assert (await sweep(harness.db, DAYS)).jobs == 1
    assert await all_jobs(harness) == {*young, queued, nearly}
    assert old not in await all_jobs(harness)


async def completed_again(harness: Harness) -> list[str]:
    ids = await harness.submit_many(one("sleep"), [{}])
    worker = await harness.manual_worker()
    for item in await worker.claim(handlers=["sleep"]):
        await worker.report(item, {})
    await harness.advance()
    return ids


async def test_a_job_that_began_long_ago_and_ended_lately_stays(harness: Harness) -> None:
    (job,) = await make_old(harness, await completed(harness))
    await harness.rows("update cograil.jobs set finished_at = now()")
    assert (await sweep(harness.db, DAYS)).jobs == 0
    assert await all_jobs(harness) == {job}


async def test_without_days_everything_is_kept(harness: Harness) -> None:
    await make_old(harness, await completed(harness), 4000)
    assert (await sweep(harness.db, 0)).jobs == 0
    assert len(await all_jobs(harness)) == 1


def test_retention_is_on_by_default() -> None:
    assert Settings().retention.days == 30


# -- families ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["retry_of", "parent_job"])
@pytest.mark.parametrize("is_forward", [True, False])
async def test_jobs_tied_to_an_active_job_stay_however_far(
    harness: Harness, column: str, is_forward: bool
) -> None:
    """a - b - c - active, tied in either direction; d - e are a family of their own."""
    a, b, c, d, e, alone = await make_old(harness, await completed(harness, 6))
    active = await harness.submit(one())
    chain = [a, b, c, active]
    for first, second in pairwise(chain):
        await link(harness, *((second, column, first) if is_forward else (first, column, second)))
    await link(harness, e, column, d)
    await sweep(harness.db, DAYS)
    assert await all_jobs(harness) == {a, b, c, active}
    assert {d, e, alone} & await all_jobs(harness) == set()
    await harness.cancel(active)
    await sweep(harness.db, DAYS)
    assert await all_jobs(harness) == {active}, "when the last of them has ended, the others may go"


async def test_a_retry_is_a_tie(harness: Harness) -> None:
    text = one(attempts=1)
    job = await harness.submit(text)
    await harness.cancel(job)
    (old,) = await make_old(harness, [job])
    new = await harness.retry(old)
    assert (await sweep(harness.db, DAYS)).jobs == 0
    await harness.cancel(new)
    assert (await sweep(harness.db, DAYS)).jobs == 1
    assert await all_jobs(harness) == {new}


async def test_a_job_in_somebodys_hands_is_passed_over(harness: Harness) -> None:
    """A retry that reads a job holds its lock: the job stays until that has committed, and then is tied."""
    first, second = await make_old(harness, await completed(harness, 2))
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute(f"select 1 from cograil.jobs where id = '{first}' for update".encode())
        assert (await sweep(harness.db, DAYS)).jobs == 1
    assert await all_jobs(harness) == {first}
    assert second not in await all_jobs(harness)


async def test_a_retry_of_a_job_that_is_being_deleted_waits_and_does_not_find_it(
    harness: Harness, eventually: Any
) -> None:
    job = await harness.submit(one())
    await harness.cancel(job)
    (old,) = await make_old(harness, [job])
    waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    async with harness.db.transaction("test") as tx:
        deleted = await delete_expired(tx, tx.now)
        assert deleted is not None
        assert deleted.jobs == 1
        retried = asyncio.create_task(harness.retry(old))
        await eventually(lambda: harness.rows(waiting))
    with pytest.raises(JobNotFound):
        await retried
    assert await all_jobs(harness) == set()


# -- batches and turns ------------------------------------------------------------------------------------


async def test_a_batch_has_at_most_as_many_jobs_as_are_asked_for_oldest_first(harness: Harness) -> None:
    ids = sorted(await make_old(harness, await completed(harness, 5)))
    async with harness.db.transaction("test") as tx:
        done = await delete_expired(tx, tx.now, limit=2)
    assert done is not None
    assert (done.jobs, done.last) == (2, ids[1])
    assert await all_jobs(harness) == set(ids[2:])


async def test_a_batch_ends_early_when_its_jobs_are_large(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(await make_old(harness, await completed(harness, 4)))
    ((events,),) = await harness.rows(f"select seq from cograil.jobs where id = '{ids[0]}'")
    monkeypatch.setattr("cograil.verbs.retention.BATCH_EVENTS", events + 1)
    async with harness.db.transaction("test") as tx:
        done = await delete_expired(tx, tx.now)
    assert done is not None
    assert done.jobs == 2
    assert (await sweep(harness.db, DAYS)).jobs == 2


async def test_jobs_that_must_stay_do_not_keep_the_sweep_from_those_behind_them(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(await make_old(harness, await completed(harness, 6)))
    active = await harness.submit(one())
    for job in ids[:4]:
        await link(harness, job, "parent_job", active)
    monkeypatch.setattr(retention_sweep, "delete_expired", _by_twos)
    assert (await sweep(harness.db, DAYS)).jobs == 2
    assert await all_jobs(harness) == {*ids[:4], active}


async def _by_twos(*arguments: Any, **more: Any) -> Any:
    return await delete_expired(*arguments, **more, limit=2)


async def test_only_one_sweeps_at_a_time(harness: Harness) -> None:
    await make_old(harness, await completed(harness, 3))
    async with harness.db.transaction("test") as tx:
        assert await delete_expired(tx, tx.now, limit=1) is not None
        async with harness.db.transaction("test") as other:
            assert await delete_expired(other, other.now, limit=1) is None
        assert (await sweep(harness.db, DAYS)).jobs == 0
    assert (await sweep(harness.db, DAYS)).jobs == 2


async def test_a_sweep_ends_when_its_time_is_over(harness: Harness) -> None:
    await make_old(harness, await completed(harness, 3))
    assert (await sweep(harness.db, DAYS, seconds=0)).jobs == 0


async def test_a_batch_that_fails_at_any_point_leaves_a_job_whole_or_gone(
    harness: Harness, tmp_path: Path
) -> None:
    """The doctor finds nothing that lost its job, nor a job that lost its events."""
    log = tmp_path / "points"
    await make_old(harness, await completed(harness, 2))
    fault_injection.record(str(log))
    await one_batch(harness)
    fault_injection.record(None)
    points = log.read_text().splitlines()
    assert {"retention.delete_jobs", "retention.commit.before", "retention.commit.after"} <= set(points)
    for number, name in enumerate(points, start=1):
        await make_old(harness, await completed(harness, 2))
        fault_injection.arm(f"*:{number}:raise")
        try:
            with pytest.raises(fault_injection.FaultRaised):
                await one_batch(harness)
        finally:
            fault_injection.arm(None)
        assert len(await all_jobs(harness)) == (0 if name == "retention.commit.after" else 2), name
        assert [str(finding) for finding in await harness.findings()] == [], name
        await sweep(harness.db, DAYS)
        assert await all_jobs(harness) == set()


async def one_batch(harness: Harness) -> None:
    async with harness.db.transaction("retention") as tx:
        await delete_expired(tx, tx.now)


# -- the loop ---------------------------------------------------------------------------------------------


class TestInAnOrchestrator:
    """It sweeps by itself now and then."""

    @pytest.fixture
    def harness_settings(self) -> Settings:
        return quick_settings(retention={"days": DAYS})

    async def test_an_orchestrator_sweeps_when_it_is_time(
        self, harness: Harness, eventually: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention_sweep, "FIRST_SECONDS", 0.05)
        monkeypatch.setattr(retention_sweep, "EVERY_SECONDS", 0.05)
        (old,) = await make_old(harness, await completed(harness))
        (young,) = await completed(harness)
        async with harness.orchestrator():
            await eventually(lambda: _is_gone(harness, old))
        assert await all_jobs(harness) == {young}

    async def test_it_does_so_at_most_once_a_minute(self, harness: Harness, eventually: Any) -> None:
        await make_old(harness, await completed(harness))
        async with harness.orchestrator() as running:
            before = running._tick_at
            await eventually(lambda: running._tick_at > before + 0.5)
            assert running._retention._sweeping is None
        assert (
            min(retention_sweep.FIRST_SECONDS, retention_sweep.AGAIN_SECONDS, retention_sweep.EVERY_SECONDS)
            == 60
        )


async def _is_gone(harness: Harness, job: str) -> bool:
    return job not in await all_jobs(harness)
