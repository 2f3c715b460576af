"""Periods: partitions are made ahead, and one whose jobs may all go is dropped whole."""

from __future__ import annotations

import secrets
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.harness import Harness, quick_settings
from tests.support.old_jobs import DAYS, all_jobs, completed, make_old
from tests.support.one_node import one

from cograil import fault_injection
from cograil.orchestrator import retention_sweep
from cograil.orchestrator.retention_sweep import create_ahead, sweep
from cograil.settings import RetentionSettings, Settings
from cograil.store.partition_queries import PARENTS, Partition, list_partitions
from cograil.store.retention_queries import first_id, first_id_at, millis_of
from cograil.verbs import partitions
from cograil.verbs.partitions import DAY_MILLIS, MissingPartition, Reach, find_missing, make, survey

WEEK = 7
OLD = 40.0  # its week is over for more than DAYS


async def existing(harness: Harness) -> list[Partition]:
    async with harness.db.transaction("test") as tx:
        return await list_partitions(tx)


async def names(harness: Harness) -> set[str]:
    return {partition.name for partition in await existing(harness)}


async def drop_all(harness: Harness) -> None:
    for name in await names(harness):
        await harness.rows(f"drop table cograil.{name}")


async def make_period(harness: Harness, days_ago: float, parents: tuple[str, ...] = PARENTS) -> set[str]:
    """The names of the partitions of the week that was `days` days ago."""
    made = set()
    for parent in parents:
        async with harness.db.transaction("test") as tx:
            then = int((tx.now - timedelta(days=days_ago)).timestamp() * 1000)
            first = then // (WEEK * DAY_MILLIS) * WEEK * DAY_MILLIS
            missing = MissingPartition(parent, first_id(first), first_id(first + WEEK * DAY_MILLIS))
            assert await make(tx, missing) == "made"
            made.add(f"{parent}_{missing.suffix}")
    return made


async def homes(harness: Harness, job: str, parent: str = "nodes") -> set[str]:
    """Where the rows of this job are."""
    query = f"select distinct tableoid::regclass::text from cograil.{parent} where job_id = '{job}'"
    return {table.removeprefix("cograil.") for (table,) in await harness.rows(query)}


async def count(harness: Harness, parent: str) -> int:
    ((number,),) = await harness.rows(f"select count(*) from cograil.{parent}")
    return int(number)


# -- made ahead -------------------------------------------------------------------------------------------


async def test_a_new_database_has_this_week_and_the_next_and_rows_land_in_them(harness: Harness) -> None:
    (job,) = await completed(harness)
    ((now,),) = await harness.rows("select now()")
    for parent in PARENTS:
        this, following = (partition for partition in await existing(harness) if partition.parent == parent)
        assert this.first < first_id_at(now) < this.until == following.first
        assert await homes(harness, job, parent) == {this.name}


async def test_partitions_are_created_ahead_once(harness: Harness) -> None:
    before = await names(harness)
    assert await create_ahead(harness.db, WEEK) == 0
    async with harness.db.transaction("test") as tx:
        tx.now += timedelta(days=WEEK)
        missing = await find_missing(tx, WEEK)
        assert [await make(tx, partition) for partition in missing] == ["made", "made"]
        assert await find_missing(tx, WEEK) == []
    assert len(await names(harness)) == len(before) + 2
    assert await create_ahead(harness.db, WEEK) == 0


async def test_a_sweep_makes_what_is_missing(harness: Harness) -> None:
    await drop_all(harness)
    assert (await sweep(harness.db, DAYS, 0)).created == 0
    assert (await sweep(harness.db, DAYS, WEEK)).created == 4
    (job,) = await completed(harness)
    assert "nodes_default" not in await homes(harness, job)


async def test_a_period_that_has_rows_in_the_default_one_is_left_there_and_the_next_is_made(
    harness: Harness,
) -> None:
    await drop_all(harness)
    (job,) = await completed(harness)
    assert await create_ahead(harness.db, WEEK) == 2
    assert await homes(harness, job) == {"nodes_default"}
    ((now,),) = await harness.rows("select now()")
    assert all(partition.first > first_id_at(now) for partition in await existing(harness))
    assert await create_ahead(harness.db, WEEK) == 0


async def test_none_is_made_when_the_default_one_is_too_large_to_be_read_under_a_lock(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drop_all(harness)
    await completed(harness)
    monkeypatch.setattr(partitions, "MAX_BYTES", 1)
    assert await create_ahead(harness.db, WEEK) == 0
    assert await names(harness) == set()


async def test_a_new_one_is_as_the_default_one_is(harness: Harness) -> None:
    reader = f"reader_{secrets.token_hex(4)}"
    await harness.rows(f"create role {reader} nologin")
    try:
        await harness.rows(f"grant select, update on cograil.nodes_default to {reader}")
        made = await make_period(harness, OLD)
        shapes = await harness.rows(
            f"""select c.relname, c.reloptions, pg_get_userbyid(c.relowner), c.relrowsecurity,
                  (select array_agg(p) from unnest(array['select', 'update', 'delete']) as p
                   where has_table_privilege('{reader}', c.oid, p))
                from pg_class c where relnamespace = 'cograil'::regnamespace and relkind = 'r'"""
        )
        shape = {table: properties for table, *properties in shapes}
        for name in made:
            assert shape[name] == shape[f"{name.split('_')[0]}_default"]
        assert shape["nodes_default"] == [["fillfactor=80"], "cograil_engine", True, ["select", "update"]]
    finally:
        await harness.rows(f"drop owned by {reader}")
        await harness.rows(f"drop role {reader}")


@given(
    changes=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 60)), min_size=1, max_size=12
    )  # days of a period, days that pass
)
def test_partitions_never_overlap_when_the_days_of_a_period_change(
    changes: list[tuple[int, int]],
) -> None:
    now, made = 1_800_000_000_000, list[Partition]()
    for days, passed in changes:
        now += passed * DAY_MILLIS
        for partition in partitions._missing("nodes", made, now, days * DAY_MILLIS):
            made.append(Partition("nodes", partition.suffix, partition.first, partition.until))
        assert any(partition.first <= first_id(now) < partition.until for partition in made)
        assert max(millis_of(partition.until) for partition in made) > now
    assert all(a.until <= b.first for a, b in pairwise(made))
    assert all(partition.first < partition.until for partition in made)
    assert len({partition.name for partition in made}) == len(made)


@pytest.mark.parametrize(
    ("days", "partition_days", "expected"),
    [(30, None, 7), (365, None, 91), (4, None, 1), (1, None, 0), (30, 1, 1), (30, 0, 0), (0, None, 0)],
)
def test_a_period_is_a_quarter_of_the_retention_unless_said(
    days: float, partition_days: int | None, expected: int
) -> None:
    assert RetentionSettings(days=days, partition_days=partition_days).period_days == expected


# -- dropped whole ----------------------------------------------------------------------------------------


async def test_a_period_of_which_nothing_stays_is_dropped_and_its_rows_are_not_deleted(
    harness: Harness,
) -> None:
    made = await make_period(harness, OLD)
    await make_old(harness, await completed(harness, 3), OLD)
    (young,) = await completed(harness)
    nodes, events = await count(harness, "nodes"), await count(harness, "events")
    fault_injection.arm("retention.drop_partition:1:raise")
    try:
        with pytest.raises(fault_injection.FaultRaised):
            await sweep(harness.db, DAYS, WEEK)
    finally:
        fault_injection.arm(None)
    assert await all_jobs(harness) == {young}
    assert (await count(harness, "nodes"), await count(harness, "events")) == (nodes, events), (
        "left to the drop"
    )
    assert [str(finding) for finding in await harness.findings()] == []
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.jobs, swept.dropped) == (0, 2)
    assert made & await names(harness) == set()
    assert await count(harness, "nodes") == 1


@pytest.mark.parametrize("is_active", [True, False])
async def test_where_a_job_is_active_or_ended_lately_the_others_go_by_rows(
    harness: Harness, is_active: bool
) -> None:
    made = await make_period(harness, OLD)
    ids = await make_old(harness, await completed(harness, 3), OLD)
    if is_active:
        (stays,) = await make_old(harness, [await harness.submit(one())], OLD)
    else:
        (stays,) = await make_old(harness, await completed(harness), OLD)
        await harness.rows(f"update cograil.jobs set finished_at = now() where id = '{stays}'")
    events = await harness.events(stays)
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.jobs, swept.dropped) == (3, 0)
    assert made <= await names(harness)
    assert await all_jobs(harness) == {stays}
    assert await harness.events(stays) == events
    assert [await homes(harness, job) for job in ids] == [set()] * 3
    if is_active:
        await harness.cancel(stays)
    await harness.rows("update cograil.jobs set finished_at = now() - interval '31 days'")
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.jobs, swept.dropped) == (1, 2)


async def test_a_retry_that_comes_late_keeps_its_job_and_what_the_others_left_goes_by_rows(
    harness: Harness,
) -> None:
    """Some are gone without their rows when one of the period is tied to an active job."""
    made = await make_period(harness, OLD)
    await make_old(harness, await completed(harness, 3), OLD)
    cancelled = await harness.submit(one())
    await harness.cancel(cancelled)
    (tied,) = await make_old(harness, [cancelled], OLD)
    new = await harness.retry(tied)
    events = await harness.events(tied)
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.jobs, swept.dropped) == (3, 0)
    assert await all_jobs(harness) == {tied, new}
    assert await harness.events(tied) == events
    rows = await harness.rows("select distinct job_id::text from cograil.events")
    assert {job_id for (job_id,) in rows} == {tied, new}
    await harness.cancel(new)
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.jobs, swept.dropped) == (1, 2)
    assert made & await names(harness) == set()


async def test_a_period_without_a_partition_of_each_table_goes_by_rows(harness: Harness) -> None:
    """Else what is in the default one would stay there for ever."""
    await make_period(harness, OLD, ("nodes",))
    (old,) = await make_old(harness, await completed(harness), OLD)
    assert await homes(harness, old, "events") == {"events_default"}
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.jobs, swept.dropped) == (1, 1)
    assert (await count(harness, "nodes"), await count(harness, "events")) == (0, 0)


async def test_a_period_that_is_not_over_yet_is_waited_for_unless_it_is_too_long(harness: Harness) -> None:
    """Else it would be gone by rows before it can be dropped; at most a period later it goes."""
    made = await make_period(harness, DAYS)
    (straddling,) = (
        partition
        for partition in await existing(harness)
        if partition.name in made and partition.parent == "nodes"
    )
    (job,) = await completed(harness)
    days = (await _age(harness, straddling.first)) - 0.001
    (old,) = await make_old(harness, [job], days)
    assert await homes(harness, old) == {straddling.name}
    assert (await sweep(harness.db, DAYS, WEEK)).jobs == 0
    assert (await sweep(harness.db, DAYS, WEEK - 1)).jobs == 1


async def _age(harness: Harness, job_id: str) -> float:
    """How many days ago this id began."""
    ((now,),) = await harness.rows("select extract(epoch from now()) * 1000")
    return (float(now) - millis_of(job_id)) / DAY_MILLIS


async def test_future_partitions_are_never_dropped(harness: Harness) -> None:
    before = await names(harness)
    assert (await sweep(harness.db, 0.001, 0)).dropped == 0
    assert await names(harness) == before


# -- locks, turns and crashes -----------------------------------------------------------------------------


async def test_a_reader_delays_dropping_and_making_partitions_and_neither_waits_long(
    harness: Harness,
) -> None:
    made = await make_period(harness, OLD)
    await drop_names(harness, await names(harness) - made)
    await make_old(harness, await completed(harness, 2), OLD)
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute("select count(*) from cograil.nodes")
        swept = await sweep(harness.db, DAYS, WEEK)
        assert (swept.jobs, swept.created, swept.dropped) == (2, 2, 1), "events are free, nodes are not"
        assert [str(finding) for finding in await harness.findings()] == []
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.jobs, swept.created, swept.dropped) == (0, 2, 1)


async def drop_names(harness: Harness, dropped: set[str]) -> None:
    for name in dropped:
        await harness.rows(f"drop table cograil.{name}")


async def test_a_drop_that_waits_gives_way_so_that_the_engine_goes_on(harness: Harness) -> None:
    """Behind a lock that is waited for everybody queues; jobs complete though each sweep tries in vain."""
    await make_period(harness, OLD)
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute("select count(*) from cograil.nodes, cograil.events")
        async with harness.running():
            for _ in range(3):
                assert (await sweep(harness.db, DAYS, WEEK)).dropped == 0
                assert (await harness.ended(await harness.submit(one())))["status"] == "completed"
    assert (await sweep(harness.db, DAYS, WEEK)).dropped == 2


async def test_one_sweeper_at_a_time_makes_and_drops_partitions(harness: Harness) -> None:
    await drop_all(harness)
    old = await make_period(harness, OLD)
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute(
            b"select pg_advisory_xact_lock(hashtextextended('%s', 0))" % partitions.TURN.encode()
        )
        swept = await sweep(harness.db, DAYS, WEEK)
        assert (swept.created, swept.dropped) == (0, 0)
    assert await names(harness) == old
    swept = await sweep(harness.db, DAYS, WEEK)
    assert (swept.created, swept.dropped) == (4, 2)


async def test_a_sweep_that_fails_at_any_point_is_finished_by_the_next(
    harness: Harness, tmp_path: Path
) -> None:
    """Every job is whole or gone, and what the gone ones left goes with the next sweep."""
    log = tmp_path / "points"
    await old_and_due(harness)
    fault_injection.record(str(log))
    await sweep(harness.db, DAYS, WEEK)
    fault_injection.record(None)
    points = log.read_text().splitlines()
    assert {"retention.make_partition", "retention.drop_partition", "retention.delete_leftovers"} <= set(
        points
    )
    for number, name in enumerate(points, start=1):
        tied = await old_and_due(harness)
        fault_injection.arm(f"*:{number}:raise")
        try:
            with pytest.raises(fault_injection.FaultRaised):
                await sweep(harness.db, DAYS, WEEK)
        finally:
            fault_injection.arm(None)
        assert [str(finding) for finding in await harness.findings()] == [], name
        await sweep(harness.db, DAYS, WEEK)
        assert await all_jobs(harness) == tied, name
        assert len(await names(harness)) == 4, name


async def old_and_due(harness: Harness) -> set[str]:
    """Partitions to be made, a period to be dropped, and one with an old job that a retry ties."""
    for job in await all_jobs(harness):
        if (await harness.job(job))["completed_at"] is None:
            await harness.cancel(job)
    await harness.rows("truncate cograil.jobs, cograil.nodes, cograil.events, cograil.tasks, cograil.inbox")
    await drop_all(harness)
    await make_period(harness, OLD)
    await make_period(harness, OLD + WEEK)
    await make_old(harness, await completed(harness, 2), OLD)
    await make_old(harness, await completed(harness, 2), OLD + WEEK)
    cancelled = await harness.submit(one())
    await harness.cancel(cancelled)
    (tied,) = await make_old(harness, [cancelled], OLD + WEEK)
    return {tied, await harness.retry(tied)}


async def test_a_sweep_without_old_periods_reaches_to_the_moment(harness: Harness) -> None:
    async with harness.db.transaction("test") as tx:
        before = tx.now - timedelta(days=DAYS)
        assert await survey(tx, before, WEEK) == Reach(first_id_at(before))


class TestInAnOrchestrator:
    """It does all of it by itself."""

    @pytest.fixture
    def harness_settings(self) -> Settings:
        return quick_settings(retention={"days": DAYS})

    async def test_an_orchestrator_makes_and_drops_partitions(
        self, harness: Harness, eventually: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention_sweep, "FIRST_SECONDS", 0.05)
        monkeypatch.setattr(retention_sweep, "EVERY_SECONDS", 0.05)
        await drop_all(harness)
        old = await make_period(harness, OLD)
        await make_old(harness, await completed(harness, 2), OLD)

        async def is_done() -> bool:
            existing_names = await names(harness)
            return len(existing_names) == 4 and not existing_names & old

        async with harness.orchestrator():
            await eventually(is_done)
        assert await all_jobs(harness) == set()
