"""What the tests of handlers share: a channel that remembers, and an attempt that runs one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cograil.model.outcome import Completed, Failed, Outcome, WorkItem
from cograil.model.telling import Event
from cograil.runners.context import Context, Limits
from cograil.runners.params import Extra
from cograil.runners.python import run
from cograil.runners.registry import Registry

Json = Any
BRIEF = Limits(grace_seconds=0.02)
PATIENT = Limits(grace_seconds=30)


class Broken:
    """A transaction that cannot even be undone."""

    is_unfinished, is_over, committing = False, False, None

    async def undo(self) -> None:
        raise ConnectionError("the way back is lost")


class Recorder:
    """A channel that remembers. `owns` False: the attempt has been given to somebody else."""

    def __init__(self) -> None:
        self.saved: list[tuple[Json, str]] = []
        self.told: list[tuple[str, str, Json]] = []
        self.steps: dict[str, Json] = {}
        self.progress: list[tuple[Json, ...]] = []
        self.lines: list[dict[str, Json]] = []
        self.owns = True
        self.fails_after: int | None = None
        self.before_saving = asyncio.Event()
        self.before_saving.set()

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        await self.before_saving.wait()
        if self.fails_after is not None and len(self.saved) >= self.fails_after:
            raise ConnectionError("the database is gone")
        if self.owns:
            self.saved.append((json.loads(data), phase))
        return self.owns

    async def tell(self, item: WorkItem, event: Event) -> bool:
        await self.before_saving.wait()
        if self.owns:
            self.told.append((event.type, event.subject, json.loads(event.data)))
        return self.owns

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        await self.before_saving.wait()
        if self.owns:
            self.steps[name] = json.loads(output)
        return self.owns

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        self.progress.append((current, total, message))

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        self.lines.append(line)


class Attempt:
    """A handler with all it needs to run once."""

    def __init__(self, executor: ThreadPoolExecutor, extra: Extra = "forbid") -> None:
        self.executor = executor
        self.extra = extra
        self.channel = Recorder()
        self.ctx: Context

    async def __call__(
        self,
        function: Any,
        params: dict[str, Json] | None = None,
        *,
        timeout: float = 30,
        checkpoint: Json = None,
        steps: dict[str, Json] | None = None,
        limits: Limits = PATIENT,
    ) -> Outcome:
        spec = Registry().register(function, "it", extra=self.extra)
        item = WorkItem(7, 1, "job-1", "node-1", 2, "it", params or {}, timeout, checkpoint, steps=steps)
        self.ctx = Context(item, self.channel, limits)
        return await run(item, spec, self.ctx, executor=self.executor, limits=limits)


def failed(outcome: Outcome, code: str) -> Failed:
    assert isinstance(outcome, Failed), outcome
    assert outcome.code == code, outcome
    return outcome


def output(outcome: Outcome) -> Json:
    assert isinstance(outcome, Completed), outcome
    return json.loads(outcome.output)


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (what we wait for happens in a thread)
            await asyncio.sleep(0.001)


async def everything_ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others) if others else None
