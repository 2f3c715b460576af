"""Container jobs beside the bare engine: one no-op container at a time in turns, then eight at a time.

The engine is a dockerd that is started for this. Both sides ask for the same container, with the same limits;
what counts is create to exit by the bare engine, and POST to `completed` by cograil.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from uuid import uuid4

import aiodocker
from tests.apps.containers.runtimes import IMAGE, dockerd

from bench.engine import ALIVE, Bench, process
from bench.figures import Figures
from bench.http import Line, api
from cograil.apps.containers.runtime.docker_engine import ContainerPolicy, ContainerRun, container_config

PARALLEL = 8
COMMAND = "true"
MEMORY_MB = 64
POLICY = ContainerPolicy(network="none", pull="never")
ENDED = {"completed", "failed", "cancelled"}
NUMBERS = itertools.count(1)


async def measure(bench: Bench, rounds: int) -> Figures:
    """How long a no-op container takes over POST /v1/jobs and by the bare engine, and how many a second."""
    with dockerd() as url, tempfile.TemporaryDirectory(prefix="cograil-bench-") as directory:
        variables = {
            "DOCKER_HOST": url,
            "COGRAIL_DATA_DIR": directory,
            "COGRAIL_CONTAINERS__NETWORK": "none",
            "COGRAIL_CONTAINERS__PULL": "never",
        }
        with environment(variables):
            async with aiodocker.Docker(url=url) as engine, api(bench) as lines:
                with process("worker", bench.conninfo):
                    await bench.until(ALIVE, 1, kind="worker")
                    return await _compare(engine, lines, Path(directory), rounds)


async def _compare(engine: aiodocker.Docker, lines: list[Line], directory: Path, rounds: int) -> Figures:
    async def bare(_: int) -> float:
        return await by_engine(engine, directory)

    async def ours(_: int) -> float:
        line = await Line(lines[0].port).open()  # one that nobody uses for a while is closed
        try:
            return await by_job(line)
        finally:
            line.writer.close()

    for run_job in (bare, ours):
        await run_job(0)  # the first of each finds everything cold
    turns = [(await bare(0), await ours(0)) for _ in range(rounds)]
    engine_seconds, job_seconds = (median(column) for column in zip(*turns, strict=True))
    return {
        "container_engine_ms": round(1000 * engine_seconds, 1),
        "container_job_ms": round(1000 * job_seconds, 1),
        "container_ratio": round(job_seconds / engine_seconds, 2),
        "containers_per_s": round(await _per_second(ours, rounds), 1),
        "containers_engine_per_s": round(await _per_second(bare, rounds), 1),
    }


async def by_engine(engine: aiodocker.Docker, directory: Path) -> float:
    """Seconds from create to exit, with nothing but the engine; the removal does not count."""
    room = directory / f"bare-{uuid4().hex}"
    room.mkdir()
    run = ContainerRun(room.name, f"{IMAGE}:latest", COMMAND, room, "/workspace", 1.0, MEMORY_MB, {}, {})
    began = time.perf_counter()
    container = await engine.containers.create(container_config(run, POLICY), name=room.name)
    await container.start()
    ended = await container.wait()
    seconds = time.perf_counter() - began
    assert ended["StatusCode"] == 0, ended
    await container.delete(force=True)
    room.rmdir()
    return seconds


async def by_job(line: Line) -> float:
    """Seconds from POST /v1/jobs until it says that the job is completed."""
    name = f"bench-{next(NUMBERS)}"
    body = {"id": name, "image": f"{IMAGE}:latest", "command": COMMAND, "cpu": 1, "memory": MEMORY_MB}
    began = time.perf_counter()
    status, answer = await line.ask("POST", "/v1/jobs", json.dumps(body).encode())
    assert status == 202, answer
    while (shown := await _shown(line, name))["status"] not in ENDED:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - began
    assert shown["status"] == "completed", shown
    return seconds


async def _shown(line: Line, name: str) -> dict[str, str]:
    status, answer = await line.ask("GET", f"/v1/jobs/{name}")
    assert status == 200, answer
    job: dict[str, str] = json.loads(answer)
    return job


async def _per_second(run_job: Callable[[int], Awaitable[float]], rounds: int) -> float:
    """How many end in a second when eight are on their way at any time."""
    count = PARALLEL * max(2, rounds // PARALLEL)
    left = iter(range(count))

    async def work(at: int) -> None:
        for _ in left:
            await run_job(at)

    began = time.perf_counter()
    await asyncio.gather(*(work(at) for at in range(PARALLEL)))
    return count / (time.perf_counter() - began)


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """What the processes of this part are told, beside what all are."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
