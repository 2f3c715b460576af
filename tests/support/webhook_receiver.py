"""Receivers of events on real sockets: a script chooses their responses, and they keep their requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.harness import Harness, quick_settings

from cograil.delivery.relay import Relay
from cograil.egress import OutboundGuard
from cograil.settings import Settings

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ALLOW_LOOPBACK = {"allow_networks": ("127.0.0.0/8",)}
FAST_RELAY = {"pace": 0.01, "timeout_seconds": 2.0}


def relay_settings(**relay: Any) -> Settings:
    """Pauses of a hundredth, and this machine may be called."""
    return quick_settings(outbound=ALLOW_LOOPBACK, relay=FAST_RELAY | relay)


def http_response(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


OK = http_response(200)


@dataclass(frozen=True)
class ReceivedRequest:
    """What a receiver was sent."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event

    def is_signed(self, secret: str = SECRET) -> bool:
        """Whether both signatures are right, over these very bytes."""
        own = "sha256=" + hmac.new(secret.encode(), self.body, hashlib.sha256).hexdigest()
        return (self.headers["x-signature-256"], self.signatures[0]) == (own, self.signature_of(secret))

    @property
    def signatures(self) -> list[str]:
        """Those of Standard Webhooks."""
        return self.headers["webhook-signature"].split(" ")

    def signature_of(self, secret: str) -> str:
        """What one with this secret would be."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


Script = Callable[[ReceivedRequest], bytes]


@dataclass
class WebhookReceiver:
    """A server; `script` chooses the response to a request. After half a response it closes the connection."""

    script: Script = field(default=lambda _: OK)
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    open_now: int = 0
    most_open: int = 0
    in_hand: int = 0
    most_in_hand: int = 0
    is_silent: bool = False
    endless: bytes = b""
    port: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def callback(self, **more: Any) -> dict[str, Any]:
        return {"url": self.url, "secret": SECRET, **more}

    def types(self, job_id: str | None = None) -> list[str]:
        events = [request.event for request in self.requests]
        return [event["type"] for event in events if job_id in (None, event["subject"])]

    def ids(self) -> list[str]:
        return [request.event["id"] for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer_one(reader, writer):
                    pass
        finally:
            self.open_now -= 1
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")[:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        request = ReceivedRequest(first.split(" ")[1], headers, body, time.monotonic())
        self.requests.append(request)
        self.in_hand += 1
        self.most_in_hand = max(self.most_in_hand, self.in_hand)
        try:
            await self.gate.wait()
            if self.is_silent:
                await reader.read()
                return False
            response = self.script(request)
            writer.write(response)
            await writer.drain()
            while self.endless:
                writer.write(self.endless)
                await writer.drain()
        finally:
            self.in_hand -= 1
        return b"Content-Length" in response and response.endswith((b"\r\n\r\n", b"}"))


@contextlib.asynccontextmanager
async def open_receiver(script: Script = lambda _: OK, port: int = 0) -> AsyncIterator[WebhookReceiver]:
    """A receiver for a while."""
    receiver = WebhookReceiver(script)
    writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers[task] = writer
        try:
            await receiver.serve(reader, writer)
        finally:
            del writers[task]

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        receiver.gate.set()
        for writer in writers.values():
            writer.transport.abort()
        await asyncio.gather(*writers)


@contextlib.asynccontextmanager
async def run_relay(
    harness: Harness, guard: OutboundGuard | None = None, **more: Any
) -> AsyncIterator[Relay]:
    """A relay in this loop."""
    settings = relay_settings(**more) if more else harness.settings
    relay = Relay(harness.db, settings, "relay", guard)
    task = asyncio.create_task(relay.run())
    try:
        while not relay.is_ready and not task.done():  # noqa: ASYNC110  it has no event for this
            await asyncio.sleep(0.005)
        yield relay
    finally:
        relay.stop()
        await task


def respond_in_turn(*answers: bytes) -> Script:
    """These answers one after another, then the last again and again."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
