"""A folder on a network file system, as far as its system calls answer like one: leases and locks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually

from cograil.apps.documents import file_claims, locks
from cograil.apps.documents.folder_id import lock_for_database
from cograil.apps.documents.services import Service
from cograil.apps.documents.settings import DocumentSettings
from cograil.errors import Conflict

NFS = 0x6969


def refuse_leases(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    real = fcntl.fcntl

    def played(descriptor: int, command: int, *more: Any) -> Any:
        if command == fcntl.F_SETLEASE:
            raise OSError(number, os.strerror(number))
        return real(descriptor, command, *more)

    monkeypatch.setattr(fcntl, "fcntl", played)


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a delegation a lease is not given, and a file open for reading gets no exclusive lock."""
    refuse_leases(monkeypatch, errno.EAGAIN)
    real_lock, real_look = fcntl.flock, fcntl.fcntl

    def flock(descriptor: int, what: int) -> None:
        mode = real_look(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if what & fcntl.LOCK_EX and mode == os.O_RDONLY and os.path.isfile(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real_lock(descriptor, what)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(locks, "file_system_of", lambda descriptor: NFS)


def test_a_file_system_says_which_one_it_is() -> None:
    with open("/proc/self/stat") as file:
        assert locks.file_system_of(file.fileno()) == 0x9FA0
    assert locks.file_system_of(-1) == 0


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.EINVAL, errno.ESTALE])
async def test_a_lease_that_is_refused_stops_no_folder(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, number: int
) -> None:
    refuse_leases(monkeypatch, number)
    site.drop("a.cbz")
    assert file_claims.has_writer_open(site.folder.arrivals / "a.cbz") is None
    await site.look()
    assert site.names("in") == ["a.cbz"]

    async def taken() -> bool:
        await site.look()
        return len(await site.documents()) == 1

    await eventually(taken)


async def test_a_file_on_nfs_is_taken_when_it_was_still_for_a_while(
    site: DocumentSite, on_nfs: None, eventually: Eventually
) -> None:
    path = site.drop("a.cbz")
    await site.look()
    assert site.names("in") == ["a.cbz"]

    async def taken() -> bool:
        await site.look()
        return len(await site.documents()) == 1

    await eventually(taken)
    (document,) = await site.documents()
    assert site.names("in") == site.names("work/_staging") == []
    assert (site.folder.work_dir(document.key) / path.name).exists()


@pytest.mark.parametrize("is_foreign", [False, True])
def test_on_nfs_one_alone_holds_a_file(
    tmp_path: Path, on_nfs: None, monkeypatch: pytest.MonkeyPatch, is_foreign: bool
) -> None:
    """A folder without write access is held by a file beside it, which goes when its holder goes."""
    path = sample_documents.tiny(tmp_path / "a.cbz")
    real = os.open

    def opened(name: Any, flags: int, *more: Any) -> int:
        if is_foreign and Path(name) == path and flags & os.O_ACCMODE != os.O_RDONLY:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(name, flags, *more)

    monkeypatch.setattr(os, "open", opened)
    with file_claims.locked(path) as is_mine:
        with file_claims.locked(path) as is_another:
            pass
        assert len(list(tmp_path.iterdir())) == 1 + is_foreign
    with file_claims.locked(path) as is_mine_again:
        pass
    assert (is_mine, is_another, is_mine_again) == (True, False, True)
    assert list(tmp_path.iterdir()) == [path]
    with file_claims.locked(tmp_path / "gone") as is_mine:
        assert not is_mine


def test_on_nfs_a_folder_is_of_one_database(tmp_path: Path, on_nfs: None) -> None:
    first = lock_for_database(tmp_path, "first")
    with pytest.raises(Conflict):
        lock_for_database(tmp_path, "second")
    os.close(first)
    os.close(lock_for_database(tmp_path, "second"))


def test_where_there_are_no_locks_nothing_is_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No locks"):
        lock_for_database(tmp_path, "first")
    assert os.listdir("/proc/self/fd") == before


async def test_on_nfs_a_service_that_is_alone_takes_up_what_was_left(tmp_path: Path, on_nfs: None) -> None:
    """It is locked by a file: a lock on a directory is of one machine there."""
    first, second = (Service("prep", tmp_path, DocumentSettings()) for _ in range(2))
    left = tmp_path / "prep/running/one.json"
    left.write_text("{}")
    lock = first._join()
    assert not left.exists()
    (tmp_path / "prep/queue/one.json").rename(left)
    other = second._join()
    assert left.exists()
    assert stat.S_ISREG(os.fstat(lock).st_mode)
    os.close(lock)
    os.close(other)
