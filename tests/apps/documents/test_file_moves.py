"""Moves that are killed half-way, or that the kernel does not help with: one input stays one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.apps.documents.crash_forks import killed_at
from tests.apps.documents.document_site import DocumentSite

from cograil.apps.documents import atomic_files, cleanup, file_claims, safe_rename, staged_files


def scans(place: Path) -> Path:
    place.mkdir()
    for name in ("1.png", "2.png", "3.png"):
        (place / name).write_text(name)
    return place


def killed_in_removal(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do this in a fork that dies when it has removed one file of a directory."""

    def removed_in_part(place: Path) -> None:
        next(place.iterdir()).unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", removed_in_part)
        return killed_at("nowhere", work)


def test_a_folder_that_was_copied_is_one_whenever_its_mover_dies(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also amid the removal of what was copied."""
    source, target = scans(tmp_path / "scans"), elsewhere / "scans"
    before = atomic_files.hash_of(source)
    assert killed_in_removal(partial(atomic_files.move_to_free, source, target), monkeypatch)
    if source.exists():
        atomic_files.move_to_free(source, target)
    atomic_files.remove_left(tmp_path, f"{atomic_files.GONE}*")
    assert [path.name for path in elsewhere.iterdir()] == ["scans"]
    assert atomic_files.hash_of(target) == before
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_is_there_already_is_ended_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = scans(tmp_path / "scans"), scans(tmp_path / "target")
    before = atomic_files.hash_of(target)
    assert killed_in_removal(partial(atomic_files.finish_move, source, target), monkeypatch)
    atomic_files.finish_move(source, target)
    atomic_files.remove_left(tmp_path, f"{atomic_files.GONE}*")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert atomic_files.hash_of(target) == before


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that knows no rename which spares."""
    monkeypatch.setattr(atomic_files, "_rename", safe_rename.rename_without_kernel)


@pytest.fixture
def no_links(no_kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor links."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)


def file(place: Path) -> Path:
    place.write_text("a comic")
    return place


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize("make", [file, scans])
def test_without_the_kernel_nothing_is_overwritten(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    taken = make(tmp_path / "a.cbz")
    content = atomic_files.hash_of(taken)
    (tmp_path / "in").mkdir()
    source = make(tmp_path / "in/a.cbz")
    (source / "4.png" if source.is_dir() else source).write_text("another")
    assert atomic_files.move_to_free(source, taken) == tmp_path / "a (2).cbz"
    assert (atomic_files.hash_of(taken), names(tmp_path / "in")) == (content, [])


@pytest.mark.usefixtures("no_kernel")
def test_a_move_killed_between_link_and_unlink_moves_once(tmp_path: Path) -> None:
    source, archive = file(tmp_path / "a.cbz"), tmp_path / "archive"
    archive.mkdir()
    move = partial(atomic_files.move_to_free, source, archive / "a.cbz")
    assert killed_at("documents.rename.linked", move)
    assert source.exists()
    assert move() == archive / "a.cbz"
    assert (source.exists(), names(archive)) == (False, ["a.cbz"])


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("make", [file, scans])
def test_a_reserved_name_of_a_killed_move_goes_to_the_next(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    source, archive = make(tmp_path / "a.cbz"), tmp_path / "archive"
    archive.mkdir()
    before = atomic_files.hash_of(source)
    move = partial(atomic_files.move_to_free, source, archive / "a.cbz")
    assert killed_at("documents.rename.reserved", move)
    assert names(archive) == ["a.cbz"]
    assert safe_rename.is_reserved(archive / "a.cbz")
    assert move() == archive / "a.cbz"
    assert (source.exists(), names(archive)) == (False, ["a.cbz"])
    assert atomic_files.hash_of(archive / "a.cbz") == before


@pytest.mark.usefixtures("no_links")
def test_a_name_that_somebody_has_reserved_is_his(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While he lives: of two who move there, none overwrites the other."""
    ours, his = file(tmp_path / "ours"), file(tmp_path / "his")
    his.write_text("his")
    target = tmp_path / "a.cbz"
    rename = os.rename

    def late(source: Path, place: Path | str) -> None:
        if place != target:
            rename(source, place)
        monkeypatch.setattr(os, "rename", rename)
        with pytest.raises(FileExistsError):
            atomic_files.move(ours, target)
        rename(source, place)

    monkeypatch.setattr(os, "rename", late)
    atomic_files.move(his, target)
    assert (target.read_text(), ours.read_text()) == ("his", "a comic")


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize("is_same", [True, False])
def test_one_of_two_movers_gets_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_same: bool
) -> None:
    """To names of their own; or to one name, where both are content."""
    source, unlink = file(tmp_path / "a.cbz"), os.unlink
    mine, his = tmp_path / "mine", tmp_path / ("mine" if is_same else "his")

    def late(path: Path) -> None:
        monkeypatch.setattr(os, "unlink", unlink)
        atomic_files.move(source, his)
        unlink(path)

    monkeypatch.setattr(os, "unlink", late)
    with contextlib.nullcontext() if is_same else pytest.raises(FileNotFoundError):
        atomic_files.move(source, mine)
    assert names(tmp_path) == ["mine" if is_same else "his"]


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("make", [file, scans])
def test_a_failed_rename_reserves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path]
) -> None:
    source, rename = make(tmp_path / "a.cbz"), os.rename

    def refused(path: Path, place: Path | str) -> None:
        if place == tmp_path / "b.cbz":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        rename(path, place)

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(PermissionError):
        atomic_files.move(source, tmp_path / "b.cbz")
    assert names(tmp_path) == ["a.cbz"]


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("make", [file, scans])
@pytest.mark.parametrize("point", ["documents.rename.reserved", "documents.move.moved"])
def test_without_the_kernel_a_copy_that_is_there_is_known_too(
    tmp_path: Path, elsewhere: Path, make: Callable[[Path], Path], point: str
) -> None:
    """And a name that was to be its."""
    source = make(tmp_path / "a.cbz")
    move = partial(atomic_files.move_to_free, source, elsewhere / "a.cbz")
    assert killed_at(point, move)
    assert move() == elsewhere / "a.cbz"
    atomic_files.remove_left(elsewhere, f"{atomic_files.HIDDEN}*")
    assert (names(tmp_path), names(elsewhere)) == ([], ["a.cbz"])


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize("is_claimed", [True, False])
async def test_a_file_linked_into_staging_is_one_document(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch, is_claimed: bool
) -> None:
    """By who died before he unlinked it from `in`; or is about to, for all that anybody knows."""
    arrived, staged = site.drop("a.cbz"), site.folder.staging / "20260101-000000_a.cbz"
    os.link(arrived, file_claims.claim_of(staged, site.folder) if is_claimed else staged)
    os.link(arrived, site.root / "mine")
    await site.look()
    assert await site.documents() == []
    monkeypatch.setattr(staged_files, "LINK_SECONDS", -1)
    await site.look()
    (document,) = await site.documents()
    assert (site.names("in"), site.names("hold/duplicates")) == ([], [])
    assert site.folder.source(document.key, "a.cbz").exists()


@pytest.mark.usefixtures("no_links")
async def test_a_name_that_is_reserved_in_staging_is_no_document(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = site.drop("a.cbz")
    staged = site.folder.staging / "20260101-000000_b.cbz"
    assert killed_at("documents.rename.reserved", partial(atomic_files.move, arrived, staged))
    assert safe_rename.is_reserved(staged)
    await site.look()
    assert [document.name for document in await site.documents()] == ["a.cbz"]
    assert site.names("error") == []
    monkeypatch.setattr(cleanup, "DAY", -1)
    cleanup.sweep_hidden(site.folder)
    assert site.names("work/_staging") == []
