"""Which tools do the work, in which versions: part of who a document is."""

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
PATIENCE_SECONDS = 5.0
LANGUAGE_SECONDS = 30.0


def prep_info() -> dict[str, Any]:
    """What PREP says of itself. The key `7z` is that of old: its value names what takes archives apart."""
    return {"service": "prep-service", "versions": {"7z": _libarchive(), "img2pdf": _package("img2pdf")}}


def ocr_info() -> dict[str, Any]:
    """What OCR says of itself."""
    versions = {
        "ocrmypdf": _package("ocrmypdf"),
        "tesseract": _program("tesseract", r"tesseract v?(\S+)"),
        "ghostscript": _program("gs", r"^(\S+)"),
    }
    return {"service": "ocr-service", "versions": versions}


def missing(*infos: dict[str, Any]) -> list[str]:
    """The tools that are not there, by the names they have here: what `/info` calls `7z` is libarchive."""
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
    """Asked again when the program is another one."""
    place = shutil.which(name)
    return _version_of(place, pattern, Path(place).stat().st_mtime_ns) if place else UNKNOWN


@lru_cache(maxsize=32)
def _version_of(place: str, pattern: str, changed: int) -> str:
    found = re.search(pattern, _said([place, "--version"]), re.M)
    return found[1] if found else UNKNOWN


def missing_languages(lang: str) -> list[str]:
    """Of these languages, those that tesseract has no data for."""
    known = _languages(int(time.monotonic() / LANGUAGE_SECONDS))
    return [f"tesseract-ocr-{one}" for one in lang.split("+") if one not in known]


@lru_cache(maxsize=2)
def _languages(moment: int) -> frozenset[str]:
    """Asked again from time to time: they are files that come and go."""
    place = shutil.which("tesseract")
    return frozenset(_said([place, "--list-langs"]).split()) if place else frozenset()


def _said(command: list[str]) -> str:
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout + asked.stderr
