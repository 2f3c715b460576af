"""What is refused is reported once and counted once, and then it is in `error`; whoever dies on the way."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Databases
from tests.documents.house import House
from tests.documents.test_crashes import run_victim
from tests.support.harness import open_harness, quick_settings

from cograil.apps.documents import admission, atomic_files


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def judge(root: Path, what: str = "input_rejected_signature") -> dict[str, Any]:
    """It is in `error`, there is one report that says so, and it was counted once."""
    assert [one.name for one in (root / "error").iterdir()] == ["a.cbz"]
    assert list((root / "work/_staging").iterdir()) == []
    (path,) = (root / "reports/rejected").glob("[!.]*")
    report = json.loads(path.read_text())
    assert (report["fileName"], report["path"]) == ("a.cbz", str(root / "error/a.cbz"))
    assert json.loads((root / "index/metrics.json").read_text())[what] == 1
    return dict(report)


async def drop(dsn: str, root: Path) -> None:
    settings = quick_settings(documents={"data_dir": root}, apps=("documents",))
    async with open_harness(dsn, settings) as lab:
        (House(lab, settings).folder.arrivals / "a.cbz").write_bytes(b"nothing")


@pytest.mark.parametrize(
    "points",
    [
        ("documents.write.before", "documents.write.after"),
        ("documents_refuse.commit.before", "documents_refuse.commit.after"),
        ("documents.refuse.before",),
        ("documents.refuse.after",),
    ],
)
def test_kill_9_amid_a_refusal(databases: Databases, tmp_path: Path, points: tuple[str, ...]) -> None:
    root = tmp_path / "data"
    with databases() as dsn:
        asyncio.run(drop(dsn, root))
        for point in points:
            assert run_victim(dsn, root, "look", f"{point}:1:kill9") == -signal.SIGKILL
        run_victim(dsn, root, "look")
        judge(root)


async def test_a_report_that_cannot_be_written_keeps_the_file_in_staging(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house.folder.arrivals / "a.cbz").write_bytes(b"nothing")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_bytes", full)
        await house.look()
    assert (house.names("error"), len(house.names("work/_staging"))) == ([], 1)
    await house.look()
    judge(house.root)


async def test_a_refused_file_that_cannot_be_moved_is_reported_and_counted_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house.folder.arrivals / "a.cbz").write_bytes(b"nothing")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "move_to_free", full)
        await house.look(2)
    assert len(house.names("reports/rejected")) == len(house.names("work/_staging")) == 1
    await house.look()
    judge(house.root)


async def test_what_was_refused_stays_so(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the report is not told otherwise because there is room on the disk again."""
    house.drop("a.cbz")
    with monkeypatch.context() as patch:
        patch.setattr(admission, "has_room", lambda *_: False)
        patch.setattr(atomic_files, "move_to_free", full)
        await house.look()
    await house.look()
    assert judge(house.root, "disk_error")["reason"] == "disk_full"
    assert await house.documents() == []


async def test_a_report_says_where_it_is_though_its_name_was_taken(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house.folder.arrivals / "a.cbz").write_bytes(b"nothing")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "move_to_free", full)
        await house.look()
    (house.folder.error / "a.cbz").touch()
    await house.look()
    (name,) = house.names("reports/rejected")
    assert house.read(f"reports/rejected/{name}")["path"] == str(house.folder.error / "a (2).cbz")
