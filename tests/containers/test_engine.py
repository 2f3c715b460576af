"""What is said to an engine, and one that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cograil.runners.containers import ContainerEngine, EngineError, Policy, Run, container_config


async def test_an_engine_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with ContainerEngine(f"unix://{tmp_path}/nothing.sock") as engine:
        with pytest.raises(EngineError) as caught:
            await engine.version()
    assert caught.value.code == "engine_unreachable"


async def test_an_engine_says_what_it_is(engine: ContainerEngine, podman_url: str) -> None:
    assert (await engine.version()).startswith("docker ")
    async with ContainerEngine(podman_url) as podman:
        assert (await podman.version()).startswith("podman ")


def test_nothing_of_the_host_is_asked_for_but_the_room() -> None:
    run = Run("n", "i", "x", Path("/room"), "/workspace", 1.0, 64, {}, {})
    asked = container_config(run, Policy())
    host = asked["HostConfig"]
    assert [mount["Source"] for mount in host["Mounts"]] == ["/room"]
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], [], False)
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
