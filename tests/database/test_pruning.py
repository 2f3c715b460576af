"""What goes with a sweep beside jobs: processes long gone, records whose time is over, full buckets."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.harness import Harness
from tests.support.one_node import one

from cograil import fault_injection
from cograil.orchestrator import retention_sweep
from cograil.orchestrator.retention_sweep import sweep
from cograil.verbs import buckets, idempotency
from cograil.verbs.idempotency import Key

DAYS = 30.0


async def test_processes_that_ended_a_day_ago_are_forgotten(harness: Harness) -> None:
    await harness.tick()
    for name, state, days in (
        ("gone", "dead", 2),
        ("left", "stopped", 2),
        ("late", "dead", 0),
        ("busy", "dead", 2),
    ):
        worker = await harness.manual_worker(name)
        if name == "busy":
            job = await harness.submit(one())
            await worker.claim()
        await harness.rows(
            f"""update cograil.processes set state = '{state}', pulsed_at = now() - interval '{days} days'
                where id = {worker.worker_id}"""
        )
    assert (await sweep(harness.db, DAYS)).processes == 2
    names = [name for (name,) in await harness.rows("select name from cograil.processes order by id")]
    assert names == ["ticker", "late", "busy"], "tasks of the last were not rescued yet"
    await harness.cancel(job)


async def expired_records(harness: Harness, count: int) -> None:
    await harness.rows(
        f"""insert into cograil.idempotency (scope, key, fingerprint, fence, is_open, expires_at)
            select 'old', n::text, 'f', n, false, now() - interval '1 s' from generate_series(1, {count}) n"""
    )


async def records_left(harness: Harness) -> int:
    return int((await harness.rows("select count(*) from cograil.idempotency"))[0][0])


@pytest.mark.parametrize("days", [DAYS, 0])
async def test_all_expired_records_go_in_one_sweep(harness: Harness, days: float) -> None:
    """However many came in the minute since the last one; 0 days keep the jobs, not these."""
    await expired_records(harness, 2 * retention_sweep.BATCH_RECORDS + 7)
    async with harness.db.transaction("test") as tx:
        await idempotency.decide(tx, Key("default", "young", "k"), "f", idempotency.replay(60))
    assert (await sweep(harness.db, days)).records == 2 * retention_sweep.BATCH_RECORDS + 7
    assert await records_left(harness) == 1


async def test_a_sweep_stops_pruning_when_its_time_is_up(harness: Harness) -> None:
    await expired_records(harness, retention_sweep.BATCH_RECORDS + 1)
    assert (await sweep(harness.db, DAYS, seconds=0.0)).records == retention_sweep.BATCH_RECORDS
    assert await records_left(harness) == 1


async def test_each_batch_of_expired_records_is_a_transaction_of_its_own(
    harness: Harness, tmp_path: Path
) -> None:
    """So a sweep that is killed has to do little again, and nobody's row is locked for long."""
    await expired_records(harness, 2 * retention_sweep.BATCH_RECORDS)
    log = tmp_path / "points"
    fault_injection.record(str(log))
    try:
        await sweep(harness.db, 0)
    finally:
        fault_injection.record(None)
    points = log.read_text().split()
    pruned = [number for number, point in enumerate(points) if point == "retention.prune_records"]
    assert len(pruned) == 3
    assert all("retention.commit.after" in points[a:b] for a, b in pairwise(pruned))


async def test_buckets_that_are_full_again_go_with_a_sweep(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_sweep, "BATCH_BUCKETS", 2)
    async with harness.db.transaction("test") as tx:
        for number in range(5):
            await buckets.take(tx, f"quick-{number}", 1, 1e9)
        await buckets.take(tx, "slow", 1, 0.001)
    assert (await sweep(harness.db, DAYS)).buckets == 5
    assert await harness.rows("select name from cograil.buckets") == [("slow",)]
