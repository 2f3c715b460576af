"""jobs.json, metrics.json and state.json are copies of what the engine knows, whatever happens to them."""

from __future__ import annotations

import errno
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.documents.house import House
from tests.support.api_client import serve_api

from cograil.apps.documents import atomic_files, routes, status_files
from cograil.apps.documents.layout import folder_of
from cograil.apps.documents.status_files import gauges_of


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def running(house: House) -> str:
    """One document that is on its way, and shown."""
    house.drop("a.cbz")
    await house.look()
    (document,) = await house.documents()
    return document.key


@pytest.mark.parametrize("place", ["index/jobs.json", "index/metrics.json", "work/KEY/state.json"])
@pytest.mark.parametrize("content", [None, b"{}", b"no JSON"])
async def test_whoever_loses_or_changes_a_copy_gets_it_back(
    house: House, place: str, content: bytes | None
) -> None:
    path = house.root / place.replace("KEY", await running(house))
    before = json.loads(path.read_text())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    await house.look()
    assert json.loads(path.read_text()) | {"updatedAt": ""} == before | {"updatedAt": ""}


async def test_what_ended_while_the_disk_was_full_is_shown_when_it_is_not(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that was: nothing changes any more that would be written again."""
    key = await running(house)
    monkeypatch.setattr(status_files, "OVERLAP", timedelta(0))
    await house.lab.rows("update cograil.documents set state = 'DONE', out_pdf = 'a.pdf', changed_at = now()")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_json", full)
        await house.look(2)
    await house.look()
    assert house.read("index/jobs.json")["jobs"][key]["state"] == "DONE"
    assert house.read(f"work/{key}/state.json")["state"] == "DONE"
    assert house.read("index/metrics.json")["done"] == 1


async def test_one_room_that_cannot_be_written_to_hides_no_other(house: House) -> None:
    odd = await running(house)
    (house.root / f"work/{odd}/state.json").unlink()
    (house.root / f"work/{odd}/state.json" / "in the way").mkdir(parents=True)
    path = house.drop("b.cbz", 3)
    key = await house.key_of(path)
    house.watcher = house.another_watcher()
    await house.look()
    assert house.read("index/jobs.json")["jobs"].keys() == {odd, key}
    assert house.read(f"work/{key}/state.json")["state"] == "DISCOVERED"


async def test_two_watchers_do_not_write_in_turns(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sees that the other wrote, and that there is nothing to add."""
    await running(house)
    other = house.another_watcher()
    await other.look()
    written: list[Path] = []
    write = atomic_files.write_json
    monkeypatch.setattr(
        atomic_files, "write_json", lambda path, value: (written.append(path), write(path, value))
    )
    for _ in range(3):
        await house.look()
        await other.look()
    assert written == []


def test_what_waits_for_another_try_is_queued() -> None:
    states = ["DISCOVERED", "PREP_RUNNING", "PREP_ERROR", "OCR_TIMEOUT", "OCR_RUNNING", "OCR_DONE"]
    shown = [{"state": state} for state in [*states, "DONE", "ERROR", "ERROR_OCR"]]
    assert gauges_of(shown) == {"queued": 3, "running": 3}


async def test_the_documents_of_a_user_are_found_behind_those_of_others(
    house: House, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.drop("hers.cbz", folder=folder_of(house.root, "users/ada"))
    await house.look()
    for number in range(2):
        house.drop(f"{number}.cbz", number)
    await house.look()
    monkeypatch.setattr(routes, "MAX_LISTED", 1)
    async with serve_api(house.lab, dsn, house.settings) as api:
        listed = await api.get("/apps/documents/jobs?user=ada")
    assert [one["inputName"] for one in json.loads(listed.raw)] == ["hers.cbz"]
