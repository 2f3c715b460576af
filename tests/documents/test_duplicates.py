"""What came twice is held and reported, and treated as somebody decides; nothing is lost meanwhile."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Eventually
from tests.documents import drawn
from tests.documents.house import House

from cograil.apps.documents import atomic_files, duplicates, file_claims, safe_rename


async def held(house: House, *names: str) -> str:
    """Drop the same comic under each of these names; the key of all."""
    for name in names:
        house.drop(name)
        await house.look()
    (document,) = await house.documents()
    return document.key


def decide(house: House, key: str, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    atomic_files.write_bytes(house.folder.held / key / "decision.json", text.encode())


def waiting(house: House, key: str) -> list[str]:
    return [duplicates.name_of(path) for path in duplicates.held_files(house.folder, key)]


async def test_the_same_bytes_are_held_and_reported(house: House) -> None:
    key = await held(house, "a.cbz", "b.cbz")
    assert waiting(house, key) == ["b.cbz"]
    assert house.read(f"hold/duplicates/{key}/status.json") == {"state": "DUPLICATE_PENDING"}
    report = house.read(f"reports/duplicates/{key}.json")
    assert report["jobKey"] == key
    assert report["incoming"]["fileName"] == "b.cbz"
    assert Path(report["incoming"]["path"]).exists()
    assert report["incoming"]["sizeBytes"] == Path(report["incoming"]["path"]).stat().st_size
    assert report["existing"]["inputName"] == "a.cbz"
    assert report["profile"]["ocr"]["lang"] == "eng+fra"
    assert report["actions"] == ["USE_EXISTING_RESULT", "DISCARD", "FORCE_REPROCESS"]


async def test_two_that_arrive_together_are_one_job_and_one_duplicate(house: House) -> None:
    for name in ("a.cbz", "b.cbz", "c.cbz"):
        house.drop(name)
    await house.look(3)
    (document,) = await house.documents()
    assert sorted([document.name, *waiting(house, document.key)]) == ["a.cbz", "b.cbz", "c.cbz"]


async def test_what_is_discarded_is_gone_and_nothing_else(house: House) -> None:
    key = await held(house, "a.cbz", "b.cbz", "b.cbz")
    decide(house, key, {"action": "DISCARD"})
    await house.look()
    assert house.names("hold/duplicates") == house.names("reports/duplicates") == []
    assert (house.folder.work_dir(key) / "a.cbz").exists()


async def test_one_of_several_can_be_decided(house: House) -> None:
    key = await held(house, "a.cbz", "b.cbz", "c.cbz")
    one, _ = duplicates.held_files(house.folder, key)
    decide(house, key, {"action": "DISCARD", "file": one.name})
    await house.look()
    assert waiting(house, key) == ["c.cbz"]
    assert house.read(f"hold/duplicates/{key}/status.json")["state"] == "DUPLICATE_PENDING"
    assert not (house.folder.held / key / "decision.json").exists()


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
async def test_what_cannot_be_done_is_told_and_nothing_is_lost(
    house: House, decision: Any, reason: str
) -> None:
    key = await held(house, "a.cbz", "b.cbz")
    decide(house, key, decision)
    await house.look(2)
    assert waiting(house, key) == ["b.cbz"]
    assert reason in house.read(f"hold/duplicates/{key}/status.json")["reason"]
    assert (house.folder.reports / f"{key}.json").exists()


async def test_a_forced_run_is_another_job(house: House) -> None:
    key = await held(house, "a.cbz", "b.cbz", "b.cbz")
    decide(house, key, {"action": "FORCE_REPROCESS", "nonce": "DEADBEEF-0000-4000-8000-000000000000"})
    await house.look(2)
    names = sorted(one.name for one in await house.documents())
    assert names[0] == "a.cbz"
    assert "b__force-deadbeef.cbz" in names
    keys = {one.key for one in await house.documents()}
    assert f"{key}__fdeadbeef" in keys
    assert len(keys) == 3  # the other held file has a run of its own
    assert house.names("hold/duplicates") == house.names("reports/duplicates") == []


async def test_what_is_decided_for_one_file_keeps_what_was_decided_for_another(house: House) -> None:
    """The first waits for the job; the others are done meanwhile, and nobody has to decide twice."""
    key = await held(house, "a.cbz", "b.cbz", "c.cbz", "d.cbz")
    first, second, third = (one.name for one in duplicates.held_files(house.folder, key))
    duplicates.decide(house.folder, key, duplicates.USE_EXISTING, file=first)
    duplicates.decide(house.folder, key, duplicates.DISCARD, file=second)
    duplicates.decide(house.folder, key, duplicates.FORCE, "cafebabe", file=third)
    await house.look(2)
    assert waiting(house, key) == ["b.cbz"]
    assert "not done yet" in house.read(f"hold/duplicates/{key}/status.json")["reason"]
    assert house.read(f"hold/duplicates/{key}/decision.json") == {
        "action": "USE_EXISTING_RESULT",
        "file": first,
    }
    assert f"{key}__fcafebabe" in {one.key for one in await house.documents()}
    duplicates.decide(house.folder, key, duplicates.DISCARD)  # for all: what was decided before is void
    await house.look()
    assert house.names("hold/duplicates") == []


async def test_who_decides_while_another_decision_is_carried_out_is_heard(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program puts a new decision.json there, without any lock of ours."""
    key = await held(house, "a.cbz", "b.cbz", "c.cbz")
    first, second = (one.name for one in duplicates.held_files(house.folder, key))
    decide(house, key, {"action": "DISCARD", "file": first})
    remove = atomic_files.remove

    def removed(path: Path) -> None:
        remove(path)
        if path.name == first:
            decide(house, key, {"action": "DISCARD", "file": second})

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "remove", removed)
        duplicates.apply_decision(house.folder, key, None)
    assert waiting(house, key) == ["c.cbz"]
    await house.look()
    assert house.names("hold/duplicates") == []


class SlowClock(datetime):
    """All happens within one second."""

    ticks = itertools.count()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime(2026, 1, 1, 0, 0, 0, next(cls.ticks), tzinfo=tz)


async def test_the_same_file_again_within_a_second_is_held(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name in staging must not be that of the first, whose job would take it for its own."""
    monkeypatch.setattr(file_claims, "datetime", SlowClock)
    key = await held(house, "a.cbz", "a.cbz")
    assert waiting(house, key) == ["a.cbz"]


async def test_a_result_is_used_again_once_it_is_there(house: House, eventually: Eventually) -> None:
    dropped = house.drop("a.cbz")
    await house.prepare_results(dropped)
    await house.look()
    house.drop("b.cbz")
    await house.look()
    (document,) = await house.documents()
    decide(house, document.key, {"action": "USE_EXISTING_RESULT"})
    await house.look()
    assert "not done" in house.read(f"hold/duplicates/{document.key}/status.json")["reason"]
    async with house.working():
        await eventually(lambda: house.names("archive") == ["a.cbz", "b.cbz"], timeout=30)
        await eventually(lambda: not house.names("hold/duplicates"))
    assert house.names("out") == [f"a__job-{document.key}.pdf", f"b__job-{document.key}.pdf"]


async def test_without_a_pdf_there_is_nothing_to_use(house: House, eventually: Eventually) -> None:
    (house.folder.arrivals / "a.cbz").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    async with house.working():
        await eventually(lambda: house.names("error") == ["a.cbz"], timeout=30)
        (document,) = await house.documents()
        (house.folder.error / "a.cbz").rename(house.folder.arrivals / "a.cbz")
        await eventually(lambda: house.names("hold/duplicates") == [document.key])
        decide(house, document.key, {"action": "USE_EXISTING_RESULT"})
        status = house.folder.held / document.key / "status.json"
        await eventually(lambda: "no PDF" in status.read_text())
    assert waiting(house, document.key) == ["a.cbz"]


async def test_a_held_file_of_which_nobody_was_told_is_reported(house: House) -> None:
    key = await held(house, "a.cbz", "b.cbz")
    (house.folder.reports / f"{key}.json").unlink()
    (house.folder.held / key / "status.json").unlink()
    await house.look()
    assert house.read(f"reports/duplicates/{key}.json")["existing"]["inputName"] == "a.cbz"


async def test_a_long_name_can_be_forced(house: House) -> None:
    name = f"{'é' * 95}.cbz"
    key = await held(house, "a.cbz", name)
    decide(house, key, {"action": "FORCE_REPROCESS"})
    await house.look(2)
    assert len(await house.documents()) == 2


def test_moves_never_overwrite(tmp_path: Path) -> None:
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
    drawn.tiny(tmp_path / "a/x.cbz")
    safe_rename.rename_without_kernel(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b/x.cbz").exists()
