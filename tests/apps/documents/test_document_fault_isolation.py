"""The trouble of one file, folder or neighbour is its own: the watcher lives, and the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import structlog.testing
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.apps.documents.held_documents import held, waiting
from tests.conftest import Eventually
from tests.support.api_client import serve_api

from cograil.apps.documents import (
    atomic_files,
    cleanup,
    duplicates,
    file_claims,
    folder_id,
    routes,
    safe_rename,
    tools,
    watcher,
)
from cograil.apps.documents.app import app
from cograil.apps.documents.config import save_config
from cograil.apps.documents.layout import Folder, folder_of
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.workflow import text_of
from cograil.errors import Conflict

WRITER = """
import os, sys
print(flush=True)
while True:
    os.close(os.open(sys.argv[1], os.O_WRONLY))
"""
ASKER = """
import sys
from pathlib import Path
from cograil.apps.documents.file_claims import has_writer_open
answers = {has_writer_open(Path(sys.argv[1])) for _ in range(30_000)}
print(sorted(answers))
"""


def test_a_writer_that_breaks_a_lease_does_not_kill_the_watcher(tmp_path: Path) -> None:
    """The kernel tells the holder of a lease by SIGIO, of which a process dies that expects none."""
    path = tmp_path / "a.cbz"
    path.touch()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        process = subprocess.run(
            [sys.executable, "-c", ASKER, path], capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        writer.kill()
        writer.communicate()
    assert (process.returncode, process.stdout.strip()) == (0, "[False, True]"), process.stderr


async def test_a_link_to_a_directory_is_not_walked_through(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder.arrivals / "a.cbz").symlink_to("/")
    monkeypatch.setattr(
        atomic_files, "files_below", lambda directory: pytest.fail(f"{directory} was walked through")
    )
    await site.look()
    assert site.names("error") == ["a.cbz"]
    (name,) = site.names("reports/rejected")
    assert site.read(f"reports/rejected/{name}")["sizeBytes"] == 1


@pytest.mark.parametrize("kind", ["deep", "fifo", "link", "directory", "large"])
async def test_a_decision_that_cannot_be_read_keeps_nobody(site: DocumentSite, kind: str) -> None:
    key = await held(site, "a.cbz", "b.cbz")
    place = site.folder.held / key / "decision.json"
    match kind:
        case "deep":
            place.write_text("[" * 200_000)
        case "fifo":
            os.mkfifo(place)
        case "link":
            place.symlink_to("/dev/zero")
        case "directory":
            place.mkdir()
        case "large":
            place.write_text('{"action": "DISCARD", "x": "' + "x" * atomic_files.MAX_JSON + '"}')
    site.drop("c.cbz", 3)
    await site.look()
    assert len(await site.documents()) == 2
    assert waiting(site, key) == ["b.cbz"]
    assert "not a JSON" in site.read(f"hold/duplicates/{key}/status.json")["reason"]


async def test_foreign_files_in_hold_block_nothing(site: DocumentSite, dsn: str) -> None:
    strange = Path(os.fsdecode(bytes(site.folder.held) + b"/no\xffkey"))
    strange.mkdir()
    (strange / "a.cbz").touch()
    (strange / "decision.json").write_text('{"action": "DISCARD"}')
    key = await held(site, "a.cbz", "b.cbz")
    Path(os.fsdecode(bytes(site.folder.held / key) + b"/x\xff.cbz")).touch()
    (site.folder.reports / f"{key}.json").write_text("[]")
    (site.folder.held / key / "status.json").write_text("1")
    async with serve_api(site.lab, dsn, site.settings) as api:
        listed = await api.get("/apps/documents/duplicates")
    (document,) = json.loads(listed.raw)
    assert document["jobKey"] == key
    assert [file["fileName"] for file in document["held"]] == ["b.cbz", "x_.cbz"]
    assert (strange / "a.cbz").exists()


async def test_the_trouble_of_one_user_is_not_that_of_another(site: DocumentSite) -> None:
    ada, zoe = (folder_of(site.root, f"users/{name}") for name in ("ada", "zoe"))
    ada.arrivals.mkdir(parents=True)
    ada.out.write_text("no directory")
    site.drop("z.cbz", folder=zoe)
    with structlog.testing.capture_logs() as logged:
        await site.look()
    assert [document.name for document in await site.documents(zoe)] == ["z.cbz"]
    assert [str(ada.base) in line["error"] for line in logged if line["log_level"] == "warning"] == [True]


async def test_a_file_that_cannot_be_copied_waits_and_the_others_go_on(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = file_claims.claim_of(site.folder.staging / "20260101-000000_far.cbz", site.folder)
    sample_documents.tiny(claim, 9)
    move = atomic_files.move

    def full(source: Path, target: Path, what: str = "move", **more: bool) -> None:
        if source == claim:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        move(source, target, what, **more)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "move", full)
        site.drop("near.cbz")
        await site.look()
        assert [document.name for document in await site.documents()] == ["near.cbz"]
        assert claim.exists()
    site.drop("later.cbz", 3)
    await site.look()
    assert {document.name for document in await site.documents()} == {"near.cbz", "later.cbz", "far.cbz"}


async def test_two_mounts_of_one_file_system_are_two(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: the same device, and no rename. What is copied must be claimed before."""
    copy, copied = atomic_files.copy, []

    def across(source: Path, target: Path) -> None:
        if (source.parent, target.parent) == (site.folder.arrivals, site.folder.staging):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        safe_rename.rename(source, target)

    def noted(source: Path, target: Path) -> None:
        copied.append(source.name)
        copy(source, target)

    monkeypatch.setattr(atomic_files, "_rename", across)
    monkeypatch.setattr(atomic_files, "copy", noted)
    site.drop("a.cbz")
    await site.look()
    assert [document.name for document in await site.documents()] == ["a.cbz"]
    assert [name.startswith(file_claims.CLAIM) for name in copied] == [True]
    assert list(site.folder.arrivals.iterdir()) == []


async def test_a_special_file_on_another_file_system_is_refused(site: DocumentSite, elsewhere: Path) -> None:
    shutil.rmtree(site.folder.arrivals)
    site.folder.arrivals.symlink_to(elsewhere)
    os.mkfifo(elsewhere / "fifo.cbz")
    (elsewhere / "link.cbz").symlink_to("/")
    site.drop("a.cbz")
    await site.look(2)
    assert [document.name for document in await site.documents()] == ["a.cbz"]
    assert site.names("error") == ["fifo.cbz", "link.cbz"]
    assert list(elsewhere.iterdir()) == []


async def test_a_language_that_was_configured_counts_and_no_other(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings ask for French, which is not here: somebody said English instead."""
    monkeypatch.setattr(tools, "_languages", lambda moment: frozenset({"eng"}))
    async with site.lab.db.transaction("test") as tx:
        await save_config(tx, {"default_ocr_lang": "eng"})
    site.drop("a.cbz")
    await site.look()
    (document,) = await site.documents()
    assert document.profile["ocr"]["lang"] == "eng"


async def test_a_language_that_is_missing_is_told_by_readyz(site: DocumentSite) -> None:
    """Nothing is taken meanwhile, and that should be seen elsewhere than in a log."""
    check = app.readiness(site.settings, True)["documents"]
    assert await check(site.lab.db) == "ok"
    async with site.lab.db.transaction("test") as tx:
        await save_config(tx, {"default_ocr_lang": "tlh"})
    assert await check(site.lab.db) == "degraded: these tools are missing: tesseract-ocr-tlh"


async def test_a_lost_projection_comes_back_while_something_runs(site: DocumentSite) -> None:
    site.drop("a.cbz")
    await site.look()
    (site.folder.index / "jobs.json").unlink()
    await site.look()
    assert len(site.read("index/jobs.json")["jobs"]) == 1


async def test_a_report_tells_what_is_still_held(site: DocumentSite) -> None:
    key = await held(site, "a.cbz", "b.cbz", "c.cbz")
    _, last = duplicates.held_files(site.folder, key)
    duplicates.decide(site.folder, key, duplicates.DISCARD, file=last.name)
    await site.look()
    report = site.read(f"reports/duplicates/{key}.json")
    assert report["incoming"]["fileName"] == "b.cbz"
    assert [file["fileName"] for file in report["held"]] == ["b.cbz"]
    assert report["profile"]["ocr"]["lang"] == "eng+fra"


def test_a_full_disk_leaves_nothing_behind_at_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_files, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        folder_id.folder_id_of(Folder(tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_watchers_on_machines_of_different_size_share_one_workflow(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = set()
    for cores in (2, 64):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        texts.add(text_of(site.settings.section(DocumentSettings), 1))
    assert len(texts) == 1


async def test_the_api_counts_all_that_wait_and_says_where_one_is(
    site: DocumentSite, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_LISTED", 1)
    for number in range(3):
        site.drop(f"{number}.cbz", number)
    await site.look()
    document = (await site.documents())[0]
    async with serve_api(site.lab, dsn, site.settings) as api:
        metrics = await api.get("/apps/documents/metrics")
        job = await api.get(f"/apps/documents/jobs/{document.key}")
    assert json.loads(metrics.raw)["queued"] == 3
    state = site.read(f"work/{document.key}/state.json")
    assert json.loads(job.raw) == state
    assert Path(state["input"]["path"]).exists()


async def test_a_room_that_another_janitor_removes_is_nobodys_trouble(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = [site.folder.work_dir(f"{digit * 64}__{'0' * 64}") for digit in "12"]
    for room in rooms:
        room.mkdir()
    place, remove = folder_id.folder_id_of(site.folder), atomic_files.remove
    monkeypatch.setattr(cleanup, "is_old", lambda room, days: True)

    def late(path: Path) -> None:
        remove(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(atomic_files, "remove", late)
    await cleanup.tidy(site.lab.db, site.folder, place, 0)
    assert not any(room.exists() for room in rooms)
    assert not cleanup.is_spent(rooms[0])


async def test_a_place_in_which_nothing_is_held_is_not_shown_and_goes(site: DocumentSite) -> None:
    """Somebody died while he wrote there."""
    place = site.folder.held / f"{'1' * 64}__{'0' * 64}"
    place.mkdir()
    (place / atomic_files.hidden_name()).touch()
    assert routes.held_of(site.folder) == []
    cleanup.sweep_hidden(site.folder)
    assert place.exists()  # it may be written right now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleanup, "DAY", -1)
        cleanup.sweep_hidden(site.folder)
    assert not place.exists()


async def test_a_file_that_cannot_be_examined_does_not_block_later_ones(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many those are."""
    monkeypatch.setattr(watcher, "BATCH", 2)
    for number in range(2):
        sample_documents.tiny(site.folder.staging / f"20260101-00000{number}_a.cbz", number)
    late = sample_documents.tiny(site.folder.staging / "20260101-000005_b.cbz", 9)
    monkeypatch.setattr(file_claims, "is_whole", lambda staged, folder: staged == late)
    await site.look()
    assert [document.name for document in await site.documents()] == ["b.cbz"]


async def test_a_folder_that_somebody_writes_to_when_it_was_taken_waits(site: DocumentSite) -> None:
    staged = site.folder.staging / "20260101-000000_scans"
    staged.mkdir()
    with (staged / "1.png").open("wb") as writer:
        writer.write(sample_documents.dot())
        writer.flush()
        await site.look()
        assert await site.documents() == []
    await site.look()
    assert [document.name for document in await site.documents()] == ["scans"]


async def test_a_copy_whose_holding_is_resumed_is_held_once(site: DocumentSite, elsewhere: Path) -> None:
    """`hold` is on another file system, and somebody died between the copy and the removal, seconds ago."""
    shutil.rmtree(site.folder.held)
    site.folder.held.symlink_to(elsewhere)
    key = await held(site, "a.cbz", "b.cbz")
    (copied,) = duplicates.held_files(site.folder, key)
    shutil.copy(copied, site.folder.staging / f"{copied.name.partition('__')[0]}_b.cbz")
    await site.look()
    assert duplicates.held_files(site.folder, key) == [copied]
    assert site.names("work/_staging") == []


async def test_a_folder_is_looked_after_by_one_database(site: DocumentSite, eventually: Eventually) -> None:
    """A watcher with another database waits, and says so, until the first is gone."""
    first = folder_id.lock_for_database(site.root, "first")
    os.close(folder_id.lock_for_database(site.root, "first"))  # of one database there may be many
    site.drop("a.cbz")
    with structlog.testing.capture_logs() as logged:
        task = asyncio.create_task(site.watcher.run())
        await eventually(lambda: [line for line in logged if "another database" in str(line.get("error"))])
        assert site.names("in") == ["a.cbz"]
        os.close(first)
        await eventually(lambda: site.names("in") == [])
        with pytest.raises(Conflict):
            folder_id.lock_for_database(site.root, "first")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    os.close(folder_id.lock_for_database(site.root, "first"))
