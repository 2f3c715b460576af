"""Engines of which an answer is lost, or that never answer: nothing waits for ever, nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.apps.containers.container_site import ContainerSite, open_container_site, site_settings, working
from tests.apps.containers.fault_proxy import FaultProxy, open_fault_proxy
from tests.apps.containers.runtimes import run
from tests.support.harness import open_harness

from cograil.apps.containers import worker_lifespan
from cograil.apps.containers.runtime import container_log, docker_engine
from cograil.apps.containers.runtime.container_runtime import ContainerPolicy, EngineError
from cograil.apps.containers.runtime.docker_engine import ContainerEngine
from cograil.apps.containers.runtime.runtime_selection import choose_runtime
from cograil.settings import Settings

POLICY = ContainerPolicy(network="none")
ONCE = "echo ran >> runs; cat runs"
# aiodocker does not close a connection whose other end is gone; it is left to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
async def proxy(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FaultProxy]:
    monkeypatch.setattr(docker_engine, "ASK_SECONDS", 2.0)
    monkeypatch.setattr(docker_engine, "LOOK_SECONDS", 2.0)
    async with open_fault_proxy(engine_url, tmp_path) as proxy:
        yield proxy


@pytest.fixture
async def lossy(
    dsn: str, engine: ContainerEngine, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ContainerSite]:
    """A site whose workers reach the engine through somebody who loses answers."""
    monkeypatch.setenv("DOCKER_HOST", proxy.url)
    async with open_container_site(dsn, engine, site_settings(tmp_path / "data")) as site:
        yield site


@pytest.mark.parametrize("operation", ["find", "held", "state", "start", "remove", "wait"])
async def test_an_engine_that_never_answers_is_not_waited_for_for_ever(
    proxy: FaultProxy, engine: ContainerEngine, room: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(docker_engine, "ASK_SECONDS", 0.5)
    monkeypatch.setattr(docker_engine, "LOOK_SECONDS", 0.5)
    wanted = run(room, "sleep 60")
    container = await engine.start(wanted, POLICY)
    async with ContainerEngine(proxy.url) as deaf, asyncio.timeout(20):
        await deaf.version()
        proxy.lose("/containers/", "silent", times=10)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "find": lambda: deaf.find(wanted.labels),
            "held": lambda: deaf.held(wanted.labels),
            "state": lambda: deaf.state(container),
            "start": lambda: deaf.start(wanted, POLICY),
            "remove": lambda: deaf.remove(container),
            "wait": lambda: deaf.wait(container),
        }
        with pytest.raises(EngineError) as caught:
            await calls[operation]()
    assert caught.value.code == "engine_unreachable"
    assert proxy.lost


@pytest.mark.parametrize("loss", ["silent", "cut"])
@pytest.mark.parametrize(
    "request_",
    [
        "GET .*/images/",
        "POST .*/containers/create",
        "POST .*/containers/[0-9a-f]+/start",
        "POST .*/containers/[0-9a-f]+/wait",
        "GET .*/containers/json",
        "GET .*/containers/[0-9a-f]+/json",
    ],
)
async def test_a_job_gets_over_an_answer_that_is_lost(
    lossy: ContainerSite, proxy: FaultProxy, request_: str, loss: str
) -> None:
    """It was heard or not: either way the container runs, and once."""
    proxy.lose(request_, "silent" if loss == "silent" else "cut")
    async with working(lossy.lab):
        await lossy.start("once", ONCE)
        ended = await lossy.until("once", "completed", "failed", seconds=50)
        await lossy.heard("once", "exit")
        await lossy.swept()
    assert proxy.lost
    assert ended == {"id": "once", "status": "completed", "exitCode": 0}
    assert lossy.lines("once") == ["ran"]
    assert lossy.kinds("once") == ["start", "log", "exit"]


async def test_a_log_that_falls_silent_is_asked_for_anew_while_its_container_runs(
    lossy: ContainerSite, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(container_log, "QUIET_SECONDS", 0.5)
    proxy.lose("GET .*/logs.*stdout", "silent")
    async with working(lossy.lab):
        await lossy.start("heard", "echo one; sleep 1; echo two; until [ -f stop ]; do sleep 0.1; done")
        await eventually(lambda: lossy.lines("heard") == ["one", "two"])
        assert (await lossy.show("heard"))["status"] == "running"
        assert (await lossy.call("DELETE", "/heard")).status == 204
        await lossy.swept()


async def test_however_many_containers_are_followed_there_is_a_connection_left(
    engine: ContainerEngine, room: Path
) -> None:
    """Each that runs has two logs and an end to wait for; by default a worker runs 64."""
    container = await engine.start(run(room, "echo up; sleep 600"), POLICY)
    logs = [engine.lines(container, "stdout") for _ in range(3 * 64)]
    try:
        async with asyncio.timeout(30):
            for log in logs:
                await anext(log)
            assert (await engine.state(container)).is_running
            await engine.stop(container, 0)
    finally:
        for log in logs:
            await log.aclose()


async def test_a_cancelled_engine_check_leaves_nothing_open(lossy: ContainerSite, proxy: FaultProxy) -> None:
    proxy.lose("GET .*/version", "silent", times=3)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await choose_runtime(lossy.lab.settings)
    assert len(proxy.lost) == 3


async def test_a_pull_of_which_nothing_comes_fails_and_names_the_image(
    proxy: FaultProxy, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "PULL_SECONDS", 0.5)
    proxy.lose("POST .*/images/create", "silent")
    async with ContainerEngine(proxy.url) as engine, asyncio.timeout(20):
        with pytest.raises(EngineError, match=r"nowhere/nothing:1.*nothing comes") as caught:
            await engine.start(run(room, "x", image="nowhere/nothing:1"), POLICY)
    assert caught.value.code == "image_not_found"


@pytest.mark.parametrize(
    "address", ["ssh://somebody@somewhere", "nonsense", "npipe:////./pipe/docker", "fd://"]
)
async def test_an_address_that_leads_to_no_engine_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    settings = site_settings(tmp_path, runtime="docker")
    runtime, why = await choose_runtime(settings)
    assert runtime is None
    assert f"{address!r} leads to no engine" in why


async def test_without_a_runtime_the_database_is_not_polled(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """It is looked for every few seconds; what has ended meanwhile is settled as seldom as anywhere else."""
    looks, settled = [], []

    async def nothing(settings: Settings) -> tuple[None, str]:
        looks.append(settings)
        return None, "nothing runs containers here"

    async def settle(*_: Any) -> None:
        settled.append(len(looks))

    monkeypatch.setattr(worker_lifespan, "choose_runtime", nothing)
    monkeypatch.setattr(worker_lifespan, "settle_ended", settle)
    monkeypatch.setattr(worker_lifespan, "LOOK_SECONDS", 0.01)
    async with (
        open_harness(dsn, site_settings(tmp_path)) as lab,
        worker_lifespan.containers_on_worker(lab.registry, lab.db, lab.settings),
    ):
        await eventually(lambda: len(looks) > 10)
    assert settled == [1]
