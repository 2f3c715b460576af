"""A company site for each test, and what must hold when it is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.apps.companies.company_site import CompanySite, open_company_site, working

LOCKLESS = """
select e.siren from cograil_companies.company_enrichments e where e.status = 'RUNNING' and not exists (
  select 1 from cograil.leases l
  where l.tenant_id = e.tenant_id and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence
    and l.holder is not null and l.lease_until > clock_timestamp())
"""


@pytest.fixture
def companies() -> dict[str, Any]:
    """A test module that wants other settings of the app overrides this."""
    return {}


@pytest_asyncio.fixture
async def idle_site(dsn: str, companies: dict[str, Any]) -> AsyncIterator[CompanySite]:
    """A door behind which nobody works; what is RUNNING in the end has its lock."""
    async with open_company_site(dsn, **companies) as site:
        yield site
        assert [str(finding) for finding in await site.lab.findings()] == []
        assert await site.lab.rows(LOCKLESS) == []


@pytest_asyncio.fixture
async def site(idle_site: CompanySite) -> AsyncIterator[CompanySite]:
    """A door, an orchestrator and a worker."""
    async with working(idle_site):
        yield idle_site
