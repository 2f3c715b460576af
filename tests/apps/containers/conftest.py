"""Engines and a sandbox of the tests' own, with one image that was made here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.apps.containers.container_site import ContainerSite, open_container_site, site_settings
from tests.apps.containers.runtimes import dockerd, groups_of, podman, runtime_at, sandboxes
from tests.components import need

from cograil.apps.containers.runtime.container_runtime import Runtime
from cograil.apps.containers.runtime.container_workspaces import ContainerWorkspaces
from cograil.apps.containers.runtime.docker_engine import ContainerEngine


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """dockerd, started for this session."""
    need("root", "docker", "busybox")
    with dockerd() as url:
        yield url


@pytest.fixture(scope="session")
def podman_url() -> Iterator[str]:
    """podman, started for this session."""
    need("root", "podman", "busybox")
    with podman() as url:
        yield url


@pytest.fixture(scope="session")
def sandbox_place() -> Iterator[Path]:
    """Where sandboxes are, for this session."""
    need("bubblewrap", "busybox")
    with sandboxes() as place:
        yield place


@pytest.fixture(params=["docker", "podman", "sandbox"])
def where(request: pytest.FixtureRequest) -> str:
    """Each runtime there is: where its engine answers, or the directory of its sandboxes."""
    fixture = {"docker": "engine_url", "podman": "podman_url", "sandbox": "sandbox_place"}[request.param]
    return str(request.getfixturevalue(fixture))


@pytest.fixture
async def runtime(where: str) -> AsyncIterator[Runtime]:
    """Each runtime there is, without containers before and after."""
    async with runtime_at(where) as runtime:
        yield runtime
        await _remove_all(runtime)


@pytest.fixture
async def engine(engine_url: str) -> AsyncIterator[ContainerEngine]:
    async with ContainerEngine(engine_url) as engine:
        yield engine
        await _remove_all(engine)


async def _remove_all(runtime: Runtime) -> None:
    async with asyncio.timeout(20):
        while (left := await runtime.find({"cograil.test": "yes"})) is not None:
            await runtime.remove(left)
            assert not groups_of(left)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    place = tmp_path / "room"
    place.mkdir()
    place.chmod(0o777)
    return place


@pytest.fixture
async def site(
    dsn: str, engine: ContainerEngine, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ContainerSite]:
    """All that container jobs need, but a worker; when the test is over nothing of them is left."""
    monkeypatch.setenv("DOCKER_HOST", engine_url)
    async with open_container_site(dsn, engine, site_settings(tmp_path / "data")) as site:
        yield site
        assert [str(finding) for finding in await site.lab.findings()] == []
        for container in await engine.held(
            {"cograil.place": ContainerWorkspaces(tmp_path / "data" / "workspaces").place}
        ):
            await engine.remove(container.container)
