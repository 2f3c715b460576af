"""A process that begins while its database is slow or full waits; where there is none it says so at once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
import structlog.testing
from psycopg import AsyncConnection
from tests.support.harness import Harness

from cograil import fault_injection
from cograil.errors import DatabaseUnavailable, SchemaMismatch
from cograil.processes import standalone
from cograil.processes.api_server import open_api
from cograil.settings import Settings
from cograil.store import connect_retry, database

FIRST_OF_A_PART = ("check.commit.after", "schema.commit.after")
FIRST_OF_A_SERVER = (
    "doors.role_privileges",
    "doors.find_secret",
    "doors.commit.before",
    "doors.commit.after",
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(connect_retry, "RETRY_SECONDS", 0.01)
    yield
    fault_injection.arm(None)


async def open_part(dsn: str, settings: Settings) -> None:
    settings = settings.model_copy(update={"database": settings.database.model_copy(update={"url": dsn})})
    async with standalone._checked_database(settings, "cograil orchestrator"):
        pass


async def open_server(dsn: str, settings: Settings) -> None:
    async with open_api(dsn, settings):
        pass


Opening = Callable[[str, Settings], Awaitable[None]]
POINTS = [(open_part, point) for point in FIRST_OF_A_PART]
POINTS += [(open_server, point) for point in FIRST_OF_A_SERVER]


@pytest.mark.parametrize(("begin", "point"), POINTS)
async def test_a_first_look_that_breaks_off_is_taken_again(
    harness: Harness, dsn: str, begin: Opening, point: str
) -> None:
    fault_injection.arm(f"{point}:1:raise")
    with structlog.testing.capture_logs() as logs:
        await begin(dsn, harness.settings)
    assert [line["event"] for line in logs].count("cannot query the database, trying again") == 1


async def test_a_server_that_is_slow_in_its_first_transaction_begins_again(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that stalls: the database takes the session away meanwhile."""
    real, looks = database._begin, 0

    async def cut_once(connection: AsyncConnection[database.Row], words: bytes) -> object:
        nonlocal looks
        looks += 1
        now = await real(connection, words)
        if looks == 1:
            pid = connection.info.backend_pid
            await harness.rows("select pg_terminate_backend(%(pid)s, 1000)", pid=pid)
        return now

    monkeypatch.setattr(database, "_begin", cut_once)
    await open_server(dsn, harness.settings)
    assert looks >= 2


@pytest.mark.parametrize("begin", [open_part, open_server])
@pytest.mark.parametrize("message", ["FATAL:  sorry, too many clients already", "connection timeout expired"])
async def test_a_database_that_has_no_room_yet_is_waited_for(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch, begin: Opening, message: str
) -> None:
    real, tries = database.connect, 0

    async def full_at_first(*args: object, **more: bool) -> object:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise DatabaseUnavailable(f"cannot connect to PostgreSQL: {message}")
        return await real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "connect", full_at_first)
    await begin(dsn, harness.settings)
    assert tries == 3


@pytest.mark.parametrize("begin", [open_part, open_server])
async def test_where_nobody_answers_that_is_said_at_once(harness: Harness, begin: Opening) -> None:
    begun = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="cannot connect"):
        await begin("host=127.0.0.1 port=1", harness.settings)
    assert time.monotonic() - begun < connect_retry.PATIENCE_SECONDS / 2


async def test_nobody_waits_for_ever(harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_retry, "PATIENCE_SECONDS", 0.1)

    async def broken(*_: object) -> None:
        raise DatabaseUnavailable("no connection to PostgreSQL within 15 s")

    monkeypatch.setattr(database, "_begin", broken)
    with pytest.raises(DatabaseUnavailable, match="within 15 s"):
        await open_server(dsn, harness.settings)


async def test_errors_that_waiting_does_not_mend_are_raised_at_once(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def other(_: object) -> None:
        raise SchemaMismatch("the database has another schema")

    monkeypatch.setattr(standalone, "check_schema", other)
    with pytest.raises(SchemaMismatch):
        await open_part(dsn, harness.settings)
