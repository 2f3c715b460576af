"""Who owns the tables, and what a role sees that does not."""

from __future__ import annotations

import secrets

import psycopg
import pytest
from tests.support.harness import Harness
from tests.support.schemas import APPS

OURS = """
pg_class c join pg_namespace n on n.oid = c.relnamespace and c.relkind in ('r', 'p')
and n.nspname <> 'information_schema' and n.nspname not like 'pg\\_%'
"""
CHAIN = "workflow_id: w\nnodes:\n  a: {handler: echo}\n"


async def test_the_engine_role_owns_every_table_and_no_tenant_sees_another(harness: Harness) -> None:
    owners = await harness.rows(
        f"select distinct n.nspname, r.rolname from {OURS} join pg_roles r on r.oid = c.relowner order by 1"
    )
    schemas = ["cograil", *(f"cograil_{app}" for app in APPS), "vault_secure"]
    assert owners == [(schema, "cograil_engine") for schema in schemas]
    unguarded = await harness.rows(f"select n.nspname, c.relname from {OURS} where not c.relrowsecurity")
    assert sorted(unguarded) == [(schema, "schema_migrations") for schema in schemas[:-1]]


async def test_a_door_sees_the_jobs_of_its_tenant_only(harness: Harness) -> None:
    job = await harness.submit(CHAIN)
    door = f"door_{secrets.token_hex(4)}"
    await harness.rows(f"create role {door} nologin")
    try:
        await harness.rows(f"grant usage on schema cograil to {door}")
        await harness.rows(f"grant select on all tables in schema cograil to {door}")
        async with harness.db.transaction("test") as tx:
            run = tx.connection.execute
            await run(f"set local role {door}".encode())
            assert await (await run("select id from cograil.jobs")).fetchall() == []
            assert await (await run("select job_id from cograil.nodes_default")).fetchall() == []
            await run("select set_config('cograil.tenant', 'other', true)")
            assert await (await run("select id from cograil.jobs")).fetchall() == []
            await run("select set_config('cograil.tenant', 'default', true)")
            assert [
                str(job_id) for (job_id,) in await (await run("select id from cograil.jobs")).fetchall()
            ] == [job]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await run("delete from cograil.jobs")
            await run("rollback")
            await run("begin")
    finally:
        await harness.rows(f"drop owned by {door}")
        await harness.rows(f"drop role {door}")


async def test_the_gateway_reads_jobs_without_their_callbacks(harness: Harness) -> None:
    """There are secrets in them."""
    query = """
        select has_column_privilege('cograil_gateway', 'cograil.jobs', name, 'select')
        from unnest(array['callback', 'status']) as name"""
    assert await harness.rows(query) == [(False,), (True,)]
