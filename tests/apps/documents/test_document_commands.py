"""The commands that look at a folder and decide; and what they say when they cannot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.apps.documents import sample_documents

from cograil.apps.documents import atomic_files, cli, duplicates
from cograil.apps.documents.cli import documents
from cograil.apps.documents.file_claims import locked
from cograil.apps.documents.layout import Folder, folder_of
from cograil.apps.documents.one_shot import Conversion, Item, remove_abandoned_dirs
from cograil.errors import NotFound, UsageError

KEY = f"{'a' * 64}__{'b' * 64}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder in which two files are held, one of a user."""
    for folder in (Folder(tmp_path), folder_of(tmp_path, "users/ada")):
        folder.make()
        incoming = sample_documents.tiny(folder.staging / "a.cbz")
        duplicates.hold(folder, KEY, incoming, "a.cbz", {"state": "DONE"}, {})
    return tmp_path


def run(*words: str) -> str:
    # click keeps these below `cograil`
    options: dict[str, Any] = {"standalone_mode": False, "help_option_names": ["-h", "--help"]}
    ended = CliRunner().invoke(documents, list(words), catch_exceptions=False, **options)
    return ended.output


def test_held_documents_are_listed(root: Path) -> None:
    (held,) = json.loads(run("duplicates", "--data", str(root), "--json"))
    assert held["jobKey"] == KEY
    assert held["held"][0]["fileName"] == "a.cbz"
    assert held["status"] == {"state": "DUPLICATE_PENDING"}
    assert "a.cbz" in run("duplicates", "--data", str(root), "--user", "ada")


@pytest.mark.parametrize(
    ("word", "action"),
    [("use-existing", "USE_EXISTING_RESULT"), ("discard", "DISCARD"), ("force", "FORCE_REPROCESS")],
)
def test_a_decision_is_written_for_the_watcher(root: Path, word: str, action: str) -> None:
    run("decide", KEY[:8], word, "--data", str(root), "--user", "ada")
    decision = json.loads((root / f"users/ada/hold/duplicates/{KEY}/decision.json").read_text())
    assert decision["action"] == action
    assert ("nonce" in decision) == (word == "force")
    assert not (root / f"hold/duplicates/{KEY}/decision.json").exists()


def test_a_key_is_told_from_that_of_its_forced_run(root: Path) -> None:
    """Which begins with it."""
    forced = f"{KEY}__fdeadbeef"
    folder = Folder(root)
    duplicates.hold(folder, forced, sample_documents.tiny(folder.staging / "b.cbz"), "b.cbz", {}, {})
    with pytest.raises(UsageError, match="2 keys"):
        run("decide", KEY[:12], "discard", "--data", str(root))
    run("decide", KEY, "discard", "--data", str(root))
    assert duplicates.is_decided(folder, KEY)
    assert not duplicates.is_decided(folder, forced)
    listed = run("duplicates", "--data", str(root)).replace("\n", "").replace(" ", "")
    assert "DISCARD" in listed
    assert KEY[:12] in run("duplicates", "--data", str(root), "--user", "ada")
    assert KEY[:13] not in run("duplicates", "--data", str(root), "--user", "ada")


def test_an_impossible_decision_is_refused(root: Path) -> None:
    with pytest.raises(NotFound):
        run("decide", "ffff", "discard", "--data", str(root))
    with pytest.raises(NotFound):
        run("decide", KEY, "discard", "--data", str(root), "--file", "other")
    with pytest.raises(UsageError):
        run("decide", KEY, "discard", "--data", str(root), "--user", "../..")


@pytest.mark.parametrize("command", ["watch", "duplicates", "prep", "ocr"])
def test_a_folder_must_be_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA_DIR", "COGRAIL_DOCUMENTS__DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="which folder"):
        run(command)


@pytest.mark.parametrize("command", ["watch", "prep", "ocr"])
def test_an_impossible_folder_is_reported(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").touch()
    (tmp_path / "prep").touch()
    (tmp_path / "ocr").touch()
    with pytest.raises(UsageError, match="cannot be used"):
        run(command, "--data", str(tmp_path), "--port", "0")


def test_convert_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        run("convert", str(tmp_path / "nothing.cbz"), "-o", str(tmp_path))


def test_convert_refuses_to_start_without_its_language(tmp_path: Path) -> None:
    """A watcher waits for it; somebody at a terminal would wait for ever."""
    source = sample_documents.tiny(tmp_path / "a.cbz")
    with pytest.raises(UsageError, match="tesseract-ocr-tlh"):
        run("convert", str(source), "-o", str(tmp_path / "out"), "-l", "tlh")
    assert not (tmp_path / "out").exists()


def test_convert_refuses_unsupported_files_and_adds_missing_suffixes(tmp_path: Path) -> None:
    comic = sample_documents.tiny(tmp_path / "comic")
    (tmp_path / "link.cbz").symlink_to(comic)
    (tmp_path / "notes.txt").write_text("no document")
    os.mkfifo(tmp_path / "fifo.cbz")
    (tmp_path / "pictures").mkdir()
    sample_documents.tiny(tmp_path / "pictures/other", 3)
    names = ("notes.txt", "fifo.cbz", "comic", "link.cbz", "pictures")
    items = [Item(tmp_path / name, number) for number, name in enumerate(names, 1)]
    Conversion(Folder(tmp_path / "room"), tmp_path / "out", items, 500).bring_in()
    assert [item.error.partition("[")[2] for item in items] == [
        "invalid_signature]",
        "not_a_regular_file]",
        "",
        "",
        "",
    ]
    brought = sorted(path.name for path in (tmp_path / "room/in").iterdir())
    assert brought == ["000003-comic.cbz", "000005-pictures"]


def test_convert_names_the_unreadable_file_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a database, when nothing is left to convert."""
    source = sample_documents.tiny(tmp_path / "a.cbz")

    def refused(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(atomic_files, "hash_of", refused)
    output = run("convert", "--json", str(source), "-o", str(tmp_path / "out"))
    (line,) = json.JSONDecoder().raw_decode(output)[0]
    assert line["error"] == "it cannot be read or copied: Permission denied [unreadable]"
    assert list((tmp_path / "out").iterdir()) == []


def test_convert_refuses_a_read_only_target(tmp_path: Path) -> None:
    source = sample_documents.tiny(tmp_path / "a.cbz")
    with pytest.raises(UsageError, match="cannot be written to"):
        run("convert", str(source), "-o", "/proc/nowhere/out")


def test_convert_removes_the_remains_of_a_killed_convert(tmp_path: Path) -> None:
    rooms = {name: tmp_path / f".cograil-convert-{name}" for name in ("dead", "alive", "young")}
    for name, room in rooms.items():
        (room / "in").mkdir(parents=True)
        if name != "young":
            os.utime(room, (1, 1))
    (tmp_path / "mine.pdf").touch()
    with locked(rooms["alive"]) as is_mine:
        assert is_mine
        remove_abandoned_dirs(tmp_path)
    assert {name for name, room in rooms.items() if room.exists()} == {"alive", "young"}
    assert (tmp_path / "mine.pdf").exists()


def test_convert_leaves_nothing_behind_when_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And has an engine of its own, whatever database others use: they would be given what only it has."""
    used: list[Any] = []

    @contextlib.asynccontextmanager
    async def instance(settings: Any, **_: Any) -> AsyncIterator[None]:
        used.append(settings.database.url)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(cli, "private_instance", instance)
    monkeypatch.setenv("COGRAIL_DATABASE_URL", "postgresql://elsewhere/shared")
    source = sample_documents.tiny(tmp_path / "a.cbz")
    with pytest.raises(click.Abort):
        run("convert", str(source), "-o", str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []
    assert used == [None]
