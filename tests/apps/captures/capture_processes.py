"""Servers and workers to be killed: forked, with everything imported, from a process that only does that.

Orders come in as JSON lines, one fork each; a child says where it is when it is ready. When nobody orders any
more, the children end with their parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PR_SET_PDEATHSIG = 1
TELLING = 20  # where a child tells; what it logs goes nowhere


class ForkServer:
    """The parent, as the test sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def fork(self, role: str, dsn: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
        """A child, once it is ready: its `pid`, and the `port` of a server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"role": role, "dsn": dsn, "settings": settings} | more
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(30):
            answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer


@contextlib.asynccontextmanager
async def open_fork_server() -> AsyncIterator[ForkServer]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("COGRAIL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.apps.captures.capture_processes"),
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1024 * 1024,
    )
    try:
        yield ForkServer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def lives(pid: int) -> bool:
    """Whether it runs; the parent lets none become a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- in the children ------------------------------------------------------------------------------------


async def _serve(order: dict[str, Any]) -> None:
    from cograil.http.server.application import application
    from cograil.http.server.port import bind, serving
    from cograil.http.server.probes import probe_routes
    from cograil.processes.api_server import open_api
    from cograil.processes.app_plugins import app_doors
    from cograil.processes.process_readiness import ProcessHealth
    from cograil.settings import Settings

    listening = bind("127.0.0.1", 0)
    async with open_api(order["dsn"], Settings(**order["settings"])) as instance:
        health = ProcessHealth(instance.db, {})
        app = application(instance, probe_routes(health.checks, health.samples), apps=app_doors(instance))
        async with serving(app, listening):
            _say(pid=os.getpid(), port=listening.getsockname()[1])
            await asyncio.Event().wait()


async def _work(order: dict[str, Any]) -> None:
    from tests.support.harness import open_harness

    from cograil.apps.captures.handlers import captures_on_worker
    from cograil.settings import Settings

    settings = Settings(**order["settings"])
    if order.get("is_early"):  # it may be killed before it is ready
        _say(pid=os.getpid())
    async with (
        open_harness(order["dsn"], settings) as lab,
        captures_on_worker(lab.registry, lab.db, settings),
        lab.running(),
    ):
        if not order.get("is_early"):
            _say(pid=os.getpid())
        await asyncio.Event().wait()


def _say(**facts: Any) -> None:
    os.write(TELLING, json.dumps(facts).encode() + b"\n")


def _become(order: dict[str, Any]) -> None:
    from cograil import fault_injection

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    fault_injection.record(order.get("log"))
    fault_injection.arm(order.get("fault"))
    asyncio.run(_serve(order) if order["role"] == "server" else _work(order))


def main() -> None:
    """Fork what is ordered."""
    import tests.apps.captures.capture_api  # noqa: F401  which imports what children need

    import cograil.apps.captures.sealer  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        if os.fork() == 0:
            os.close(0)
            os.dup2(1, TELLING)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            try:
                _become(json.loads(line))
            finally:
                os._exit(1)


if __name__ == "__main__":
    main()
