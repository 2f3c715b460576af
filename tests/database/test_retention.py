"""Retention: what has ended is kept for a while and then deleted with all that is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, quick_settings
from test_workers import one

from cograil import fault_injection
from cograil.errors import JobNotFound
from cograil.orchestrator import retention_sweep
from cograil.orchestrator.retention_sweep import sweep
from cograil.settings import Settings
from cograil.store.retention_queries import first_id_at
from cograil.store.statements import statement
from cograil.verbs.retention import delete_expired

DAYS = 30.0
TABLES_WITH_JOBS = """
select c.table_name from information_schema.columns c
join pg_class r on r.relname = c.table_name and r.relnamespace = 'cograil'::regnamespace
where c.table_schema = 'cograil' and c.column_name = 'job_id'
  and not r.relispartition and r.relkind in ('r', 'p')
"""
# A lease, a slot, an idempotency record or a delivery outlives the job that has it; its own time decides.
KEPT = {"leases", "slots", "idempotency", "outbox", "deliveries", "container_jobs", "firings"}
OF_APPS = {"documents", "company_enrichments", "company_runs"}  # which keep their own rows, with a link
EMPTY_BY_THEN = {"tasks"}  # a finished job has none

FAN = """
workflow_id: fan
nodes:
  split: {type: fan_out, source: [1, 2, 3], task: {handler: echo, params: {steps: 2}}, next: gather}
  gather: {type: fan_in}
"""


async def make_old(lab: Lab, ids: Sequence[str], days: float = DAYS + 1) -> list[str]:
    """As if these jobs had been made and had ended so long ago; their ids, which say when they were made."""
    tables = [row[0] for row in await lab.rows(TABLES_WITH_JOBS)]
    moved = []
    for job in ids:
        ((moment,),) = await lab.rows(f"select now() - interval '{days} days'")
        new = first_id_at(moment)[:18] + job[18:]
        moved.append(new)
        for table in tables:
            await lab.rows(f"update cograil.{table} set job_id = '{new}' where job_id = '{job}'")
        await lab.rows(
            f"""update cograil.jobs set id = '{new}', created_at = created_at - interval '{days} days',
                finished_at = finished_at - interval '{days} days' where id = '{job}'"""
        )
        for link in ("retry_of", "parent_job"):
            await lab.rows(f"update cograil.jobs set {link} = '{new}' where {link} = '{job}'")
    return moved


async def completed(lab: Lab, count: int = 1) -> list[str]:
    """Jobs that have ended just now."""
    ids = await lab.submit_many(one(), [{}] * count)
    hand = await lab.hand()
    for item in await hand.claim(count):
        await hand.report(item, {})
    await lab.advance()
    return ids


async def all_jobs(lab: Lab) -> set[str]:
    return {row[0] for row in await lab.rows("select id::text from cograil.jobs")}


async def link(lab: Lab, job: str, column: str, other: str) -> None:
    await lab.rows(f"update cograil.jobs set {column} = '{other}' where id = '{job}'")


# -- what goes --------------------------------------------------------------------------------------------


async def test_a_job_goes_with_all_that_is_its_own(lab: Lab) -> None:
    async with lab.running():
        job = await lab.submit(FAN)
        await lab.ended(job)
    (young,) = await completed(lab)
    await lab.rows(
        f"""insert into cograil.task_logs (job_id, node_id, attempt, lines) values ('{job}', 'a', 1, '[]');
            insert into cograil.progress (job_id, node_id, attempt) values ('{job}', 'a', 1);
            insert into cograil.inbox (job_id, kind) values ('{job}', 'late')"""
    )
    (old,) = await make_old(lab, [job])
    tables = {row[0] for row in await lab.rows(TABLES_WITH_JOBS)}

    async def left(job_id: str) -> set[str]:
        query = "select 1 from cograil.{} where job_id = '{}' limit 1"
        return {table for table in tables if await lab.rows(query.format(table, job_id))}

    assert {"nodes", "events", "checkpoints", "progress", "task_logs", "inbox"} <= await left(old)
    of_the_young = await left(young)
    assert (await sweep(lab.db, DAYS)).jobs == 1
    assert await left(old) == set()
    assert (await all_jobs(lab), await left(young)) == ({young}, of_the_young)


async def test_every_table_with_jobs_in_it_is_known_to_retention(lab: Lab) -> None:
    """A new table that keeps something of a job must say whether that goes with the job."""
    tables = {row[0] for row in await lab.rows(TABLES_WITH_JOBS)}
    text = statement("delete_jobs").text
    pruned = {table for table in tables if f"delete from cograil.{table} where job_id" in text}
    assert tables - pruned == KEPT | OF_APPS | EMPTY_BY_THEN


async def test_what_is_young_or_active_stays(lab: Lab) -> None:
    young = await completed(lab, 2)
    (queued,) = await make_old(lab, [await lab.submit(one())])
    (nearly,) = await make_old(lab, await completed_again(lab), DAYS - 0.01)
    (old,) = await make_old(lab, await completed_again(lab), DAYS + 0.01)
    assert (await sweep(lab.db, DAYS)).jobs == 1
    assert await all_jobs(lab) == {*young, queued, nearly}
    assert old not in await all_jobs(lab)


async def completed_again(lab: Lab) -> list[str]:
    ids = await lab.submit_many(one("sleep"), [{}])
    hand = await lab.hand()
    for item in await hand.claim(handlers=["sleep"]):
        await hand.report(item, {})
    await lab.advance()
    return ids


async def test_a_job_that_began_long_ago_and_ended_lately_stays(lab: Lab) -> None:
    (job,) = await make_old(lab, await completed(lab))
    await lab.rows("update cograil.jobs set finished_at = now()")
    assert (await sweep(lab.db, DAYS)).jobs == 0
    assert await all_jobs(lab) == {job}


async def test_without_days_everything_is_kept(lab: Lab) -> None:
    await make_old(lab, await completed(lab), 4000)
    assert (await sweep(lab.db, 0)).jobs == 0
    assert len(await all_jobs(lab)) == 1


def test_it_is_on_by_default() -> None:
    assert Settings().retention.days == 30


# -- families ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["retry_of", "parent_job"])
@pytest.mark.parametrize("is_forward", [True, False])
async def test_what_is_tied_to_an_active_job_stays_however_far(
    lab: Lab, column: str, is_forward: bool
) -> None:
    """a - b - c - active, tied in either direction; d - e are a family of their own."""
    a, b, c, d, e, alone = await make_old(lab, await completed(lab, 6))
    active = await lab.submit(one())
    chain = [a, b, c, active]
    for first, second in pairwise(chain):
        await link(lab, *((second, column, first) if is_forward else (first, column, second)))
    await link(lab, e, column, d)
    await sweep(lab.db, DAYS)
    assert await all_jobs(lab) == {a, b, c, active}
    assert {d, e, alone} & await all_jobs(lab) == set()
    await lab.cancel(active)
    await sweep(lab.db, DAYS)
    assert await all_jobs(lab) == {active}, "when the last of them has ended, the others may go"


async def test_a_retry_is_a_tie(lab: Lab) -> None:
    text = one(attempts=1)
    job = await lab.submit(text)
    await lab.cancel(job)
    (old,) = await make_old(lab, [job])
    new = await lab.retry(old)
    assert (await sweep(lab.db, DAYS)).jobs == 0
    await lab.cancel(new)
    assert (await sweep(lab.db, DAYS)).jobs == 1
    assert await all_jobs(lab) == {new}


async def test_a_job_in_somebodys_hands_is_passed_over(lab: Lab) -> None:
    """A retry that reads a job holds its lock: the job stays until that has committed, and then is tied."""
    first, second = await make_old(lab, await completed(lab, 2))
    async with lab.db.transaction("test") as tx:
        await tx.connection.execute(f"select 1 from cograil.jobs where id = '{first}' for update".encode())
        assert (await sweep(lab.db, DAYS)).jobs == 1
    assert await all_jobs(lab) == {first}
    assert second not in await all_jobs(lab)


async def test_a_retry_of_a_job_that_is_being_deleted_waits_and_does_not_find_it(
    lab: Lab, eventually: Any
) -> None:
    job = await lab.submit(one())
    await lab.cancel(job)
    (old,) = await make_old(lab, [job])
    waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    async with lab.db.transaction("test") as tx:
        deleted = await delete_expired(tx, tx.now)
        assert deleted is not None
        assert deleted.jobs == 1
        retried = asyncio.create_task(lab.retry(old))
        await eventually(lambda: lab.rows(waiting))
    with pytest.raises(JobNotFound):
        await retried
    assert await all_jobs(lab) == set()


# -- batches and turns ------------------------------------------------------------------------------------


async def test_a_batch_has_at_most_as_many_jobs_as_are_asked_for_oldest_first(lab: Lab) -> None:
    ids = sorted(await make_old(lab, await completed(lab, 5)))
    async with lab.db.transaction("test") as tx:
        done = await delete_expired(tx, tx.now, limit=2)
    assert done is not None
    assert (done.jobs, done.last) == (2, ids[1])
    assert await all_jobs(lab) == set(ids[2:])


async def test_a_batch_ends_early_when_its_jobs_are_large(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = sorted(await make_old(lab, await completed(lab, 4)))
    ((events,),) = await lab.rows(f"select seq from cograil.jobs where id = '{ids[0]}'")
    monkeypatch.setattr("cograil.verbs.retention.BATCH_EVENTS", events + 1)
    async with lab.db.transaction("test") as tx:
        done = await delete_expired(tx, tx.now)
    assert done is not None
    assert done.jobs == 2
    assert (await sweep(lab.db, DAYS)).jobs == 2


async def test_jobs_that_must_stay_do_not_keep_the_sweep_from_those_behind_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(await make_old(lab, await completed(lab, 6)))
    active = await lab.submit(one())
    for job in ids[:4]:
        await link(lab, job, "parent_job", active)
    monkeypatch.setattr(retention_sweep, "delete_expired", _by_twos)
    assert (await sweep(lab.db, DAYS)).jobs == 2
    assert await all_jobs(lab) == {*ids[:4], active}


async def _by_twos(*arguments: Any, **more: Any) -> Any:
    return await delete_expired(*arguments, **more, limit=2)


async def test_only_one_sweeps_at_a_time(lab: Lab) -> None:
    await make_old(lab, await completed(lab, 3))
    async with lab.db.transaction("test") as tx:
        assert await delete_expired(tx, tx.now, limit=1) is not None
        async with lab.db.transaction("test") as other:
            assert await delete_expired(other, other.now, limit=1) is None
        assert (await sweep(lab.db, DAYS)).jobs == 0
    assert (await sweep(lab.db, DAYS)).jobs == 2


async def test_a_sweep_ends_when_its_time_is_over(lab: Lab) -> None:
    await make_old(lab, await completed(lab, 3))
    assert (await sweep(lab.db, DAYS, seconds=0)).jobs == 0


async def test_whatever_point_of_a_batch_fails_a_job_is_there_whole_or_gone(lab: Lab, tmp_path: Path) -> None:
    """The doctor finds nothing that lost its job, nor a job that lost its events."""
    log = tmp_path / "points"
    await make_old(lab, await completed(lab, 2))
    fault_injection.record(str(log))
    await one_batch(lab)
    fault_injection.record(None)
    points = log.read_text().splitlines()
    assert {"retention.delete_jobs", "retention.commit.before", "retention.commit.after"} <= set(points)
    for number, name in enumerate(points, start=1):
        await make_old(lab, await completed(lab, 2))
        fault_injection.arm(f"*:{number}:raise")
        try:
            with pytest.raises(fault_injection.FaultRaised):
                await one_batch(lab)
        finally:
            fault_injection.arm(None)
        assert len(await all_jobs(lab)) == (0 if name == "retention.commit.after" else 2), name
        assert [str(finding) for finding in await lab.findings()] == [], name
        await sweep(lab.db, DAYS)
        assert await all_jobs(lab) == set()


async def one_batch(lab: Lab) -> None:
    async with lab.db.transaction("retention") as tx:
        await delete_expired(tx, tx.now)


# -- the loop ---------------------------------------------------------------------------------------------


class TestInAnOrchestrator:
    """It sweeps by itself now and then."""

    @pytest.fixture
    def lab_settings(self) -> Settings:
        return quick_settings(retention={"days": DAYS})

    async def test_an_orchestrator_sweeps_when_it_is_time(
        self, lab: Lab, eventually: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention_sweep, "FIRST_SECONDS", 0.05)
        monkeypatch.setattr(retention_sweep, "EVERY_SECONDS", 0.05)
        (old,) = await make_old(lab, await completed(lab))
        (young,) = await completed(lab)
        async with lab.orchestrator():
            await eventually(lambda: _is_gone(lab, old))
        assert await all_jobs(lab) == {young}

    async def test_it_does_so_at_most_once_a_minute(self, lab: Lab, eventually: Any) -> None:
        await make_old(lab, await completed(lab))
        async with lab.orchestrator() as running:
            before = running._tick_at
            await eventually(lambda: running._tick_at > before + 0.5)
            assert running._retention._sweeping is None
        assert (
            min(retention_sweep.FIRST_SECONDS, retention_sweep.AGAIN_SECONDS, retention_sweep.EVERY_SECONDS)
            == 60
        )


async def _is_gone(lab: Lab, job: str) -> bool:
    return job not in await all_jobs(lab)
