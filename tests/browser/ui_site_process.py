"""The UI site of the tests in a process of its own.

A site in the process of the tests would be struck by what tests of others do there (crash points, stopped
children), and would rest between its own tests: a listener that does not read holds up its whole server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any

from tests.browser.ui_site import SiteInfo, fill_site

TO_BEGIN_SECONDS, TO_END_SECONDS = 60.0, 15.0


@dataclass
class SiteProxy:
    """The site as tests see it: `await site.lab.job(id)` is done there, and its answer comes back."""

    info: SiteInfo
    connection: Connection
    path: str = ""

    def __getattr__(self, name: str) -> Any:
        if not self.path and hasattr(self.info, name):
            return getattr(self.info, name)
        return SiteProxy(self.info, self.connection, f"{self.path}.{name}".lstrip("."))

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.connection.send((self.path, arguments, named))
        is_well, answer = await asyncio.to_thread(self.connection.recv)
        if not is_well:
            raise answer
        return answer


@contextmanager
def ui_site_process(dsn: str, folder: Path) -> Iterator[SiteProxy]:
    """A filled site; it ends with the block, or with the process that asked for it."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_live, args=(there, dsn, folder))
    process.start()
    there.close()
    try:
        assert here.poll(TO_BEGIN_SECONDS), "the site did not start"
        yield SiteProxy(here.recv(), here)
    finally:
        here.close()
        process.join(TO_END_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _live(connection: Connection, dsn: str, folder: Path) -> None:
    asyncio.run(_answering(connection, dsn, folder))


async def _answering(connection: Connection, dsn: str, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        site = await fill_site(stack, dsn, folder)
        connection.send(site.info)
        while (request := await asyncio.to_thread(_next, connection)) is not None:
            path, arguments, named = request
            try:
                answer = (True, await attrgetter(path)(site)(*arguments, **named))
            except (Exception, asyncio.CancelledError) as error:
                answer = (False, error)
            connection.send(answer)


def _next(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:
        return None
