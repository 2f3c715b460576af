"""A workspace whose inhabitants swap files for links: nothing in it leads out of it."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import tarfile
import threading
from pathlib import Path

import pytest

from cograil.workspace import Workspace, WorkspaceError, list_files, split_path, write_archive
from cograil.workspace.confined_tree import remove_tree


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "room"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", "unsafe_path"),
        (".", "unsafe_path"),
        ("..", "unsafe_path"),
        ("../x", "unsafe_path"),
        ("a/../../x", "unsafe_path"),
        ("/etc/passwd", "unsafe_path"),
        ("C:\\x", "unsafe_path"),
        ("\\\\host\\x", "unsafe_path"),
        ("%2e%2e%2f/../x", "unsafe_path"),
        ("a\0b", "unsafe_name"),
        ("a\nb", "unsafe_name"),
        ("\x1b[2J", "unsafe_name"),
        ("\x7f", "unsafe_name"),
        ("\ud800", "unsafe_name"),
        ("\x85", "unsafe_name"),
        ("a\u2028b", "unsafe_name"),
        ("\u202efdp.exe", "unsafe_name"),
        ("x" * 256, "unsafe_path"),
        ("é" * 128, "unsafe_path"),
        ("d/" * 33 + "x", "unsafe_path"),
        (("d" * 200 + "/") * 6, "unsafe_path"),
        (".cograil-x/y", "reserved_name"),
        ("y/.cograil", "reserved_name"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str, code: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        split_path(path)
    assert caught.value.code == code


def test_a_plain_path_is_its_steps() -> None:
    assert split_path("a/./b//c/") == ("a", "b", "c")
    assert split_path("~/é x.part") == ("~", "é x.part")
    assert split_path("%2e%2e%2fx/%252e%252e") == ("%2e%2e%2fx", "%252e%252e"), "nothing is decoded"
    assert split_path("/".join(["d" * 31] * 32)), "the longest and deepest there is"
    assert split_path(".", is_root_allowed=True) == ()


@pytest.mark.parametrize(
    "name", ["at 1.00\u202fPM.png", "a\u00a0b\u3000c", "\U0001f468\u200d\U0001f469", "\U0001fae8"]
)
def test_names_that_people_give_are_taken(name: str) -> None:
    assert split_path(f"d/{name}") == ("d", name)


def test_a_written_file_is_there_whole_or_not_at_all(room: Path) -> None:
    with Workspace(room) as workspace:
        with workspace.writing("deep/er/x") as file:
            file.write(b"one")
            assert not (room / "deep/er/x").exists()
        assert (room / "deep/er/x").read_bytes() == b"one"
        with contextlib.suppress(ZeroDivisionError), workspace.writing("deep/er/x") as file:
            file.write(b"two")
            raise ZeroDivisionError
    assert (room / "deep/er/x").read_bytes() == b"one"
    assert os.listdir(room / "deep/er") == ["x"]


def test_the_user_of_the_workspace_may_write_our_files(room: Path) -> None:
    with Workspace(room) as workspace, workspace.writing("deep/x"):
        pass
    assert (room / "deep").stat().st_mode & 0o777 == 0o777
    assert (room / "deep/x").stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize("what", ["link", "through a link", "directory", "fifo", "socket", "missing"])
def test_only_regular_files_inside_are_read(room: Path, what: str) -> None:
    match what:
        case "link":
            (room / "x").symlink_to("../secret")
        case "through a link":
            (room / "d").symlink_to("..")
        case "directory":
            (room / "x").mkdir()
        case "fifo":
            os.mkfifo(room / "x")
        case "socket":
            os.mknod(room / "x", stat.S_IFSOCK)
    path = "d/secret" if what == "through a link" else "x"
    with (
        Workspace(room) as workspace,
        pytest.raises(WorkspaceError) as caught,
        workspace.reading(path),
    ):
        pass
    assert caught.value.code == ("file_not_found" if what == "missing" else "not_a_regular_file")


def test_devices_are_not_read() -> None:
    with Workspace(Path("/dev")) as workspace:
        for name in ("null", "zero"):
            with pytest.raises(WorkspaceError) as caught, workspace.reading(name):
                pass
            assert caught.value.code == "not_a_regular_file"


def test_a_write_replaces_a_file_but_not_a_directory(room: Path) -> None:
    (room / "x").write_text("old")
    (room / "d").mkdir()
    with Workspace(room) as workspace:
        with workspace.writing("x") as file:
            file.write(b"new")
        with pytest.raises(WorkspaceError) as caught, workspace.writing("d"):
            pass
    assert caught.value.code == "not_a_regular_file"
    assert (room / "x").read_text() == "new"
    assert sorted(os.listdir(room)) == ["d", "x"]


def test_a_write_replaces_a_link_and_does_not_follow_it(room: Path) -> None:
    (room / "x").symlink_to("../secret")
    (room / "d").symlink_to("..")
    with Workspace(room) as workspace:
        with workspace.writing("x") as file:
            file.write(b"new")
        with pytest.raises(WorkspaceError), workspace.writing("d/secret"):
            pass
    assert (room.parent / "secret").read_text() == "secret"
    assert not (room / "x").is_symlink()


def test_a_directory_that_is_swapped_for_a_link_all_the_time_never_leads_out(room: Path) -> None:
    (room.parent / "elsewhere").mkdir()
    stop = threading.Event()

    def swap() -> None:
        above = os.open(room, os.O_RDONLY)
        while not stop.is_set():
            with contextlib.suppress(OSError):
                remove_tree(above, "d")
                os.symlink("../elsewhere", "d", dir_fd=above)
            with contextlib.suppress(OSError):
                remove_tree(above, "d")
                os.mkdir("d", dir_fd=above)
        os.close(above)

    swapping = threading.Thread(target=swap)
    swapping.start()
    with Workspace(room) as workspace:
        written = sum(_writes(workspace, "d/x") for _ in range(500))
    stop.set()
    swapping.join()
    assert 0 < written < 500
    assert os.listdir(room.parent / "elsewhere") == []


def _writes(workspace: Workspace, path: str) -> bool:
    with contextlib.suppress(WorkspaceError, FileNotFoundError), workspace.writing(path) as file:
        file.write(b"x")
        return True
    return False


# -- lists


def test_files_are_listed_in_order_without_what_is_left_out(room: Path) -> None:
    for name in ("b", "a/x.log", "a/y", "node_modules/deep/z", "a/.git/config", ".cograil-hidden"):
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_text("x")
    (room / "link").symlink_to("/etc")
    excludes = ["node_modules", ".git", "*.log"]
    with Workspace(room) as workspace:
        assert list_files(workspace, ".", excludes=excludes) == ["a/y", "b", "link"]
        assert list_files(workspace, ".", recursive=False) == ["b", "link"]
        assert list_files(workspace, "a", excludes=["x*"]) == [".git/config", "y"]
        assert list_files(workspace, "a/y") == ["y"]
        for path in ("nothing", "nothing/x", "link"):
            with pytest.raises(WorkspaceError):
                list_files(workspace, path)


def test_odd_names_are_listed_in_a_way_that_json_can_tell(room: Path) -> None:
    with open(os.fsencode(room) + b"/\xff\n", "wb"):
        pass
    with Workspace(room) as workspace:
        assert list_files(workspace, ".") == ["\ufffd\n"]


# -- archives


def names(packed: Path) -> list[str]:
    with tarfile.open(packed) as archive:
        return sorted(archive.getnames())


def test_a_directory_is_archived_without_links_and_without_itself(room: Path) -> None:
    (room / "out/d").mkdir(parents=True)
    (room / "out/d/x").write_bytes(os.urandom(100_000))
    (room / "out/run").write_text("#!")
    (room / "out/run").chmod(0o755)
    (room / "out/link").symlink_to("/etc/passwd")
    os.mkfifo(room / "out/fifo")
    skipped: list[str] = []
    with Workspace(room) as workspace:
        assert write_archive(workspace, "out", "out/all.tar.gz", on_skipped=skipped.append) == 2
    assert sorted(skipped) == ["fifo", "link"]
    assert names(room / "out/all.tar.gz") == ["d/x", "run"]
    with tarfile.open(room / "out/all.tar.gz") as archive:
        assert archive.getmember("run").mode == 0o755
        file = archive.extractfile("d/x")
        assert file is not None
        assert file.read() == (room / "out/d/x").read_bytes()


def test_a_file_is_archived_under_its_name(room: Path) -> None:
    (room / "d").mkdir()
    (room / "d/x").write_text("x")
    with Workspace(room) as workspace:
        write_archive(workspace, "d/x", "x.tar.gz")
    assert names(room / "x.tar.gz") == ["x"]


def test_the_same_files_make_the_same_archive(room: Path) -> None:
    (room / "x").write_text("x")
    with Workspace(room) as workspace:
        for target in ("1.tar.gz", "2.tar.gz"):
            write_archive(workspace, "x", target)
    assert (room / "1.tar.gz").read_bytes() == (room / "2.tar.gz").read_bytes()


def test_a_sparse_giant_is_refused_by_its_apparent_size(room: Path) -> None:
    with open(room / "giant", "wb") as file:
        file.truncate(100 << 30)
    with Workspace(room) as workspace, pytest.raises(WorkspaceError) as caught:
        write_archive(workspace, "giant", "x.tar.gz")
    assert caught.value.code == "too_large"
    assert os.listdir(room) == ["giant"]


def test_a_source_that_is_not_there_leaves_nothing(room: Path) -> None:
    with Workspace(room) as workspace, pytest.raises(WorkspaceError):
        write_archive(workspace, "nothing", "x.tar.gz")
    assert os.listdir(room) == []


def test_an_empty_directory_is_an_empty_archive(room: Path) -> None:
    (room / "d").mkdir()
    with Workspace(room) as workspace:
        assert write_archive(workspace, "d", "x.tar.gz") == 0
    assert not gzip.decompress((room / "x.tar.gz").read_bytes()).strip(b"\0")


# -- the end


def test_a_tree_of_any_depth_and_mode_is_removed(room: Path) -> None:
    at = os.open(room, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    (room / "link").symlink_to("..")
    (room / "d").chmod(0)
    above = os.open(room.parent, os.O_RDONLY)
    remove_tree(above, "room")
    os.close(above)
    assert os.listdir(room.parent) == ["secret"]
