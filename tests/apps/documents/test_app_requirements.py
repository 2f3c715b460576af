"""What is said, and when, where the extra or the programs of an app are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cograil.apps.documents import tools
from cograil.apps.documents.requirements import require_tools
from cograil.apps.documents.settings import DocumentSettings
from cograil.errors import UsageError


def without(modules: tuple[str, ...], tmp_path: Path, *command: str, **environ: str) -> tuple[int, str]:
    """How this command ends where these modules are not installed, and what it says."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in modules)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(f"import sys\n{blocked}")
    own = {"PYTHONPATH": str(tmp_path / "site"), "COGRAIL_DATA_DIR": str(tmp_path / "engine")}
    done = subprocess.run(
        [sys.executable, "-m", "cograil", *command],
        env={**os.environ, **own, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr + done.stdout


@pytest.mark.parametrize(
    "command", [("documents", "watch", "--data", "FOLDER"), ("up", "--port", "0"), ("worker",)]
)
def test_without_the_extra_nothing_starts_that_would_do_nothing(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    folder = tmp_path / "comics"
    words = tuple(word.replace("FOLDER", str(folder)) for word in command)
    named = {"COGRAIL_DOCUMENTS__DATA_DIR": str(folder), "COGRAIL_APPS": "documents"}
    environ = {} if command[0] == "documents" else named
    code, text = without(("watchfiles", "ocrmypdf"), tmp_path, *words, **environ)
    assert code == 2, text
    assert "this needs the extra `documents`: pip install 'cograil[documents]'" in text
    assert "ocrmypdf, watchfiles" in text
    assert not folder.exists()
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("command", ["convert", "prep"])
def test_every_documents_command_names_the_missing_extra(tmp_path: Path, command: str) -> None:
    (tmp_path / "a.cbz").touch()
    convert = ("convert", str(tmp_path / "a.cbz"), "-o", str(tmp_path / "out"))
    words = {"convert": convert, "prep": ("prep", "--data", str(tmp_path))}[command]
    code, text = without(("img2pdf",), tmp_path, "documents", *words)
    assert code == 2, text
    assert "pip install 'cograil[documents]' (missing: img2pdf)" in text


def test_captures_that_were_set_up_need_their_extra(tmp_path: Path) -> None:
    environ = {"COGRAIL_APPS": "captures"}
    code, text = without(("obstore",), tmp_path, "up", "--port", "0", **environ)
    assert code == 2, text
    assert "this needs the extra `captures`: pip install 'cograil[captures]'" in text


def test_programs_of_the_system_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match=r"apt-get install tesseract-ocr ghostscript$") as caught:
        require_tools(DocumentSettings())
    assert "this needs tesseract, ghostscript, which" in str(caught.value)
    require_tools(DocumentSettings(ocr_url="http://127.0.0.1:1"))
    monkeypatch.setattr(tools, "_libarchive", lambda: tools.UNKNOWN)
    with pytest.raises(UsageError, match=r"this needs libarchive, which .* apt-get install libarchive13$"):
        require_tools(DocumentSettings(ocr_url="http://127.0.0.1:1"))


def test_a_language_that_is_missing_is_named_with_its_package() -> None:
    with pytest.raises(UsageError, match=r"the language tlh, which .* apt-get install tesseract-ocr-tlh$"):
        require_tools(DocumentSettings(ocr_lang="eng+tlh"))


DYING = """
import asyncio, signal
from cograil.worker.background_tasks import background

async def die():
    raise RuntimeError("no such folder")

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with background("documents", die()):
        await asyncio.wait_for(stop.wait(), 30)
        print("stopped", flush=True)

asyncio.run(main())
"""


def test_a_loop_of_an_app_that_dies_stops_its_worker_at_once() -> None:
    """Logged before anybody stops it, and the process does not end well."""
    done = subprocess.run(
        [sys.executable, "-c", DYING], capture_output=True, text=True, timeout=60, check=False
    )
    before, _, after = done.stdout.partition("stopped")
    assert "a background loop of the app ended, stopping the worker" in before
    assert "no such folder" in before
    assert after.strip() == ""
    assert done.returncode == 1
