"""A refused file is reported once, counted once and moved to `error`, also after a crash on the way."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.apps.documents.crash_scenarios import run_victim
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Databases
from tests.support.harness import open_harness, quick_settings

from cograil.apps.documents import admission, atomic_files


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def judge(root: Path, what: str = "input_rejected_signature") -> dict[str, Any]:
    """It is in `error`, there is one report that says so, and it was counted once."""
    assert [path.name for path in (root / "error").iterdir()] == ["a.cbz"]
    assert list((root / "work/_staging").iterdir()) == []
    (path,) = (root / "reports/rejected").glob("[!.]*")
    report = json.loads(path.read_text())
    assert (report["fileName"], report["path"]) == ("a.cbz", str(root / "error/a.cbz"))
    assert json.loads((root / "index/metrics.json").read_text())[what] == 1
    return dict(report)


async def drop(dsn: str, root: Path) -> None:
    settings = quick_settings(documents={"data_dir": root}, apps=("documents",))
    async with open_harness(dsn, settings) as lab:
        (DocumentSite(lab, settings).folder.arrivals / "a.cbz").write_bytes(b"nothing")


@pytest.mark.parametrize(
    "points",
    [
        ("documents.write.before", "documents.write.after"),
        ("documents_refuse.commit.before", "documents_refuse.commit.after"),
        ("documents.refuse.before",),
        ("documents.refuse.after",),
    ],
)
def test_kill_9_amid_a_refusal_reports_the_file_once(
    databases: Databases, tmp_path: Path, points: tuple[str, ...]
) -> None:
    root = tmp_path / "data"
    with databases() as dsn:
        asyncio.run(drop(dsn, root))
        for point in points:
            assert run_victim(dsn, root, "look", f"{point}:1:kill9") == -signal.SIGKILL
        run_victim(dsn, root, "look")
        judge(root)


async def test_a_report_that_cannot_be_written_keeps_the_file_in_staging(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder.arrivals / "a.cbz").write_bytes(b"nothing")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_bytes", full)
        await site.look()
    assert (site.names("error"), len(site.names("work/_staging"))) == ([], 1)
    await site.look()
    judge(site.root)


async def test_a_refused_file_that_cannot_be_moved_is_reported_and_counted_once(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder.arrivals / "a.cbz").write_bytes(b"nothing")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "move_to_free", full)
        await site.look(2)
    assert len(site.names("reports/rejected")) == len(site.names("work/_staging")) == 1
    await site.look()
    judge(site.root)


async def test_a_refused_file_stays_refused(site: DocumentSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report does not change because the disk has free space again."""
    site.drop("a.cbz")
    with monkeypatch.context() as patch:
        patch.setattr(admission, "has_disk_space", lambda *_: False)
        patch.setattr(atomic_files, "move_to_free", full)
        await site.look()
    await site.look()
    assert judge(site.root, "disk_error")["reason"] == "disk_full"
    assert await site.documents() == []


async def test_a_report_says_where_it_is_though_its_name_was_taken(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder.arrivals / "a.cbz").write_bytes(b"nothing")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "move_to_free", full)
        await site.look()
    (site.folder.error / "a.cbz").touch()
    await site.look()
    (name,) = site.names("reports/rejected")
    assert site.read(f"reports/rejected/{name}")["path"] == str(site.folder.error / "a (2).cbz")
