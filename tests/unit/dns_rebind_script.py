"""A network of its own, in which a name changes its mind: run by test_dns_rebinding.py inside `unshare`.

The system's own resolver asks a DNS server that answers the first question for the name with a public address
and every later one with this machine. A site listens at both. What is printed is who was connected to.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import struct
import sys
from typing import cast

import orjson

from cograil.delivery.http_delivery import post
from cograil.egress import Destination, KeptConnections, PublicOnly
from cograil.settings import OutboundSettings
from cograil.store.outbox_queries import Claimed

NAME, PUBLIC, HERE, PORT = "rebound.test", "93.184.215.14", "127.0.0.1", 8080
SET_ADDRESS, SET_FLAGS, IS_UP = 0x8916, 0x8914, 1
IPV4_QUESTION = 1


def bring_up(interface: str, address: str) -> None:
    """This address is ours, in this network."""
    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        where = struct.pack("16sH2s4s8s", name, socket.AF_INET, bytes(2), socket.inet_aton(address), bytes(8))
        fcntl.ioctl(control, SET_ADDRESS, where)
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14s", name, IS_UP, bytes(14)))


class Names(asyncio.DatagramProtocol):
    """A DNS server."""

    def __init__(self) -> None:
        self.answers: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        end = data.index(b"\0", 12) + 5
        (kind,) = struct.unpack_from("!H", data, end - 4)
        records = b""
        if kind == IPV4_QUESTION:
            self.answers.append(PUBLIC if not self.answers else HERE)
            records = struct.pack("!HHHIH4s", 0xC00C, 1, 1, 0, 4, socket.inet_aton(self.answers[-1]))
        head = data[:2] + struct.pack("!HHHHH", 0x8580, 1, 1 if records else 0, 0, 0)
        self.transport.sendto(head + data[12:end] + records, addr)


class Site:
    """Takes every request, and counts connections."""

    def __init__(self) -> None:
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


class ResolvesTwice(PublicOnly):
    """The classic mistake: the name is checked, and asked for again to connect."""

    async def check(self, url: str) -> Destination:
        checked = await super().check(url)
        again = await self._resolve(checked.host, checked.port)
        return Destination(checked.scheme, checked.host, checked.port, checked.target, tuple(again))


async def main(kind: str) -> None:
    bring_up("lo", HERE)
    bring_up("lo:1", PUBLIC)
    public, trap = Site(), Site()
    names, connections = Names(), KeptConnections(2)
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: names, (HERE, 53))
    guard = (ResolvesTwice if kind == "twice" else PublicOnly)(OutboundSettings())
    how = orjson.dumps({"style": "cloudevents", "secret": None, "headers": {}})
    url = f"http://{NAME}:{PORT}/hook"
    delivery = Claimed("id", 1, 1, "default", "callback", "origin", url, how, b"{}", 0.0)
    async with (
        await asyncio.start_server(public.serve, PUBLIC, PORT),
        await asyncio.start_server(trap.serve, HERE, PORT),
    ):
        first = await post(delivery, guard, connections, 5.0)
        second = await post(delivery, guard, connections, 5.0)
        await connections.close()
    result = {
        "answers": names.answers,
        "public": public.connections,
        "trap": trap.connections,
        "first": first.status,
        "is_second_blocked": second.is_blocked,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
