"""`ctx.step`: how many steps a second, in one handler and in many.

A step is one commit, and so is a node of a chain at least: 300 handlers of 10 steps stand next to 300
chains of 10 nodes.
"""

from __future__ import annotations

from bench.engine import ALIVE, Bench, process, query
from bench.figures import Figures

APP = ("--app", "bench.handlers")
STEPS = "workflow_id: steps_{steps}\nnodes:\n  walk: {{handler: bench_steps, params: {{steps: {steps}}}}}\n"
EACH = 10
FAILED = query("select count(*) from cograil.jobs where workflow_id like 'steps%%' and status <> 'completed'")


async def measure(bench: Bench, steps: int = 500, handlers: int = 300) -> Figures:
    """Steps per second; an orchestrator runs, and no worker."""
    await bench.publish(STEPS.format(steps=steps), STEPS.format(steps=EACH))
    alone = await _one_handler(bench, steps)
    _, seconds = await bench.drain(f"steps_{EACH}", handlers, *APP)
    await bench.none(FAILED)
    return {"steps_per_s": round(steps / alone), "steps_300x10_per_s": round(handlers * EACH / seconds)}


async def _one_handler(bench: Bench, steps: int) -> float:
    """Seconds from submit to the result of one job with this number of steps."""
    with process("worker", bench.conninfo, *APP):
        await bench.until(ALIVE, 1, kind="worker")
        async with bench.listening():
            return await bench.time_job(f"steps_{steps}", {})
