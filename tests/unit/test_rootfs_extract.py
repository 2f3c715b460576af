"""Root file systems come out of an archive with their links, and nothing of them lands outside."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cograil.workspace import ArchiveBounds, WorkspaceError
from cograil.workspace.rootfs_extract import extract_root

Entry = tuple[str, str, str]  # kind, name, content or where it leads

KINDS = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
}


def archive(*entries: Entry, mode: int = 0o755, form: int = tarfile.PAX_FORMAT) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for kind, name, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = KINDS[kind], mode
            if kind == "file":
                info.size = len(content)
            else:
                info.linkname = content
            tar.addfile(info, io.BytesIO(content.encode()))
    out.seek(0)
    return out


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    place.mkdir()
    return place


def test_links_are_made_as_they_are(root: Path) -> None:
    summary = extract_root(
        archive(
            ("directory", "usr/bin", ""),
            ("file", "usr/bin/busybox", "program"),
            ("link", "bin", "usr/bin"),
            ("link", "usr/bin/sh", "/usr/bin/busybox"),
            ("hard", "usr/bin/ls", "usr/bin/busybox"),
            ("link", "etc/mtab", "../proc/self/mounts"),
        ),
        root,
    )
    assert os.readlink(root / "bin") == "usr/bin"
    assert os.readlink(root / "usr/bin/sh") == "/usr/bin/busybox"
    assert (root / "usr/bin/ls").stat().st_ino == (root / "usr/bin/busybox").stat().st_ino
    assert (summary.files, summary.links, summary.has_shell, summary.skipped) == (1, 4, True, [])


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_long_links_are_whole(root: Path, form: int) -> None:
    long = "/".join(["directory-of-some-length"] * 8)
    extract_root(
        archive(("file", f"{long}/file", "x"), ("link", f"{long}/link", f"/{long}/file"), form=form), root
    )
    assert os.readlink(root / long / "link") == f"/{long}/file"


def test_names_may_hold_what_names_of_services_do(root: Path) -> None:
    extract_root(archive(("file", "system-systemd\\x2dcryptsetup.slice", "x")), root)
    assert os.listdir(root) == ["system-systemd\\x2dcryptsetup.slice"]


def test_a_compressed_archive_is_unpacked(root: Path) -> None:
    extract_root(io.BytesIO(gzip.compress(archive(("file", "a", "x")).getvalue())), root)
    assert (root / "a").read_text() == "x"


def test_devices_are_left_out_and_told(root: Path) -> None:
    summary = extract_root(
        archive(("file", "a", ""), ("device", "dev/null", ""), ("fifo", "run/pipe", "")), root
    )
    assert summary.skipped == ["'dev/null'", "'run/pipe'"]
    assert os.listdir(root) == ["a"]


def test_nobody_becomes_somebody_else(root: Path) -> None:
    extract_root(archive(("file", "su", "x"), ("directory", "d", ""), mode=0o6755), root)
    assert stat.S_IMODE((root / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o755


def test_a_directory_that_nobody_may_write_is_filled_all_the_same(root: Path) -> None:
    extract_root(archive(("directory", "d", ""), ("file", "d/a", "x"), mode=0o555), root)
    assert (root / "d" / "a").read_text() == "x"
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o555


def test_the_last_of_two_is_there(root: Path) -> None:
    extract_root(archive(("link", "a", "/etc/passwd"), ("file", "a", "second")), root)
    assert not (root / "a").is_symlink()
    assert (root / "a").read_text() == "second"


@pytest.mark.parametrize(
    "entries",
    [
        [("link", "out", "/outside"), ("file", "out/x", "y")],
        [("link", "out", "../outside"), ("file", "out/x", "y")],
        [("link", "a", "."), ("link", "a/b", "/outside"), ("file", "a/b/x", "y")],
        [("link", "out", "../outside"), ("directory", "out/d", "")],
        [("link", "out", "../outside"), ("directory", "out", "")],
        [("link", "out", "../outside"), ("link", "out/l", "x")],
        [("link", "out", "../outside"), ("hard", "x", "out/secret")],
        [("hard", "x", "../outside/secret")],
        [("hard", "x", "/outside/secret")],
        [("hard", "x", "x")],
        [("directory", "d", ""), ("hard", "x", "d")],
        [("hard", "x", "missing")],
        [("file", "../outside/x", "y")],
        [("file", "a/../../outside/x", "y")],
        [("file", "/outside/x", "y")],
        [("directory", "d", ""), ("file", "d", "y")],
        [("file", "f", ""), ("file", "f/x", "y")],
        [("file", "/".join("d" * 70), "y")],
        [("file", "n" * 256, "y")],
    ],
)
def test_entries_that_lead_elsewhere_are_refused(root: Path, entries: list[Entry]) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    with pytest.raises(WorkspaceError):
        extract_root(archive(("file", "first", ""), *entries), root)
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").stat().st_nlink == 1
    assert (outside / "secret").read_text() == "secret"


@pytest.mark.parametrize("content", [b"", b"nothing like a tar" * 100, bytes(1024), b"\x1f\x8b garbage"])
def test_an_archive_that_is_not_a_root_file_system_is_refused(root: Path, content: bytes) -> None:
    with pytest.raises(WorkspaceError):
        extract_root(io.BytesIO(content), root)


def test_an_archive_that_ends_too_early_is_refused(root: Path) -> None:
    whole = archive(("file", "a", "x" * 5000)).getvalue()
    with pytest.raises(WorkspaceError, match="too early"):
        extract_root(io.BytesIO(whole[:3000]), root)


def test_extracting_a_root_file_system_is_bounded(root: Path) -> None:
    archive_file = archive(("file", "a", "x" * 50_000), ("file", "b", "y"))
    with pytest.raises(WorkspaceError, match="more than"):
        extract_root(archive_file, root, bounds=ArchiveBounds(bytes=20_000))
    archive_file.seek(0)
    (root / "more").mkdir()
    with pytest.raises(WorkspaceError, match="too many"):
        extract_root(archive_file, root / "more", bounds=ArchiveBounds(entries=1))


STEPS = st.sampled_from(["a", "b", "c", "..", ".", ""])
NAMES = st.lists(STEPS, min_size=1, max_size=4).map("/".join)
TARGETS = st.one_of(NAMES, st.sampled_from(["/", "../outside", "../../outside", "../outside/secret", "."]))
ENTRIES = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), NAMES, TARGETS), max_size=12)


@given(ENTRIES)
def test_a_random_archive_changes_nothing_outside(entries: list[Entry]) -> None:
    with TemporaryDirectory() as directory:
        outside, root = Path(directory) / "outside", Path(directory) / "root"
        outside.mkdir()
        root.mkdir()
        (outside / "secret").write_text("secret")
        before = _seen(outside)
        with suppress(WorkspaceError):
            extract_root(archive(("file", "first", ""), *entries), root)
        assert _seen(outside) == before
        assert sorted(os.listdir(directory)) == ["outside", "root"]


def _seen(directory: Path) -> list[Any]:
    status = (directory / "secret").stat()
    inside = directory.stat()
    return [
        os.listdir(directory),
        status.st_mode,
        status.st_nlink,
        status.st_size,
        inside.st_mode,
        inside.st_mtime_ns,
    ]
