"""`cograil ARGUMENTS` as real processes of a test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.acceptance.gateway_site import Caller, Site, open_site
from tests.acceptance.instances import QUICK, Running, Start, lives
from tests.acceptance.own_server import server

from cograil.embedded.postgres_server import EmbeddedPostgres

__all__ = ["server"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PostgreSQL cluster as a first start leaves it, for copying: making one takes seconds."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("cluster")) as server:
        return server.cluster


@pytest.fixture
def used_data_dir(cluster: Path, tmp_path: Path) -> None:
    """The data directory of this test is not new."""
    shutil.copytree(cluster, tmp_path / "data" / "pgdata")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `cograil ARGUMENTS` in the directory of the test; what is left at the end is killed."""
    all_of_them: list[Running] = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}

    def run(*arguments: str, **variables: str) -> Running:
        stderr = tmp_path / f"stderr-{len(all_of_them)}"
        with stderr.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cograil", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=tmp_path,
                env=environment | QUICK | {"COGRAIL_DATA_DIR": str(tmp_path / "data")} | variables,
            )
        all_of_them.append(Running(process, tmp_path / "data", stderr))
        return all_of_them[-1]

    yield run
    for running in all_of_them:
        _end(running.process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it; what the kernel then ends must be gone too before the next test counts on it."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait(10)
    until = time.monotonic() + 10
    while [child for child in children if lives(child)] and time.monotonic() < until:
        time.sleep(0.02)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An instance with a gateway before it, for all tests that do it no harm."""
    with open_site(tmp_path_factory.mktemp("gateway")) as site:
        yield site


@pytest.fixture
def partner(site: Site) -> Caller:
    """Somebody outside, with a key of the role gateway."""
    return site.caller("gateway")


@pytest.fixture
def operator(site: Site) -> Caller:
    """Somebody who looks after the instance, through the gateway."""
    return site.caller("operator")
