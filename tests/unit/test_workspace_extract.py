"""Archives of unknown origin: what is good comes out whole, what is not leaves nothing behind."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.hostile_archives import HOSTILE, SKIPPED, link
from tests.support.tar_entries import BLOCK, entry, header, pax, tar_gz

from cograil.workspace import ArchiveBounds, Extracted, Workspace, WorkspaceError, extract
from cograil.workspace.tar_extract import MAX_SKIPPED

SMALL = ArchiveBounds(bytes=64 * 1024**2, entries=50, ratio=100, free_bytes=1024**2)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A workspace in a directory that shows whether anything got out."""
    (tmp_path / "room").mkdir()
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "room"


def unpack(room: Path, packed: bytes, **facts: str) -> Extracted:
    (room / "a.tar.gz").write_bytes(packed)
    with Workspace(room) as workspace:
        return extract(workspace, "a.tar.gz", facts.pop("to", "out"), bounds=SMALL, **facts)


def files(room: Path) -> dict[str, bytes]:
    """What is in the workspace beside the archive."""
    return {
        str(path.relative_to(room)): path.read_bytes()
        for path in sorted(room.rglob("*"))
        if path.is_file() and path.name != "a.tar.gz"
    }


def test_files_and_directories_come_out(room: Path) -> None:
    packed = tar_gz(entry(b"d/", kind=b"5"), entry(b"d/x", b"one"), entry(b"./run.sh", b"#!", mode=0o755))
    summary = unpack(room, packed)
    assert (summary.files, summary.bytes, summary.skipped) == (2, 5, [])
    assert files(room) == {"out/d/x": b"one", "out/run.sh": b"#!"}
    assert os.access(room / "out/run.sh", os.X_OK)
    assert not os.access(room / "out/d/x", os.X_OK)


def test_archives_of_python_and_gnu_tar_are_read(room: Path) -> None:
    for format_ in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz", format=format_) as archive:
            for name in ("a/" + "b" * 90 + "/" + "c" * 80, "e" * 99 + "/" + "f" * 60, "plain"):
                info = tarfile.TarInfo(name)
                info.size = 3
                archive.addfile(info, io.BytesIO(b"abc"))
        assert unpack(room, out.getvalue(), to=f"out{format_}").files == 3
    assert len(files(room)) == 9


def test_extracting_joins_directories_and_replaces_files(room: Path) -> None:
    (room / "out/d").mkdir(parents=True)
    (room / "out/d/x").write_text("old")
    (room / "out/d/kept").write_text("kept")
    unpack(room, tar_gz(entry(b"d/x", b"new")))
    assert files(room) == {"out/d/kept": b"kept", "out/d/x": b"new"}


@pytest.mark.parametrize("root", [b"", b"repo-main/"])
def test_only_a_subdirectory_comes_out_with_or_without_a_root_folder(room: Path, root: bytes) -> None:
    packed = tar_gz(entry(root + b"next/x", b"x"), entry(root + b"other/y", b"y"), entry(root + b"z", b"z"))
    unpack(room, packed, subdir="next")
    assert files(room) == {"out/x": b"x"}


def test_a_subdirectory_that_is_not_there_is_an_error(room: Path) -> None:
    with pytest.raises(WorkspaceError) as caught:
        unpack(room, tar_gz(entry(b"repo/x", b"x")), subdir="nothing")
    assert caught.value.code == "subdir_not_found"


def test_an_empty_archive_is_an_empty_directory(room: Path) -> None:
    assert unpack(room, tar_gz()).files == 0
    assert (room / "out").is_dir()


@pytest.mark.parametrize("what", SKIPPED)
def test_links_and_devices_are_skipped_and_told(room: Path, what: str) -> None:
    packed, skipped, expected = SKIPPED[what]
    summary = unpack(room, packed)
    assert summary.skipped == skipped
    assert files(room / "out") == expected
    for path in room.rglob("*"):
        assert stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR)
        assert path.is_dir() or path.stat().st_nlink == 1
    assert (room.parent / "secret").read_text() == "secret"
    assert sorted(os.listdir(room.parent)) == ["room", "secret"]


def test_modes_and_owners_are_ours(room: Path) -> None:
    """The process in the workspace may run as another user than we do, and has to work with it."""
    unpack(
        room,
        tar_gz(
            entry(b"d/", kind=b"5", mode=0o1000, owner=4711),
            entry(b"d/x", b"x", mode=0o7777, owner=4711),
            entry(b"d/y", b"y", mode=0, owner=4711),
        ),
    )
    for name, mode in (("d", 0o777), ("d/x", 0o777), ("d/y", 0o666)):
        status = (room / "out" / name).stat()
        assert stat.S_IMODE(status.st_mode) == mode
        assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())


def test_a_file_of_several_gzips_is_one(room: Path) -> None:
    whole = entry(b"x", b"x" * 600) + bytes(2 * BLOCK)
    unpack(room, gzip.compress(whole[:700]) + gzip.compress(whole[700:]))
    assert files(room) == {"out/x": b"x" * 600}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(room: Path, what: str) -> None:
    packed, code = HOSTILE[what]
    with pytest.raises(WorkspaceError) as caught:
        unpack(room, packed)
    assert caught.value.code == code
    assert files(room) == {}
    assert sorted(os.listdir(room)) == ["a.tar.gz"]
    assert sorted(os.listdir(room.parent)) == ["room", "secret"]


def test_gzips_that_unpack_to_more_than_is_taken_at_once_follow_each_other(room: Path) -> None:
    """Their end comes while input is left over from before, of which zlib tells twice."""
    content = os.urandom(1000) * 300
    whole = tar_gz(entry(b"x", content), end=b"") + tar_gz(entry(b"y", content), end=b"") + tar_gz()
    assert unpack(room, whole).files == 2
    assert files(room) == {"out/x": content, "out/y": content}


def test_a_gib_of_zeros_is_refused_long_before_its_end(room: Path) -> None:
    mib = gzip.compress(bytes(1024**2))
    (room / "a.tar.gz").write_bytes(gzip.compress(header(b"zeros", 1024**3)) + mib * 1024 + tar_gz())
    tracemalloc.start()
    with Workspace(room) as workspace, pytest.raises(WorkspaceError) as caught:
        extract(workspace, "a.tar.gz", "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code == "archive_bomb"
    assert peak < 4 * 1024**2
    assert os.listdir(room) == ["a.tar.gz"]


@pytest.mark.parametrize("count", [100_000, 100_001])
def test_a_hundred_thousand_entries_are_the_most(room: Path, count: int) -> None:
    """Of links, which are counted too; each with an extension, which is none."""
    entry = pax(mtime=b"1.5") + link(b"x", b"y")
    thousand = gzip.compress(entry * 1000, 1)
    (room / "a.tar.gz").write_bytes(thousand * (count // 1000) + tar_gz(entry * (count % 1000)))
    with Workspace(room) as workspace:
        bounds = ArchiveBounds(ratio=10_000)
        if count == 100_000:
            assert len(extract(workspace, "a.tar.gz", "out", bounds=bounds).skipped) == MAX_SKIPPED
            return
        with pytest.raises(WorkspaceError) as caught:
            extract(workspace, "a.tar.gz", "out", bounds=bounds)
    assert caught.value.code == "archive_too_many_entries"


def test_names_that_are_spelled_alike_elsewhere_are_all_there(room: Path) -> None:
    """Only what differs by nothing but case or composition is one file on other systems."""
    names = ["a/x", "b/X", "b/x2", "stra\u00dfe", "strasse", "e", "\u00e9", "\u00e8"]
    assert unpack(room, tar_gz(*[entry(name.encode(), b"x") for name in names])).files == len(names)


def test_an_archive_in_an_archive_is_a_file(room: Path) -> None:
    inner = tar_gz(entry(b"../../secret", b"overwritten"))
    for _ in range(10):
        inner = tar_gz(entry(b"inner.tar.gz", inner))
    unpack(room, inner)
    assert os.listdir(room / "out") == ["inner.tar.gz"]
    unpack(room, (room / "out/inner.tar.gz").read_bytes(), to="next")
    assert os.listdir(room / "next") == ["inner.tar.gz"]


@pytest.mark.parametrize("in_the_way", ["file", "link", "directory"])
def test_an_entry_without_a_place_leaves_all_as_it_was(room: Path, in_the_way: str) -> None:
    """Directories are joined and files replaced; a directory is not a file, and a link leads nowhere."""
    (room / "out/m").mkdir(parents=True)
    match in_the_way:
        case "file":
            (room / "out/m/d").write_text("old")
        case "link":
            (room / "out/m/d").symlink_to("..")
        case "directory":
            (room / "out/m/d/x").mkdir(parents=True)
    before = files(room)
    others = [entry(b"%s/%d" % (place, n), b"new") for place in (b"a", b"m", b"z") for n in range(9)]
    with pytest.raises(WorkspaceError) as caught:
        unpack(room, tar_gz(*others, entry(b"m/d/x", b"new")))
    assert caught.value.code == "not_a_regular_file"
    assert files(room) == before
    assert os.listdir(room / "out") == ["m"]
    assert os.listdir(room / "out/m") == ["d"]


def test_a_target_behind_a_link_is_refused(room: Path) -> None:
    (room / "out").symlink_to(room.parent)
    with pytest.raises(WorkspaceError) as caught:
        unpack(room, tar_gz(entry(b"x", b"x")), to="out/in")
    assert caught.value.code == "not_a_regular_file"
    assert sorted(os.listdir(room.parent)) == ["room", "secret"]


def test_a_file_replaces_a_link_and_does_not_follow_it(room: Path) -> None:
    (room / "out").mkdir()
    (room / "out/x").symlink_to("../../secret")
    unpack(room, tar_gz(entry(b"x", b"new")))
    assert (room.parent / "secret").read_text() == "secret"
    assert (room / "out/x").read_text() == "new"


@pytest.fixture(scope="module")
def reused_room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fuzz") / "room"
    place.mkdir()
    return place


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_archive_gets_out_or_raises_anything_else(reused_room: Path, data: st.DataObject) -> None:
    good = (entry(b"d/x", b"one" * 300), pax(path=b"y"), entry(b"z", b"z"), entry(b"l", kind=b"2", link=b"/"))
    whole = bytearray(b"".join(good))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WorkspaceError):
        unpack(reused_room, gzip.compress(bytes(whole), 1))
    assert os.listdir(reused_room.parent) == ["room"]
    assert set(os.listdir(reused_room)) <= {"a.tar.gz", "out"}
