"""The lab of a test, and what must hold when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from doors import Api, open_door
from lab import Lab, open_lab

from cograil.settings import Settings

OPEN_TRANSACTIONS = """
select application_name, state, query from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
  and backend_type = 'client backend'
"""


@pytest.fixture
def lab_settings() -> Settings | None:
    """A test module that wants other settings overrides this."""
    return None


@pytest_asyncio.fixture
async def lab(dsn: str, lab_settings: Settings | None) -> AsyncIterator[Lab]:
    """An engine on a database of its own.

    When the test is over every invariant of the doctor holds, no transaction is open and no task runs.
    """
    async with open_lab(dsn, lab_settings) as lab:
        yield lab
        assert [str(finding) for finding in await lab.findings()] == []
        assert await lab.rows(OPEN_TRANSACTIONS) == []
    assert [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}] == []


@pytest_asyncio.fixture
async def shop(lab: Lab) -> AsyncIterator[Lab]:
    """A lab with a table of the user's own."""
    await lab.rows("create table bookings (job_id text, attempt int, amount int)")
    await lab.rows("create table once (job_id text unique deferrable initially deferred)")
    yield lab


@pytest_asyncio.fixture
async def api(lab: Lab, dsn: str) -> AsyncIterator[Api]:
    """The API of the lab on a real port."""
    async with open_door(lab, dsn) as api:
        yield api
