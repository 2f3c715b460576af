"""What came twice is held and reported, and treated as somebody decides; nothing is lost meanwhile."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.apps.documents.held_documents import held, waiting
from tests.conftest import Eventually

from cograil.apps.documents import atomic_files, duplicates, file_claims, safe_rename


def decide(site: DocumentSite, key: str, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    atomic_files.write_bytes(site.folder.held / key / "decision.json", text.encode())


async def test_the_same_bytes_are_held_and_reported(site: DocumentSite) -> None:
    key = await held(site, "a.cbz", "b.cbz")
    assert waiting(site, key) == ["b.cbz"]
    assert site.read(f"hold/duplicates/{key}/status.json") == {"state": "DUPLICATE_PENDING"}
    report = site.read(f"reports/duplicates/{key}.json")
    assert report["jobKey"] == key
    assert report["incoming"]["fileName"] == "b.cbz"
    assert Path(report["incoming"]["path"]).exists()
    assert report["incoming"]["sizeBytes"] == Path(report["incoming"]["path"]).stat().st_size
    assert report["existing"]["inputName"] == "a.cbz"
    assert report["profile"]["ocr"]["lang"] == "eng+fra"
    assert report["actions"] == ["USE_EXISTING_RESULT", "DISCARD", "FORCE_REPROCESS"]


async def test_two_that_arrive_together_are_one_job_and_one_duplicate(site: DocumentSite) -> None:
    for name in ("a.cbz", "b.cbz", "c.cbz"):
        site.drop(name)
    await site.look(3)
    (document,) = await site.documents()
    assert sorted([document.name, *waiting(site, document.key)]) == ["a.cbz", "b.cbz", "c.cbz"]


async def test_a_discarded_duplicate_is_gone_and_nothing_else(site: DocumentSite) -> None:
    key = await held(site, "a.cbz", "b.cbz", "b.cbz")
    decide(site, key, {"action": "DISCARD"})
    await site.look()
    assert site.names("hold/duplicates") == site.names("reports/duplicates") == []
    assert (site.folder.work_dir(key) / "a.cbz").exists()


async def test_one_of_several_duplicates_can_be_decided(site: DocumentSite) -> None:
    key = await held(site, "a.cbz", "b.cbz", "c.cbz")
    first, _ = duplicates.held_files(site.folder, key)
    decide(site, key, {"action": "DISCARD", "file": first.name})
    await site.look()
    assert waiting(site, key) == ["c.cbz"]
    assert site.read(f"hold/duplicates/{key}/status.json")["state"] == "DUPLICATE_PENDING"
    assert not (site.folder.held / key / "decision.json").exists()


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        ({"action": "BURN"}, "'BURN' is not a decision"),
        ({}, "'None' is not a decision"),
        ([1], "not a JSON object"),
        ("{", "not a JSON object"),
        ({"action": "FORCE_REPROCESS", "nonce": 7}, "nonce"),
        ({"action": "USE_EXISTING_RESULT"}, "not done yet"),
    ],
)
async def test_an_impossible_decision_is_reported_and_nothing_is_lost(
    site: DocumentSite, decision: Any, reason: str
) -> None:
    key = await held(site, "a.cbz", "b.cbz")
    decide(site, key, decision)
    await site.look(2)
    assert waiting(site, key) == ["b.cbz"]
    assert reason in site.read(f"hold/duplicates/{key}/status.json")["reason"]
    assert (site.folder.reports / f"{key}.json").exists()


async def test_a_forced_run_is_another_job(site: DocumentSite) -> None:
    key = await held(site, "a.cbz", "b.cbz", "b.cbz")
    decide(site, key, {"action": "FORCE_REPROCESS", "nonce": "DEADBEEF-0000-4000-8000-000000000000"})
    await site.look(2)
    names = sorted(document.name for document in await site.documents())
    assert names[0] == "a.cbz"
    assert "b__force-deadbeef.cbz" in names
    keys = {document.key for document in await site.documents()}
    assert f"{key}__fdeadbeef" in keys
    assert len(keys) == 3  # the other held file has a run of its own
    assert site.names("hold/duplicates") == site.names("reports/duplicates") == []


async def test_a_decision_for_one_file_keeps_that_for_another(site: DocumentSite) -> None:
    """The first waits for the job; the others are done meanwhile, and nobody has to decide twice."""
    key = await held(site, "a.cbz", "b.cbz", "c.cbz", "d.cbz")
    first, second, third = (file.name for file in duplicates.held_files(site.folder, key))
    duplicates.decide(site.folder, key, duplicates.USE_EXISTING, file=first)
    duplicates.decide(site.folder, key, duplicates.DISCARD, file=second)
    duplicates.decide(site.folder, key, duplicates.FORCE, "cafebabe", file=third)
    await site.look(2)
    assert waiting(site, key) == ["b.cbz"]
    assert "not done yet" in site.read(f"hold/duplicates/{key}/status.json")["reason"]
    assert site.read(f"hold/duplicates/{key}/decision.json") == {
        "action": "USE_EXISTING_RESULT",
        "file": first,
    }
    assert f"{key}__fcafebabe" in {document.key for document in await site.documents()}
    duplicates.decide(site.folder, key, duplicates.DISCARD)  # for all: what was decided before is void
    await site.look()
    assert site.names("hold/duplicates") == []


async def test_a_decision_during_another_decision_is_carried_out(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program puts a new decision.json there, without any lock of ours."""
    key = await held(site, "a.cbz", "b.cbz", "c.cbz")
    first, second = (file.name for file in duplicates.held_files(site.folder, key))
    decide(site, key, {"action": "DISCARD", "file": first})
    remove = atomic_files.remove

    def removed(path: Path) -> None:
        remove(path)
        if path.name == first:
            decide(site, key, {"action": "DISCARD", "file": second})

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "remove", removed)
        duplicates.apply_decision(site.folder, key, None)
    assert waiting(site, key) == ["c.cbz"]
    await site.look()
    assert site.names("hold/duplicates") == []


class SlowClock(datetime):
    """All happens within one second."""

    ticks = itertools.count()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime(2026, 1, 1, 0, 0, 0, next(cls.ticks), tzinfo=tz)


async def test_the_same_file_again_within_a_second_is_held(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name in staging must not be that of the first, whose job would take it for its own."""
    monkeypatch.setattr(file_claims, "datetime", SlowClock)
    key = await held(site, "a.cbz", "a.cbz")
    assert waiting(site, key) == ["a.cbz"]


async def test_a_result_is_used_again_once_it_is_there(site: DocumentSite, eventually: Eventually) -> None:
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    await site.look()
    site.drop("b.cbz")
    await site.look()
    (document,) = await site.documents()
    decide(site, document.key, {"action": "USE_EXISTING_RESULT"})
    await site.look()
    assert "not done" in site.read(f"hold/duplicates/{document.key}/status.json")["reason"]
    async with site.working():
        await eventually(lambda: site.names("archive") == ["a.cbz", "b.cbz"], timeout=30)
        await eventually(lambda: not site.names("hold/duplicates"))
    assert site.names("out") == [f"a__job-{document.key}.pdf", f"b__job-{document.key}.pdf"]


async def test_without_a_pdf_there_is_nothing_to_use(site: DocumentSite, eventually: Eventually) -> None:
    (site.folder.arrivals / "a.cbz").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    async with site.working():
        await eventually(lambda: site.names("error") == ["a.cbz"], timeout=30)
        (document,) = await site.documents()
        (site.folder.error / "a.cbz").rename(site.folder.arrivals / "a.cbz")
        await eventually(lambda: site.names("hold/duplicates") == [document.key])
        decide(site, document.key, {"action": "USE_EXISTING_RESULT"})
        status = site.folder.held / document.key / "status.json"
        await eventually(lambda: "no PDF" in status.read_text())
    assert waiting(site, document.key) == ["a.cbz"]


async def test_a_held_file_of_which_nobody_was_told_is_reported(site: DocumentSite) -> None:
    key = await held(site, "a.cbz", "b.cbz")
    (site.folder.reports / f"{key}.json").unlink()
    (site.folder.held / key / "status.json").unlink()
    await site.look()
    assert site.read(f"reports/duplicates/{key}.json")["existing"]["inputName"] == "a.cbz"


async def test_a_long_name_can_be_forced(site: DocumentSite) -> None:
    name = f"{'é' * 95}.cbz"
    key = await held(site, "a.cbz", name)
    decide(site, key, {"action": "FORCE_REPROCESS"})
    await site.look(2)
    assert len(await site.documents()) == 2


def test_moves_of_files_never_overwrite(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"2")):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileExistsError):
        atomic_files.move(tmp_path / "a", tmp_path / "b")
    with pytest.raises(FileExistsError):
        safe_rename.rename_without_kernel(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"2"
    assert atomic_files.move_to_free(tmp_path / "a", tmp_path / "b").name == "b (2)"


def test_a_directory_moves_where_the_kernel_does_not_help(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    sample_documents.tiny(tmp_path / "a/x.cbz")
    safe_rename.rename_without_kernel(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b/x.cbz").exists()
