"""kill -9 while a conversion delivers its PDF, and while a folder is given its id: whole, or not there."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from tests.apps.documents import sample_documents
from tests.apps.documents.crash_forks import killed_at

from cograil.apps.documents import atomic_files, cleanup, file_claims, folder_id
from cograil.apps.documents.jobs import Document
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.one_shot import CONVERSION_PREFIX, Conversion, Item, remove_abandoned_dirs

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def converted(source: Path, target: Path, room: str) -> Conversion:
    """A conversion whose document is done: its PDF and its text only have to be delivered."""
    conversion = Conversion(Folder(target / f"{CONVERSION_PREFIX}{room}"), target, [Item(source, 1)], 500)
    conversion.bring_in()
    (conversion.folder.out / "made.pdf").write_text("%PDF- all of it")
    (conversion.folder.out / "made.txt").write_text("all of it")
    return conversion


def deliver(conversion: Conversion) -> None:
    (item,) = conversion.items
    done = Document(
        *("place", "key", "job", item.alias, "", 1, {}, NOW, NOW, "DONE", "made.pdf", "", 1, 1),
        *("completed", NOW, {}),
    )
    conversion._note({item.alias: done})


def delivered(target: Path) -> list[tuple[str, str]]:
    return sorted((path.name, path.read_text()) for path in target.iterdir() if path.is_file())


PDF = ("a.pdf", "%PDF- all of it")


@pytest.mark.parametrize(
    ("point", "is_far", "expected"),
    [
        ("documents.deliver.before", False, []),
        ("documents.deliver.after", False, [PDF]),
        ("documents.deliver.copied", True, []),
        ("documents.deliver.moved", True, [PDF]),
    ],
)
def test_a_conversion_that_is_killed_leaves_whole_files_and_its_source(
    tmp_path: Path, elsewhere: Path, point: str, is_far: bool, expected: list[tuple[str, str]]
) -> None:
    """What it left is removed by the next one, which delivers all of it."""
    source, target = sample_documents.tiny(tmp_path / "a.cbz"), tmp_path / "target"
    content = source.read_bytes()
    target.mkdir()
    dying = converted(source, target, "dead")
    if is_far:
        shutil.move(dying.folder.out, elsewhere / "out")
        dying.folder.out.symlink_to(elsewhere / "out")
    assert killed_at(point, partial(deliver, dying))
    assert [file for file in delivered(target) if not file[0].startswith(".")] == expected
    assert source.read_bytes() == content
    os.utime(dying.folder.root, (1, 1))
    remove_abandoned_dirs(target)
    assert not dying.folder.root.exists()
    deliver(converted(source, target, "next"))
    names = [name for name, _ in delivered(target) if not name.startswith(".")]
    assert names == (["a (2).pdf", "a (2).txt", "a.pdf"] if expected else ["a.pdf", "a.txt"])
    assert source.read_bytes() == content


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_folder_keeps_the_id_that_somebody_gave_it_who_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder = Folder(tmp_path / "data")
    assert killed_at(f"documents.mark.{moment}", partial(folder_id.folder_id_of, folder))
    mark = folder.root / folder_id.MARK
    assert mark.exists() == (moment == "after")
    folder_mark = mark.read_text().strip() if mark.exists() else ""
    assert folder_id.folder_id_of(folder).startswith(folder_mark)
    folder.make()
    (folder.root / f"{folder_id.WATCHED}0123456789abcdef").touch()
    claim = file_claims.claim_of(folder.staging / "20260101-000000_a.cbz", folder)
    for path in (claim, folder.arrivals / atomic_files.hidden_name()):
        path.touch()
    monkeypatch.setattr(cleanup, "DAY", -1)
    cleanup.sweep_hidden(folder)
    assert list(folder.arrivals.iterdir()) == [claim]
    hidden = sorted(path.name for path in folder.root.iterdir() if path.name.startswith(atomic_files.HIDDEN))
    assert hidden == [folder_id.MARK, f"{folder_id.WATCHED}0123456789abcdef"]
