"""An idle `cograil up`: statements per second and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg

from cograil.embedded.data_directory import read_instance

STATEMENT = re.compile(rb"LOG:  (statement|execute [^:]*): ")


def measure(seconds: float) -> dict[str, Any]:
    """Start `up`, let it settle, count what it asks in this many seconds."""
    with tempfile.TemporaryDirectory(prefix="cograil-idle-") as directory:
        command = [sys.executable, "-m", "cograil", "up", "--port", "0", "--data-dir", directory]
        up = subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL)
        try:
            conninfo = _conninfo(Path(directory))
            with psycopg.connect(conninfo, autocommit=True) as connection:
                connection.execute("alter system set log_statement = 'all'")
                connection.execute("select pg_reload_conf()")
            time.sleep(10)  # until every connection knows, and nothing of the start is left
            log = Path(directory) / "postgres.log"
            before = log.stat().st_size
            time.sleep(seconds)
            statements = len(STATEMENT.findall(log.read_bytes()[before:]))
            return {"idle_queries_per_s": round(statements / seconds, 2), **_memory(up.pid)}
        finally:
            up.terminate()
            up.wait()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    return kept | {"COGRAIL_LOG__LEVEL": "warning"}


def _conninfo(directory: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        instance = read_instance(directory)
        if instance is not None:
            return instance.conninfo
        time.sleep(0.05)
    raise SystemExit("cograil up did not start")


def _memory(pid: int) -> dict[str, float]:
    """Proportional set size: shared pages are counted once over all processes."""
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    sizes = {member.pid: member.memory_full_info().pss / 2**20 for member in family}
    worker = next(member for member in family if member.pid != pid and "python" in member.name().lower())
    return {"rss_mb": round(sum(sizes.values()), 1), "worker_rss_mb": round(sizes[worker.pid], 1)}
