"""Archives of unknown origin: what is good comes out whole, what is not leaves nothing behind."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tars import BLOCK, entry, header, pax, pax_record, tar_gz

from cograil.workspace import Bounds, Extracted, Workspace, WorkspaceError, extract

SMALL = Bounds(bytes=64 * 1024**2, entries=50, ratio=100, free_bytes=1024**2)


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
    found = unpack(room, packed)
    assert (found.files, found.bytes, found.skipped) == (2, 5, [])
    assert files(room) == {"out/d/x": b"one", "out/run.sh": b"#!"}
    assert os.access(room / "out/run.sh", os.X_OK)
    assert not os.access(room / "out/d/x", os.X_OK)


def test_what_python_and_gnu_tar_write_is_read(room: Path) -> None:
    for format_ in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz", format=format_) as archive:
            for name in ("a/" + "b" * 90 + "/" + "c" * 80, "e" * 99 + "/" + "f" * 60, "plain"):
                info = tarfile.TarInfo(name)
                info.size = 3
                archive.addfile(info, io.BytesIO(b"abc"))
        assert unpack(room, out.getvalue(), to=f"out{format_}").files == 3
    assert len(files(room)) == 9


def test_it_joins_directories_and_replaces_files(room: Path) -> None:
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


def test_links_and_devices_are_skipped_and_told(room: Path) -> None:
    found = unpack(
        room,
        tar_gz(
            entry(b"s", kind=b"2", link=b"/etc/passwd"),
            entry(b"h", kind=b"1", link=b"../secret"),
            entry(b"dev", kind=b"3"),
            entry(b"fifo", kind=b"6"),
            entry(b"s/through", b"it"),
        ),
    )
    assert found.skipped == ["s", "h", "dev", "fifo"]
    assert files(room) == {"out/s/through": b"it"}
    assert not any(path.is_symlink() for path in room.rglob("*"))


def test_modes_are_ours(room: Path) -> None:
    unpack(room, tar_gz(entry(b"x", b"x", mode=0o6777), entry(b"y", b"y", mode=0)))
    for name in ("x", "y"):
        assert not stat.S_IMODE((room / "out" / name).stat().st_mode) & ~0o777
        assert (room / "out" / name).stat().st_uid == os.getuid()


def test_a_file_of_several_gzips_is_one(room: Path) -> None:
    whole = entry(b"x", b"x" * 600) + bytes(2 * BLOCK)
    unpack(room, gzip.compress(whole[:700]) + gzip.compress(whole[700:]))
    assert files(room) == {"out/x": b"x" * 600}


HOSTILE: dict[str, tuple[bytes, str]] = {
    "a step up": (tar_gz(entry(b"../secret", b"x")), "unsafe_path"),
    "a step up inside": (tar_gz(entry(b"a/../../secret", b"x")), "unsafe_path"),
    "absolute": (tar_gz(entry(b"/tmp/x", b"x")), "unsafe_path"),
    "absolute by pax": (tar_gz(pax(path=b"/tmp/x"), entry(b"fine", b"x")), "unsafe_path"),
    "a step up by pax": (tar_gz(pax(path=b"../x"), entry(b"fine", b"x")), "unsafe_path"),
    "a step up by a long name": (tar_gz(entry(b"L", b"../x\0", b"L"), entry(b"fine", b"x")), "unsafe_path"),
    "a step up by prefix": (tar_gz(entry(b"x", b"x", prefix=b"..")), "unsafe_path"),
    "backslash": (tar_gz(entry(b"..\\x", b"x")), "unsafe_path"),
    "newline": (tar_gz(entry(b"a\nb", b"x")), "unsafe_name"),
    "no UTF-8": (tar_gz(entry(b"\xff\xfe", b"x")), "unsafe_name"),
    "NUL by pax": (tar_gz(pax(path=b"a\0b"), entry(b"fine", b"x")), "unsafe_name"),
    "a name of ours": (tar_gz(entry(b".cograil-x", b"x")), "reserved_name"),
    "a long name": (tar_gz(pax(path=b"x" * 300), entry(b"fine", b"x")), "unsafe_path"),
    "a deep name": (tar_gz(pax(path=b"d/" * 40 + b"x"), entry(b"fine", b"x")), "unsafe_path"),
    "a file with a slash": (tar_gz(pax(path=b"x/"), entry(b"fine", b"x")), "unsafe_path"),
    "twice": (tar_gz(entry(b"x", b"1"), entry(b"x", b"2")), "unsafe_entry"),
    "file then directory": (tar_gz(entry(b"x", b"1"), entry(b"x/y", b"2")), "unsafe_entry"),
    "directory then file": (tar_gz(entry(b"x/y", b"1"), entry(b"x", b"2")), "unsafe_entry"),
    "contiguous": (tar_gz(entry(b"x", b"1", b"7")), "unsafe_entry"),
    "sparse of GNU": (tar_gz(entry(b"x", b"1", b"S")), "unsafe_entry"),
    "sparse by pax": (
        tar_gz(entry(b"p", pax_record(b"GNU.sparse.size", b"107374182400"), b"x"), entry(b"x", b"1")),
        "unsafe_entry",
    ),
    "a bomb": (tar_gz(entry(b"zeros", bytes(8 * 1024**2))), "archive_bomb"),
    "too many": (tar_gz(*[entry(b"%d" % number) for number in range(60)]), "archive_too_many_entries"),
    "a long pax header": (tar_gz(header(b"p", 600 * 1024**2, b"x")), "archive_bad_header"),
    "a long long name": (tar_gz(header(b"L", 300 * 1024**2, b"L")), "archive_bad_header"),
    "a negative size": (tar_gz(header(b"x", size_field=b"\xff" * 12)), "archive_bad_header"),
    "a size of 2**63": (tar_gz(header(b"x", size_field=b"\x80" + b"\x7f" * 11)), "archive_bad_header"),
    "a size by pax": (tar_gz(pax(size=b"-1"), entry(b"x", b"1")), "archive_bad_header"),
    "pax without a length": (tar_gz(entry(b"p", b"path=x\n", b"x"), entry(b"x", b"1")), "archive_bad_header"),
    "pax too short": (tar_gz(entry(b"p", b"99 path=x\n", b"x"), entry(b"x", b"1")), "archive_bad_header"),
    "pax of length 0": (tar_gz(entry(b"p", b"0 path=x\n", b"x"), entry(b"x", b"1")), "archive_bad_header"),
    "a bad checksum": (tar_gz(b"y" + entry(b"x", b"1")[1:]), "archive_bad_header"),
    "no octal": (tar_gz(header(b"x", size_field=b"0000000009x\0")), "archive_bad_header"),
    "a directory with content": (tar_gz(entry(b"d", b"content", b"5")), "archive_bad_header"),
    "cut in its gzip": (tar_gz(entry(b"x", os.urandom(4000)))[:-500], "archive_truncated"),
    "cut in an entry": (gzip.compress(header(b"x", 5000) + b"x" * 512), "archive_truncated"),
    "cut in a header": (gzip.compress(entry(b"x", b"1") + b"x" * 100), "archive_truncated"),
    "garbage behind it": (tar_gz(entry(b"x", b"1")) + b"garbage", "archive_corrupt"),
    "a wrong checksum of gzip": (tar_gz(entry(b"x", b"1"))[:-8] + bytes(8), "archive_corrupt"),
    "a zip": (b"PK\x03\x04" + bytes(100), "archive_format"),
    "plain text": (b"hello", "archive_format"),
    "nothing": (b"", "archive_format"),
    "a tar without gzip": (entry(b"x", b"1") + bytes(1024), "archive_format"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(room: Path, what: str) -> None:
    packed, code = HOSTILE[what]
    with pytest.raises(WorkspaceError) as caught:
        unpack(room, packed)
    assert caught.value.code == code
    assert files(room) == {}
    assert sorted(os.listdir(room)) == ["a.tar.gz"]
    assert sorted(os.listdir(room.parent)) == ["room", "secret"]


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
