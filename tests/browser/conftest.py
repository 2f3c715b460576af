"""One browser, one server with pages on a real database, for all tests here.

The server has a process of its own, the browser's driver an event loop that lasts as long as the session.
Each test has a page of its own; whatever the browser complains of fails the test.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from typing import Final

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.browser.ui_site_process import SiteProxy, ui_site_process
from tests.components import need

SESSION: Final = "session"


@pytest.fixture(scope=SESSION)
def site_dsn(postgres: str, template: str) -> Iterator[str]:
    """A database for all tests here."""
    name = sql.Identifier("browser")
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} template {}").format(name, sql.Identifier(template)))
        yield make_conninfo(postgres, dbname="browser")
        admin.execute(sql.SQL("drop database {} with (force)").format(name))


@pytest.fixture(scope=SESSION)
def site(site_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteProxy]:
    """A server with pages, an orchestrator, a worker and a relay, with something of everything in it."""
    with ui_site_process(site_dsn, tmp_path_factory.mktemp("folder")) as site:
        yield site


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def browser() -> AsyncIterator[Browser]:
    """Debian's chromium; `make components` installs it."""
    need("chromium")
    path = shutil.which("chromium")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def contexts(browser: Browser) -> AsyncIterator[dict[str, BrowserContext]]:
    """The browsers of those who are logged in, by their roles: to make one takes as long as a page."""
    made: dict[str, BrowserContext] = {}
    yield made
    for context in made.values():
        await context.close()


@pytest_asyncio.fixture(loop_scope=SESSION)
async def visitor(
    site: SiteProxy, browser: Browser, contexts: dict[str, BrowserContext]
) -> AsyncIterator[Visitor]:
    """Opens pages as somebody; at the end nothing may have been complained of."""
    visitor = Visitor(site, browser, contexts)
    try:
        yield visitor
        assert visitor.complaints == []
    finally:
        await visitor.leave()


class Visitor:
    """Somebody at a browser, known by the key of a role."""

    def __init__(self, site: SiteProxy, browser: Browser, contexts: dict[str, BrowserContext]) -> None:
        self.site = site
        self.browser = browser
        self.contexts = contexts
        self.complaints: list[str] = []
        self._pages: list[Page] = []

    async def page(self, role: str = "admin") -> Page:
        """A page of a browser in which the key of this role is logged in; for `nobody`, none is."""
        if role not in self.contexts:
            self.contexts[role] = await self._begin(role)
        page = await self.contexts[role].new_page()
        self._pages.append(page)
        page.on("console", lambda message: self._hear(message.type, f"{message.text} {message.location}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    async def _begin(self, role: str) -> BrowserContext:
        context = await self.browser.new_context(
            base_url=self.site.url,
            viewport={"width": 1280, "height": 900},
            color_scheme="light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(15_000)
        if role != "nobody":
            await context.add_cookies([self.site.cookie(role)])
        return context

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    async def leave(self) -> None:
        for page in self._pages:
            await page.close()
