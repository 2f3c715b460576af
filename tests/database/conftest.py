"""The harness of a test, and what must hold when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.api_client import ApiClient, serve_api
from tests.support.harness import Harness, open_harness

from cograil.settings import Settings

OPEN_TRANSACTIONS = """
select application_name, state, query from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
  and backend_type = 'client backend'
"""


@pytest.fixture
def harness_settings() -> Settings | None:
    """A test module that wants other settings overrides this."""
    return None


@pytest_asyncio.fixture
async def harness(dsn: str, harness_settings: Settings | None) -> AsyncIterator[Harness]:
    """An engine on a database of its own.

    When the test is over every invariant of the doctor holds, no transaction is open and no task runs.
    """
    async with open_harness(dsn, harness_settings) as harness:
        yield harness
        assert [str(finding) for finding in await harness.findings()] == []
        assert await harness.rows(OPEN_TRANSACTIONS) == []
    assert [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}] == []


@pytest_asyncio.fixture
async def shop(harness: Harness) -> AsyncIterator[Harness]:
    """A harness with a table of the user's own."""
    await harness.rows("create table bookings (job_id text, attempt int, amount int)")
    await harness.rows("create table once (job_id text unique deferrable initially deferred)")
    yield harness


@pytest_asyncio.fixture
async def api(harness: Harness, dsn: str) -> AsyncIterator[ApiClient]:
    """The API of the harness on a real port."""
    async with serve_api(harness, dsn) as api:
        yield api
