"""Fixtures of several unit tests: real HTTP servers on this machine, and who sends to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest
from tests.support.http_site import Open, Sender, Site


@pytest.fixture
async def open_site() -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:
        yield Open(stack)


@pytest.fixture
async def site(open_site: Open) -> Site:
    return await open_site()


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    with ThreadPoolExecutor(1) as threads:
        yield Sender(threads)
