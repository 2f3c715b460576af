"""What is printed to be typed names this program as the shell finds it here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cograil.processes.invocation import program


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A venv with the script, in which Python runs the module; nothing of it is on the PATH."""
    directory = tmp_path / ".venv" / "bin"
    _make_script(directory / "cograil")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(directory / "python"))
    monkeypatch.setattr(sys, "argv", ["/somewhere/cograil/intake/cli/__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return directory


def _make_script(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_the_script_of_the_venv_is_named_where_the_path_has_none(venv: Path) -> None:
    assert program() == ".venv/bin/cograil"
    assert program(is_elsewhere=True) == str(venv / "cograil")


def test_the_name_is_enough_where_the_path_has_the_script(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(venv))
    assert program() == "cograil"


def test_the_program_of_another_installation_is_not_named(
    venv: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _make_script(tmp_path / "other" / "cograil")
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert program() == ".venv/bin/cograil"


def test_without_a_script_python_runs_the_module(venv: Path) -> None:
    (venv / "cograil").unlink()
    assert program() == f"{venv / 'python'} -m cograil.intake.cli"
