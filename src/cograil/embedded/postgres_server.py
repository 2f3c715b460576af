"""PostgreSQL as a child process: one call starts it, whatever state the last run left.

Promises:
- It ends with this process. When this process is killed, the kernel asks PostgreSQL to shut down
  (`run_as_exec.py`).
- It starts again after any failure: kill -9 of this process, of the server, or during initdb, and a reused
  process id.
- It is durable: fsync and full_page_writes are never changed here (tests pass their own settings).
- One instance runs per data directory; the error of a second one names the first.
- It listens only on a Unix socket in a directory that only its owner may enter.
- As root it creates no account and changes no permission outside the data directory.

    DATA/pgdata         the cluster; it appears by rename, complete, or not at all
    DATA/run            the directory of the socket; a link to a short temporary one if DATA is too long
    DATA/postgres.log   the log of the server; postgres.log.1 is the previous one
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cograil.embedded.data_directory import DirectoryLock, make_directory, remove_instance
from cograil.embedded.postgres_binaries import Binaries, binaries
from cograil.embedded.postmaster import Predecessor
from cograil.embedded.run_as import choose_guest, command_as, hand_over, in_words
from cograil.errors import DatabaseUnavailable

SUPERUSER = "postgres"
DATABASE = "cograil"

READY_SECONDS = 900.0
STOP_SECONDS = 60.0
LOG_BYTES = 8 * 1024 * 1024
SOCKET_PATH_BYTES = 107
SOCKET_NAME = ".s.PGSQL.5432"

ACCOUNT_HINT = (
    "\nPostgreSQL creates no database for a user without an account, and user namespaces are not allowed here: "
    "add this user to /etc/passwd, or set COGRAIL_DATABASE_URL to a server of your own."
)

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": "5432",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "wal_buffers": "16MB",  # with 4, a busy worker and a busy orchestrator wait for space
    "max_logical_replication_workers": "0",  # saves the memory of one process
    "jit": "off",  # statements are short: compiling one costs more than running it
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}

Report = Callable[[str], None]


class EmbeddedPostgres:
    """One PostgreSQL server in one data directory.

    Call `start` in the main thread, because the kernel ends a child together with the thread that created
    it. `report` receives messages about the reason of a long start. `guest` overrides the user that runs
    the server for root (see `run_as_exec.py`). The next instance that starts waits for one that is
    `is_brief`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        version: int | None = None,
        settings: Mapping[str, str] | None = None,
        report: Report = lambda _: None,
        guest: str | None = None,
        is_brief: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self._version = version
        self._settings = {**SETTINGS, **(settings or {})}
        self._report = report
        self._guest = guest
        self._is_brief = is_brief
        self._lock: DirectoryLock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def cluster(self) -> Path:
        return self.data_dir / "pgdata"

    @property
    def log(self) -> Path:
        return self.data_dir / "postgres.log"

    @property
    def pid(self) -> int | None:
        """Return the process id of the server while it runs as a child of this process."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def conninfo(self) -> str:
        """Return the connection string of cograil's database."""
        return make_conninfo(host=str(self._socket_dir()), port="5432", user=SUPERUSER, dbname=DATABASE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> str:
        """Start the server, wait until it answers and has the database, and return the connection string.

        Raises DirectoryInUse when another instance runs here, DatabaseUnavailable with the end of the
        server's log when it does not start. No process is left running then.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "EmbeddedPostgres.start() must run in the main thread: the server would end with this one"
            )
        self.data_dir = make_directory(self.data_dir)
        lock = DirectoryLock(self.data_dir, is_brief=self._is_brief)
        lock.take()
        self._lock = lock
        try:
            self._prepare_and_run()
            return create_database(make_conninfo(self.conninfo, dbname="postgres"), DATABASE)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Shut down cleanly; by force only after a minute. Does nothing when the server is not running."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        if self._lock is not None:
            self._remove_socket_dir()
            remove_instance(self.data_dir)
            self._lock.release()
            self._lock = None

    def _prepare_and_run(self) -> None:
        programs = self._programs()
        predecessor = Predecessor(self.cluster)
        predecessor.end(self._report)
        guest = self._guest or choose_guest(programs, self.data_dir, self.cluster)
        if not self.cluster.exists():
            self._make_cluster(programs, guest)
        self._make_socket_dir()
        hand_over([self.cluster, self._socket_dir()], guest)
        self._rotate_log()
        self._run(programs, guest, predecessor.environment())

    def _programs(self) -> Binaries:
        """Return the programs of the version that created the cluster: PostgreSQL reads no other version's
        files.
        """
        with suppress(FileNotFoundError):
            made_by = int((self.cluster / "PG_VERSION").read_text(encoding="ascii"))
            return binaries(made_by)
        return binaries(self._version)

    def _make_cluster(self, programs: Binaries, guest: str) -> None:
        """Create the cluster. A kill leaves a directory that the next start removes."""
        for left_over in self.data_dir.glob("pgdata.new-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        self._report(f"creating a new database{in_words(guest)}")
        new = Path(tempfile.mkdtemp(prefix="pgdata.new-", dir=self.data_dir))
        hand_over([new], guest)
        command = command_as(guest, self.data_dir, _initdb(programs, new))
        done = subprocess.run(
            command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(new, ignore_errors=True)
            output = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
            hint = ACCOUNT_HINT if "could not look up effective user ID" in output else ""
            raise DatabaseUnavailable(f"initdb failed in {self.data_dir}:\n{output[-2000:]}{hint}")
        new.rename(self.cluster)
        _sync_directory(self.data_dir)

    def _socket_dir(self) -> Path:
        """Return the directory of the socket: DATA/run itself, or its target."""
        run = self.data_dir / "run"
        return run.readlink() if run.is_symlink() else run

    def _make_socket_dir(self) -> None:
        """Create the directory again for each start, so that it has no socket or lock of a dead server."""
        self._remove_socket_dir()
        run = self.data_dir / "run"
        if _fits(run):
            run.mkdir(mode=0o700)
            return
        parent = next(
            (p for p in (tempfile.gettempdir(), "/tmp") if _fits(Path(p) / "cograil-12345678")), None
        )
        if parent is None:
            raise DatabaseUnavailable(
                f"the names of {run} and of the temporary directory are too long for a socket"
            )
        run.symlink_to(tempfile.mkdtemp(prefix="cograil-", dir=parent))

    def _remove_socket_dir(self) -> None:
        shutil.rmtree(self._socket_dir(), ignore_errors=True)
        run = self.data_dir / "run"
        if run.is_symlink():
            run.unlink()

    def _rotate_log(self) -> None:
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_BYTES:
                self.log.rename(self.log.with_name("postgres.log.1"))

    def _run(self, programs: Binaries, guest: str, environment: Mapping[str, str]) -> None:
        options = {**self._settings, "unix_socket_directories": f'"{self._socket_dir()}"'}
        server = [str(programs.path("postgres")), "-D", str(self.cluster)]
        server += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = command_as(guest, self.data_dir, server)
        until = time.monotonic() + STOP_SECONDS
        while True:
            self._spawn(command, environment)
            if self._becomes_ready():
                return
            # Children of a killed server still hold its shared memory; they end soon.
            if "shared memory block" not in self._last_words() or time.monotonic() > until:
                raise DatabaseUnavailable(f"PostgreSQL did not start ({self.log}):\n{self._last_words()}")
            self._report("waiting for the last processes of the previous PostgreSQL")
            time.sleep(0.2)

    def _spawn(self, command: list[str], environment: Mapping[str, str]) -> None:
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "ab") as log:
            self._log_start = os.fstat(descriptor).st_size
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_environment(), **environment},
                start_new_session=True,  # this process passes keyboard interrupts on
            )

    def _becomes_ready(self) -> bool:
        """Return True when the server answers, False when it ended. Crash recovery may take a while."""
        began = last_report = time.monotonic()
        pause = 0.01
        while self.pid is not None:
            try:
                psycopg.connect(make_conninfo(self.conninfo, dbname="postgres", connect_timeout="10")).close()
                return True
            except psycopg.OperationalError as error:
                reason = str(error).strip().splitlines()[-1]
            now = time.monotonic()
            if now - began > READY_SECONDS:
                raise DatabaseUnavailable(f"PostgreSQL does not answer after {READY_SECONDS:.0f} s: {reason}")
            if now - last_report > 2:
                self._report(f"waiting for PostgreSQL for {now - began:.0f} s: {reason}")
                last_report = now
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)
        return False

    def _last_words(self) -> str:
        with open(self.log, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")[-2000:].strip()


def create_database(conninfo: str, name: str) -> str:
    """Create this database unless it exists; return its connection string."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        if not connection.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
            with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    return make_conninfo(conninfo, dbname=name)


def _initdb(programs: Binaries, new: Path) -> list[str]:
    """Return the arguments: the same text order on every machine; no passwords, because only a socket is
    open.
    """
    command = [str(programs.path("initdb")), "-D", str(new), "-U", SUPERUSER, "--encoding=UTF8", "--locale=C"]
    if programs.version >= 17:
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return [*command, "--data-checksums", "--auth-local=trust", "--auth-host=reject"]


def _environment() -> dict[str, str]:
    """Return an environment without secrets and without variables that change PostgreSQL's behaviour."""
    inherited = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in inherited if name in os.environ} | {"LC_ALL": "C"}


def _fits(directory: Path) -> bool:
    """Return whether the path is short enough for a socket, and neither a host list nor a quote for a
    client.
    """
    if set(str(directory)) & {",", '"'}:
        return False
    return len(os.fsencode(directory / SOCKET_NAME)) <= SOCKET_PATH_BYTES


def _end(process: subprocess.Popen[bytes]) -> None:
    """Shut down fast; then immediately, which recovers at the next start; then by SIGKILL."""
    for number, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
