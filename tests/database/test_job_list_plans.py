"""Lists of jobs read few rows, however many there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.harness import Harness

from cograil.model.states import JOB_STATES
from cograil.store import gateway_queries, job_queries
from cograil.store.database import Transaction
from cograil.store.statements import Statement

HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"
OTHER = "workflow_id: other\nnodes: {greet: {handler: hello_world}}"
MANY = """
    insert into cograil.jobs (id, definition_id, workflow_id, workflow_version, status, input, finished_at)
    select gen_random_uuid(), definition_id, workflow_id, 1, 'completed', '{}', now()
    from cograil.jobs, generate_series(1, 5000) where workflow_id = 'hello'
"""
FILTERS: tuple[tuple[Sequence[str] | None, str | None, str | None], ...] = (
    (None, None, None),
    (["failed"], None, None),
    (["completed"], None, None),
    (["failed"], "hello", None),
    (["pending", "running"], "other", None),
    (None, "other", None),
    (["completed"], "other", None),
    (None, None, "nobody"),
    (["failed"], "hello", "nobody"),
    (["waiting"], None, None),
    (["waiting"], "hello", None),
    (["waiting", "running"], None, "nobody"),
)


class Done(Exception):
    """Nothing of it is kept."""


async def test_a_page_of_many_jobs_reads_few_of_them(harness: Harness) -> None:
    await harness.submit(OTHER)
    await harness.submit(HELLO)
    try:
        async with harness.db.transaction("plan") as tx:
            await tx.connection.execute(MANY)
            await tx.connection.execute("analyze cograil.jobs")
            read = {str(filters): await _blocks(tx, *filters) for filters in FILTERS}
            raise Done
    except Done:
        assert {filters: blocks for filters, blocks in read.items() if blocks >= 120} == {}


async def _blocks(
    tx: Transaction, statuses: Sequence[str] | None, workflow: str | None, correlation: str | None
) -> int:
    """How many blocks are read for a page of twenty."""
    explained = Statement("plan", f"explain (analyze, buffers, format json) {job_queries.LIST_JOBS.text}", "")
    rows = await tx.fetch(
        explained,
        tenant="default",
        index_name=job_queries.job_index(statuses, workflow, correlation),
        statuses=list(statuses or JOB_STATES),
        is_apart=True,
        workflow=workflow,
        correlation=correlation,
        before=job_queries.LAST_ID,
        max_bytes=2**62,
        limit=20,
    )
    plan: dict[str, Any] = json.loads(rows[0][0])[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


async def test_a_page_of_the_gateway_and_its_count_read_few_of_many_jobs(harness: Harness) -> None:
    await harness.submit(OTHER)
    await harness.submit(HELLO)
    try:
        async with harness.db.transaction("plan") as tx:
            await tx.connection.execute(MANY)
            await tx.connection.execute("analyze cograil.jobs")
            read = {}
            for statuses, workflow, correlation in FILTERS:
                if correlation is None:
                    page: dict[str, Any] = {"index_name": job_queries.job_index(statuses, workflow, None)}
                    page |= {
                        "tenant": "default",
                        "statuses": list(statuses or JOB_STATES),
                        "workflow": workflow,
                    }
                    page |= {"max_rows": 25, "limit": 20, "offset": 5}
                    read[str((statuses, workflow))] = await _read(tx, gateway_queries.PAGE_JOBS, **page)
            for workflow in (None, "hello", "other"):
                count = {"tenant": "default", "workflow": workflow, "statuses": list(JOB_STATES)}
                read[f"count {workflow}"] = await _read(tx, gateway_queries.COUNT_JOBS, **count, max_jobs=50)
                read[f"shown {workflow}"] = await _read(
                    tx, gateway_queries.COUNT_SHOWN_JOBS, **count, max_jobs=50
                )
            raise Done
    except Done:
        assert {name: blocks for name, blocks in read.items() if blocks >= 120} == {}


async def test_the_gateways_pages_and_counts_are_those_of_all_jobs(harness: Harness) -> None:
    ids = [*await harness.submit_many(HELLO, [{}] * 5), *await harness.submit_many(OTHER, [{}] * 4)]
    for job_id in ids[::2]:
        await harness.cancel(job_id)
    newest = sorted(ids, reverse=True)

    async def page(**facts: Any) -> list[str]:
        async with harness.db.transaction("test") as tx:
            return [job["job_id"] for job, _ in await gateway_queries.page_jobs(tx, "default", **facts)]

    assert await page(limit=4, offset=3) == newest[3:7]
    assert await page(limit=9, statuses=["cancelled"]) == sorted(ids[::2], reverse=True)
    assert await page(limit=2, offset=1, workflow="other") == sorted(ids[5:], reverse=True)[1:3]
    cancelled = [job_id for job_id in sorted(ids[:5], reverse=True) if job_id in ids[::2]]
    assert await page(limit=9, statuses=["cancelled"], workflow="hello") == cancelled
    assert await page(limit=9, offset=9) == []
    async with harness.db.transaction("test") as tx:
        every = await gateway_queries.count_jobs(tx, "default")
        assert (every.total(), every.total("cancelled"), every.truncated) == (9, 5, False)
        hello = await gateway_queries.count_jobs(tx, "default", "hello")
        assert (hello.total(), hello.total("cancelled"), hello.truncated) == (5, 3, False)
        some = await gateway_queries.count_jobs(tx, "default", max_jobs=4)
        assert (some.total("cancelled"), some.total("running"), some.truncated) == (4, 4, True)
        few = await gateway_queries.count_jobs(tx, "default", "hello", max_jobs=4)
        assert (few.total() <= 5, few.truncated) == (True, True)
        assert (await gateway_queries.count_jobs(tx, "other")).total() == 0


async def _read(tx: Transaction, query: Statement, **params: Any) -> int:
    """How many blocks this statement reads."""
    explained = Statement("plan", f"explain (analyze, buffers, format json) {query.text}", "")
    plan: dict[str, Any] = json.loads((await tx.fetch(explained, **params))[0][0])[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
