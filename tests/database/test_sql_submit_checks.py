"""What a submit from SQL must not do: bring in what nobody can read, tell what was refused, cross tenants."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from json import dumps, loads
from typing import Any

import psycopg
import pytest
from tests.support.api_client import ApiClient
from tests.support.harness import Harness
from tests.support.webhook_receiver import open_receiver, relay_settings, run_relay

from cograil.errors import InvalidInput
from cograil.settings import Settings
from cograil.verbs import outbox
from cograil.verbs.callback_targets import Receiver

HELLO = """
workflow_id: hello
timeout_seconds: 60
inputs: {name: {type: array, default: []}}
nodes:
  greet: {handler: echo, params: {name: "{{ inputs.name }}"}}
"""
DEEP = "[" * 101 + "]" * 101
TIMES = ["'infinity'", "'-infinity'", "'10000-01-01'", "'4000-01-01 BC'", "'9999-12-31'", "'1969-12-31'"]
LABELS = [
    *("[1, 2]", '"x"', "5", "true", '{"a": {"b": 1}}', '{"a": 1}', '{"a": null}', '{"": "x"}'),
    *(
        '{"a": "\\n"}',
        '{"a\\u007f": ""}',
        dumps({"k" * 64: "x"}),
        dumps({"a": "\x85"}),
        dumps({"a": "v" * 256}),
    ),
    dumps({f"k{n}": "v" for n in range(65)}),
]
ODD_EVENTS: list[Any] = [5, "job.completed", {}, [1], [None]]
ODD_HEADERS: list[Any] = [5, "x", [], {"a": 1}]
CALLBACKS = [
    *('"x"', "5", "[]", "{}", '{"url": 5}', '{"url": null}', '{"url": "http://a.test/", "odd": 1}'),
    *[dumps({"url": "http://a.test/", "events": odd}) for odd in ODD_EVENTS],
    *[dumps({"url": "http://a.test/", "headers": odd}) for odd in ODD_HEADERS],
    *[dumps({"url": "http://a.test/", name: 5}) for name in ("style", "secret")],
    dumps({"url": "http://a.test/" + "x" * 70_000}),
]
INPUTS = [
    *("[]", "5", '"x"', "null", '{"name": 1e400}', '{"name": [{"a": -1e309}]}', f'{{"name": {DEEP}}}'),
    dumps({"name": ["x" * 1_048_576]}),
]
ODD = [
    *[f"not_before => {text}" for text in TIMES],
    *[f"labels => '{text}'" for text in LABELS],
    *[f"callback => '{text}'" for text in CALLBACKS],
    *[f"input => '{text}'" for text in INPUTS],
    *[
        f"{name} => {text}"
        for name in ("correlation_id", "submitted_by")
        for text in ("''", "repeat('x', 65)")
    ],
    *[f"{name} => E'a\\x1b[31m'" for name in ("correlation_id", "submitted_by")],
    *[f"{name} => E'a\\u2028'" for name in ("correlation_id", "submitted_by")],
    *[f"priority => {text}" for text in ("-1", "11", "2147483647", "null")],
    *[f"idempotency_key => {text}" for text in ("''", "repeat('x', 129)", "'a b'", "E'\\n'", "'é'")],
    *[f"tenant => {text}" for text in ("''", "'A'", "'a b'", "E'a\\n'", "'../x'", "repeat('a', 64)", "'é'")],
    "input => null",
]
FINE = [
    "not_before => now() - interval '1 day'",
    "labels => 'null', callback => 'null'",
    'labels => \'{"a": "", "b": "ü"}\'',
    "input => '{\"name\": [1e308, -1e308, 1e-400, 12345678901234567890123, null, true]}'",
    f"input => '{{\"name\": {DEEP[2:-2]}}}'",
    "tenant => null",
    "correlation_id => repeat('ü', 64)",
]


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


async def submit(harness: Harness, *arguments: str) -> str:
    return str((await harness.rows(f"select cograil.submit({', '.join(arguments)})"))[0][0])


@contextlib.asynccontextmanager
async def application(harness: Harness, dsn: str) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], str]]:
    """A connection of a role that may call the function, and its name."""
    role = f"app_{secrets.token_hex(4)}"
    await harness.rows(f"create role {role} login")
    await harness.rows(f"grant usage on schema cograil to {role}")
    await harness.rows(f"grant execute on function cograil.submit to {role}")
    try:
        async with await psycopg.AsyncConnection.connect(dsn, user=role, autocommit=True) as mine:
            yield mine, role
    finally:
        await harness.rows(f"drop owned by {role}")
        await harness.rows(f"drop role {role}")


# -- what is given ---------------------------------------------------------------------------------------


async def test_unreadable_input_from_sql_is_refused_at_once_and_leaves_nothing(harness: Harness) -> None:
    await harness.publish(HELLO)
    taken = []
    for odd in ODD:
        with contextlib.suppress(psycopg.errors.InvalidParameterValue, psycopg.errors.DatetimeFieldOverflow):
            await submit(harness, "'hello'", odd)
            taken.append(odd[:80])
    assert taken == []
    for unknown in ("null", "''", "repeat('x', 100000)"):
        with pytest.raises(psycopg.Error, match=r"cograil\.submit") as refused:
            await submit(harness, unknown)
        assert len(str(refused.value)) < 500
    with pytest.raises(psycopg.errors.NoDataFound):
        await submit(harness, "'hello'", "version => 0")
    for table in ("jobs", "inbox", "audit_log", "idempotency"):
        assert await harness.rows(f"select count(*) from cograil.{table}") == [(0,)], table


async def test_readable_input_from_sql_runs(harness: Harness) -> None:
    await harness.publish(HELLO)
    async with harness.running():
        for fine in FINE:
            job = await harness.ended(await submit(harness, "'hello'", fine))
            assert job["status"] == "completed", (fine, job["error"])


async def test_no_table_takes_a_time_that_nobody_can_read(harness: Harness) -> None:
    job_id = await harness.submit("workflow_id: w\nnodes: {a: {handler: echo}}")
    for odd in ("infinity", "-infinity", "10000-01-01", "9999-12-31 23:59:59+00"):
        with pytest.raises(psycopg.errors.CheckViolation):
            await harness.rows(
                "update cograil.jobs set not_before = %(odd)s where id = %(id)s", odd=odd, id=job_id
            )


async def test_the_same_moment_in_another_zone_is_the_same_request(harness: Harness, dsn: str) -> None:
    await harness.publish(HELLO)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
        query = (
            "select cograil.submit('hello', idempotency_key => 'k', not_before => '2027-01-01 00:00:00+00')"
        )
        ids = []
        for zone in ("UTC", "Asia/Tokyo"):
            await mine.execute(f"set timezone = '{zone}'".encode())
            ids.append(await (await mine.execute(query.encode())).fetchone())
    assert ids[0] == ids[1]


LET_IN = [
    ("labels", "[1, 2]", "/labels"),
    ("labels", '{"a": {"b": 1}}', "/labels"),
    ("callback", '"x"', "/callback/url"),
    ("callback", '{"url": "http://a.test/", "events": 5}', "/callback/events"),
    ("callback", '{"url": "http://a.test/", "events": [1e400]}', "/callback"),
    ("input", '{"name": 1e400}', "/input"),
    ("input", f'{{"name": {"[" * 1500 + "]" * 1500}}}', "/input"),
    ("not_before", "9999-01-01", "/not_before"),
]


async def test_unreadable_input_from_an_older_function_fails_its_own_job_only(harness: Harness) -> None:
    await harness.publish(HELLO)
    odd = [await submit(harness, "'hello'") for _ in LET_IN]
    for job_id, (column, text, _) in zip(odd, LET_IN, strict=True):
        await harness.rows(
            f"update cograil.jobs set {column} = %(text)s where id = %(id)s", text=text, id=job_id
        )
    fine = await submit(harness, "'hello'")
    async with harness.running():
        assert (await harness.ended(fine))["status"] == "completed"
    for job_id, (_, text, pointer) in zip(odd, LET_IN, strict=True):
        error = await error_of(harness, job_id)
        assert (error["code"], error["details"][0]["pointer"]) == ("invalid_input", pointer), text[:80]
    assert await harness.rows("select count(*) from cograil.outbox") == [(0,)]
    await harness.rows("update cograil.jobs set input = '{}'")


async def error_of(harness: Harness, job_id: str) -> dict[str, Any]:
    """Without the input, which may be what cannot be read."""
    query = "select status, error::text from cograil.jobs where id = %(id)s"
    ((status, error),) = await harness.rows(query, id=job_id)
    assert status == "failed"
    content: dict[str, Any] = loads(error)
    return content


async def test_a_job_that_cannot_be_read_does_not_hold_up_the_others(
    harness: Harness, eventually: Any
) -> None:
    await harness.publish(HELLO)
    first = await submit(harness, "'hello'")
    await harness.rows("update cograil.jobs set deadline = 'infinity'")
    async with harness.running():
        others = [await submit(harness, "'hello'") for _ in range(3)]
        for job_id in others:
            assert (await harness.ended(job_id))["status"] == "completed"
    await harness.rows("update cograil.jobs set deadline = null where id = %(id)s", id=first)
    async with harness.running():
        assert (await harness.ended(first))["status"] == "completed"


# -- what is told ----------------------------------------------------------------------------------------


async def test_a_callback_that_may_not_be_fails_the_job_and_hears_nothing(
    harness: Harness, eventually: Any
) -> None:
    await harness.publish(HELLO)
    async with open_receiver() as wanted, open_receiver() as unwanted, harness.running(), run_relay(harness):
        async with harness.db.transaction("test") as tx:
            await outbox.subscribe(tx, "default", Receiver(wanted.url), harness.settings.outbound)
        job_id = await submit(harness, "'hello'", f'callback => \'{{"url": "{unwanted.url}"}}\'')
        job = await harness.ended(job_id)
        await eventually(lambda: "cograil.job.failed" in wanted.types())
    assert (job["error"]["code"], job["error"]["details"][0]["code"]) == (
        "invalid_input",
        "callback_blocked_address",
    )
    assert unwanted.requests == []
    assert await harness.rows("select count(*) from cograil.deliveries where destination = 'callback'") == [
        (0,)
    ]
    with pytest.raises(InvalidInput, match="not a public address"):
        await harness.retry(job_id)


async def test_a_job_whose_input_did_not_fit_is_not_retried_as_it_is(harness: Harness) -> None:
    await harness.publish(HELLO)
    async with harness.running():
        job = await harness.ended(await submit(harness, "'hello'", "'{\"nam\": 1}'"))
        with pytest.raises(InvalidInput, match="nam"):
            await harness.retry(job["job_id"])


POISON = [
    ('{"url": "http://127.0.0.1:9/x", "events": 5}', "events of a callback must be a list"),
    ('"x"', "a callback must be an object with a url"),
    ('{"url": {"a": 1}}', "a callback must be an object with a url"),
    ('{"url": "http://127.0.0.1:9/x", "events": [{}]}', "TypeError"),
    ('{"url": "http://127.0.0.1:9/x", "events": [1e400]}', "JSONDecodeError"),
    ('{"url": "http://127.0.0.1:9/x", "headers": [[]]}', "headers an object"),
]


async def test_a_relay_sets_aside_what_it_cannot_tell_and_tells_the_rest(
    harness: Harness, eventually: Any
) -> None:
    harness.engine_context.outbound = harness.settings.outbound
    set_callback = "update cograil.jobs set callback = %(odd)s where id = %(id)s"
    async with open_receiver() as receiver, harness.running():
        async with harness.db.transaction("test") as tx:
            await outbox.subscribe(tx, "default", Receiver(receiver.url), harness.settings.outbound)
        ids = [await harness.submit(HELLO, callback=receiver.callback()) for _ in (*POISON, "fine")]
        for job_id in ids:
            await harness.ended(job_id)
        for job_id, (odd, _) in zip(ids, POISON, strict=False):
            await harness.rows(set_callback, odd=odd, id=job_id)
        async with run_relay(harness):  # which tells the subscriber of all, and one callback
            await eventually(lambda: len(receiver.requests) == 3 * len(ids) + 3)
    async with harness.db.transaction("test") as tx:
        dead = await outbox.list_deliveries(tx, "default", state="dead")
    assert {delivery["destination"] for delivery in dead} == {"callback"}
    for job_id, (odd, reason) in zip(ids, POISON, strict=False):
        errors = [delivery["last_error"] for delivery in dead if delivery["job_id"] == job_id]
        assert [reason in error for error in errors] == [True] * 3, (odd, errors)
    assert len(dead) == 3 * len(POISON)


async def test_a_row_of_the_outbox_that_cannot_even_be_read_is_set_aside(
    harness: Harness, eventually: Any
) -> None:
    harness.engine_context.outbound = harness.settings.outbound
    async with open_receiver() as receiver, harness.running():
        poisoned, fine = [await harness.submit(HELLO, callback=receiver.callback()) for _ in range(2)]
        await harness.ended(poisoned)
        await harness.ended(fine)
        await harness.rows("update cograil.jobs set created_at = 'infinity' where id = %(id)s", id=poisoned)
        async with run_relay(harness) as relay:
            await eventually(lambda: len(receiver.requests) == 3)
            assert relay.is_ready
    assert {request.event["subject"] for request in receiver.requests} == {fine}
    async with harness.db.transaction("test") as tx:
        dead = await outbox.list_deliveries(tx, "default", state="dead")
        assert [(delivery["job_id"], delivery["type"]) for delivery in reversed(dead)] == [
            (poisoned, f"cograil.job.{what}") for what in ("created", "started", "completed")
        ]
        assert "timestamp too large" in dead[0]["last_error"]
        await outbox.resend(tx, "default", dead[0]["delivery_id"])
    async with run_relay(harness):
        await eventually(lambda: again_dead(harness))
    assert len(receiver.requests) == 3
    await harness.rows("delete from cograil.jobs where id = %(id)s", id=poisoned)
    for table in ("nodes", "events"):
        await harness.rows(f"delete from cograil.{table} where job_id = %(id)s", id=poisoned)


async def again_dead(harness: Harness) -> bool:
    query = "select count(*) from cograil.deliveries where state = 'dead' and last_error like 'blocked%%'"
    return await harness.rows(query) == [(1,)]


# -- whose it is -----------------------------------------------------------------------------------------


async def test_a_role_submits_to_the_tenants_it_was_given_and_to_no_others(
    harness: Harness, dsn: str
) -> None:
    await harness.publish(HELLO)
    await harness.rows("update cograil.workflows set tenant_id = 'acme'")
    async with application(harness, dsn) as (mine, role):
        for tenant in ("acme", "default", "nobody"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'"{role}" may not .* "{tenant}"'):
                await mine.execute("select cograil.submit('hello', tenant => %s)", [tenant])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await mine.execute("insert into cograil.submitters values (current_user, 'acme')")
        await harness.rows(f"insert into cograil.submitters (role_name, tenant_id) values ('{role}', 'acme')")
        await mine.execute("select cograil.submit('hello', tenant => 'acme')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await mine.execute("select cograil.submit('hello')")
        for table in ("jobs", "submitters", "audit_log"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await mine.execute(f"select * from cograil.{table}".encode())
        for name in ("may_submit('x', 'y')", "acting_role()", "flaw_in_input('{}')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await mine.execute(f"select cograil.{name}".encode())
    assert await harness.rows("select tenant_id from cograil.jobs") == [("acme",)]


async def test_members_of_a_group_have_the_rights_of_the_group(harness: Harness, dsn: str) -> None:
    await harness.publish(HELLO)
    group = f"shops_{secrets.token_hex(4)}"
    await harness.rows(f"create role {group}")
    try:
        await harness.rows(f"insert into cograil.submitters (role_name) values ('{group}')")
        async with application(harness, dsn) as (mine, role):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await mine.execute("select cograil.submit('hello')")
            await harness.rows(f"grant {group} to {role}")
            await mine.execute("select cograil.submit('hello')")
    finally:
        await harness.rows(f"drop role {group}")


async def test_a_session_in_a_smaller_role_may_no_more_than_that_role(harness: Harness, dsn: str) -> None:
    await harness.publish(HELLO)
    connect = psycopg.AsyncConnection.connect
    async with application(harness, dsn) as (_, role), await connect(dsn, autocommit=True) as admin:
        await admin.execute("select cograil.submit('hello')")
        await admin.execute(f"set role {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=role):
            await admin.execute("select cograil.submit('hello')")


async def test_a_session_of_a_tenant_submits_to_that_tenant(harness: Harness, dsn: str) -> None:
    await harness.publish(HELLO)
    await harness.rows("update cograil.workflows set tenant_id = 'acme'")
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
        await mine.execute("set cograil.tenant = 'acme'")
        await mine.execute("select cograil.submit('hello')")
        await mine.execute("select cograil.submit('hello', tenant => 'acme')")
        with pytest.raises(
            psycopg.errors.InsufficientPrivilege, match='of the tenant "acme", not of "default"'
        ):
            await mine.execute("select cograil.submit('hello', tenant => 'default')")
    assert await harness.rows("select distinct tenant_id from cograil.jobs") == [("acme",)]


async def test_the_audit_log_says_who_submitted(api: ApiClient, dsn: str) -> None:
    harness = api.harness
    await harness.publish(HELLO)
    async with application(harness, dsn) as (mine, role):
        await harness.rows(f"insert into cograil.submitters (role_name) values ('{role}')")
        async with mine.transaction(force_rollback=True):
            await mine.execute("select cograil.submit('hello')")
        cursor = await mine.execute("select cograil.submit('hello', idempotency_key => 'k')")
        ((job_id,),) = await cursor.fetchall()
        await mine.execute("select cograil.submit('hello', idempotency_key => 'k')")
    (entry,) = (await api.get("/api/v1/audit")).body["entries"]
    assert (entry["action"], entry["target"], entry["role"]) == ("submit", str(job_id), "sql")
    assert entry["data"] == {"session_user": role, "role": role}
