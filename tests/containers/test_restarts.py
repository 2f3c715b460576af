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
from daemons import SturdyDocker, SturdyPodman
from house import KEY, House, house_settings, is_signed, open_house, working
from receivers import receiving

from cograil.runners.containers import ContainerEngine

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
        "COGRAIL_LEASE__PULSE_SECONDS": "0.3",
        "COGRAIL_LEASE__SCAN_SECONDS": "0.3",
        "COGRAIL_WORKER__GRACE_SECONDS": "1",
        "COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8",
        "COGRAIL_CONTAINERS__NETWORK": "none",
        "COGRAIL_CONTAINERS__SWEEP_SECONDS": "0.5",
        "COGRAIL_RELAY__TIMEOUT_SECONDS": "1",
        "DOCKER_HOST": engine_url,
    }

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "cograil.intake.cli", *arguments]
        with (tmp_path / "stderr").open("ab") as log:
            started.append(
                subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=os.environ | variables)
            )
        return started[-1]

    yield run
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            one.kill()
        one.wait(10)


async def more_lines(house: House, id: str, count: int) -> None:
    """Returns when so many more lines were told."""
    wanted = len(house.lines(id)) + count
    async with asyncio.timeout(60):  # a relay that is killed while it sends keeps its claim for 31 s
        while len(house.lines(id)) < wanted:  # noqa: ASYNC110  what has come is looked at
            await asyncio.sleep(0.02)


def end_of_counting(house: House) -> None:
    """Let the only container come to its end."""
    (room,) = house.rooms()
    (house.data_dir / "workspaces" / room / "stop").touch()


def is_whole(house: House, id: str) -> None:
    """Everything was told, once and in order, and the container ran once."""
    assert house.lines(id) == [str(number) for number in range(len(house.lines(id)))]
    assert house.lines(id, "stderr") == ["ran"]
    kinds = house.kinds(id)
    assert (kinds[0], kinds[-1]) == ("start", "exit")
    assert (kinds.count("start"), kinds.count("exit")) == (1, 1)


@pytest.mark.timeout(180)
async def test_workers_that_are_killed_again_and_again_lose_nothing(house: House, start: Start) -> None:
    async with house.lab.orchestrator():
        await house.start("counted", COUNTING)
        for _ in range(4):  # more often than a node may kill its worker
            worker = start("worker")
            await more_lines(house, "counted", 5)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            assert (await house.show("counted"))["status"] == "running"
        start("worker")
        end_of_counting(house)
        assert (await house.until("counted", "completed", seconds=60))["exitCode"] == 0
        await house.heard("counted", "exit")
        await house.swept()
    is_whole(house, "counted")


async def test_a_worker_that_is_stopped_leaves_the_container_to_the_next(house: House, start: Start) -> None:
    async with house.lab.orchestrator():
        await house.start("handed", COUNTING)
        first = start("worker")
        await more_lines(house, "handed", 5)
        first.terminate()
        assert first.wait(20) == 0
        assert (await house.show("handed"))["status"] == "running"
        start("worker")
        await more_lines(house, "handed", 5)
        end_of_counting(house)
        await house.until("handed", "completed", seconds=60)
        await house.heard("handed", "exit")
        attempts = await house.lab.rows("select attempt, lost from cograil.nodes where node_id = 'run'")
    is_whole(house, "handed")
    assert attempts == [(2, 0)], "it was given back, which is no loss"


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
async def test_up_is_killed_while_a_container_runs(house: House, start: Start, tmp_path: Path) -> None:
    async with receiving() as receiver:
        house.receiver = receiver
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
        await more_lines(house, "counted", 5)
        up.send_signal(signal.SIGKILL)
        up.wait()
        again = start("up", "--port", "0")
        url = await ready(tmp_path / "stderr", again)
        await more_lines(house, "counted", 5)
        end_of_counting(house)
        await house.heard("counted", "exit", seconds=60)
        assert ask(url, "GET", "/v1/jobs/counted") == {"id": "counted", "status": "completed", "exitCode": 0}
        await house.swept()
        again.terminate()
        assert again.wait(30) == 0
    is_whole(house, "counted")
    assert all(is_signed(request) for request in house.requests("counted"))


# aiodocker does not close a connection whose other end was killed; it is left to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", [SturdyDocker, SturdyPodman])
async def test_the_engine_is_killed_while_its_containers_run(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[SturdyDocker | SturdyPodman]
) -> None:
    sturdy = await asyncio.to_thread(kind)
    try:
        monkeypatch.setenv("DOCKER_HOST", sturdy.url)
        async with (
            ContainerEngine(sturdy.url) as engine,
            open_house(dsn, engine, house_settings(tmp_path / "data")) as house,
            working(house.lab),
        ):
            await house.start("counted", COUNTING)
            await more_lines(house, "counted", 5)
            for _ in range(2):
                await asyncio.to_thread(sturdy.kill)
                assert (await house.show("counted"))["status"] == "running"
                await asyncio.to_thread(sturdy.start)
                await more_lines(house, "counted", 5)
            end_of_counting(house)
            assert (await house.until("counted", "completed", seconds=60))["exitCode"] == 0
            await house.heard("counted", "exit")
            is_whole(house, "counted")
            await house.swept()
    finally:
        await asyncio.to_thread(sturdy.close)
