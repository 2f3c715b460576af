"""One worker: what `cograil worker` runs, and what runs in the child of `cograil up`.

Run as a module it is that child. It gets its order over a socket, answers when it works, and is gone
when the other end is: a handler that kills its process must not take the rest down, and the rest must
not leave a worker behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cograil import logs, metrics, tracing
from cograil.errors import CograilError
from cograil.outbound import PublicOnly
from cograil.processes.app_parts import beside_worker
from cograil.processes.apps import import_apps
from cograil.processes.bulk import register_bulk
from cograil.processes.running import (
    end_process,
    leave_nobody_behind,
    process_name,
    run_async,
    stop_on_signals,
)
from cograil.runners.http import register_http
from cograil.runners.registry import default_registry
from cograil.settings import Settings
from cograil.store.database import BUSY, Database
from cograil.worker.loop import Worker

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """What a worker must know. `directory` is where the modules of `apps` are looked for first."""

    conninfo: str
    settings: Settings
    apps: tuple[str, ...]
    directory: str

    def to_json(self) -> bytes:
        settings = self.settings.model_dump(mode="json")
        facts = {
            "conninfo": self.conninfo,
            "settings": settings,
            "apps": self.apps,
            "directory": self.directory,
        }
        return json.dumps(facts).encode()

    @classmethod
    def from_json(cls, text: bytes) -> WorkOrder:
        facts = json.loads(text)
        return cls(facts["conninfo"], Settings(**facts["settings"]), tuple(facts["apps"]), facts["directory"])


def load_handlers(apps: Sequence[str], directory: str) -> None:
    """Register the built-in handlers and those of the apps. Raises UsageError for a module that fails."""
    importlib.import_module("cograil.runners.builtin")
    import_apps(apps, directory)


async def work(
    order: WorkOrder,
    on_ready: Callable[[Worker], None] = lambda _: None,
) -> None:
    """Work until a signal says stop, then drain. The process ends here when a handler does not."""
    async with Database(
        order.conninfo, order.settings.database, application="cograil worker", kept=BUSY
    ) as db:
        await work_on(db, order.settings, on_ready)
    tracing.shutdown()  # what hangs here ends with the process
    await leave_nobody_behind(0)


async def work_on(db: Database, settings: Settings, on_ready: Callable[[Worker], None]) -> None:
    """One worker on this database, from its start to the end of its drain."""
    register_bulk(default_registry, db, settings)
    register_http(default_registry, PublicOnly(settings.outbound), settings.limits.output_bytes)
    async with beside_worker(default_registry, db, settings):
        worker = Worker(db, settings, default_registry, process_name(), settings.queues.names)
        stop_on_signals(worker.stop)
        running = asyncio.create_task(worker.run())
        while not worker.is_ready and not running.done():  # noqa: ASYNC110  a matter of milliseconds
            await asyncio.sleep(0.01)
        if worker.is_ready:
            on_ready(worker)
        await running


def main(descriptor: str, parent: str) -> int:
    """The child: take the order, import what it names, say so, work."""
    link = socket.socket(fileno=int(descriptor))
    link.set_inheritable(False)
    _end_with(int(parent), link)
    with link.makefile("rb") as lines:
        order = WorkOrder.from_json(lines.readline())
    threading.Thread(target=_watch, args=[link], name="parent", daemon=True).start()
    logs.configure(order.settings.log.level, order.settings.log.format)
    try:
        load_handlers(order.apps, order.directory)
        run_async(work(order, lambda worker: _answer(link, _facts(worker))), "worker")
    except CograilError as error:
        _answer(link, {"error": str(error), "exit_code": error.exit_code})
        return error.exit_code
    return 0


def _facts(worker: Worker) -> dict[str, Any]:
    assert worker.identity is not None
    return {"worker_id": worker.identity.worker_id, "handlers": worker.registry.names()}


def _answer(link: socket.socket, facts: dict[str, Any]) -> None:
    link.sendall(json.dumps(facts).encode() + b"\n")


def _end_with(parent: int, link: socket.socket) -> None:
    """When the parent is killed, so are we: what we hold is given to others when our lease ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        end_process(1)


def _watch(link: socket.socket) -> None:
    """The same for systems without that signal: the other end of the socket closes with the parent.

    Each line that comes asks what was counted here. This thread answers, whatever the handlers do.
    """
    with contextlib.suppress(OSError), link.makefile("rb") as lines:
        for line in lines:
            _answer(link, {"question": int(line), "counts": metrics.counts()})
    end_process(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
