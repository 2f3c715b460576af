"""Handlers that only the benchmark has: `cograil worker --app bench.handlers`."""

from __future__ import annotations

from cograil import Context, handler


def greet(number: int) -> dict[str, str]:
    return {"message": f"Hello, {number}!"}


@handler("bench_steps")
async def bench_steps(steps: int, ctx: Context) -> dict[str, int]:
    """So many steps, each kept before the next one begins."""
    for number in range(steps):
        await ctx.step(f"step_{number}", greet, number)
    return {"steps": steps}
