"""Handlers that count their executions and fail when asked to, and a workflow for retries."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.support.harness import Harness

from cograil.runners.context import Context, Fail
from cograil.verbs.retry import RetryForecast, preview_retry

SIDE = """
workflow_id: side
nodes:
  a: {handler: count, params: {x: 1}, next: b}
  b: {handler: count, params: {x: "{{ nodes.a.output.x }}"}, next: c}
  c: {handler: count, params: {x: "{{ nodes.b.output.x }}"}, next: d}
  d: {handler: count, params: {x: 1}}
  side: {handler: hold}
"""


class Handlers:
    """Counts executions by node; nodes in `bad` fail."""

    def __init__(self, harness: Harness) -> None:
        self.runs: Counter[str] = Counter()
        self.bad: set[str] = set()
        self.held = asyncio.Event()

        async def count(ctx: Context, x: Any = None, first: Any = None) -> dict[str, Any]:
            self.runs[ctx.node_id] += 1
            if ctx.node_id in self.bad:
                raise Fail(f"{ctx.node_id} is bad")
            return {"x": x}

        async def hold() -> dict[str, Any]:
            await self.held.wait()
            return {}

        harness.registry.register(count)
        harness.registry.register(hold)


async def has_statuses(harness: Harness, job: str, **expected: str) -> bool:
    statuses = await harness.statuses(job)
    return {name: statuses.get(name) for name in expected} == expected


async def preview(harness: Harness, job: str, node: str | None = None, **more: Any) -> RetryForecast:
    async with harness.db.transaction("preview") as tx:
        return await preview_retry(tx, harness.engine_context, job, node, **more)
