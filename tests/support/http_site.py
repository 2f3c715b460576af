"""What the tests of requests share: servers on this machine, names for them, and who sends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from tests.support.handler_attempts import Attempt

from cograil.egress import Address, OutboundGuard, PublicOnly
from cograil.model.outcome import Outcome
from cograil.runners.handler_registry import Registry
from cograil.runners.http_handler import register_http
from cograil.settings import OutboundSettings

Json = Any
HERE = OutboundSettings(allow=("127.0.0.0/8",))


@dataclass
class Site:
    """A server that gives every request the same answer and remembers what it was sent."""

    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    is_silent: bool = False
    is_endless: bool = False
    is_kept: bool = False  # whether a connection serves one request after another
    connections: int = 0
    closed: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    def answers(self, status: int, body: bytes = b"", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.answer = "\r\n".join([*lines, "", ""]).encode() + body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if not self.is_silent:
                await self._reply(reader, writer)
            while self.is_kept:
                await self._reply(reader, writer)
            await reader.read()  # until the other end closes
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed += 1
            writer.close()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")[:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((first, headers, body))
        writer.write(self.answer)
        await writer.drain()
        while self.is_endless:
            writer.write(b"x" * 65536)
            await writer.drain()
        if not self.answer:
            writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Open:
    """Starts sites, which end with the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, tls: ssl.SSLContext | None = None) -> Site:
        site = Site()
        server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
        site.port = server.sockets[0].getsockname()[1]
        self._stack.callback(server.close)
        return site


class Sender(Attempt):
    """Runs the handler with this guard."""

    async def send(
        self, url: str, guard: OutboundGuard | None = None, max_bytes: int = 100_000, **params: Json
    ) -> Outcome:
        registry = Registry()
        register_http(registry, guard or PublicOnly(HERE), max_bytes)
        spec = registry.get("http")
        assert spec is not None
        return await self(spec.call, {"url": url, **params})


class Names:
    """A resolver that knows one answer after another, and counts."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        if not self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [ip_address(text) for text in self.answers.pop(0)]
