"""A bureau for each test, and what must hold when it is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from bureau import Bureau, open_bureau, working

LOCKLESS = """
select e.siren from cograil.company_enrichments e where e.status = 'RUNNING' and not exists (
  select 1 from cograil.leases l
  where l.tenant_id = e.tenant_id and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence
    and l.holder is not null and l.lease_until > clock_timestamp())
"""


@pytest.fixture
def companies() -> dict[str, Any]:
    """A test module that wants other settings of the app overrides this."""
    return {}


@pytest_asyncio.fixture
async def closed(dsn: str, companies: dict[str, Any]) -> AsyncIterator[Bureau]:
    """A door behind which nobody works; what is RUNNING in the end has its lock."""
    async with open_bureau(dsn, **companies) as bureau:
        yield bureau
        assert [str(finding) for finding in await bureau.lab.findings()] == []
        assert await bureau.lab.rows(LOCKLESS) == []


@pytest_asyncio.fixture
async def bureau(closed: Bureau) -> AsyncIterator[Bureau]:
    """A door, an orchestrator and a worker."""
    async with working(closed):
        yield closed
