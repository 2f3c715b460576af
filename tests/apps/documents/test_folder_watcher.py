"""What arrives is taken once, when it is whole, and becomes a job; what may not come in goes to `error`."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually

from cograil.apps.documents import cleanup, file_claims, tools
from cograil.apps.documents.folder_id import folder_id_of
from cograil.apps.documents.layout import Folder, folder_of
from cograil.apps.documents.prep import prepare
from cograil.errors import UsageError


async def test_a_file_becomes_a_job_and_is_shown(site: DocumentSite) -> None:
    key = await site.key_of(site.drop("Tintin au Tibet.cbz"))
    await site.look()
    (document,) = await site.documents()
    assert (document.key, document.name, document.job_status) == (key, "Tintin au Tibet.cbz", "pending")
    assert site.names("in") == site.names("work/_staging") == []
    assert site.names(f"work/{key}") == ["Tintin au Tibet.cbz", "state.json"]
    state = site.read(f"work/{key}/state.json")
    assert (state["state"], state["input"]["name"], state["fileHash"]) == (
        "DISCOVERED",
        "Tintin au Tibet.cbz",
        key[:64],
    )
    assert site.read("index/jobs.json")["jobs"][key]["inputName"] == "Tintin au Tibet.cbz"
    metrics = site.read("index/metrics.json")
    assert (metrics["queued"], metrics["running"], metrics["done"]) == (1, 0, 0)


async def test_only_documents_are_taken(site: DocumentSite) -> None:
    for name in ("a.cbz.part", "notes.txt", ".hidden.cbz", "b.cbz.PART", "~$c.pdf"):
        sample_documents.tiny(site.folder.arrivals / name)
    await site.look(2)
    assert await site.documents() == []
    assert site.names("in") == ["a.cbz.part", "b.cbz.PART", "notes.txt", "~$c.pdf"]


async def test_capitals_do_not_matter(site: DocumentSite) -> None:
    site.drop("A.CBZ")
    await site.look()
    assert [document.name for document in await site.documents()] == ["A.CBZ"]


async def test_a_file_that_somebody_writes_is_not_taken(site: DocumentSite) -> None:
    path = site.folder.arrivals / "a.cbz"
    content = sample_documents.tiny(site.root / "whole.cbz").read_bytes()
    with path.open("wb") as writer:
        writer.write(content[:50])
        writer.flush()
        await site.look(3)
        assert site.names("in") == ["a.cbz"]
        writer.write(content[50:])
    await site.look()
    assert [document.size for document in await site.documents()] == [len(content)]


async def test_without_lease_support_a_quiet_file_is_taken(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(file_claims, "has_writer_open", lambda path: None)
    site.drop("a.cbz")
    await site.look()
    assert await site.documents() == []

    async def taken() -> bool:
        await site.look()
        return len(await site.documents()) == 1

    await eventually(taken)


async def refused(site: DocumentSite, eventually: Eventually) -> dict[str, Any]:
    async def refused_documents() -> list[str]:
        await site.look()
        return site.names("reports/rejected")

    (name,) = await eventually(refused_documents)
    report = site.read(f"reports/rejected/{name}")
    assert site.names("in") == site.names("work/_staging") == []
    assert len(site.names("error")) == 1
    assert await site.documents() == []
    return dict(report)


async def test_files_are_refused_only_after_a_while(site: DocumentSite, eventually: Eventually) -> None:
    (site.folder.arrivals / "a.cbz").touch()
    await site.look()
    assert site.names("in") == ["a.cbz"]
    assert (await refused(site, eventually))["reason"] == "invalid_signature"
    assert site.read("index/metrics.json")["input_rejected_signature"] == 1


@pytest.mark.parametrize("content", [b"just text", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n"])
async def test_a_comic_that_is_not_an_archive_is_refused(
    site: DocumentSite, eventually: Eventually, content: bytes
) -> None:
    (site.folder.arrivals / "a.cbz").write_bytes(content)
    with structlog.testing.capture_logs() as logged:
        assert (await refused(site, eventually))["reason"] == "invalid_signature"
    assert [line["reason"] for line in logged if line["event"] == "document refused"] == ["invalid_signature"]


async def test_a_link_is_not_followed(site: DocumentSite, eventually: Eventually) -> None:
    secret = sample_documents.tiny(site.root / "secret.cbz")
    (site.folder.arrivals / "a.cbz").symlink_to(secret)
    assert (await refused(site, eventually))["reason"] == "not_a_regular_file"
    assert secret.exists()
    assert (site.folder.error / "a.cbz").is_symlink()


async def test_a_fifo_does_not_block_the_watcher(site: DocumentSite, eventually: Eventually) -> None:
    os.mkfifo(site.folder.arrivals / "a.cbz")
    assert (await refused(site, eventually))["reason"] == "not_a_regular_file"


async def test_refused_files_do_not_overwrite_each_other(site: DocumentSite, eventually: Eventually) -> None:
    for content in (b"one", b"two"):
        (site.folder.arrivals / "a.cbz").write_bytes(content)
        await site.look()
    assert site.names("error") == ["a (2).cbz", "a.cbz"]
    assert {path.read_bytes() for path in site.folder.error.iterdir()} == {b"one", b"two"}


@pytest.mark.parametrize("document_settings", [{"max_input_size_mb": 1}])
async def test_a_file_that_is_too_large_is_refused(site: DocumentSite, eventually: Eventually) -> None:
    sample_documents.comic(site.folder.arrivals / "a.cbz", {"1.png": b"x" * 2_000_000})
    assert (await refused(site, eventually))["reason"] == "input_too_large"
    assert site.read("index/metrics.json")["input_rejected_size"] == 1


@pytest.mark.parametrize("document_settings", [{"disk_free_factor": 1e15}])
async def test_a_file_without_room_on_the_disk_is_refused(site: DocumentSite, eventually: Eventually) -> None:
    site.drop("a.cbz")
    assert (await refused(site, eventually))["reason"] == "disk_full"
    assert site.read("index/metrics.json")["disk_error"] == 1


async def test_strange_and_long_names_are_taken(site: DocumentSite) -> None:
    for number, name in enumerate(["a\nb\x1b[2J.cbz", f"{'é' * 120}.cbz", "--help.cbz", "\udcff.cbz"]):
        site.drop("x.cbz", number).rename(site.folder.arrivals / name)
    await site.look()
    documents = await site.documents()
    assert len(documents) == 4
    assert all(document.name.isprintable() for document in documents)
    assert all(
        len(site.folder.pdf(document.name, document.key).name.encode()) <= 255 for document in documents
    )


async def test_a_folder_of_pictures_is_one_document(site: DocumentSite, eventually: Eventually) -> None:
    (site.folder.arrivals / "scans").mkdir()
    (site.folder.arrivals / "scans/1.png").write_bytes(sample_documents.dot())
    await site.look()
    assert await site.documents() == []

    async def taken() -> Any:
        await site.look()
        return await site.documents()

    (document,) = await eventually(taken)
    assert site.names(f"work/{document.key}/scans") == ["1.png"]


async def test_many_watchers_take_each_file_once(site: DocumentSite) -> None:
    others = [site.another_watcher() for _ in range(3)]
    for number in range(60):
        site.drop(f"{number}.cbz", number)

    async def until_empty(watcher: Any) -> None:
        while site.names("in") or site.names("work/_staging"):
            await watcher.look()

    await asyncio.gather(*(until_empty(watcher) for watcher in [site.watcher, *others]))
    documents = await site.documents()
    assert sorted(document.name for document in documents) == sorted(f"{number}.cbz" for number in range(60))
    assert site.names("error") == site.names("hold/duplicates") == []
    assert all((site.folder.work_dir(document.key) / document.name).exists() for document in documents)


async def test_files_left_in_staging_are_taken_up(site: DocumentSite) -> None:
    taken = file_claims.take(site.drop("a.cbz"), site.folder)
    assert taken is not None
    await site.look()
    assert [document.name for document in await site.documents()] == ["a.cbz"]
    assert site.names("work/_staging") == []


async def test_the_input_of_a_job_that_was_not_moved_yet_is_no_duplicate(site: DocumentSite) -> None:
    site.drop("a.cbz")
    await site.look()
    (document,) = await site.documents()
    (site.folder.work_dir(document.key) / "a.cbz").rename(site.folder.staging / document.staged)
    await site.look()
    assert site.names(f"work/{document.key}")[0] == "a.cbz"
    assert site.names("hold/duplicates") == site.names("work/_staging") == []


async def test_a_file_another_watcher_works_on_is_left_alone(site: DocumentSite) -> None:
    taken = file_claims.take(site.drop("a.cbz"), site.folder)
    assert taken is not None
    with file_claims.locked(taken) as is_mine:
        assert is_mine
        await site.look()
        assert await site.documents() == []
    await site.look()
    assert len(await site.documents()) == 1


async def test_files_from_another_file_system_are_taken(site: DocumentSite, elsewhere: Path) -> None:
    if elsewhere.stat().st_dev == site.root.stat().st_dev:
        pytest.fail("this machine has only one file system")
    shutil.rmtree(site.folder.arrivals)
    site.folder.arrivals.symlink_to(elsewhere)
    for number in range(10):
        site.drop(f"{number}.cbz", number)
    other = site.another_watcher()
    await asyncio.gather(site.look(3), other.look(), other.look())
    await site.look(2)
    assert sorted(document.name for document in await site.documents()) == [
        f"{number}.cbz" for number in range(10)
    ]
    assert list(elsewhere.iterdir()) == []
    assert site.names("hold/duplicates") == []


async def test_users_have_folders_of_their_own(site: DocumentSite) -> None:
    ada = folder_of(site.root, "users/ada")
    site.drop("a.cbz")
    site.drop("a.cbz", folder=ada)
    await site.look()
    assert len(await site.documents()) == len(await site.documents(ada)) == 1
    assert site.names("hold/duplicates", ada) == []
    (document,) = await site.documents(ada)
    assert site.read(f"users/ada/work/{document.key}/state.json")["userId"] == "ada"


@pytest.mark.parametrize("name", ["users/../..", "users/", "users/a/b", "else", "users/.hidden"])
def test_a_user_folder_that_is_not_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        folder_of(Path("/data"), name)


@pytest.mark.parametrize("document_settings", [{"max_jobs_per_user": 2}])
async def test_the_documents_of_a_user_at_a_time_are_limited(site: DocumentSite) -> None:
    ada = folder_of(site.root, "users/ada")
    for number in range(5):
        site.drop(f"{number}.cbz", number, folder=ada)
    await site.look(3)
    assert len(await site.documents(ada)) == 2
    assert len(site.names("in", ada)) == 3


@pytest.mark.parametrize("document_settings", [{"max_jobs_per_user": 1}])
async def test_a_file_that_must_wait_is_not_examined_again_and_again(site: DocumentSite) -> None:
    ada = folder_of(site.root, "users/ada")
    site.drop("a.cbz", 1, folder=ada)
    await site.look()
    site.drop("b.cbz", 2, folder=ada)
    with file_claims.locked(sample_documents.tiny(ada.staging / "20260101-000000_c.cbz", 3)) as is_mine:
        assert is_mine
        assert not await site.watcher.look()


@pytest.mark.parametrize("document_settings", [{"prep_url": "http://127.0.0.1:9"}])
async def test_a_service_that_is_down_delays_and_changes_no_key(site: DocumentSite) -> None:
    site.drop("a.cbz")
    await site.look(2)
    assert site.names("in") == ["a.cbz"]
    assert await site.documents() == []


async def test_a_tool_of_another_version_is_another_document(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.drop("a.cbz")
    await site.look()
    before = tools.ocr_info()
    after = before | {"versions": before["versions"] | {"tesseract": "99"}}
    monkeypatch.setattr(tools, "ocr_info", lambda: after)
    site.drop("a.cbz")
    await site.look()
    assert len({document.key for document in await site.documents()}) == 2


async def test_without_its_tools_nothing_is_taken(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    site.drop("a.cbz")
    await site.look()
    assert site.names("in") == ["a.cbz"]


async def test_the_janitor_keeps_what_is_needed(site: DocumentSite) -> None:
    site.drop("a.cbz")
    await site.look()
    (running,) = await site.documents()
    spent, unarchived = (site.folder.work_dir(f"{digit * 64}__{'0' * 64}") for digit in "12")
    for room in (spent, unarchived):
        room.mkdir()
        (room / "raw.pdf").touch()
    (unarchived / "b.cbz").touch()
    for room in (spent, unarchived, site.folder.work_dir(running.key), site.folder.staging):
        os.utime(room, (0, 0))
    await cleanup.tidy(site.lab.db, site.folder, folder_id_of(site.folder), 7)
    assert not spent.exists()
    assert unarchived.exists()
    assert site.folder.work_dir(running.key).exists()
    assert site.folder.staging.exists()


async def test_projections_are_made_again(site: DocumentSite) -> None:
    site.drop("a.cbz")
    await site.look()
    (site.folder.index / "jobs.json").unlink()
    site.watcher = site.another_watcher()
    await site.look()
    assert len(site.read("index/jobs.json")["jobs"]) == 1


def test_a_key_leads_nowhere_else() -> None:
    with pytest.raises(UsageError):
        Folder(Path("/data")).work_dir("../../etc")


async def test_a_file_that_cannot_be_examined_blocks_no_other(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder.staging / "20260101-000000_a.cbz").mkdir()
    site.drop("b.cbz")
    real = file_claims.is_whole

    def broken(staged: Path, folder: Folder) -> bool:
        if staged.name.endswith("a.cbz"):
            raise PermissionError("not for you")
        return real(staged, folder)

    monkeypatch.setattr(file_claims, "is_whole", broken)
    await site.look()
    assert [document.name for document in await site.documents()] == ["b.cbz"]


@pytest.mark.parametrize("name", ["raw.pdf", "final.pdf"])
async def test_an_input_that_is_named_like_one_of_our_files_is_not_taken_for_it(
    site: DocumentSite, name: str
) -> None:
    room = site.root / "made"
    room.mkdir()
    prepare(
        sample_documents.tiny(site.root / "x.cbz"),
        room,
        run="1",
        dpi=None,
        is_resumed=False,
        progress=lambda *_: None,
    )
    content = (room / "raw.pdf").read_bytes()
    (room / "raw.pdf").rename(site.folder.arrivals / name)
    await site.look()
    (document,) = await site.documents()
    assert document.name == name
    assert (site.folder.work_dir(document.key) / f"input-{name}").read_bytes() == content
    assert not (site.folder.work_dir(document.key) / name).exists()


async def test_without_its_language_nothing_is_taken(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_languages", lambda moment: frozenset({"eng"}))
    site.drop("a.cbz")
    await site.look()
    assert site.names("in") == ["a.cbz"]


async def test_a_decision_that_cannot_be_carried_out_keeps_no_file(site: DocumentSite) -> None:
    for name in ("a.cbz", "b.cbz"):
        site.drop(name)
        await site.look()
    (document,) = await site.documents()
    decision = site.folder.held / document.key / "decision.json"
    decision.write_text('{"action": "FORCE_REPROCESS", "nonce": "deadbeef"}')
    (site.folder.arrivals / "b__force-deadbeef.cbz").mkdir()
    site.drop("c.cbz", 7)
    await site.look()
    assert "c.cbz" in [document.name for document in await site.documents()]
    (site.folder.arrivals / "b__force-deadbeef.cbz").rmdir()
    await site.look(2)
    assert "b__force-deadbeef.cbz" in [document.name for document in await site.documents()]
