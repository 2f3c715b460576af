"""Submit from SQL, inside the caller's own transaction."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.support.harness import Harness

from cograil.client import AsyncClient

HELLO = """
workflow_id: hello
timeout_seconds: 60
inputs: {name: {type: string, default: World}}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
ONE_AT_A_TIME = "workflow_id: single_file\nlimits: {concurrency: 1}\nnodes: {a: {handler: hello_world}}"


async def submit(harness: Harness, *arguments: str) -> str:
    return str((await harness.rows(f"select cograil.submit({', '.join(arguments)})"))[0][0])


async def test_a_job_from_sql_runs_like_any_other(harness: Harness) -> None:
    await harness.publish(HELLO)
    async with harness.running():
        job_id = await submit(harness, "'hello'", '\'{"name": "Ada"}\'', "priority => 3")
        job = await harness.ended(job_id)
    assert (job["status"], job["priority"]) == ("completed", 3)
    assert job["result"]["greet"] == {"message": "Hello, Ada!"}
    assert job["deadline"] is not None


async def test_defaults_are_applied_when_it_is_opened(harness: Harness) -> None:
    await harness.publish(HELLO)
    job_id = await submit(harness, "'hello'")
    assert (await harness.job(job_id))["status"] == "pending"
    async with harness.running():
        assert (await harness.ended(job_id))["input_params"] == {"name": "World"}


async def test_a_job_from_sql_is_there_with_the_callers_transaction_or_not_at_all(
    harness: Harness, dsn: str
) -> None:
    await harness.publish(HELLO)
    async with await psycopg.AsyncConnection.connect(dsn) as mine:
        await mine.execute("create table orders (id int)")
        await mine.commit()
        await mine.execute("insert into orders values (1)")
        await mine.execute("select cograil.submit('hello')")
        await mine.rollback()
        await mine.execute("insert into orders values (2)")
        await mine.execute("select cograil.submit('hello')")
        await mine.commit()
    assert await harness.rows("select id from orders") == [(2,)]
    assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]


async def test_an_input_that_does_not_fit_fails_the_job_and_says_why(harness: Harness) -> None:
    await harness.publish(HELLO)
    async with harness.running():
        job = await harness.ended(await submit(harness, "'hello'", "'{\"nam\": 1}'"))
    assert job["status"] == "failed"
    assert job["error"]["code"] == "invalid_input"
    assert job["error"]["details"][0]["pointer"] == "/input_params/nam"


async def test_limits_of_the_workflow_hold_it(harness: Harness) -> None:
    await harness.publish(ONE_AT_A_TIME)
    async with harness.running():
        ids = [await submit(harness, "'single_file'") for _ in range(5)]
        jobs = [await harness.ended(job_id) for job_id in ids]
    assert {job["status"] for job in jobs} == {"completed"}
    assert await harness.rows("select count(*) from cograil.admissions where admitted_at is null") == [(0,)]


async def test_the_same_key_gives_the_same_job(harness: Harness) -> None:
    await harness.publish(HELLO)
    first = await submit(harness, "'hello'", "idempotency_key => 'k'")
    again = await submit(harness, "'hello'", "idempotency_key => 'k'")
    assert first == again
    with pytest.raises(psycopg.errors.UniqueViolation, match="another request"):
        await submit(harness, "'hello'", '\'{"name": "x"}\'', "idempotency_key => 'k'")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["'nobody'"], psycopg.errors.NoDataFound),
        (["'hello'", "version => 9"], psycopg.errors.NoDataFound),
        (["'hello'", "'[]'"], psycopg.errors.InvalidParameterValue),
        (["'hello'", "null"], psycopg.errors.InvalidParameterValue),
        (["'hello'", "priority => 11"], psycopg.errors.InvalidParameterValue),
        (["'hello'", "priority => null"], psycopg.errors.InvalidParameterValue),
        (["'hello'", "idempotency_key => ''"], psycopg.errors.InvalidParameterValue),
    ],
)
async def test_an_invalid_submit_from_sql_is_refused_at_once(
    harness: Harness, arguments: list[str], error: Any
) -> None:
    await harness.publish(HELLO)
    with pytest.raises(error, match=r"cograil\.submit"):
        await submit(harness, *arguments)
    assert await harness.rows("select count(*) from cograil.jobs") == [(0,)]


async def test_an_application_needs_the_function_and_its_tenant_and_nothing_else(
    harness: Harness, dsn: str
) -> None:
    await harness.publish(HELLO)
    await harness.rows("drop role if exists app_of_a_user")
    await harness.rows("create role app_of_a_user")
    await harness.rows("grant usage on schema cograil to app_of_a_user")
    await harness.rows("grant execute on function cograil.submit to app_of_a_user")
    await harness.rows(
        "insert into cograil.submitters (role_name, tenant_id) values ('app_of_a_user', 'default')"
    )
    try:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
            await mine.execute("set role app_of_a_user")
            await mine.execute("select cograil.submit('hello')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await mine.execute("select * from cograil.jobs")
        assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]
    finally:
        await harness.rows("drop owned by app_of_a_user")
        await harness.rows("drop role app_of_a_user")


async def test_a_job_that_nobody_opened_yet_can_be_cancelled(harness: Harness) -> None:
    await harness.publish(HELLO)
    job_id = await submit(harness, "'hello'")
    await harness.cancel(job_id)
    assert (await harness.job(job_id))["status"] == "cancelled"


async def test_the_client_does_all_of_it_or_says_what_it_cannot_do(harness: Harness, dsn: str) -> None:
    await harness.publish(HELLO)
    facts: dict[str, Any] = {
        "priority": 3,
        "correlation_id": "c",
        "submitted_by": "ann",
        "labels": {"a": "b"},
    }
    facts |= {"version": 1, "not_before": "2027-01-01T00:00:00Z", "callback": {"url": "https://a.test/"}}
    odd: list[dict[str, Any]] = [{"bogus": 1}, {"wait": 5}, {"bogus": 1, "wait": 5}]
    connect = psycopg.AsyncConnection.connect
    async with AsyncClient("http://127.0.0.1:9") as cograil, await connect(dsn, autocommit=True) as mine:
        for options in odd:
            with pytest.raises(TypeError, match=r"submit takes no (bogus|wait)"):
                await cograil.submit("hello", connection=mine, **options)
        with pytest.raises(TypeError, match="takes no tenant"):
            await cograil.submit("hello", tenant="acme")
        await cograil.submit("hello", {"name": "x"}, connection=mine, idempotency_key="k", **facts)
    rows = await harness.rows(
        "select input, priority, correlation_id, submitted_by, labels, workflow_version, callback,"
        " not_before = '2027-01-01 00:00:00+00', idempotency_key, tenant_id from cograil.jobs"
    )
    written = (b'{"name": "x"}', 3, "c", "ann", b'{"a": "b"}', 1, b'{"url": "https://a.test/"}', True, "k")
    assert rows == [(*written, "default")]
