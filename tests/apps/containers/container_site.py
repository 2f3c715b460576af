"""Everything that container jobs need, for one test: an engine, a door, a relay, and sites to fetch from."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.api_client import ApiClient, ApiResponse, serve_api
from tests.support.harness import Harness, open_harness, quick_settings
from tests.support.webhook_receiver import (
    ALLOW_LOOPBACK,
    FAST_RELAY,
    ReceivedRequest,
    WebhookReceiver,
    open_receiver,
    run_relay,
)

from cograil.apps.containers.runtime.container_runtime import Runtime
from cograil.apps.containers.runtime.container_workspaces import ContainerWorkspaces
from cograil.apps.containers.worker_lifespan import containers_on_worker
from cograil.settings import Settings

IMAGE = "cograil-test:latest"
KEY = "a key of any length, é too"
PREFIX = "orchestrator.job."


def site_settings(data_dir: Path, **containers: Any) -> Settings:
    container_settings = {"network": "none", "sweep_seconds": 0.5} | containers
    return quick_settings(
        outbound=ALLOW_LOOPBACK,
        relay=FAST_RELAY | {"timeout_seconds": 15.0},
        data_dir=data_dir,
        containers=container_settings,
    )


@dataclass
class ContainerSite:
    """One caller of /v1/jobs, and the receiver of its callbacks."""

    lab: Harness
    api: ApiClient
    receiver: WebhookReceiver
    engine: Runtime
    data_dir: Path
    key: str = KEY

    async def call(self, method: str, path: str = "", body: Any = None, **more: Any) -> ApiResponse:
        return await self.api.call(method, f"/v1/jobs{path}", body, **more)

    async def post(self, id: str, command: str = "", **more: Any) -> ApiResponse:
        body = {
            "id": id,
            "image": IMAGE,
            "command": command,
            "memory": 64,
            "callback": {"url": self.receiver.url, "key": self.key},
        }
        return await self.call("POST", body=body | more)

    async def start(self, id: str, command: str = "", **more: Any) -> None:
        answer = await self.post(id, command, **more)
        assert (answer.status, answer.body) == (202, {"id": id, "status": "accepted"}), answer.raw

    def callback(self, *kinds: str) -> dict[str, Any]:
        """For events of these kinds."""
        return {"url": self.receiver.url, "key": self.key, "events": [PREFIX + kind for kind in kinds]}

    async def show(self, id: str) -> dict[str, Any]:
        answer = await self.call("GET", f"/{id}")
        assert answer.status == 200, answer.raw
        return dict(answer.body)

    async def until(self, id: str, *words: str, seconds: float = 30.0) -> dict[str, Any]:
        """The job once it is in one of these states."""
        seen: dict[str, Any] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (seen := await self.show(id))["status"] not in words:  # noqa: ASYNC110  it is asked for
                    await asyncio.sleep(0.02)
        assert seen["status"] in words, seen
        return seen

    def requests(self, id: str) -> list[ReceivedRequest]:
        """What was sent of this job, each event once: a receiver knows them by their id."""
        by_event = {
            request.event["id"]: request
            for request in self.receiver.requests
            if request.event["subject"] == id
        }
        return list(by_event.values())

    def events_of(self, id: str, kind: str | None = None) -> list[dict[str, Any]]:
        """The data of its events, of one kind if named."""
        events = [request.event for request in self.requests(id)]
        return [event["data"] for event in events if kind in (None, event["type"].removeprefix(PREFIX))]

    def kinds(self, id: str) -> list[str]:
        return [request.event["type"].removeprefix(PREFIX) for request in self.requests(id)]

    def lines(self, id: str, stream: str = "stdout") -> list[str]:
        return [line for log in self.events_of(id, "log") if log["stream"] == stream for line in log["lines"]]

    async def heard(self, id: str, kind: str, seconds: float = 30.0, count: int = 1) -> dict[str, Any]:
        """The first event of this kind, once `count` have come."""
        until = time.monotonic() + seconds
        while len(events := self.events_of(id, kind)) < count:
            assert time.monotonic() < until, f"no {kind}: {self.kinds(id)}"
            await asyncio.sleep(0.02)
        return events[0]

    async def swept(self, seconds: float = 20.0) -> None:
        """Returns when no container and no workspace is left."""
        until = time.monotonic() + seconds
        place = ContainerWorkspaces(self.data_dir / "workspaces").place
        while left := [*await self.engine.held({"cograil.place": place}), *self.rooms()]:
            assert time.monotonic() < until, left
            await asyncio.sleep(0.05)

    def rooms(self) -> list[str]:
        return [entry.name for entry in (self.data_dir / "workspaces").iterdir() if entry.name != ".place"]


def is_signed(request: ReceivedRequest, key: str = KEY) -> bool:
    digest = hmac.new(key.encode(), request.body, hashlib.sha256).hexdigest()
    return request.headers["x-signature-256"] == f"sha256={digest}"


@contextlib.asynccontextmanager
async def working(lab: Harness, name: str = "worker") -> AsyncIterator[None]:
    """An orchestrator, and a worker that runs containers."""
    async with lab.orchestrator(), containers_on_worker(lab.registry, lab.db, lab.settings), lab.worker(name):
        yield


@dataclass
class FileServer:
    """A server with files: GET gives them, PUT keeps them."""

    files: dict[str, bytes] = field(default_factory=dict)
    put: dict[str, bytes] = field(default_factory=dict)
    fails: set[str] = field(default_factory=set)
    port: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(" ", 2)
            path = target[1:].partition("?")[0]
            length = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1]) if length else 0)
            status, content = self._answered(method, path, body)
            response_head = f"HTTP/1.1 {status} Said\r\ncontent-length: {len(content)}\r\nconnection: close"
            writer.write(f"{response_head}\r\n\r\n".encode())
            writer.write(content)
            await writer.drain()
        writer.close()

    def _answered(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if path in self.fails or (method == "GET" and path not in self.files):
            return 404, b""
        if method == "PUT":
            self.put[path] = body
        return 200, self.files.get(path, b"") if method == "GET" else b""


@contextlib.asynccontextmanager
async def open_file_server(**files: bytes) -> AsyncIterator[FileServer]:
    file_server = FileServer({name.replace("__", "."): content for name, content in files.items()})
    server = await asyncio.start_server(file_server.serve, "127.0.0.1", 0)
    file_server.port = server.sockets[0].getsockname()[1]
    async with server:
        yield file_server


@contextlib.asynccontextmanager
async def open_container_site(dsn: str, engine: Runtime, settings: Settings) -> AsyncIterator[ContainerSite]:
    """Open a site that runs only its API and its relay."""
    async with (
        open_harness(dsn, settings) as lab,
        serve_api(lab, dsn) as api,
        open_receiver() as receiver,
        run_relay(lab),
    ):
        yield ContainerSite(lab, api, receiver, engine, settings.data_dir)


async def settled(site: ContainerSite, id: str) -> None:
    async with asyncio.timeout(20):
        while not await site.lab.rows(  # noqa: ASYNC110  it is asked for
            "select 1 from cograil_containers.container_jobs where id = %(id)s and settled_at is not null",
            id=id,
        ):
            await asyncio.sleep(0.02)
