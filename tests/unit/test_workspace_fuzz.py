"""Archives that went wrong at random: none gets out, leaves half of itself, or raises anything of its own.

Unlike with a byte that is damaged, the checksums of their headers are right again, so that all is read.
"""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path
from random import Random

import pytest
from tests.support.hostile_archives import hard, link
from tests.support.tar_entries import BLOCK, entry, pax

from cograil.workspace import ArchiveBounds, Workspace, WorkspaceError, extract
from cograil.workspace.confined_tree import remove_tree

SMALL = ArchiveBounds(bytes=1024**2, entries=50, ratio=100, free_bytes=256 * 1024)
PARTS = [
    entry(b"x", b"one" * 300),
    entry(b"d/", kind=b"5"),
    entry(b"d/x", b"two"),
    entry(b"deep/er/and/deeper", b"three", mode=0o7777),
    entry(b"\xc3\xa9", b"four"),
    entry(b"y", b"five", prefix=b"a/b"),
    entry(b"L", b"d/long\0", b"L"),
    entry(b"K", b"../../long\0", b"K"),
    entry(b"g", b"19 path=../../../x\n", b"g"),
    pax(path=b"d/pax"),
    pax(path=b"../pax", linkpath=b"/etc"),
    pax(size=b"3", mtime=b"1.5"),
    link(b"d", b"../.."),
    link(b"s", b"/etc/passwd"),
    hard(b"h", b"../secret"),
    entry(b"dev", kind=b"3"),
]
FRAGMENTS = [
    b"../",
    b"/",
    b"\0",
    b"..",
    b"\xff",
    b"\x80",
    b"7",
    b"99",
    b" ",
    b"=",
    b"\n",
    b".cograil",
    b"D/X",
]
FIELDS = [(0, 100), (100, 108), (124, 136), (156, 157), (157, 257), (257, 265), (345, 500)]


def broken(random: Random) -> bytes:
    """Some parts, in any order, with damage to their headers and to anything."""
    parts = random.choices(PARTS, k=random.randint(1, 5))
    starts = [sum(len(part) for part in parts[:number]) for number in range(len(parts))]
    whole = bytearray(b"".join(parts) + bytes(random.choice([0, BLOCK, 2 * BLOCK])))
    for _ in range(random.randint(0, 4)):
        first, end = random.choice(FIELDS)
        fragment = random.choice([*FRAGMENTS, random.randbytes(random.randint(1, 12))])
        at = random.choice(starts) + random.choice([first, random.randrange(first, end)])
        if random.random() < 0.2:
            at = random.randrange(len(whole))
        whole[at : at + len(fragment)] = fragment[: len(whole) - at]
    for start in starts:
        if random.random() < 0.95:
            whole[start + 148 : start + 156] = b" " * 8
            whole[start + 148 : start + 156] = b"%06o\0 " % sum(whole[start : start + BLOCK])
    return bytes(whole[: random.randrange(len(whole))]) if random.random() < 0.05 else bytes(whole)


@pytest.mark.parametrize(
    "numbers",
    [
        range(3_000),
        pytest.param(range(3_000, 1_000_000), marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
    ids=["few", "a million"],
)
def test_no_archive_that_can_be_read_gets_out(tmp_path: Path, numbers: range) -> None:
    room, outcomes = tmp_path / "room", set()
    room.mkdir()
    (tmp_path / "secret").write_text("secret")
    with Workspace(room) as workspace, workspace.directory(()) as top:
        for number in numbers:
            (room / "a.tar.gz").write_bytes(gzip.compress(broken(Random(number)), 0))
            try:
                extract(workspace, "a.tar.gz", "out", bounds=SMALL)
                outcomes.add("")
                _check(room / "out", number)
                remove_tree(top, "out")
            except WorkspaceError as error:
                outcomes.add(error.code)
            assert os.listdir(room) == ["a.tar.gz"], number
            assert sorted(os.listdir(tmp_path)) == ["room", "secret"], number
    assert (tmp_path / "secret").read_text() == "secret"
    assert outcomes >= {"", "unsafe_path", "unsafe_name", "unsafe_entry", "reserved_name", "name_collision"}
    assert outcomes >= {"archive_bad_header", "archive_truncated"}


def _check(out: Path, number: int) -> None:
    """There are files and directories, with modes of ours, and no second names."""
    for path in [out, *out.rglob("*")]:
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode)
        assert is_file or stat.S_ISDIR(status.st_mode), number
        assert not is_file or status.st_nlink == 1, number
        assert stat.S_IMODE(status.st_mode) in (0o777, 0o666), number
