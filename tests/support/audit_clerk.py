"""A caller that checks the audit log after each change."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.support.api_client import ApiClient

V1 = "/api/v1"


class Clerk:
    """Asks for one change after another, and looks into the log."""

    def __init__(self, api: ApiClient, key: str, tenant: str = "acme") -> None:
        self.api, self.key, self.tenant = api, key, tenant
        self.seen = 0
        self.done: set[str] = set()

    async def ask(self, route: str, body: Any = None, entries: int = 1, **things: str) -> Any:
        """The answer. The audit log has `entries` rows of it, each with the caller and the request id."""
        method, path = route.split(" ")
        self.done.add(route)
        request_id = str(uuid4())
        headers = {"x-request-id": request_id}
        answer = await self.api.call(method, path.format(**things), body, headers=headers, key=self.key)
        assert answer.status < 300, (route, answer.raw)
        rows = await self.api.harness.rows(
            f"select request_id, role, key_id is not null from cograil.audit_log "
            f"where tenant_id = '{self.tenant}' order by id offset {self.seen}"
        )
        self.seen += len(rows)
        assert rows == [(request_id, "admin", True)] * entries, route
        return answer.body if answer.raw else None

    async def job(self, workflow: str = "hello") -> str:
        return str((await self.ask(f"POST {V1}/jobs", {"workflow_id": workflow}))["job_id"])
