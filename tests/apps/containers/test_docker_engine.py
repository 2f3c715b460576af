"""What is said to an engine, and one that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiodocker
import pytest
from tests.apps.containers.runtimes import POLICY, run

from cograil.apps.containers.runtime.docker_engine import (
    ContainerEngine,
    ContainerPolicy,
    ContainerRun,
    EngineError,
    container_config,
)


async def test_an_engine_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with ContainerEngine(f"unix://{tmp_path}/nothing.sock") as engine:
        with pytest.raises(EngineError) as caught:
            await engine.version()
    assert caught.value.code == "engine_unreachable"


async def test_an_engine_says_what_it_is(engine: ContainerEngine, podman_url: str) -> None:
    assert (await engine.version()).startswith("docker ")
    async with ContainerEngine(podman_url) as podman:
        assert (await podman.version()).startswith("podman ")


def test_a_container_mounts_nothing_of_the_host_but_its_workspace() -> None:
    run = ContainerRun("n", "i", "x", Path("/room"), "/workspace", 1.0, 64, {}, {})
    config = container_config(run, ContainerPolicy())
    host = config["HostConfig"]
    assert [mount["Source"] for mount in host["Mounts"]] == ["/room"]
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], [], False)
    assert host["LogConfig"]["Type"] == "json-file", "one that can be read back"
    assert host["Memory"] == host["MemorySwap"] == 64 * 1024 * 1024
    forbidden = {
        "Binds",
        "PidMode",
        "IpcMode",
        "UsernsMode",
        "Devices",
        "VolumesFrom",
        "CgroupParent",
        "Runtime",
    }
    assert not forbidden & host.keys()


async def test_a_name_that_somebody_else_has_is_told_and_left_to_them(
    engine: ContainerEngine, room: Path
) -> None:
    theirs = run(room, "sleep 60")
    held = await engine.start(theirs, POLICY)
    ours = run(room, "true", name=theirs.name)
    with pytest.raises(EngineError, match=theirs.name) as caught:
        await engine.start(ours, POLICY)
    assert caught.value.code == "create_failed"
    assert (await engine.state(held)).is_running


async def test_a_container_that_is_just_being_made_is_waited_for(
    engine: ContainerEngine, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dockerd gives the name first; for a moment there is nothing else of it."""
    request = run(room, "sleep 60")
    held = await engine.start(request, POLICY)
    monkeypatch.setattr("cograil.apps.containers.runtime.docker_engine.RETRY_SECONDS", 0.01)
    containers, missed = engine._docker.containers, iter([404, 404])
    known = containers.container

    class Unfinished:
        async def show(self) -> dict[str, Any]:
            for status in missed:
                raise aiodocker.DockerError(status, "No such container")
            return await known(request.name).show()

    monkeypatch.setattr(containers, "container", lambda id: Unfinished() if id == request.name else known(id))
    monkeypatch.setattr(engine, "find", _nobody)
    assert await engine.start(request, POLICY) == held
    assert next(missed, None) is None


async def _nobody(labels: object) -> None:
    return None
