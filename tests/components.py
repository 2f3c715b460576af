"""What the tests need beside Python, and what happens without it.

On a developer's machine a missing component skips its tests, with one line that says what to install. Where
CI is set (CI=true or CI=1) it is an error: there everything must run. COGRAIL_TEST_MISSING names components
to treat as missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def is_ci() -> bool:
    """Whether this run must have every component."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def _has(*programs: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(program, path=SYSTEM_PATH) for program in programs)


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_languages() -> bool:
    if not _has("tesseract", "gs", "pngquant")():
        return False
    listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True, check=False)
    return {"fra", "eng"} <= set(listed.stdout.split())


def _has_postgres_15() -> bool:
    return Path("/usr/lib/postgresql/15/bin/postgres").exists()


@dataclass(frozen=True)
class Component:
    """Whether it is here, and how to get it."""

    is_here: Callable[[], bool]
    advice: str


COMPONENTS = {
    "root": Component(_is_root, "run the tests as root"),
    "docker": Component(_has("dockerd", "runc"), "apt-get install docker.io runc"),
    "podman": Component(_has("podman"), "apt-get install podman catatonit"),
    "bubblewrap": Component(_has("bwrap"), "apt-get install bubblewrap"),
    "busybox": Component(_has("busybox"), "apt-get install busybox-static"),
    "chromium": Component(_has("chromium"), "apt-get install chromium"),
    "ocr": Component(
        _has_languages,
        "apt-get install tesseract-ocr tesseract-ocr-fra tesseract-ocr-eng ghostscript pngquant",
    ),
    "postgresql-15": Component(_has_postgres_15, "apt-get install postgresql-15"),
    "pgbouncer": Component(_has("pgbouncer"), "apt-get install pgbouncer"),
    "promtool": Component(_has("promtool"), "apt-get install prometheus"),
    "node": Component(_has("node"), "apt-get install nodejs"),
    "php": Component(_has("php"), "apt-get install php-cli"),
    "go": Component(_has("go"), "apt-get install golang-go"),
    "openssl": Component(_has("openssl"), "apt-get install openssl"),
}

# Whole files and folders that can do nothing without these; elsewhere a fixture calls `need`.
NEEDED_BY_PATH = {
    "tests/browser/": ("chromium",),
    "tests/apps/documents/": ("ocr",),
    "tests/apps/captures/": ("openssl",),
    "tests/contract/test_deploy.py": ("promtool",),
    "tests/apps/containers/test_docker_engine.py": ("root", "docker", "podman", "busybox"),
    "tests/apps/containers/test_container_restarts.py": ("root", "docker", "podman", "busybox"),
    "tests/apps/containers/test_sandbox.py": ("bubblewrap", "busybox"),
    "tests/unit/test_sandbox_arguments.py": ("bubblewrap",),
    "tests/unit/test_rootfs_extract.py": ("busybox",),
}


@cache
def missing(name: str) -> str | None:
    """Why tests that need this component cannot run here; None when they can."""
    component = COMPONENTS[name]
    is_hidden = name in os.environ.get("COGRAIL_TEST_MISSING", "").split(",")
    if component.is_here() and not is_hidden:
        return None
    return f"needs {name}, which is not here: {component.advice}"


def need(*names: str) -> None:
    """Skip this test unless these components are here; fail it in CI."""
    for name in names:
        if reason := missing(name):
            pytest.fail(reason, pytrace=False) if is_ci() else pytest.skip(reason)


def needed_by(path: str) -> tuple[str, ...]:
    """The components that every test of this file needs."""
    return tuple(
        name for prefix, names in NEEDED_BY_PATH.items() if path.startswith(prefix) for name in names
    )
