"""Jobs that ended long ago."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.harness import Harness
from tests.support.one_node import one

from cograil.store.retention_queries import first_id_at

DAYS = 30.0
TABLES_WITH_JOBS = """
select c.table_name from information_schema.columns c
join pg_class r on r.relname = c.table_name and r.relnamespace = 'cograil'::regnamespace
where c.table_schema = 'cograil' and c.column_name = 'job_id'
  and not r.relispartition and r.relkind in ('r', 'p')
"""


async def make_old(harness: Harness, ids: Sequence[str], days: float = DAYS + 1) -> list[str]:
    """As if these jobs had been made and had ended so long ago; their ids, which say when they were made."""
    tables = [table for (table,) in await harness.rows(TABLES_WITH_JOBS)]
    moved = []
    for job in ids:
        ((moment,),) = await harness.rows(f"select now() - interval '{days} days'")
        new = first_id_at(moment)[:18] + job[18:]
        moved.append(new)
        for table in tables:
            await harness.rows(f"update cograil.{table} set job_id = '{new}' where job_id = '{job}'")
        await harness.rows(
            f"""update cograil.jobs set id = '{new}', created_at = created_at - interval '{days} days',
                finished_at = finished_at - interval '{days} days' where id = '{job}'"""
        )
        for link in ("retry_of", "parent_job"):
            await harness.rows(f"update cograil.jobs set {link} = '{new}' where {link} = '{job}'")
    return moved


async def completed(harness: Harness, count: int = 1) -> list[str]:
    """Jobs that have ended just now."""
    ids = await harness.submit_many(one(), [{}] * count)
    worker = await harness.manual_worker()
    for item in await worker.claim(count):
        await worker.report(item, {})
    await harness.advance()
    return ids


async def all_jobs(harness: Harness) -> set[str]:
    return {job_id for (job_id,) in await harness.rows("select id::text from cograil.jobs")}
