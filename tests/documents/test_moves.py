"""Moves that are killed half-way, or that the kernel does not help with: one input stays one."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.documents.test_stage_crashes import killed_at

from cograil.apps.documents import files


def scans(place: Path) -> Path:
    place.mkdir()
    for name in ("1.png", "2.png", "3.png"):
        (place / name).write_text(name)
    return place


def killed_in_removal(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do this in a fork that dies when it has removed one file of a directory."""

    def removed_in_part(place: Path) -> None:
        next(place.iterdir()).unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", removed_in_part)
        return killed_at("nowhere", work)


def test_a_folder_that_was_copied_is_one_whenever_its_mover_dies(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also amid the removal of what was copied."""
    source, target = scans(tmp_path / "scans"), elsewhere / "scans"
    before = files.hash_of(source)
    assert killed_in_removal(partial(files.move_to_free, source, target), monkeypatch)
    if source.exists():
        files.move_to_free(source, target)
    files.remove_left(tmp_path, f"{files.GONE}*")
    assert [one.name for one in elsewhere.iterdir()] == ["scans"]
    assert files.hash_of(target) == before
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_is_there_already_is_ended_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = scans(tmp_path / "scans"), scans(tmp_path / "target")
    before = files.hash_of(target)
    assert killed_in_removal(partial(files.finish_move, source, target), monkeypatch)
    files.finish_move(source, target)
    files.remove_left(tmp_path, f"{files.GONE}*")
    assert [one.name for one in tmp_path.iterdir()] == ["target"]
    assert files.hash_of(target) == before
