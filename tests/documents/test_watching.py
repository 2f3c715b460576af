"""What arrives is taken once, when it is whole, and becomes a job; what may not come in goes to `error`."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from tests.conftest import Eventually
from tests.documents import drawn
from tests.documents.house import House

from cograil.apps.documents import cleanup, file_claims, tools
from cograil.apps.documents.folder_id import folder_id_of
from cograil.apps.documents.layout import Folder, folder_of
from cograil.apps.documents.prep import prepare
from cograil.errors import UsageError


async def test_a_file_becomes_a_job_and_is_shown(house: House) -> None:
    key = await house.key_of(house.drop("Tintin au Tibet.cbz"))
    await house.look()
    (document,) = await house.documents()
    assert (document.key, document.name, document.job_status) == (key, "Tintin au Tibet.cbz", "pending")
    assert house.names("in") == house.names("work/_staging") == []
    assert house.names(f"work/{key}") == ["Tintin au Tibet.cbz", "state.json"]
    state = house.read(f"work/{key}/state.json")
    assert (state["state"], state["input"]["name"], state["fileHash"]) == (
        "DISCOVERED",
        "Tintin au Tibet.cbz",
        key[:64],
    )
    assert house.read("index/jobs.json")["jobs"][key]["inputName"] == "Tintin au Tibet.cbz"
    metrics = house.read("index/metrics.json")
    assert (metrics["queued"], metrics["running"], metrics["done"]) == (1, 0, 0)


async def test_only_documents_are_taken(house: House) -> None:
    for name in ("a.cbz.part", "notes.txt", ".hidden.cbz", "b.cbz.PART", "~$c.pdf"):
        drawn.tiny(house.folder.arrivals / name)
    await house.look(2)
    assert await house.documents() == []
    assert house.names("in") == ["a.cbz.part", "b.cbz.PART", "notes.txt", "~$c.pdf"]


async def test_capitals_do_not_matter(house: House) -> None:
    house.drop("A.CBZ")
    await house.look()
    assert [one.name for one in await house.documents()] == ["A.CBZ"]


async def test_a_file_that_somebody_writes_is_not_taken(house: House) -> None:
    path = house.folder.arrivals / "a.cbz"
    content = drawn.tiny(house.root / "whole.cbz").read_bytes()
    with path.open("wb") as writer:
        writer.write(content[:50])
        writer.flush()
        await house.look(3)
        assert house.names("in") == ["a.cbz"]
        writer.write(content[50:])
    await house.look()
    assert [one.size for one in await house.documents()] == [len(content)]


async def test_where_the_system_does_not_say_who_writes_time_tells(
    house: House, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(file_claims, "has_writer_open", lambda path: None)
    house.drop("a.cbz")
    await house.look()
    assert await house.documents() == []

    async def taken() -> bool:
        await house.look()
        return len(await house.documents()) == 1

    await eventually(taken)


async def refused(house: House, eventually: Eventually) -> dict[str, Any]:
    async def told() -> list[str]:
        await house.look()
        return house.names("reports/rejected")

    (name,) = await eventually(told)
    report = house.read(f"reports/rejected/{name}")
    assert house.names("in") == house.names("work/_staging") == []
    assert len(house.names("error")) == 1
    assert await house.documents() == []
    return dict(report)


async def test_nothing_is_refused_after_a_while(house: House, eventually: Eventually) -> None:
    (house.folder.arrivals / "a.cbz").touch()
    await house.look()
    assert house.names("in") == ["a.cbz"]
    assert (await refused(house, eventually))["reason"] == "invalid_signature"
    assert house.read("index/metrics.json")["input_rejected_signature"] == 1


@pytest.mark.parametrize("content", [b"just text", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n"])
async def test_what_is_no_archive_is_no_comic(house: House, eventually: Eventually, content: bytes) -> None:
    (house.folder.arrivals / "a.cbz").write_bytes(content)
    with structlog.testing.capture_logs() as said:
        assert (await refused(house, eventually))["reason"] == "invalid_signature"
    assert [one["reason"] for one in said if one["event"] == "document refused"] == ["invalid_signature"]


async def test_a_link_is_not_followed(house: House, eventually: Eventually) -> None:
    secret = drawn.tiny(house.root / "secret.cbz")
    (house.folder.arrivals / "a.cbz").symlink_to(secret)
    assert (await refused(house, eventually))["reason"] == "not_a_regular_file"
    assert secret.exists()
    assert (house.folder.error / "a.cbz").is_symlink()


async def test_a_fifo_does_not_keep_us(house: House, eventually: Eventually) -> None:
    os.mkfifo(house.folder.arrivals / "a.cbz")
    assert (await refused(house, eventually))["reason"] == "not_a_regular_file"


async def test_refused_files_do_not_overwrite_each_other(house: House, eventually: Eventually) -> None:
    for content in (b"one", b"two"):
        (house.folder.arrivals / "a.cbz").write_bytes(content)
        await house.look()
    assert house.names("error") == ["a (2).cbz", "a.cbz"]
    assert {path.read_bytes() for path in house.folder.error.iterdir()} == {b"one", b"two"}


@pytest.mark.parametrize("document_settings", [{"max_input_size_mb": 1}])
async def test_what_is_too_large_is_refused(house: House, eventually: Eventually) -> None:
    drawn.comic(house.folder.arrivals / "a.cbz", {"1.png": b"x" * 2_000_000})
    assert (await refused(house, eventually))["reason"] == "input_too_large"
    assert house.read("index/metrics.json")["input_rejected_size"] == 1


@pytest.mark.parametrize("document_settings", [{"disk_free_factor": 1e15}])
async def test_what_has_no_room_on_the_disk_is_refused(house: House, eventually: Eventually) -> None:
    house.drop("a.cbz")
    assert (await refused(house, eventually))["reason"] == "disk_full"
    assert house.read("index/metrics.json")["disk_error"] == 1


async def test_strange_and_long_names_are_taken(house: House) -> None:
    for number, name in enumerate(["a\nb\x1b[2J.cbz", f"{'é' * 120}.cbz", "--help.cbz", "\udcff.cbz"]):
        house.drop("x.cbz", number).rename(house.folder.arrivals / name)
    await house.look()
    found = await house.documents()
    assert len(found) == 4
    assert all(one.name.isprintable() for one in found)
    assert all(len(house.folder.pdf(one.name, one.key).name.encode()) <= 255 for one in found)


async def test_a_folder_of_pictures_is_one_document(house: House, eventually: Eventually) -> None:
    (house.folder.arrivals / "scans").mkdir()
    (house.folder.arrivals / "scans/1.png").write_bytes(drawn.dot())
    await house.look()
    assert await house.documents() == []

    async def taken() -> Any:
        await house.look()
        return await house.documents()

    (document,) = await eventually(taken)
    assert house.names(f"work/{document.key}/scans") == ["1.png"]


async def test_many_watchers_take_each_file_once(house: House) -> None:
    others = [house.another_watcher() for _ in range(3)]
    for number in range(60):
        house.drop(f"{number}.cbz", number)

    async def until_empty(watcher: Any) -> None:
        while house.names("in") or house.names("work/_staging"):
            await watcher.look()

    await asyncio.gather(*(until_empty(one) for one in [house.watcher, *others]))
    found = await house.documents()
    assert sorted(one.name for one in found) == sorted(f"{number}.cbz" for number in range(60))
    assert house.names("error") == house.names("hold/duplicates") == []
    assert all((house.folder.work_dir(one.key) / one.name).exists() for one in found)


async def test_what_was_left_in_staging_is_taken_up(house: House) -> None:
    taken = file_claims.take(house.drop("a.cbz"), house.folder)
    assert taken is not None
    await house.look()
    assert [one.name for one in await house.documents()] == ["a.cbz"]
    assert house.names("work/_staging") == []


async def test_the_input_of_a_job_that_was_not_moved_yet_is_no_duplicate(house: House) -> None:
    house.drop("a.cbz")
    await house.look()
    (document,) = await house.documents()
    (house.folder.work_dir(document.key) / "a.cbz").rename(house.folder.staging / document.staged)
    await house.look()
    assert house.names(f"work/{document.key}")[0] == "a.cbz"
    assert house.names("hold/duplicates") == house.names("work/_staging") == []


async def test_what_another_works_on_is_left_to_him(house: House) -> None:
    taken = file_claims.take(house.drop("a.cbz"), house.folder)
    assert taken is not None
    with file_claims.locked(taken) as is_mine:
        assert is_mine
        await house.look()
        assert await house.documents() == []
    await house.look()
    assert len(await house.documents()) == 1


async def test_from_another_file_system(house: House, elsewhere: Path) -> None:
    if elsewhere.stat().st_dev == house.root.stat().st_dev:
        pytest.fail("this machine has only one file system")
    shutil.rmtree(house.folder.arrivals)
    house.folder.arrivals.symlink_to(elsewhere)
    for number in range(10):
        house.drop(f"{number}.cbz", number)
    other = house.another_watcher()
    await asyncio.gather(house.look(3), other.look(), other.look())
    await house.look(2)
    assert sorted(one.name for one in await house.documents()) == [f"{number}.cbz" for number in range(10)]
    assert list(elsewhere.iterdir()) == []
    assert house.names("hold/duplicates") == []


async def test_users_have_folders_of_their_own(house: House) -> None:
    ada = folder_of(house.root, "users/ada")
    house.drop("a.cbz")
    house.drop("a.cbz", folder=ada)
    await house.look()
    assert len(await house.documents()) == len(await house.documents(ada)) == 1
    assert house.names("hold/duplicates", ada) == []
    (document,) = await house.documents(ada)
    assert house.read(f"users/ada/work/{document.key}/state.json")["userId"] == "ada"


@pytest.mark.parametrize("name", ["users/../..", "users/", "users/a/b", "else", "users/.hidden"])
def test_what_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        folder_of(Path("/data"), name)


@pytest.mark.parametrize("document_settings", [{"max_jobs_per_user": 2}])
async def test_a_user_has_only_so_many_at_a_time(house: House) -> None:
    ada = folder_of(house.root, "users/ada")
    for number in range(5):
        house.drop(f"{number}.cbz", number, folder=ada)
    await house.look(3)
    assert len(await house.documents(ada)) == 2
    assert len(house.names("in", ada)) == 3


@pytest.mark.parametrize("document_settings", [{"max_jobs_per_user": 1}])
async def test_what_must_wait_is_not_asked_for_again_and_again(house: House) -> None:
    ada = folder_of(house.root, "users/ada")
    house.drop("a.cbz", 1, folder=ada)
    await house.look()
    house.drop("b.cbz", 2, folder=ada)
    with file_claims.locked(drawn.tiny(ada.staging / "20260101-000000_c.cbz", 3)) as is_mine:
        assert is_mine
        assert not await house.watcher.look()


@pytest.mark.parametrize("document_settings", [{"prep_url": "http://127.0.0.1:9"}])
async def test_a_service_that_is_down_delays_and_changes_no_key(house: House) -> None:
    house.drop("a.cbz")
    await house.look(2)
    assert house.names("in") == ["a.cbz"]
    assert await house.documents() == []


async def test_a_tool_of_another_version_is_another_document(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.drop("a.cbz")
    await house.look()
    before = tools.ocr_info()
    after = before | {"versions": before["versions"] | {"tesseract": "99"}}
    monkeypatch.setattr(tools, "ocr_info", lambda: after)
    house.drop("a.cbz")
    await house.look()
    assert len({one.key for one in await house.documents()}) == 2


async def test_without_its_tools_nothing_is_taken(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    house.drop("a.cbz")
    await house.look()
    assert house.names("in") == ["a.cbz"]


async def test_the_janitor_keeps_what_is_needed(house: House) -> None:
    house.drop("a.cbz")
    await house.look()
    (running,) = await house.documents()
    spent, unarchived = (house.folder.work_dir(f"{digit * 64}__{'0' * 64}") for digit in "12")
    for room in (spent, unarchived):
        room.mkdir()
        (room / "raw.pdf").touch()
    (unarchived / "b.cbz").touch()
    for room in (spent, unarchived, house.folder.work_dir(running.key), house.folder.staging):
        os.utime(room, (0, 0))
    await cleanup.tidy(house.lab.db, house.folder, folder_id_of(house.folder), 7)
    assert not spent.exists()
    assert unarchived.exists()
    assert house.folder.work_dir(running.key).exists()
    assert house.folder.staging.exists()


async def test_projections_are_made_again(house: House) -> None:
    house.drop("a.cbz")
    await house.look()
    (house.folder.index / "jobs.json").unlink()
    house.watcher = house.another_watcher()
    await house.look()
    assert len(house.read("index/jobs.json")["jobs"]) == 1


def test_a_key_leads_nowhere_else() -> None:
    with pytest.raises(UsageError):
        Folder(Path("/data")).work_dir("../../etc")


async def test_one_file_that_cannot_be_looked_at_keeps_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house.folder.staging / "20260101-000000_a.cbz").mkdir()
    house.drop("b.cbz")
    real = file_claims.is_whole

    def broken(staged: Path, folder: Folder) -> bool:
        if staged.name.endswith("a.cbz"):
            raise PermissionError("not for you")
        return real(staged, folder)

    monkeypatch.setattr(file_claims, "is_whole", broken)
    await house.look()
    assert [one.name for one in await house.documents()] == ["b.cbz"]


@pytest.mark.parametrize("name", ["raw.pdf", "final.pdf"])
async def test_an_input_that_is_named_like_one_of_our_files_is_not_taken_for_it(
    house: House, name: str
) -> None:
    room = house.root / "made"
    room.mkdir()
    prepare(
        drawn.tiny(house.root / "x.cbz"), room, run="1", dpi=None, is_resumed=False, progress=lambda *_: None
    )
    content = (room / "raw.pdf").read_bytes()
    (room / "raw.pdf").rename(house.folder.arrivals / name)
    await house.look()
    (document,) = await house.documents()
    assert document.name == name
    assert (house.folder.work_dir(document.key) / f"input-{name}").read_bytes() == content
    assert not (house.folder.work_dir(document.key) / name).exists()


async def test_without_its_language_nothing_is_taken(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_languages", lambda moment: frozenset({"eng"}))
    house.drop("a.cbz")
    await house.look()
    assert house.names("in") == ["a.cbz"]


async def test_a_decision_that_cannot_be_carried_out_keeps_no_file(house: House) -> None:
    for name in ("a.cbz", "b.cbz"):
        house.drop(name)
        await house.look()
    (document,) = await house.documents()
    decision = house.folder.held / document.key / "decision.json"
    decision.write_text('{"action": "FORCE_REPROCESS", "nonce": "deadbeef"}')
    (house.folder.arrivals / "b__force-deadbeef.cbz").mkdir()
    house.drop("c.cbz", 7)
    await house.look()
    assert "c.cbz" in [one.name for one in await house.documents()]
    (house.folder.arrivals / "b__force-deadbeef.cbz").rmdir()
    await house.look(2)
    assert "b__force-deadbeef.cbz" in [one.name for one in await house.documents()]
