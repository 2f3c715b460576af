"""Folders that cannot be copied or read as a whole: refused, or left where their owner sees them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually

from cograil.apps.documents import atomic_files, file_claims
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.one_shot import Conversion, Item


def move_in_elsewhere(site: DocumentSite, elsewhere: Path) -> None:
    shutil.rmtree(site.folder.arrivals)
    site.folder.arrivals.symlink_to(elsewhere)


@pytest.mark.parametrize("is_far", [True, False])
async def test_a_folder_with_a_fifo_is_refused(
    site: DocumentSite, elsewhere: Path, eventually: Eventually, is_far: bool
) -> None:
    if is_far:
        move_in_elsewhere(site, elsewhere)
    scans = site.drop_folder("scans")
    (scans / "link.png").symlink_to("/nowhere")
    os.mkfifo(scans / "fifo.png")

    async def is_refused() -> list[str]:
        await site.look()
        return site.names("reports/rejected")

    (name,) = await eventually(is_refused)
    report = site.read(f"reports/rejected/{name}")
    assert (report["fileName"], report["reason"]) == ("scans", "not_a_regular_file")
    assert "fifo.png" in report["message"]
    assert site.names("error/scans") == ["fifo.png", "link.png", "scan-1.png", "scan-2.png"]
    assert list(site.folder.arrivals.iterdir()) == list(site.folder.staging.iterdir()) == []
    assert await site.documents() == []


@pytest.mark.parametrize("what", ["scans/scan-2.png", "scans/more"])
@pytest.mark.parametrize("is_far", [True, False])
async def test_a_folder_with_something_unreadable_stays_where_it_is_seen(
    site: DocumentSite,
    elsewhere: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    is_far: bool,
    what: str,
) -> None:
    """Until it can be read; links to nowhere are nobody's trouble."""
    if is_far:
        move_in_elsewhere(site, elsewhere)
    scans = site.drop_folder("scans")
    (scans / "more").mkdir()
    (scans / "link.png").symlink_to("/nowhere")
    access, checks = os.access, []

    def refused(path: Any, mode: int) -> bool:
        is_it = os.fspath(path).endswith(what)
        checks.append(is_it)
        return not is_it and access(path, mode)

    async def is_asked() -> bool:
        await site.look()
        return any(checks)

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", refused)
        await eventually(is_asked)
        assert [path.name for path in site.folder.arrivals.iterdir()] == ["scans"]
        assert site.names("work/_staging") == []

    async def is_taken() -> bool:
        await site.look()
        return len(await site.documents()) == 1

    await eventually(is_taken)


def test_a_folder_with_a_fifo_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    os.mkfifo(tmp_path / "scans/fifo.png")
    item = Item(tmp_path / "scans", 1)
    Conversion(Folder(tmp_path / "room"), tmp_path / "out", [item], 500).bring_in()
    assert item.error.endswith("[not_a_regular_file]")


async def test_a_claim_of_old_that_could_not_be_copied_is_refused_now(
    site: DocumentSite, elsewhere: Path
) -> None:
    move_in_elsewhere(site, elsewhere)
    claim = file_claims.claim_of(site.folder.staging / "20260101-000000_scans", site.folder)
    claim.mkdir()
    os.mkfifo(claim / "fifo.png")
    await site.look()
    assert site.names("error") == ["scans"]
    assert list(elsewhere.iterdir()) == []


def test_the_copy_of_a_folder_is_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scans/more").mkdir(parents=True)
    (tmp_path / "scans/more/1.png").write_text("1")
    synced: list[str] = []
    monkeypatch.setattr(atomic_files, "sync", lambda path: synced.append(path.name))
    atomic_files.copy(tmp_path / "scans", tmp_path / "copy")
    assert synced == ["1.png"]
    assert atomic_files.hash_of(tmp_path / "copy") == atomic_files.hash_of(tmp_path / "scans")
