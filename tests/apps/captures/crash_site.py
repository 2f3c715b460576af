"""A capture API whose processes are forked and killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.apps.captures.capture_api import CaptureApi
from tests.apps.captures.capture_processes import ForkServer, lives
from tests.support.api_client import ApiClient

PER_CAPTURE = """
select (select count(*) from vault_secure.capture_events where capture_id::text = %(id)s),
       (select count(*) from cograil.jobs where labels->>'capture_id' = %(id)s),
       (select count(*) from cograil.idempotency where key = %(id)s),
       (select count(*) from vault_secure.capture_audit_log
        where capture_id::text = %(id)s and http_status = 202)
"""
COUNT = "select count(*) from vault_secure.capture_audit_log where capture_id = %(id)s and event = %(event)s"


@dataclass
class Site:
    """A capture API with a healthy server, and a fork server for the processes to be killed."""

    capture_api: CaptureApi
    fork_server: ForkServer
    dsn: str
    settings: dict[str, Any]
    log: Path

    async def server(self, **more: Any) -> tuple[ApiClient, int]:
        child = await self.fork_server.fork("server", self.dsn, self.settings, **more)
        return replace(self.capture_api.api, port=child["port"]), child["pid"]

    async def points(self, transactions: set[str], act: Callable[[ApiClient], Awaitable[Any]]) -> list[str]:
        """What a server passes while this is done, in order, each once."""
        api, _ = await self.server(log=str(self.log))
        self.log.write_text("")
        await act(api)
        passed = self.log.read_text().splitlines()
        return list(dict.fromkeys(point for point in passed if point.split(".")[0] in transactions))

    async def survivors(self, capture: dict[str, Any]) -> None:
        """One of everything, and a chain that holds."""
        id = capture["capture_id"]
        assert await self.capture_api.lab.rows(PER_CAPTURE, id=id) == [(1, 1, 1, 1)]
        trail = (await self.capture_api.get(f"{id}/audit")).body
        assert trail["broken_at"] is None


async def gone(pid: int) -> None:
    """Return when it is."""
    async with asyncio.timeout(20):
        while lives(pid):  # noqa: ASYNC110  it is not our child
            await asyncio.sleep(0.01)
