"""Handlers that only the benchmark has: `cograil worker --app bench.handlers`."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from typing import Any

from cograil import Context, handler


def greet(number: int) -> dict[str, str]:
    return {"message": f"Hello, {number}!"}


@handler("bench_steps")
async def bench_steps(steps: int, ctx: Context) -> dict[str, int]:
    """This number of steps, each saved before the next one begins."""
    for number in range(steps):
        await ctx.step(f"step_{number}", greet, number)
    return {"steps": steps}


@handler("soak_async")
async def soak_async(size: int, ctx: Context) -> dict[str, str]:
    """An output of this size, a log line and some progress."""
    ctx.log.info("soaking", size=size)
    ctx.progress(1, 2, "half")
    await asyncio.sleep(0.001)
    return {"data": "x" * size}


@handler("soak_thread")
def soak_thread(size: int, ctx: Context) -> dict[str, str]:
    """The same in a thread."""
    ctx.log.info("soaking in a thread", size=size)
    return {"data": "y" * size}


@handler("soak_failing")
async def soak_failing(ctx: Context) -> dict[str, int]:
    """Fails at its first attempt, with a traceback."""
    if ctx.attempt == 1:
        raise ValueError("the first attempt fails")
    return {"attempt": ctx.attempt}


@handler("soak_joint")
async def soak_joint(ctx: Context) -> dict[str, int]:
    """Commits with a statement of its own."""
    async with ctx.transaction() as tx:
        await tx.execute("select 1")
    return {"done": 1}


@handler("soak_memory")
async def soak_memory() -> dict[str, Any]:
    """What the worker holds: its objects by type, and what tracemalloc knows if it is on."""
    gc.collect()
    kinds = Counter(type(item).__qualname__ for item in gc.get_objects())
    report: dict[str, Any] = {"objects": dict(kinds.most_common(30)), "count": sum(kinds.values())}
    if tracemalloc.is_tracing():
        top = tracemalloc.take_snapshot().statistics("lineno")[:25]
        report["traced"] = [f"{entry.size // 1024} KiB {entry.count} {entry.traceback}" for entry in top]
        report["traced_total"] = tracemalloc.get_traced_memory()[0]
    return report
