"""Engines that miss something: a log that is never ended, an end that is never told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.apps.containers.runtimes import run

from cograil.apps.containers.runtime import container_log
from cograil.apps.containers.runtime.container_log import follow_log
from cograil.apps.containers.runtime.docker_engine import (
    BEGINNING,
    ContainerEngine,
    ContainerLogCursor,
    ContainerPolicy,
    LogStream,
)


class Forgetful(ContainerEngine):
    """A real engine that tells a log and does not end it."""

    async def lines(
        self, container: str, stream: LogStream, after: ContainerLogCursor = BEGINNING
    ) -> AsyncGenerator[tuple[ContainerLogCursor, str]]:
        async for line in super().lines(container, stream, after):
            yield line
        await asyncio.Event().wait()


async def test_a_log_that_is_never_ended_is_told_once_and_left(
    engine_url: str, engine: ContainerEngine, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_log, "SILENT_SECONDS", 0.3)
    log_lines: list[str] = []

    async def tell(stream: LogStream, lines: list[str], place: ContainerLogCursor) -> None:
        log_lines.extend(lines)

    async with Forgetful(engine_url) as forgetful:
        container = await forgetful.start(run(room, "echo one; echo two"), ContainerPolicy(network="none"))
        ended = asyncio.Event()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(follow_log(forgetful, container, lambda _: BEGINNING, tell, ended))
            await forgetful.wait(container)
            ended.set()
    assert log_lines == ["one", "two"]


async def test_an_end_that_an_engine_misses_is_looked_for(
    engine: ContainerEngine, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again and again, while it runs and when it has ended."""
    monkeypatch.setattr("cograil.apps.containers.runtime.docker_engine.LOOK_SECONDS", 0.05)
    container = await engine.start(run(room, "sleep 0.5; exit 3"), ContainerPolicy(network="none"))
    async with asyncio.timeout(20):
        assert (await engine.wait(container)).exit_code == 3
