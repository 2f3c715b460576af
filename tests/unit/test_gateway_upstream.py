"""The gateway gets the answer to its own request, also when an earlier caller gave up on the connection."""

from __future__ import annotations

import asyncio
from itertools import count

from cograil.gateway.upstream_client import Upstream, UpstreamTimeout

SECONDS = 0.5


class Slow:
    """A server that says which path was asked for; every third time half of it, and the rest too late."""

    def __init__(self) -> None:
        self.connections = 0
        self._numbers = count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(path)
                is_late = next(self._numbers) % 3 == 2
                writer.write(head + path[:2] if is_late else head + path)
                await writer.drain()
                if is_late:
                    await asyncio.sleep(2 * SECONDS)
                    writer.write(path[2:])
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


async def test_no_answer_is_taken_for_that_of_another_request() -> None:
    slow = Slow()
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0)
    upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", SECONDS)
    turns, late = asyncio.Semaphore(10), 0

    async def ask(number: int) -> None:
        nonlocal late
        async with turns:
            try:
                answered = await upstream.send("GET", f"/request/{number}", {})
            except UpstreamTimeout:
                late += 1
            else:
                assert answered.body.decode() == f"/request/{number}"

    for number in range(2):
        await ask(number)
    assert slow.connections == 1  # it is kept for the next
    await asyncio.gather(*(ask(number) for number in range(2, 30)))
    assert late >= 10
    await upstream.close()
    server.close()
