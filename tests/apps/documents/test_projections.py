"""jobs.json, metrics.json and state.json are copies of what the engine knows, whatever happens to them."""

from __future__ import annotations

import errno
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.apps.documents.document_site import DocumentSite
from tests.support.api_client import serve_api

from cograil.apps.documents import atomic_files, routes, status_files
from cograil.apps.documents.layout import folder_of
from cograil.apps.documents.status_files import gauges_of


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def running(site: DocumentSite) -> str:
    """One document that is on its way, and shown."""
    site.drop("a.cbz")
    await site.look()
    (document,) = await site.documents()
    return document.key


@pytest.mark.parametrize("place", ["index/jobs.json", "index/metrics.json", "work/KEY/state.json"])
@pytest.mark.parametrize("content", [None, b"{}", b"no JSON"])
async def test_a_lost_or_changed_projection_is_written_again(
    site: DocumentSite, place: str, content: bytes | None
) -> None:
    path = site.root / place.replace("KEY", await running(site))
    before = json.loads(path.read_text())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    await site.look()
    assert json.loads(path.read_text()) | {"updatedAt": ""} == before | {"updatedAt": ""}


async def test_documents_ended_on_a_full_disk_are_shown_later(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that was: nothing changes any more that would be written again."""
    key = await running(site)
    monkeypatch.setattr(status_files, "OVERLAP", timedelta(0))
    await site.lab.rows(
        "update cograil_documents.documents set state = 'DONE', out_pdf = 'a.pdf', changed_at = now()"
    )
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_json", full)
        await site.look(2)
    await site.look()
    assert site.read("index/jobs.json")["jobs"][key]["state"] == "DONE"
    assert site.read(f"work/{key}/state.json")["state"] == "DONE"
    assert site.read("index/metrics.json")["done"] == 1


async def test_one_room_that_cannot_be_written_to_hides_no_other(site: DocumentSite) -> None:
    odd = await running(site)
    (site.root / f"work/{odd}/state.json").unlink()
    (site.root / f"work/{odd}/state.json" / "in the way").mkdir(parents=True)
    path = site.drop("b.cbz", 3)
    key = await site.key_of(path)
    site.watcher = site.another_watcher()
    await site.look()
    assert site.read("index/jobs.json")["jobs"].keys() == {odd, key}
    assert site.read(f"work/{key}/state.json")["state"] == "DISCOVERED"


async def test_two_watchers_do_not_write_in_turns(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sees that the other wrote, and that there is nothing to add."""
    await running(site)
    other = site.another_watcher()
    await other.look()
    written: list[Path] = []
    write = atomic_files.write_json
    monkeypatch.setattr(
        atomic_files, "write_json", lambda path, value: (written.append(path), write(path, value))
    )
    for _ in range(3):
        await site.look()
        await other.look()
    assert written == []


def test_a_document_that_waits_for_a_retry_is_queued() -> None:
    states = ["DISCOVERED", "PREP_RUNNING", "PREP_ERROR", "OCR_TIMEOUT", "OCR_RUNNING", "OCR_DONE"]
    shown = [{"state": state} for state in [*states, "DONE", "ERROR", "ERROR_OCR"]]
    assert gauges_of(shown) == {"queued": 3, "running": 3}


async def test_the_documents_of_a_user_are_found_behind_those_of_others(
    site: DocumentSite, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.drop("hers.cbz", folder=folder_of(site.root, "users/ada"))
    await site.look()
    for number in range(2):
        site.drop(f"{number}.cbz", number)
    await site.look()
    monkeypatch.setattr(routes, "MAX_LISTED", 1)
    async with serve_api(site.lab, dsn, site.settings) as api:
        listed = await api.get("/apps/documents/jobs?user=ada")
    assert [document["inputName"] for document in json.loads(listed.raw)] == ["hers.cbz"]
