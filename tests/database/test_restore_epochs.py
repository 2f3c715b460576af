"""After a restore to an earlier moment: numbers and fences that workers may hold are not handed out again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.harness import Harness, ManualWorker

from cograil.errors import SchemaMismatch
from cograil.store.database import connect
from cograil.store.epochs import begin_epoch

ONE = "workflow_id: one\nnodes:\n  only: {handler: x}\n"
SAVED = ("tasks", "processes", "jobs", "nodes", "events", "inbox")


async def restore(harness: Harness, saved: dict[str, int]) -> None:
    """Set the database back to when nothing was in it; the sequences begin where they were."""
    for table in SAVED:
        await harness.rows(f"delete from cograil.{table} returning 1")
    for table, last in saved.items():
        await harness.rows(f"select setval(pg_get_serial_sequence('cograil.{table}', 'id'), {last})")


async def sequences(harness: Harness) -> dict[str, int]:
    last_values = {}
    for table in ("tasks", "processes"):
        ((last,),) = await harness.rows(f"select nextval(pg_get_serial_sequence('cograil.{table}', 'id'))")
        last_values[table] = last
    return last_values


async def old_and_new(
    harness: Harness, *, has_epoch: bool
) -> tuple[tuple[ManualWorker, Any], tuple[ManualWorker, Any]]:
    """A worker with a task from before the restore, and one with the first task after it."""
    saved = await sequences(harness)
    await harness.submit(ONE)
    old = await harness.manual_worker("old")
    was = await old.claim_one()
    await restore(harness, saved)
    if has_epoch:
        async with await connect(harness.db.conninfo) as connection:
            assert await begin_epoch(connection) == 2
    await harness.submit(ONE)
    new = await harness.manual_worker("new")
    return (old, was), (new, await new.claim_one())


async def test_without_a_new_epoch_the_same_numbers_come_again(harness: Harness) -> None:
    (old, was), (new, item) = await old_and_new(harness, has_epoch=False)
    assert (old.worker_id, was.task_id, was.fence) == (new.worker_id, item.task_id, item.fence)


async def test_a_task_claimed_before_a_restore_is_late(harness: Harness) -> None:
    (old, was), (new, item) = await old_and_new(harness, has_epoch=True)
    assert old.worker_id != new.worker_id
    assert was.task_id != item.task_id
    assert not (await old.heartbeat()).is_alive
    assert not await old.report(was, {"from": "before"})
    assert await new.report(item, {"from": "after"})
    await harness.advance()
    assert (await harness.job(item.job_id))["result"]["only"] == {"from": "after"}


async def test_a_task_that_was_not_claimed_yet_gets_another_fence(harness: Harness) -> None:
    """The same worker claims it after the restore as before it."""
    await harness.submit(ONE)
    worker = await harness.manual_worker()
    was = await worker.claim_one()
    await harness.rows(
        "update cograil.tasks set state = 'ready', worker_id = null, fence = fence - 1 returning 1"
    )
    async with await connect(harness.db.conninfo) as connection:
        await begin_epoch(connection)
    item = await worker.claim_one()
    assert (item.task_id, item.fence > was.fence) == (was.task_id, True)
    assert not await worker.report(was, {})
    assert await worker.report(item, {})


async def test_the_same_dump_restored_twice_gives_other_numbers(harness: Harness) -> None:
    await harness.submit(ONE)
    saved = await sequences(harness)
    numbers, fences = set(), set()
    for _ in range(2):
        for table, last in saved.items():
            await harness.rows(f"select setval(pg_get_serial_sequence('cograil.{table}', 'id'), {last})")
        await harness.rows("update cograil.tasks set fence = 0 returning 1")
        async with await connect(harness.db.conninfo) as connection:
            await begin_epoch(connection)
        numbers.add((await sequences(harness))["tasks"])
        fences |= {fence for (fence,) in await harness.rows("select fence from cograil.tasks")}
    assert (len(numbers), len(fences)) == (2, 2)


async def test_a_task_that_ran_when_the_dump_was_made_is_lost(harness: Harness) -> None:
    await harness.submit(ONE)
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    async with await connect(harness.db.conninfo) as connection:
        await begin_epoch(connection)
    assert not await worker.report(item, {})


async def test_running_tasks_go_on_after_a_promotion(harness: Harness) -> None:
    """A promotion that lost nothing costs nobody an attempt."""
    await harness.submit(ONE)
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    await harness.rows("select cograil.new_epoch(false)")
    assert (await worker.heartbeat()).task_ids == {item.task_id}
    assert await worker.report(item, {})


async def test_an_orchestrator_sees_that_the_timeline_is_another(harness: Harness) -> None:
    assert (await harness.tick()).epoch == 1
    assert (await harness.tick()).epoch == 1
    await harness.rows(
        "update cograil.server set identity = split_part(identity, '/', 1) || '/0000000F' returning 1"
    )
    assert (await harness.tick()).epoch == 2
    assert (await harness.tick()).epoch == 2


async def test_a_schema_without_epochs_is_told(harness: Harness) -> None:
    async with await connect(harness.db.conninfo) as connection:
        await connection.execute("alter function cograil.new_epoch(boolean) rename to was_epoch")
        with pytest.raises(SchemaMismatch, match="cograil db migrate"):
            await begin_epoch(connection)
        await connection.execute("alter function cograil.was_epoch(boolean) rename to new_epoch")
