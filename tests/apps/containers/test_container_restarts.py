"""kill -9 of whatever takes part while containers run: the next one takes them up, each line is told once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apps.containers.container_site import (
    KEY,
    ContainerSite,
    is_signed,
    open_container_site,
    site_settings,
    working,
)
from tests.apps.containers.killable_engines import KillableDocker, KillablePodman
from tests.support.webhook_receiver import open_receiver

from cograil.apps.containers.runtime.docker_engine import ContainerEngine

COUNTING = (
    "echo ran >> runs; i=0; while [ ! -f stop ]; do echo $i; i=$((i+1)); sleep 0.05; done; cat runs >&2"
)
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(dsn: str, engine_url: str, tmp_path: Path) -> Iterator[Start]:
    """`cograil ...` as a process, on the database and the engine of this test."""
    started: list[subprocess.Popen[bytes]] = []
    variables = {
        "COGRAIL_DATABASE_URL": dsn,
        "COGRAIL_DATABASE__ALLOW_UNSAFE": "true",
        "COGRAIL_DATA_DIR": str(tmp_path / "data"),
        "COGRAIL_LEASE__SECONDS": "1.5",
        "COGRAIL_LEASE__HEARTBEAT_SECONDS": "0.3",
        "COGRAIL_LEASE__SCAN_SECONDS": "0.3",
        "COGRAIL_WORKER__GRACE_SECONDS": "1",
        "COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8",
        "COGRAIL_CONTAINERS__NETWORK": "none",
        "COGRAIL_CONTAINERS__SWEEP_SECONDS": "0.5",
        "COGRAIL_RELAY__TIMEOUT_SECONDS": "1",
        "DOCKER_HOST": engine_url,
    }

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "cograil", *arguments]
        with (tmp_path / "stderr").open("ab") as log:
            started.append(
                subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=os.environ | variables)
            )
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(10)


async def more_lines(site: ContainerSite, id: str, count: int) -> None:
    """Returns when `count` more lines were sent."""
    wanted = len(site.lines(id)) + count
    async with asyncio.timeout(60):  # a relay that is killed while it sends keeps its claim for 31 s
        while len(site.lines(id)) < wanted:  # noqa: ASYNC110  what has come is looked at
            await asyncio.sleep(0.02)


def end_of_counting(site: ContainerSite) -> None:
    """Let the only container come to its end."""
    (room,) = site.rooms()
    (site.data_dir / "workspaces" / room / "stop").touch()


def is_whole(site: ContainerSite, id: str) -> None:
    """Everything was told, once and in order, and the container ran once."""
    assert site.lines(id) == [str(number) for number in range(len(site.lines(id)))]
    assert site.lines(id, "stderr") == ["ran"]
    kinds = site.kinds(id)
    assert (kinds[0], kinds[-1]) == ("start", "exit")
    assert (kinds.count("start"), kinds.count("exit")) == (1, 1)


@pytest.mark.timeout(180)
async def test_workers_that_are_killed_again_and_again_lose_nothing(
    site: ContainerSite, start: Start
) -> None:
    async with site.lab.orchestrator():
        await site.start("counted", COUNTING)
        for _ in range(4):  # more often than a node may kill its worker
            worker = start("worker")
            await more_lines(site, "counted", 5)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            assert (await site.show("counted"))["status"] == "running"
        start("worker")
        end_of_counting(site)
        assert (await site.until("counted", "completed", seconds=60))["exitCode"] == 0
        await site.heard("counted", "exit")
        await site.swept()
    is_whole(site, "counted")


async def test_a_worker_that_is_stopped_leaves_the_container_to_the_next(
    site: ContainerSite, start: Start
) -> None:
    async with site.lab.orchestrator():
        await site.start("handed", COUNTING)
        first = start("worker")
        await more_lines(site, "handed", 5)
        first.terminate()
        assert first.wait(20) == 0
        assert (await site.show("handed"))["status"] == "running"
        start("worker")
        await more_lines(site, "handed", 5)
        end_of_counting(site)
        await site.until("handed", "completed", seconds=60)
        await site.heard("handed", "exit")
        attempts = await site.lab.rows("select attempt, lost from cograil.nodes where node_id = 'run'")
    is_whole(site, "handed")
    assert attempts == [(2, 0)], "a task that was given back is not a loss"


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, content, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


async def ready(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Where this `up` answers, once it does."""
    async with asyncio.timeout(40):
        while True:
            assert process.poll() is None, log.read_text()
            lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
            for line in lines:
                if line["event"] == "ready" and line.get("pid") == process.pid:
                    return str(line["url"])
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_up_is_killed_while_a_container_runs(site: ContainerSite, start: Start, tmp_path: Path) -> None:
    async with open_receiver() as receiver:
        site.receiver = receiver
        up = start("up", "--port", "0")
        url = await ready(tmp_path / "stderr", up)
        body = {
            "id": "counted",
            "image": "cograil-test:latest",
            "command": COUNTING,
            "memory": 64,
            "callback": {"url": receiver.url, "key": KEY},
        }
        assert ask(url, "POST", "/v1/jobs", body) == {"id": "counted", "status": "accepted"}
        await more_lines(site, "counted", 5)
        up.send_signal(signal.SIGKILL)
        up.wait()
        again = start("up", "--port", "0")
        url = await ready(tmp_path / "stderr", again)
        await more_lines(site, "counted", 5)
        end_of_counting(site)
        await site.heard("counted", "exit", seconds=60)
        assert ask(url, "GET", "/v1/jobs/counted") == {"id": "counted", "status": "completed", "exitCode": 0}
        await site.swept()
        again.terminate()
        assert again.wait(30) == 0
    is_whole(site, "counted")
    assert all(is_signed(request) for request in site.requests("counted"))


# aiodocker does not close a connection whose other end was killed; it is left to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", [KillableDocker, KillablePodman])
async def test_the_engine_is_killed_while_its_containers_run(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[KillableDocker | KillablePodman]
) -> None:
    sturdy = await asyncio.to_thread(kind)
    try:
        monkeypatch.setenv("DOCKER_HOST", sturdy.url)
        async with (
            ContainerEngine(sturdy.url) as engine,
            open_container_site(dsn, engine, site_settings(tmp_path / "data")) as site,
            working(site.lab),
        ):
            await site.start("counted", COUNTING)
            await more_lines(site, "counted", 5)
            for _ in range(2):
                await asyncio.to_thread(sturdy.kill)
                assert (await site.show("counted"))["status"] == "running"
                await asyncio.to_thread(sturdy.start)
                await more_lines(site, "counted", 5)
            end_of_counting(site)
            assert (await site.until("counted", "completed", seconds=60))["exitCode"] == 0
            await site.heard("counted", "exit")
            is_whole(site, "counted")
            await site.swept()
    finally:
        await asyncio.to_thread(sturdy.close)
