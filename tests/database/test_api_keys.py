"""Who may come in. What they may do there, and see: test_api_access_matrix.py."""

from __future__ import annotations

import secrets
from pathlib import Path

import psycopg
import pytest
from tests.support.api_client import ApiClient, serve_api
from tests.support.harness import Harness, quick_settings

from cograil.errors import UnsafeDatabase, UsageError
from cograil.http.server.application import open_api_context
from cograil.http.server.routing import Router
from cograil.processes.api_server import open_api
from cograil.settings import ServerSettings
from cograil.store.database import Database

HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"


async def test_without_keys_anybody_is_admin(api: ApiClient) -> None:
    assert (await api.get("/api/v1/jobs")).status == 200


async def test_the_first_key_closes_the_door(api: ApiClient) -> None:
    key = await api.make_key("viewer")
    assert (await api.get("/api/v1/jobs", key=key)).status == 200
    closed = await api.get("/api/v1/jobs")
    assert (closed.status, closed.code) == (401, "unauthenticated")
    assert closed.headers["www-authenticate"].startswith("Bearer")


async def test_wrong_keys_are_all_refused_alike(api: ApiClient) -> None:
    """B144 and B145."""
    key = await api.make_key("admin")
    _, key_id, secret = key.split("_", 2)
    expired = await api.make_key("admin")
    await api.harness.rows(f"update cograil.keys set expires_at = now() where id = '{expired.split('_')[1]}'")
    wrong = [f"cog_{key_id}_x", f"cog_{'a' * 16}_{secret}", key + "x", key[:-1], expired]
    wrong += ["nonsense", "cog__", "é"]
    bodies = set()
    for text in wrong:
        answer = await api.get("/api/v1/jobs", key=text)
        assert answer.status == 401, text
        bodies.add(str(answer.body | {"request_id": ""}))
    assert len(bodies) == 1
    for headers in ({"authorization": f"Basic {key}"}, {"authorization": key}):
        assert (await api.get("/api/v1/jobs", headers=headers)).status == 401
    assert (await api.get("/api/v1/jobs", headers={"authorization": f"bEaReR {key}"})).status == 200
    assert (await api.get(f"/api/v1/jobs?key={key}")).status == 401


async def test_guessing_is_slowed_down(api: ApiClient) -> None:
    """B146."""
    await api.make_key("admin")
    answers = [await api.get("/api/v1/jobs", key="cog_a_b") for _ in range(22)]
    assert [answer.status for answer in answers[:20]] == [401] * 20
    assert (answers[-1].status, answers[-1].headers["retry-after"]) == (429, "60")


async def test_a_revoked_key_is_refused_within_seconds(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cograil.http.auth.authentication.KNOWN_SECONDS", 0.0)
    key = await api.make_key("viewer")
    assert (await api.get("/api/v1/jobs", key=key)).status == 200
    await api.harness.rows("update cograil.keys set revoked_at = now()")
    other = await api.make_key("viewer")
    assert (await api.get("/api/v1/jobs", key=key)).status == 401
    assert (await api.get("/api/v1/jobs", key=other)).status == 200


async def test_no_secret_is_in_the_database(api: ApiClient) -> None:
    key = await api.make_key("admin")
    dumped = str(await api.harness.rows("select k::text from cograil.keys k"))
    assert key.split("_", 2)[2] not in dumped
    assert key.split("_", 2)[1] in dumped


async def test_the_database_alone_keeps_tenants_apart(api: ApiClient) -> None:
    """As if the code had forgotten to ask for the tenant: row-level security shows one tenant, or none."""
    await api.post("/api/v1/workflows", {"source": HELLO})
    await api.submit("hello")
    for tenant, count in (("default", 1), ("acme", 0)):
        async with api.context.db.transaction("show", tenant=tenant) as tx:
            cursor = await tx.connection.execute("select count(*) from cograil.jobs")
            assert await cursor.fetchone() == (count,)
    async with api.context.db.transaction("show") as tx:
        cursor = await tx.connection.execute("select count(*) from cograil.jobs")
        assert await cursor.fetchone() == (0,)


async def test_no_row_can_be_put_under_another_tenant(api: ApiClient) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        async with api.context.db.transaction("show", tenant="acme") as tx:
            await tx.connection.execute(
                "insert into cograil.pauses (tenant_id, kind, name) values ('globex', 'queue', 'q')"
            )


async def test_the_role_of_the_server_may_use_every_table_it_needs(api: ApiClient) -> None:
    """A table that was made later and granted to nobody would answer with a 500.

    Neither which roles may submit from SQL nor what orchestrators saw of the server concerns it.
    """
    rows = await api.harness.rows(
        "select c.relname from pg_class c where c.relnamespace = 'cograil'::regnamespace"
        " and c.relkind in ('r', 'p') and not c.relispartition"
        " and not has_table_privilege('cograil_server', c.oid, 'select')"
    )
    assert sorted(rows) == [("server",), ("submitters",)]


async def test_a_door_with_too_much_power_does_not_open(harness: Harness) -> None:
    with pytest.raises(UnsafeDatabase, match="is a superuser"):
        async with open_api_context(harness.db, harness.engine_context, harness.settings):
            pass


@pytest.mark.parametrize(
    ("power", "named"),
    [
        ("alter role {door} bypassrls", "bypasses row-level security"),
        ("grant cograil_engine to {door}", "owns a table of cograil"),
        ("alter table cograil.jobs owner to {door}", "owns a table of cograil"),
        ("alter table cograil.audit_log owner to {door}", "owns a table of cograil"),
        ("alter table vault_secure.capture_events owner to {door}", "owns a table of cograil"),
    ],
)
async def test_a_door_in_a_role_that_policies_do_not_bind_does_not_open(
    harness: Harness, dsn: str, power: str, named: str
) -> None:
    door = f"door_{secrets.token_hex(4)}"
    await harness.rows(f"create role {door} nologin")
    try:
        await harness.rows(f"grant cograil_server to {door}")

        async def opens() -> None:
            async with (
                Database(dsn, harness.settings.database, role=door) as db,
                open_api_context(db, harness.engine_context, harness.settings),
            ):
                pass

        await opens()
        await harness.rows(power.format(door=door))
        with pytest.raises(UnsafeDatabase, match=named):
            await opens()
    finally:
        await harness.rows(f"reassign owned by {door} to cograil_engine")
        await harness.rows(f"drop owned by {door}")
        await harness.rows(f"drop role {door}")


async def test_a_door_without_keys_opens_on_loopback_only(harness: Harness, dsn: str) -> None:
    outside = harness.settings.model_copy(update={"host": "0.0.0.0"})
    with pytest.raises(UsageError, match="cograil keys create"):
        async with open_api(dsn, outside):
            pass


async def test_the_key_in_a_file_is_an_admins(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret-of-the-file\n")
    settings = quick_settings().model_copy(update={"server": ServerSettings(key_file=file)})
    from tests.support.harness import open_harness

    async with open_harness(dsn, settings) as harness, serve_api(harness, dsn) as api:
        assert (await api.get("/api/v1/jobs")).status == 401
        assert (await api.get("/api/v1/jobs", key="s3cret-of-the-file")).status == 200
        assert (await api.get("/api/v1/jobs", key="s3cret")).status == 401
        assert (await api.get("/livez")).status == 200


def test_a_route_that_names_no_role_cannot_be_declared() -> None:
    with pytest.raises(ValueError, match="must name the roles"):
        Router("x").get("/open")
