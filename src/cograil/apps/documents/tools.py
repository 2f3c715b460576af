"""The versions of the tools, which are part of a document's profile."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
COMMAND_SECONDS = 5.0
LANGUAGE_SECONDS = 30.0


def prep_info() -> dict[str, Any]:
    """The `/info` of PREP. The key `7z` is kept for existing clients; its value names libarchive."""
    return {"service": "prep-service", "versions": {"7z": _libarchive(), "img2pdf": _package("img2pdf")}}


def ocr_info() -> dict[str, Any]:
    """The `/info` of OCR."""
    versions = {
        "ocrmypdf": _package("ocrmypdf"),
        "tesseract": _program("tesseract", r"tesseract v?(\S+)"),
        "ghostscript": _program("gs", r"^(\S+)"),
    }
    return {"service": "ocr-service", "versions": versions}


def missing(*infos: dict[str, Any]) -> list[str]:
    """The names of missing tools; `7z` in `/info` is libarchive."""
    names = [name for info in infos for name, version in info["versions"].items() if version == UNKNOWN]
    return ["libarchive" if name == "7z" else name for name in names]


def _libarchive() -> str:
    try:
        import libarchive.ffi  # noqa: PLC0415

        number = int(libarchive.ffi.version_number())
    except (ImportError, OSError, AttributeError, TypeError):
        return UNKNOWN
    return f"libarchive {number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return UNKNOWN


def _program(name: str, pattern: str) -> str:
    """The version of a program, cached until its file changes."""
    path = shutil.which(name)
    return _version_of(path, pattern, Path(path).stat().st_mtime_ns) if path else UNKNOWN


@lru_cache(maxsize=32)
def _version_of(program: str, pattern: str, changed: int) -> str:
    match = re.search(pattern, _output_of([program, "--version"]), re.M)
    return match[1] if match else UNKNOWN


def missing_languages(lang: str) -> list[str]:
    """The packages of those languages that tesseract has no data for."""
    installed = _languages(int(time.monotonic() / LANGUAGE_SECONDS))
    return [f"tesseract-ocr-{language}" for language in lang.split("+") if language not in installed]


@lru_cache(maxsize=2)
def _languages(moment: int) -> frozenset[str]:
    """The installed languages, cached for LANGUAGE_SECONDS."""
    program = shutil.which("tesseract")
    return frozenset(_output_of([program, "--list-langs"]).split()) if program else frozenset()


def _output_of(command: list[str]) -> str:
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr
