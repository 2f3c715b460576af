"""Somebody else's transaction that stays open: nothing that is deleted can be cleared away meanwhile."""

from __future__ import annotations

import psycopg
from lab import Lab

from cograil.store.statements import statement

CHAIN = """
workflow_id: chain
nodes:
  first: {handler: hello_world, params: {name: x}, next: second}
  second: {handler: hello_world, params: {name: "{{ nodes.first.output.message }}"}}
"""


async def test_jobs_complete_beside_an_old_snapshot_and_the_doctor_names_who_holds_it(
    lab: Lab, dsn: str
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as lunch:
        await lunch.execute("begin isolation level repeatable read")
        seen = await (await lunch.execute("select count(*) from cograil.jobs")).fetchone()
        async with lab.running():
            jobs = await lab.submit_many(CHAIN, [{}] * 100)
            for job_id in jobs:
                assert (await lab.ended(job_id))["status"] == "completed"
        text = statement("doctor_idle_transactions").text
        found = await lab.rows(text, grace=0)
        assert any(str(lunch.info.backend_pid) in str(row) for row in found)
        assert await (await lunch.execute("select count(*) from cograil.jobs")).fetchone() == seen
        await lunch.execute("rollback")
