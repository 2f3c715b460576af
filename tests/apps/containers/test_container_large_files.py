"""Much of it: large files within little memory, very many events. Long, so they are run by `make torture`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.apps.containers.container_site import ContainerSite, settled, working

pytestmark = pytest.mark.torture

GIB = 1024**3
MOVING = """
import asyncio, re, sys
from pathlib import Path
from cograil.egress import PublicOnly
from cograil.apps.containers.runtime.artifact_transfer import ArtifactTransfer
from cograil.setting_sections import OutboundSettings

def peak():
    # Not ru_maxrss: that begins with what the process had that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

async def main(room, port):
    mover = ArtifactTransfer(Path(room), PublicOnly(OutboundSettings(allow_networks=("127.0.0.0/8",))))
    await mover.write("x", "warm.txt")
    await mover.upload("warm.txt", f"http://127.0.0.1:{port}/warm")
    before = peak()
    assert await mover.download(f"http://127.0.0.1:{port}/large", "in.bin") == 2 * 1024**3
    await mover.pack("in.bin", "out.tar.gz")
    await mover.upload("in.bin", f"http://127.0.0.1:{port}/up")
    print(peak(), peak() - before)

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.asynccontextmanager
async def large_site(taken: list[int]) -> AsyncIterator[int]:
    """Gives two GiB of noise to who asks, and counts what it is given."""
    noise = os.urandom(1024 * 1024)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.startswith("get"):
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {2 * GIB}\r\n\r\n".encode())
            for _ in range(2 * 1024):
                writer.write(noise)
                await writer.drain()
        else:
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            left = length
            while left:
                left -= len(await reader.read(min(left, 1024 * 1024)))
            taken.append(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.timeout(900)
async def test_two_gib_are_fetched_packed_and_put_within_a_hundred_mib(tmp_path: Path) -> None:
    taken: list[int] = []
    async with large_site(taken) as port:
        command = [sys.executable, "-c", MOVING, str(tmp_path), str(port)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await process.communicate()
    assert process.returncode == 0
    peak = int(output.split()[0])
    assert taken[-1] == 2 * GIB
    assert peak < 100 * 1024 * 1024, f"{peak / 1024 / 1024:.0f} MiB"


@pytest.mark.timeout(900)
async def test_ten_thousand_events_arrive_all_of_them(site: ContainerSite) -> None:
    """Of jobs that say much; told in batches of one line, as a slow container would."""
    async with working(site.lab):
        names = [f"many-{number}" for number in range(20)]
        command = "i=0; while [ $i -lt 250 ]; do echo $i; echo $i >&2; i=$((i+1)); done"
        await asyncio.gather(*(site.start(name, command, memory=32) for name in names))
        for name in names:
            await site.until(name, "completed", seconds=600)
            await site.heard(name, "exit", seconds=600)
            await settled(site, name)
    numbers = [str(number) for number in range(250)]
    for name in names:
        assert (site.lines(name), site.lines(name, "stderr")) == (numbers, numbers)
    assert len(site.receiver.requests) >= 10_000


@pytest.fixture(autouse=True)
def a_batch_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cograil.apps.containers.runtime.container_log.MAX_LINES", 1)
