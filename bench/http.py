"""The API under load: submits singly and in batches beside a bare server, and reads with many jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median

from bench.engine import Bench, history
from bench.figures import Figures, percentiles

CONNECTIONS = 64
TURNS = 5
CHUNK = 100_000
BODY = json.dumps({"workflow_id": "single", "input_params": {"name": "x"}}).encode()
READS = (
    "/api/v1/jobs?limit=50",
    "/api/v1/jobs?limit=50&status=completed",
    "/api/v1/jobs?limit=50&status=failed",
    "/api/v1/jobs?limit=50&status=running",
    "/api/v1/jobs?workflow_id=single",
    "/api/v1/jobs?workflow_id=chain",
    "/api/v1/jobs?correlation_id=nobody",
)


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class Line:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> Line:
        """Connect, waiting for a server that is just starting."""
        until = time.monotonic() + 20
        while True:
            try:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
                return self
            except OSError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One request and its answer."""
        kind = "content-type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{kind}content-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(answer.split(b" ", 2)[1]), await self.reader.readexactly(length)


@contextlib.asynccontextmanager
async def served(arguments: Sequence[str], port: int, **variables: str) -> AsyncIterator[list[Line]]:
    """A server process, and lines to it."""
    process = subprocess.Popen([sys.executable, "-m", *arguments], env=os.environ | variables)
    try:
        yield [await Line(port).open() for _ in range(CONNECTIONS)]
    finally:
        process.kill()
        process.wait()


async def per_second(lines: Sequence[Line], requests: int) -> float:
    """Submits a second, as many at a time as there are lines."""
    left = iter(range(requests))

    async def work(line: Line) -> None:
        for _ in left:
            status, answer = await line.ask("POST", "/api/v1/jobs", BODY)
            assert status == 202, answer

    began = time.perf_counter()
    await asyncio.gather(*(work(line) for line in lines))
    return requests / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def api(bench: Bench) -> AsyncIterator[list[Line]]:
    """`cograil server` on the database of the benchmark."""
    port = free_port()
    arguments = ["cograil", "server", "--port", str(port), "--log-level", "warning"]
    async with served(arguments, port, COGRAIL_DATABASE_URL=bench.conninfo) as lines:
        yield lines


@contextlib.asynccontextmanager
async def _bare(*arguments: str) -> AsyncIterator[list[Line]]:
    port = free_port()
    async with served(["bench.bare", str(port), *arguments], port) as lines:
        yield lines


async def submits(bench: Bench, requests: int) -> Figures:
    """Submits over HTTP, in turns with the same server answering at once and a plain one without our door.

    All three are up, and two of them have nothing to do: so that each turn meets the noise of the others.
    """
    async with _bare() as plainly, _bare(bench.conninfo) as barely, api(bench) as lines:
        turns = []
        for number in range(TURNS + 1):
            rates = [
                await per_second(connections, requests // TURNS) for connections in (plainly, barely, lines)
            ]
            turns += [rates] if number else []  # the first is to get warm
        plain, bare, singly = (median(column) for column in zip(*turns, strict=True))
        ratio = median(submitted / answered for _, answered, submitted in turns)
        batch = json.dumps({"jobs": [json.loads(BODY)] * 1000}).encode()
        began = time.perf_counter()
        for _ in range(5):
            status, answer = await lines[0].ask("POST", "/api/v1/jobs/batch", batch)
            assert status == 200, answer
        batched = 5000 / (time.perf_counter() - began)
    return {
        "http_plain_per_s": round(plain),
        "http_bare_per_s": round(bare),
        "http_submit_per_s": round(singly),
        "http_submit_ratio": round(ratio, 2),
        "http_submit_of_plain": round(singly / plain, 2),
        "http_batch_per_s": round(batched),
    }


async def reads(bench: Bench, few: int, many: int, rounds: int) -> Figures:
    """p99 of reading lists with few jobs in the table and with many."""
    async with bench.db.transaction("history") as tx:
        await history(tx, few)
    first = await _read(bench, rounds)
    for start in range(0, many, CHUNK):
        async with bench.db.transaction("history") as tx:
            await history(tx, min(CHUNK, many - start), start + few)
    then = await _read(bench, rounds)
    return {
        "http_read_p99_ms": first["p99"],
        "http_read_many_p99_ms": then["p99"],
        "http_read_ratio": round(then["p99"] / first["p99"], 2),
    }


async def _read(bench: Bench, rounds: int) -> dict[str, float]:
    async with api(bench) as lines:
        seconds = []
        for number in range(rounds + 30):
            began = time.perf_counter()
            status, answer = await lines[0].ask("GET", READS[number % len(READS)])
            assert status == 200, answer
            if number >= 30:
                seconds.append(time.perf_counter() - began)
    return percentiles(seconds)
