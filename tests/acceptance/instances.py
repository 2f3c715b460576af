"""Real processes: the command line, started as a person or a service manager would start it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.support.harness import Harness

from cograil.embedded.data_directory import read_instance
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.store.database import Database

QUICK = {
    "COGRAIL_LEASE__SECONDS": "1.5",
    "COGRAIL_LEASE__HEARTBEAT_SECONDS": "0.3",
    "COGRAIL_LEASE__SCAN_SECONDS": "0.3",
    "COGRAIL_WORKER__GRACE_SECONDS": "0.5",
}


@dataclass
class Running:
    """One `cograil ...` process and what it said."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    stderr: Path

    @property
    def output(self) -> str:
        return self.stderr.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        instance = read_instance(self.data_dir)
        assert instance is not None
        return f"http://{instance.host}:{instance.port}"

    def events(self) -> list[str]:
        """The log lines, by their event."""
        lines = (line for line in self.output.splitlines() if line.startswith("{") and line.endswith("}"))
        return [json.loads(line)["event"] for line in lines]

    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.output}"
        return "ready" in self.events()

    def worker(self) -> psutil.Process | None:
        """The worker child of `up`, when there is a living one."""
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if (
                    "cograil.processes.worker_main" in child.cmdline()
                    and child.status() != psutil.STATUS_ZOMBIE
                ):
                    return child
        return None

    def postgres(self) -> psutil.Process | None:
        """The PostgreSQL of `up`, when it runs."""
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if child.name() == "postgres" and child.status() != psutil.STATUS_ZOMBIE:
                    return child
        return None

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, timeout: float = 20.0) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(timeout)

    def get(self, path: str, url: str | None = None) -> tuple[int, Any]:
        """Status and body of a request."""
        try:
            with urllib.request.urlopen((url or self.url) + path, timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def page(self, path: str) -> str:
        """A page as a browser gets it."""
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            return str(answer.read().decode())

    def metrics(self, url: str | None = None) -> dict[str, float]:
        """What /metrics says, by name and labels."""
        with urllib.request.urlopen((url or self.url) + "/metrics", timeout=5) as answer:
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    @contextlib.asynccontextmanager
    async def lab(self) -> AsyncIterator[Harness]:
        """A client of this instance."""
        instance = read_instance(self.data_dir)
        assert instance is not None
        async with open_client_lab(instance.conninfo) as lab:
            yield lab


@contextlib.asynccontextmanager
async def open_client_lab(conninfo: str) -> AsyncIterator[Harness]:
    """A lab in which nothing runs: it submits and looks."""
    settings = Settings()
    async with Database(conninfo, settings.database) as db:
        yield Harness(db, settings, Registry())


def lives(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


Start = Callable[..., Running]


def port_of(up: Running) -> int:
    instance = read_instance(up.data_dir)
    assert instance is not None
    assert instance.port is not None
    return instance.port


def said_port(server: Running) -> int | None:
    """The port it got when it had asked for any."""
    import psutil

    connections = psutil.Process(server.process.pid).net_connections("tcp")
    return next(
        (connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN), None
    )
