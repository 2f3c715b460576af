"""The API of a harness on a real port, and callers with keys."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support import openapi_check
from tests.support.harness import Harness

from cograil.http.auth.authentication import KeyAuthenticator
from cograil.http.server.application import application
from cograil.http.server.dispatcher import ApiContext
from cograil.http.server.port import bind, serving
from cograil.http.server.probes import probe_routes
from cograil.processes.api_server import open_api
from cograil.processes.app_plugins import all_doors
from cograil.processes.process_readiness import ProcessHealth
from cograil.settings import Settings
from cograil.verbs.key_management import create_key

JSON = {"content-type": "application/json"}


@dataclass
class ApiResponse:
    """A response of the API."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def code(self) -> str:
        """Of a problem; each has all that a problem must have."""
        assert self.headers["content-type"] == "application/problem+json", self.raw
        body = self.body
        assert {"type", "title", "status", "code", "detail", "pointer", "request_id"} <= body.keys()
        assert body["status"] == self.status
        return str(body["code"])


@dataclass
class ApiClient:
    """A served API. `key` is sent with every request, if there is one."""

    harness: Harness
    context: ApiContext
    port: int
    key: str = ""
    find_mismatches: Callable[[str, str, int, str, bytes], list[str]] = openapi_check.find_mismatches

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> ApiResponse:
        """One request on a connection of its own; the answer is as the OpenAPI document says."""
        sent = {"host": "localhost", "connection": "close"} | dict(headers or {})
        token = self.key if key is None else key
        if token:
            sent["authorization"] = f"Bearer {token}"
        content = b""
        if body is not None:
            content = json.dumps(body).encode()
            sent = JSON | sent | {"content-length": str(len(content))}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {text}\r\n" for name, text in sent.items())
        answer = await self.raw(head.encode() + b"\r\n" + content)
        kind = answer.headers.get("content-type", "")
        assert self.find_mismatches(method, path, answer.status, kind, answer.raw) == []
        return answer

    async def raw(self, request: bytes) -> ApiResponse:
        """Send these very bytes: HTTP clients repair what is wrong."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            await writer.drain()
            async with asyncio.timeout(30):
                return _answer(await _read(reader))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def get(self, path: str, **facts: Any) -> ApiResponse:
        return await self.call("GET", path, **facts)

    async def post(self, path: str, body: Any = None, **facts: Any) -> ApiResponse:
        return await self.call("POST", path, body, **facts)

    async def submit(self, workflow_id: str, **facts: Any) -> str:
        """A job, by its id."""
        answer = await self.post("/api/v1/jobs", {"workflow_id": workflow_id, **facts})
        assert answer.status == 202, answer.raw
        return str(answer.body["job_id"])

    async def make_key(self, role: str, tenant: str = "default", **facts: Any) -> str:
        """A key, as `cograil keys create` makes it."""
        async with self.harness.db.transaction("keys") as tx:
            made = (await create_key(tx, role=role, tenant=tenant, **facts)).key
        assert isinstance(self.context.keys, KeyAuthenticator)
        self.context.keys._has_keys = None
        return made


async def _read(reader: asyncio.StreamReader) -> bytes:
    """All of one answer."""
    parts = []
    while part := await reader.read(65536):
        parts.append(part)
        head, separator, body = b"".join(parts).partition(b"\r\n\r\n")
        if separator and len(body) >= _length(head):
            break
    return b"".join(parts)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 10**9


def _answer(raw: bytes) -> ApiResponse:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)
    }
    return ApiResponse(int(first.split(" ")[1]), headers, body)


@contextlib.asynccontextmanager
async def serve_api(harness: Harness, dsn: str, settings: Settings | None = None) -> AsyncIterator[ApiClient]:
    """The API on this harness's database, in the role of the server."""
    settings = settings or harness.settings
    listening = bind(settings.host, 0)
    async with open_api(dsn, settings) as instance:
        health = ProcessHealth(instance.db, {})
        app = application(instance, probe_routes(health.checks, health.samples), apps=all_doors(instance))
        async with serving(app, listening):
            yield ApiClient(harness, instance, listening.getsockname()[1])
