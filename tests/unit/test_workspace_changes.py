"""A workspace in which somebody is at work while we read it, or has made more than anybody can name."""

from __future__ import annotations

import contextlib
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cograil.workspace import Workspace, WorkspaceError, file_list, list_files, tar_create, write_archive
from cograil.workspace.confined_tree import remove_tree


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x").write_text("secret")
    return tmp_path / "room"


@contextlib.contextmanager
def swapping(room: Path) -> Iterator[None]:
    """`d` is a directory with a file, then a link to one elsewhere, and so on."""
    stop = threading.Event()

    def swap() -> None:
        above = os.open(room, os.O_RDONLY)
        while not stop.is_set():
            os.symlink("../elsewhere", "d", dir_fd=above)
            stop.wait(0.0005)  # each is there for a moment
            os.unlink("d", dir_fd=above)
            os.mkdir("d", dir_fd=above)
            (room / "d/x").write_text("ours")
            stop.wait(0.0005)
            remove_tree(above, "d")
        os.close(above)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def read(workspace: Workspace) -> bytes:
    with workspace.reading("d/x") as file:
        return file.read()


def packed(workspace: Workspace) -> bytes:
    write_archive(workspace, "d", "all.tar.gz")
    with workspace.reading("all.tar.gz") as file, tarfile.open(fileobj=file) as archive:
        return b"".join(archive.extractfile(member).read() for member in archive)  # type: ignore[union-attr]


@pytest.mark.parametrize("look", [read, packed])
def test_a_directory_that_becomes_a_link_is_not_read_through(
    room: Path, look: Callable[[Workspace], bytes]
) -> None:
    seen: set[bytes] = set()
    refused: set[str] = set()
    with Workspace(room) as workspace, swapping(room):
        while not (b"ours" in seen and "not_a_regular_file" in refused):
            try:
                seen.add(look(workspace))
            except WorkspaceError as error:
                refused.add(error.code)
    assert seen <= {b"ours", b""}
    assert refused <= {"not_a_regular_file", "file_not_found", "workspace_changed"}


# -- what is there no more when its turn comes


def gone(room: Path) -> None:
    (room / "src/a").unlink()


def directory_gone(room: Path) -> None:
    (room / "src/d/x").unlink()
    (room / "src/d").rmdir()


def directory_elsewhere(room: Path) -> None:
    directory_gone(room)
    (room / "src/d").symlink_to("../../elsewhere")


@pytest.mark.parametrize("change", [gone, directory_gone, directory_elsewhere])
def test_a_tree_that_changes_while_it_is_read_is_no_archive(
    room: Path, change: Callable[[Path], None]
) -> None:
    """It changes when the first name was told, which is that of a link."""
    (room / "src/d").mkdir(parents=True)
    (room / "src/a").write_text("a")
    (room / "src/d/x").write_text("x")
    (room / "src/z").symlink_to("a")
    with Workspace(room) as workspace, pytest.raises(WorkspaceError) as caught:
        write_archive(workspace, "src", "all.tar.gz", on_skipped=lambda _: change(room))
    assert caught.value.code == "workspace_changed"
    assert os.listdir(room) == ["src"]


@pytest.mark.parametrize("length", [0, 200_000])
def test_a_file_that_shrinks_is_no_archive_and_one_that_grows_is_cut(
    room: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    (room / "x").write_bytes(b"x" * 100_000)
    add = tarfile.TarFile.addfile

    def change_first(*args: Any) -> None:
        os.truncate(room / "x", length)
        add(*args)

    monkeypatch.setattr(tarfile.TarFile, "addfile", change_first)
    with Workspace(room) as workspace:
        if length:
            write_archive(workspace, "x", "all.tar.gz")
            with tarfile.open(room / "all.tar.gz") as archive:
                assert archive.getmember("x").size == 100_000
            return
        with pytest.raises(WorkspaceError) as caught:
            write_archive(workspace, "x", "all.tar.gz")
    assert caught.value.code == "workspace_changed"
    assert os.listdir(room) == ["x"]


# -- more than anybody can name


def refusals(room: Path) -> list[str]:
    """What an archive and a list of it say, if they refuse; what is left out counts as well."""
    codes = []
    with Workspace(room) as workspace:
        for look in (
            lambda: write_archive(workspace, ".", "all.tar.gz"),
            lambda: list_files(workspace, ".", excludes=["*.tmp"]),
        ):
            try:
                look()
            except WorkspaceError as error:
                codes.append(error.code)
    assert not (room / "all.tar.gz").exists() or not codes
    return codes


@pytest.mark.parametrize("name", ["{}", "{}.tmp", "{}/"])
def test_more_names_than_may_be_seen_are_refused(
    room: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for number in range(30):
        path = room / name.format(number)
        path.mkdir() if name.endswith("/") else path.touch()
    monkeypatch.setattr(file_list, "MAX_SEEN", 40)
    assert refusals(room) == []
    (room / "all.tar.gz").unlink()
    monkeypatch.setattr(file_list, "MAX_SEEN", 29)
    assert refusals(room) == ["too_many_files"] * 2


def test_more_files_than_may_be_told_are_refused(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (room / str(number)).touch()
    for module in (tar_create, file_list):
        monkeypatch.setattr(module, "MAX_FILES", 29)
    assert refusals(room) == ["too_many_files"] * 2


def test_names_at_the_end_of_a_long_path_do_not_fill_the_memory(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is short; as paths they are not."""
    at = os.open(room, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d" * 200, dir_fd=at)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    for number in range(200):
        os.mkdir(str(number), dir_fd=at)
    os.close(at)
    monkeypatch.setattr(file_list, "MAX_CHARACTERS", 4 * 1024**2)
    assert refusals(room) == ["too_many_files"] * 2
    monkeypatch.setattr(file_list, "MAX_CHARACTERS", 8 * 1024**2)
    assert refusals(room) == []


def test_a_walk_is_not_endlessly_deep(room: Path) -> None:
    at = os.open(room, os.O_RDONLY)
    for _ in range(file_list.DEEPEST_WALK + 1):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    assert refusals(room) == ["too_deep"] * 2
