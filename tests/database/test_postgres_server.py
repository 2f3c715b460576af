"""The embedded server, durable as users have it, each in a directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cograil.embedded import postgres_server as embedded_module
from cograil.embedded.data_directory import Instance, is_held, read_instance, write_instance
from cograil.embedded.postgres_server import EmbeddedPostgres, create_database
from cograil.errors import DatabaseUnavailable, DirectoryInUse, UsageError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about root")

PARENT = textwrap.dedent(
    """
    import signal, sys
    from pathlib import Path
    from cograil.embedded.postgres_server import EmbeddedPostgres
    server = EmbeddedPostgres(Path(sys.argv[1]), guest=sys.argv[2] or None)
    print(server.start(), flush=True)
    print(server.pid, flush=True)
    signal.pause()
    """
)


class Parent:
    """Another process of ours that runs a server, to be killed."""

    def __init__(self, data_dir: Path, guest: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(data_dir), guest], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.conninfo = self.process.stdout.readline().strip()
        self.server = psutil.Process(int(self.process.stdout.readline()))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        if self.process.stdout:
            self.process.stdout.close()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    parent = Parent(tmp_path / "data")
    yield parent
    parent.close()


def execute(conninfo: str, query: str) -> list[Any]:
    with psycopg.connect(conninfo, autocommit=True) as conn:
        cursor = conn.execute(query)
        return [value for (value,) in cursor.fetchall()] if cursor.description else []


def is_gone(process: psutil.Process) -> bool:
    """Dead processes of others stay as zombies until process 1 looks."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_new_directory_becomes_a_durable_server_with_our_database(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "deep" / "data") as server:
        assert conninfo_to_dict(server.conninfo)["dbname"] == "cograil"
        with psycopg.connect(server.conninfo) as conn:
            rows = conn.execute(
                "select name, setting from pg_settings where name in"
                " ('fsync', 'full_page_writes', 'synchronous_commit', 'listen_addresses', 'data_checksums')"
            ).fetchall()
        pid = server.pid
        assert pid is not None
    assert dict(rows) == {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
        "data_checksums": "on",
    }
    assert server.pid is None
    assert not psutil.pid_exists(pid)
    assert "database system is shut down" in server.log.read_text()


def test_only_the_owner_may_enter(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "data") as server:
        socket_dir = Path(str(conninfo_to_dict(server.conninfo)["host"]))
        private = [server.data_dir, server.cluster, socket_dir]
        assert [path.stat().st_mode & 0o077 for path in private] == [0, 0, 0]
        assert server.log.stat().st_mode & 0o077 == 0


def test_rows_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as server:
        execute(server.conninfo, "create table kept as select 1 as x")
    with EmbeddedPostgres(tmp_path) as server:
        assert execute(server.conninfo, "select x from kept") == [1]


def test_a_server_can_be_stopped_twice_and_started_again(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    server.start()
    server.stop()
    server.stop()
    assert execute(server.start(), "select 1") == [1]
    server.stop()


def test_a_second_start_in_the_same_directory_names_the_first(tmp_path: Path) -> None:
    parent = Parent(tmp_path)
    with pytest.raises(DirectoryInUse, match=f"process {parent.process.pid}\\)") as caught:
        EmbeddedPostgres(tmp_path).start()
    assert "--data-dir" in str(caught.value)
    assert execute(parent.conninfo, "select 1") == [1]
    parent.close()


async def test_the_server_ends_cleanly_when_its_parent_is_killed(parent: Parent, eventually: Any) -> None:
    data_dir = Path(str(parent.server.cmdline()[2])).parent
    execute(parent.conninfo, "create table kept as select generate_series(1, 1000) as x")
    parent.kill()
    await eventually(lambda: is_gone(parent.server), timeout=5)
    assert "database system is shut down" in (data_dir / "postgres.log").read_text()
    assert not is_held(data_dir)
    with EmbeddedPostgres(data_dir) as server:
        assert execute(server.conninfo, "select count(*) from kept") == [1000]


def test_a_start_right_after_the_parent_was_killed_waits_for_its_server(parent: Parent) -> None:
    data_dir = Path(str(parent.server.cmdline()[2])).parent
    execute(parent.conninfo, "create table kept as select generate_series(1, 100000) as x")
    parent.kill()
    with EmbeddedPostgres(data_dir) as server:
        assert server.pid != parent.server.pid
        assert execute(server.conninfo, "select count(*) from kept") == [100000]


def test_a_server_that_outlived_its_parent_is_shut_down_first(parent: Parent) -> None:
    """As where the kernel does not tell children, or when the server was stopped just then."""
    data_dir = Path(str(parent.server.cmdline()[2])).parent
    execute(parent.conninfo, "create table kept as select 1 as x")
    parent.server.suspend()
    parent.kill()
    messages: list[str] = []

    def report(message: str) -> None:
        messages.append(message)
        parent.server.resume()

    with EmbeddedPostgres(data_dir, report=report) as server:
        assert execute(server.conninfo, "select x from kept") == [1]
    assert any(f"process {parent.server.pid})" in message for message in messages)


def test_committed_rows_survive_a_kill_of_the_server(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    conninfo = server.start()
    execute(conninfo, "create table kept (x int)")
    with psycopg.connect(conninfo, autocommit=True) as busy:
        busy.execute("insert into kept select generate_series(1, 5000)")
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    server.stop()
    messages: list[str] = []
    with EmbeddedPostgres(tmp_path, report=messages.append) as server:
        assert execute(server.conninfo, "select count(*) from kept") == [5000]
    assert "was not properly shut down" in server.log.read_text()


def test_a_start_waits_for_sessions_that_outlived_their_server(tmp_path: Path) -> None:
    """Two servers must never write to one cluster, nor a server and a session of its predecessor."""
    server = EmbeddedPostgres(tmp_path)
    with psycopg.connect(server.start()) as conn:
        assert server.pid is not None
        session = psutil.Process(conn.info.backend_pid)
        session.suspend()
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
    messages: list[str] = []

    def report(message: str) -> None:
        messages.append(message)
        session.resume()

    with EmbeddedPostgres(tmp_path, report=report) as server:
        assert execute(server.conninfo, "select 1") == [1]
    assert messages
    assert set(messages) == {"waiting for the last processes of the previous PostgreSQL"}


def test_a_recycled_process_id_in_the_pid_file_does_no_harm(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    execute(server.start(), "create table kept as select 1 as x")
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    server.stop()
    pid_file = server.cluster / "postmaster.pid"
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    lines = pid_file.read_text().splitlines(keepends=True)
    pid_file.write_text("".join([f"{stranger.pid}\n", *lines[1:]]))
    with EmbeddedPostgres(tmp_path) as server:
        assert execute(server.conninfo, "select x from kept") == [1]
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_an_initdb_that_was_interrupted_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    half = tmp_path / "pgdata.new-half"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(tmp_path) as server:
        assert execute(server.conninfo, "select 1") == [1]
    assert list(tmp_path.glob("pgdata*")) == [tmp_path / "pgdata"]


def test_a_parent_killed_in_initdb_leaves_no_cluster(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), ""], stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("pgdata.new-*/base")):
        assert process.poll() is None
    process.kill()
    process.wait()
    assert not (tmp_path / "pgdata").exists()
    with EmbeddedPostgres(tmp_path) as server:
        assert execute(server.conninfo, "select 1") == [1]


def test_a_failed_initdb_tells_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        embedded_module, "_initdb", lambda programs, new: [str(programs.path("initdb")), "--no-such-option"]
    )
    with pytest.raises(DatabaseUnavailable, match="no-such-option"):
        EmbeddedPostgres(tmp_path).start()
    assert list(tmp_path.glob("pgdata*")) == []
    assert not is_held(tmp_path)


def test_a_server_that_does_not_start_tells_its_last_words(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, settings={"shared_buffers": "many"})
    with pytest.raises(DatabaseUnavailable, match='invalid value for parameter "shared_buffers": "many"'):
        server.start()
    assert server.pid is None
    assert not is_held(tmp_path)


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long" * 25)
    with EmbeddedPostgres(data_dir) as server:
        socket_dir = Path(str(conninfo_to_dict(server.conninfo)["host"]))
        assert socket_dir.stat().st_mode & 0o777 == 0o700
        assert (data_dir / "run").readlink() == socket_dir
        assert execute(server.conninfo, "select 1") == [1]
    assert not socket_dir.exists()


def test_a_short_socket_of_a_killed_instance_is_cleared_away(tmp_path: Path) -> None:
    parent = Parent(tmp_path / ("long" * 25))
    left_over = Path(str(conninfo_to_dict(parent.conninfo)["host"]))
    parent.close()
    with EmbeddedPostgres(tmp_path / ("long" * 25)) as server:
        assert conninfo_to_dict(server.conninfo)["host"] != str(left_over)
    assert not left_over.exists()


def test_a_directory_with_odd_characters_works(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / 'it\'s, a "dir"') as server:
        assert execute(server.conninfo, "select 1") == [1]


def test_a_large_log_is_put_aside_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_module, "LOG_BYTES", 10)
    with EmbeddedPostgres(tmp_path) as server:
        pass
    before = server.log.read_text()
    with EmbeddedPostgres(tmp_path):
        assert (tmp_path / "postgres.log.1").read_text() == before
    assert not server.log.read_text().startswith(before)


def test_variables_of_the_environment_do_not_change_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("LC_ALL", "xx_YY.bogus")
    monkeypatch.setenv("COGRAIL_DATABASE_URL", "postgresql://me:hush@host/db")
    with EmbeddedPostgres(tmp_path) as server:
        assert b"hush" not in Path(f"/proc/{server.pid}/environ").read_bytes()


def test_the_main_thread_must_start_it(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedPostgres(tmp_path).start()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_a_cluster_is_run_by_the_version_that_made_it(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path, version=16) as server:
        assert execute(server.conninfo, "show server_version")[0].startswith("16.")
    with EmbeddedPostgres(tmp_path) as server:
        assert execute(server.conninfo, "show server_version")[0].startswith("16.")


def test_a_cluster_of_a_version_that_is_not_here_says_so(tmp_path: Path) -> None:
    (tmp_path / "pgdata").mkdir()
    (tmp_path / "pgdata" / "PG_VERSION").write_text("14\n")
    with pytest.raises(DatabaseUnavailable, match=r"programs of PostgreSQL 14 are not on this machine"):
        EmbeddedPostgres(tmp_path).start()


def test_a_directory_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be created"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()


def test_making_a_database_twice_makes_it_once(postgres: str) -> None:
    first = create_database(postgres, "made twice")
    assert create_database(postgres, "made twice") == first
    assert execute(first, "select current_database()") == ["made twice"]
    execute(postgres, 'drop database "made twice"')


def test_a_clean_stop_removes_the_instance_file(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as server:
        facts = {"pid": 1, "host": "h", "port": 1, "version": "v"}
        write_instance(
            Instance(**facts, conninfo="", started_at=datetime.now(UTC), data_dir=server.data_dir)  # type: ignore[arg-type]
        )
    assert read_instance(tmp_path) is None


# Root


@as_root
@pytest.mark.parametrize("guest", ["namespace", "65534:65534"])
async def test_root_runs_it_as_a_guest_in_a_directory_only_root_may_enter(
    tmp_path: Path, guest: str, eventually: Any
) -> None:
    tmp_path.chmod(0o700)
    parent = Parent(tmp_path / "data", guest)
    execute(parent.conninfo, "create table kept as select 1 as x")
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    parent.kill()
    await eventually(lambda: is_gone(parent.server), timeout=5)
    assert "database system is shut down" in (tmp_path / "data" / "postgres.log").read_text()
    with EmbeddedPostgres(tmp_path / "data") as server:
        assert execute(server.conninfo, "select x from kept") == [1]
    parent.close()
