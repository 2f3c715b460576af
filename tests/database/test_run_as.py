"""As whom root runs PostgreSQL; that it runs, and ends with its parent, is in test_embedded.py."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from cograil.embedded import run_as as guests_module
from cograil.embedded.postgres_binaries import Binaries, binaries
from cograil.embedded.postgres_server import EmbeddedPostgres
from cograil.embedded.run_as import choose_guest, in_words
from cograil.errors import CograilError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="about root")


def test_a_cluster_goes_from_guest_to_guest(tmp_path: Path) -> None:
    for guest in ("namespace", "65534:65534", "namespace"):
        with EmbeddedPostgres(tmp_path, guest=guest) as server, psycopg.connect(server.conninfo) as conn:
            conn.execute("create table if not exists kept ()")


def test_no_account_is_made_for_it(tmp_path: Path) -> None:
    accounts = [Path(name).read_bytes() for name in ("/etc/passwd", "/etc/group")]
    with EmbeddedPostgres(tmp_path) as server, psycopg.connect(server.conninfo) as conn:
        assert conn.execute("select 1").fetchone() == (1,)
    assert [Path(name).read_bytes() for name in ("/etc/passwd", "/etc/group")] == accounts


FEW_ACCOUNTS = "root:x:0:0::/root:/bin/sh\ndaemon:x:1:1::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"

START = """
import os, sys
from pathlib import Path
from cograil.embedded.postgres_server import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1]), report=print) as server:
    print(os.geteuid(), Path(f"/proc/{server.pid}").stat().st_uid)
"""


@pytest.mark.parametrize(
    "surroundings",
    [
        pytest.param(["unshare", "--user", "--map-user=1", "--map-group=1"], id="a person"),
        pytest.param(["unshare", "--user", "--map-user=54321", "--map-group=54321"], id="a number only"),
        pytest.param(
            ["unshare", "--mount", "sh", "-c", 'mount --bind passwd /etc/passwd; exec "$@"', "sh"],
            id="root where nobody else lives",
        ),
    ],
)
def test_initdb_runs_for_a_user_without_an_account(tmp_path: Path, surroundings: list[str]) -> None:
    """initdb runs for nobody without an account, and a fresh machine or a container has few of them."""
    (tmp_path / "passwd").write_text(FEW_ACCOUNTS)
    command = [*surroundings, sys.executable, "-c", START, "data"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    us, server = done.stdout.split()[-2:]
    assert us == server
    assert (tmp_path / "data" / "pgdata").stat().st_uid == 0


def test_a_cluster_that_belongs_to_an_account_is_not_made_without_a_word() -> None:
    assert in_words("65534:65534").startswith("; it belongs to nobody,")
    assert in_words("54321:54321").startswith("; it belongs to 54321,")
    assert in_words("namespace") == in_words("self") == ""


def test_root_prefers_a_namespace_and_leaves_a_cluster_to_its_owner(tmp_path: Path) -> None:
    cluster = tmp_path / "pgdata"
    assert choose_guest(binaries(), tmp_path, cluster) == "namespace"
    cluster.mkdir()
    os.chown(cluster, 65534, 65534)
    assert choose_guest(binaries(), tmp_path, cluster) == "65534:65534"


def test_root_runs_it_by_an_account_where_a_namespace_does_not_help(tmp_path: Path) -> None:
    """In a namespace root is nobody special: it may enter its own directories only."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12345, 12345)
    with EmbeddedPostgres(theirs / "data") as server, psycopg.connect(server.conninfo) as conn:
        assert conn.execute("select 1").fetchone() == (1,)
        assert os.stat(f"/proc/{server.pid}").st_uid in account_ids()
    assert theirs.stat().st_mode & 0o777 == 0o700


def account_ids() -> set[int]:
    return {account.pw_uid for account in pwd.getpwall() if account.pw_name in guests_module.ACCOUNTS}


def test_when_nobody_can_run_it_every_try_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Binaries(18, tmp_path / "no" / "bin")
    monkeypatch.setattr(guests_module, "ACCOUNTS", ("nobody", "no such account"))
    with pytest.raises(CograilError) as caught:
        choose_guest(broken, tmp_path, tmp_path / "pgdata")
    message = str(caught.value)
    assert "namespace:" in message
    assert "65534:65534:" in message
    assert "COGRAIL_DATABASE_URL" in message
