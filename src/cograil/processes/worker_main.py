"""One worker: `cograil worker`, and the child process of `cograil up`.

Run as a module it is that child. It receives its configuration over a socket, answers when it is ready, and
ends when the other end closes: a handler that kills its process must not end the other parts, and these
must not leave a worker behind.
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
import sysconfig
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cograil import logs, metrics, tracing
from cograil.egress import PublicOnly
from cograil.errors import CograilError
from cograil.processes.app_plugins import beside_worker
from cograil.processes.bulk_handler import register_bulk
from cograil.processes.handler_modules import import_apps
from cograil.processes.lifecycle import (
    end_process,
    leave_nobody_behind,
    process_name,
    run_async,
    stop_on_signals,
)
from cograil.runners import handler_output
from cograil.runners.handler_registry import Registry, default_registry
from cograil.runners.http_handler import register_http
from cograil.settings import Settings
from cograil.store.database import BUSY, Database
from cograil.worker.worker_loop import Worker

PR_SET_PDEATHSIG = 1
PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """The configuration of a worker. `directory` is searched first for the modules of `apps`.

    A guest serves only the handlers of `apps`: the instance has workers for the rest.
    """

    conninfo: str
    settings: Settings
    apps: tuple[str, ...]
    directory: str
    is_guest: bool = False

    def to_json(self) -> bytes:
        settings = self.settings.model_dump(mode="json")
        facts = {
            "conninfo": self.conninfo,
            "settings": settings,
            "apps": self.apps,
            "directory": self.directory,
            "is_guest": self.is_guest,
        }
        return json.dumps(facts).encode()

    @classmethod
    def from_json(cls, text: bytes) -> WorkOrder:
        facts = json.loads(text)
        facts |= {"settings": Settings(**facts["settings"]), "apps": tuple(facts["apps"])}
        return cls(**facts)


def load_handlers(apps: Sequence[str], directory: str) -> list[str]:
    """Register the built-in handlers and those of the apps; return the names of the latter.

    Raises UsageError for a module that fails.
    """
    importlib.import_module("cograil.runners.builtin_handlers")
    own = set(default_registry.names())
    import_apps(apps, directory)
    return [name for name in default_registry.names() if name not in own]


async def work(
    order: WorkOrder,
    handlers: Sequence[str],
    on_ready: Callable[[Worker], None] = lambda _: None,
) -> None:
    """Work until a signal arrives, then drain; a guest serves these handlers only.

    Ends the process when a handler does not end.
    """
    async with Database(
        order.conninfo, order.settings.database, application="cograil worker", kept=BUSY
    ) as db:
        if order.is_guest:
            await serve(db, order.settings, default_registry.only(handlers), on_ready)
        else:
            await work_on(db, order.settings, on_ready)
    tracing.shutdown()  # what hangs here ends with the process
    await leave_nobody_behind(0)


async def work_on(db: Database, settings: Settings, on_ready: Callable[[Worker], None]) -> None:
    """Run one worker on this database, from its start to the end of its drain."""
    register_bulk(default_registry, db, settings)
    register_http(default_registry, PublicOnly(settings.outbound), settings.limits.output_bytes)
    async with beside_worker(default_registry, db, settings):
        await serve(db, settings, default_registry, on_ready)


async def serve(
    db: Database, settings: Settings, registry: Registry, on_ready: Callable[[Worker], None]
) -> None:
    """Run the tasks of these handlers until a signal arrives and the worker is drained."""
    worker = Worker(db, settings, registry, process_name(), settings.queues.names)
    stop_on_signals(worker.stop)
    running = asyncio.create_task(worker.run())
    while not worker.is_ready and not running.done():  # noqa: ASYNC110  a matter of milliseconds
        await asyncio.sleep(0.01)
    if worker.is_ready:
        on_ready(worker)
    await running


def main(descriptor: str, parent: str) -> int:
    """Run the child: receive the configuration, import its modules, answer, work."""
    link = socket.socket(fileno=int(descriptor))
    link.set_inheritable(False)
    _end_with(int(parent), link)
    with link.makefile("rb") as lines:
        order = WorkOrder.from_json(lines.readline())
    threading.Thread(target=_watch, args=[link], name="parent", daemon=True).start()
    logs.configure(order.settings.log.level, order.settings.log.format)
    handler_output.capture(is_output_captured=order.settings.worker.capture_output)
    try:
        handlers = load_handlers(order.apps, order.directory)
        run_async(work(order, handlers, lambda worker: _answer(link, _facts(worker))), "worker")
    except CograilError as error:
        _answer(link, {"error": str(error), "exit_code": error.exit_code})
        return error.exit_code
    return 0


def _facts(worker: Worker) -> dict[str, Any]:
    assert worker.identity is not None
    return {
        "worker_id": worker.identity.worker_id,
        "handlers": worker.registry.names(),
        "files": _files_of_users(),
    }


def _files_of_users() -> list[str]:
    """Return the files of the loaded modules, without those of Python, of packages and of cograil."""
    installed = (*map(os.path.realpath, {*sysconfig.get_paths().values()}), PACKAGE)
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(name for name in files if name and not os.path.realpath(name).startswith(tuple(installed)))


def _answer(link: socket.socket, facts: dict[str, Any]) -> None:
    link.sendall(json.dumps(facts).encode() + b"\n")


def _end_with(parent: int, link: socket.socket) -> None:
    """End this process when the parent is killed; its tasks go to other workers when its lease ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        end_process(1)


def _watch(link: socket.socket) -> None:
    """Do the same on systems without that signal: the socket closes with the parent.

    Each received line requests the metrics of this process. This thread answers, even when handlers are
    busy.
    """
    with contextlib.suppress(OSError), link.makefile("rb") as lines:
        for line in lines:
            _answer(link, {"question": int(line), "counts": metrics.collect_counts()})
    end_process(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
