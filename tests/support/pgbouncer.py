"""A real PgBouncer before a real PostgreSQL, for tests."""

from __future__ import annotations

import configparser
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.components import need

from cograil.embedded.postgres_binaries import binaries
from cograil.embedded.run_as import choose_guest, command_as, hand_over

USER = "pooler"  # as whom the pooler connects, so that its sessions can be told from others
PORT = "6432"
EXAMPLE = Path(__file__).parents[2] / "examples" / "pgbouncer.ini"


@dataclass(frozen=True, slots=True)
class PgBouncer:
    """A running PgBouncer; `url` leads through it to the database it was started for."""

    url: str
    direct_url: str


@contextlib.contextmanager
def open_pgbouncer(direct_url: str, *, size: int = 2, more: str = "") -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode with `size` sessions; `more` goes to its configuration."""
    with psycopg.connect(direct_url, autocommit=True) as admin:
        if not admin.execute("select 1 from pg_roles where rolname = %s", [USER]).fetchone():
            admin.execute(f"create role {USER} superuser login")
    directory = Path(tempfile.mkdtemp(prefix="cograil-pool-"))  # short: it holds a socket
    try:
        configuration = directory / "pgbouncer.ini"
        configuration.write_text(_configuration(direct_url, directory, size, more), encoding="utf-8")
        guest = choose_guest(binaries(), directory, directory / "none")
        hand_over([directory], guest)
        command = command_as(guest, directory, [_program(), str(configuration)])
        url = make_conninfo(direct_url, host=str(directory), port=PORT, user="anybody")
        with open(directory / "said", "wb") as log_file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file)
        try:
            _wait_until_it_answers(process, url, directory / "said")
            yield PgBouncer(url, direct_url)
        finally:
            process.terminate()
            process.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _program() -> str:
    need("pgbouncer")
    return str(shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin"))


def _configuration(direct_url: str, directory: Path, size: int, more: str) -> str:
    """examples/pgbouncer.ini, with what is another here: servers, sockets, and who may come."""
    server = conninfo_to_dict(direct_url)
    example = configparser.ConfigParser(inline_comment_prefixes=None)
    example.read(EXAMPLE, encoding="utf-8")
    settings = dict(example["pgbouncer"]) | {
        "default_pool_size": str(size),
        "listen_addr": "",
        "listen_port": PORT,
        "unix_socket_dir": str(directory),
        "auth_type": "any",
    }
    del settings["auth_file"]
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
    where = f"host={server['host']} port={server['port']} user={USER}"
    return f"[databases]\n* = {where}\n[pgbouncer]\n{lines}\n{more}\n"


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"PgBouncer does not answer: {log_path.read_text()}") from None
            time.sleep(0.02)
