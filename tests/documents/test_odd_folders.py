"""Folders that cannot be copied or read as a whole: refused, or left where their owner sees them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Eventually
from tests.documents.house import House

from cograil.apps.documents import atomic_files, file_claims
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.one_shot import Conversion, Item


def move_in_elsewhere(house: House, elsewhere: Path) -> None:
    shutil.rmtree(house.folder.arrivals)
    house.folder.arrivals.symlink_to(elsewhere)


@pytest.mark.parametrize("is_far", [True, False])
async def test_a_folder_with_a_fifo_is_refused(
    house: House, elsewhere: Path, eventually: Eventually, is_far: bool
) -> None:
    if is_far:
        move_in_elsewhere(house, elsewhere)
    scans = house.drop_folder("scans")
    (scans / "link.png").symlink_to("/nowhere")
    os.mkfifo(scans / "fifo.png")

    async def is_refused() -> list[str]:
        await house.look()
        return house.names("reports/rejected")

    (name,) = await eventually(is_refused)
    report = house.read(f"reports/rejected/{name}")
    assert (report["fileName"], report["reason"]) == ("scans", "not_a_regular_file")
    assert "fifo.png" in report["message"]
    assert house.names("error/scans") == ["fifo.png", "link.png", "scan-1.png", "scan-2.png"]
    assert list(house.folder.arrivals.iterdir()) == list(house.folder.staging.iterdir()) == []
    assert await house.documents() == []


@pytest.mark.parametrize("what", ["scans/scan-2.png", "scans/more"])
@pytest.mark.parametrize("is_far", [True, False])
async def test_a_folder_with_something_unreadable_stays_where_it_is_seen(
    house: House,
    elsewhere: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    is_far: bool,
    what: str,
) -> None:
    """Until it can be read; links to nowhere are nobody's trouble."""
    if is_far:
        move_in_elsewhere(house, elsewhere)
    scans = house.drop_folder("scans")
    (scans / "more").mkdir()
    (scans / "link.png").symlink_to("/nowhere")
    access, asked = os.access, []

    def refused(path: Any, mode: int) -> bool:
        is_it = os.fspath(path).endswith(what)
        asked.append(is_it)
        return not is_it and access(path, mode)

    async def is_asked() -> bool:
        await house.look()
        return any(asked)

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", refused)
        await eventually(is_asked)
        assert [one.name for one in house.folder.arrivals.iterdir()] == ["scans"]
        assert house.names("work/_staging") == []

    async def is_taken() -> bool:
        await house.look()
        return len(await house.documents()) == 1

    await eventually(is_taken)


def test_a_folder_with_a_fifo_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    os.mkfifo(tmp_path / "scans/fifo.png")
    item = Item(tmp_path / "scans", 1)
    Conversion(Folder(tmp_path / "room"), tmp_path / "out", [item], 500).bring_in()
    assert item.error.endswith("[not_a_regular_file]")


async def test_a_claim_of_old_that_could_not_be_copied_is_refused_now(house: House, elsewhere: Path) -> None:
    move_in_elsewhere(house, elsewhere)
    claim = file_claims.claim_of(house.folder.staging / "20260101-000000_scans", house.folder)
    claim.mkdir()
    os.mkfifo(claim / "fifo.png")
    await house.look()
    assert house.names("error") == ["scans"]
    assert list(elsewhere.iterdir()) == []


def test_what_is_copied_of_a_folder_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scans/more").mkdir(parents=True)
    (tmp_path / "scans/more/1.png").write_text("1")
    synced: list[str] = []
    monkeypatch.setattr(atomic_files, "sync", lambda path: synced.append(path.name))
    atomic_files.copy(tmp_path / "scans", tmp_path / "copy")
    assert synced == ["1.png"]
    assert atomic_files.hash_of(tmp_path / "copy") == atomic_files.hash_of(tmp_path / "scans")
