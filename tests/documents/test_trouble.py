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
from tests.conftest import Eventually
from tests.documents import drawn
from tests.documents.house import House
from tests.documents.test_duplicates import held, waiting
from tests.support.api_client import serve_api

from cograil.apps.documents import (
    atomic_files,
    cleanup,
    duplicates,
    file_claiming,
    folder_id,
    routes,
    tools,
    watcher,
)
from cograil.apps.documents.app import app
from cograil.apps.documents.config import save_config
from cograil.apps.documents.layout import Folder, folder_of
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
from cograil.apps.documents.file_claiming import has_writer_open
answers = {has_writer_open(Path(sys.argv[1])) for _ in range(30_000)}
print(sorted(answers))
"""


def test_whoever_begins_to_write_while_we_ask_does_not_kill_us(tmp_path: Path) -> None:
    """The kernel tells the holder of a lease by SIGIO, of which a process dies that expects none."""
    path = tmp_path / "a.cbz"
    path.touch()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        asked = subprocess.run(
            [sys.executable, "-c", ASKER, path], capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        writer.kill()
        writer.communicate()
    assert (asked.returncode, asked.stdout.strip()) == (0, "[False, True]"), asked.stderr


async def test_a_link_to_a_directory_is_not_walked_through(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house.folder.arrivals / "a.cbz").symlink_to("/")
    monkeypatch.setattr(
        atomic_files, "files_below", lambda directory: pytest.fail(f"{directory} was walked through")
    )
    await house.look()
    assert house.names("error") == ["a.cbz"]
    (name,) = house.names("reports/rejected")
    assert house.read(f"reports/rejected/{name}")["sizeBytes"] == 1


@pytest.mark.parametrize("kind", ["deep", "fifo", "link", "directory", "large"])
async def test_a_decision_that_cannot_be_read_keeps_nobody(house: House, kind: str) -> None:
    key = await held(house, "a.cbz", "b.cbz")
    place = house.folder.held / key / "decision.json"
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
    house.drop("c.cbz", 3)
    await house.look()
    assert len(await house.documents()) == 2
    assert waiting(house, key) == ["b.cbz"]
    assert "no JSON" in house.read(f"hold/duplicates/{key}/status.json")["reason"]


async def test_what_others_put_into_hold_keeps_nobody(house: House, dsn: str) -> None:
    strange = Path(os.fsdecode(bytes(house.folder.held) + b"/no\xffkey"))
    strange.mkdir()
    (strange / "a.cbz").touch()
    (strange / "decision.json").write_text('{"action": "DISCARD"}')
    key = await held(house, "a.cbz", "b.cbz")
    Path(os.fsdecode(bytes(house.folder.held / key) + b"/x\xff.cbz")).touch()
    (house.folder.reports / f"{key}.json").write_text("[]")
    (house.folder.held / key / "status.json").write_text("1")
    async with serve_api(house.lab, dsn, house.settings) as api:
        listed = await api.get("/apps/documents/duplicates")
    (one,) = json.loads(listed.raw)
    assert one["jobKey"] == key
    assert [file["fileName"] for file in one["held"]] == ["b.cbz", "x_.cbz"]
    assert (strange / "a.cbz").exists()


async def test_the_trouble_of_one_user_is_not_that_of_another(house: House) -> None:
    ada, zoe = (folder_of(house.root, f"users/{name}") for name in ("ada", "zoe"))
    ada.arrivals.mkdir(parents=True)
    ada.out.write_text("no directory")
    house.drop("z.cbz", folder=zoe)
    with structlog.testing.capture_logs() as said:
        await house.look()
    assert [one.name for one in await house.documents(zoe)] == ["z.cbz"]
    assert [str(ada.base) in one["error"] for one in said if one["log_level"] == "warning"] == [True]


async def test_what_cannot_be_copied_now_waits_and_the_others_go_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = file_claiming.claim_of(house.folder.staging / "20260101-000000_far.cbz", house.folder)
    drawn.tiny(claim, 9)
    move = atomic_files.move

    def full(source: Path, target: Path, what: str = "move", **more: bool) -> None:
        if source == claim:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        move(source, target, what, **more)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "move", full)
        house.drop("near.cbz")
        await house.look()
        assert [one.name for one in await house.documents()] == ["near.cbz"]
        assert claim.exists()
    house.drop("later.cbz", 3)
    await house.look()
    assert {one.name for one in await house.documents()} == {"near.cbz", "later.cbz", "far.cbz"}


async def test_two_mounts_of_one_file_system_are_two(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: the same device, and no rename. What is copied must be claimed before."""
    rename, copy, copied = atomic_files._rename, atomic_files.copy, []

    def across(source: Path, target: Path) -> None:
        if (source.parent, target.parent) == (house.folder.arrivals, house.folder.staging):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target)

    def noted(source: Path, target: Path) -> None:
        copied.append(source.name)
        copy(source, target)

    monkeypatch.setattr(atomic_files, "_rename", across)
    monkeypatch.setattr(atomic_files, "copy", noted)
    house.drop("a.cbz")
    await house.look()
    assert [one.name for one in await house.documents()] == ["a.cbz"]
    assert [name.startswith(file_claiming.CLAIM) for name in copied] == [True]
    assert list(house.folder.arrivals.iterdir()) == []


async def test_what_is_no_file_is_refused_from_another_file_system_too(house: House, elsewhere: Path) -> None:
    shutil.rmtree(house.folder.arrivals)
    house.folder.arrivals.symlink_to(elsewhere)
    os.mkfifo(elsewhere / "fifo.cbz")
    (elsewhere / "link.cbz").symlink_to("/")
    house.drop("a.cbz")
    await house.look(2)
    assert [one.name for one in await house.documents()] == ["a.cbz"]
    assert house.names("error") == ["fifo.cbz", "link.cbz"]
    assert list(elsewhere.iterdir()) == []


async def test_a_language_that_was_configured_counts_and_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings ask for French, which is not here: somebody said English instead."""
    monkeypatch.setattr(tools, "_languages", lambda moment: frozenset({"eng"}))
    async with house.lab.db.transaction("test") as tx:
        await save_config(tx, {"default_ocr_lang": "eng"})
    house.drop("a.cbz")
    await house.look()
    (document,) = await house.documents()
    assert document.profile["ocr"]["lang"] == "eng"


async def test_a_language_that_is_missing_is_told_by_readyz(house: House) -> None:
    """Nothing is taken meanwhile, and that should be seen elsewhere than in a log."""
    check = app.readiness(house.settings, True)["documents"]
    assert await check(house.lab.db) == "ok"
    async with house.lab.db.transaction("test") as tx:
        await save_config(tx, {"default_ocr_lang": "tlh"})
    assert await check(house.lab.db) == "degraded: these tools are missing: tesseract-ocr-tlh"


async def test_a_lost_projection_comes_back_while_something_runs(house: House) -> None:
    house.drop("a.cbz")
    await house.look()
    (house.folder.index / "jobs.json").unlink()
    await house.look()
    assert len(house.read("index/jobs.json")["jobs"]) == 1


async def test_a_report_tells_what_is_still_held(house: House) -> None:
    key = await held(house, "a.cbz", "b.cbz", "c.cbz")
    _, last = duplicates.held_files(house.folder, key)
    duplicates.decide(house.folder, key, duplicates.DISCARD, file=last.name)
    await house.look()
    report = house.read(f"reports/duplicates/{key}.json")
    assert report["incoming"]["fileName"] == "b.cbz"
    assert [one["fileName"] for one in report["held"]] == ["b.cbz"]
    assert report["profile"]["ocr"]["lang"] == "eng+fra"


def test_a_full_disk_leaves_nothing_behind_at_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_files, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        folder_id.place_of(Folder(tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_watchers_on_machines_of_different_size_share_one_workflow(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = set()
    for cores in (2, 64):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        texts.add(text_of(house.settings.documents, 1))
    assert len(texts) == 1


async def test_the_api_counts_all_that_wait_and_says_where_one_is(
    house: House, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_LISTED", 1)
    for number in range(3):
        house.drop(f"{number}.cbz", number)
    await house.look()
    document = (await house.documents())[0]
    async with serve_api(house.lab, dsn, house.settings) as api:
        metrics = await api.get("/apps/documents/metrics")
        job = await api.get(f"/apps/documents/jobs/{document.key}")
    assert json.loads(metrics.raw)["queued"] == 3
    state = house.read(f"work/{document.key}/state.json")
    assert json.loads(job.raw) == state
    assert Path(state["input"]["path"]).exists()


async def test_a_room_that_another_janitor_removes_is_nobodys_trouble(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = [house.folder.room(f"{digit * 64}__{'0' * 64}") for digit in "12"]
    for room in rooms:
        room.mkdir()
    place, remove = folder_id.place_of(house.folder), atomic_files.remove
    monkeypatch.setattr(cleanup, "is_old", lambda room, days: True)

    def late(path: Path) -> None:
        remove(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(atomic_files, "remove", late)
    await cleanup.tidy(house.lab.db, house.folder, place, 0)
    assert not any(room.exists() for room in rooms)
    assert not cleanup.is_spent(rooms[0])


async def test_a_place_in_which_nothing_is_held_is_not_shown_and_goes(house: House) -> None:
    """Somebody died while he wrote there."""
    place = house.folder.held / f"{'1' * 64}__{'0' * 64}"
    place.mkdir()
    (place / atomic_files.hidden_name()).touch()
    assert routes.held_of(house.folder) == []
    cleanup.sweep_hidden(house.folder)
    assert place.exists()  # it may be written right now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleanup, "DAY", -1)
        cleanup.sweep_hidden(house.folder)
    assert not place.exists()


async def test_what_cannot_be_looked_at_keeps_no_later_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many those are."""
    monkeypatch.setattr(watcher, "BATCH", 2)
    for number in range(2):
        drawn.tiny(house.folder.staging / f"20260101-00000{number}_a.cbz", number)
    late = drawn.tiny(house.folder.staging / "20260101-000005_b.cbz", 9)
    monkeypatch.setattr(file_claiming, "is_whole", lambda staged, folder: staged == late)
    await house.look()
    assert [one.name for one in await house.documents()] == ["b.cbz"]


async def test_a_folder_that_somebody_writes_to_when_it_was_taken_waits(house: House) -> None:
    staged = house.folder.staging / "20260101-000000_scans"
    staged.mkdir()
    with (staged / "1.png").open("wb") as writer:
        writer.write(drawn.dot())
        writer.flush()
        await house.look()
        assert await house.documents() == []
    await house.look()
    assert [one.name for one in await house.documents()] == ["scans"]


async def test_who_goes_on_with_holding_a_copy_holds_it_once(house: House, elsewhere: Path) -> None:
    """`hold` is on another file system, and somebody died between the copy and the removal, seconds ago."""
    shutil.rmtree(house.folder.held)
    house.folder.held.symlink_to(elsewhere)
    key = await held(house, "a.cbz", "b.cbz")
    (copied,) = duplicates.held_files(house.folder, key)
    shutil.copy(copied, house.folder.staging / f"{copied.name.partition('__')[0]}_b.cbz")
    await house.look()
    assert duplicates.held_files(house.folder, key) == [copied]
    assert house.names("work/_staging") == []


async def test_a_folder_is_looked_after_by_one_database(house: House, eventually: Eventually) -> None:
    """Whoever comes with another one waits, and says so, until the first is gone."""
    first = folder_id.look_after(house.root, "first")
    os.close(folder_id.look_after(house.root, "first"))  # of one database there may be many
    house.drop("a.cbz")
    with structlog.testing.capture_logs() as said:
        task = asyncio.create_task(house.watcher.run())
        await eventually(lambda: [one for one in said if "another database" in str(one.get("error"))])
        assert house.names("in") == ["a.cbz"]
        os.close(first)
        await eventually(lambda: house.names("in") == [])
        with pytest.raises(Conflict):
            folder_id.look_after(house.root, "first")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    os.close(folder_id.look_after(house.root, "first"))
