"""Handlers for tests and demos. Importing this module registers them; they ignore unknown params."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Annotated

from pydantic import Field

from cograil.model.workflow import Json
from cograil.runners import http_handler  # noqa: F401  importing registers
from cograil.runners.context import Context, Fail, Retry
from cograil.runners.handler_registry import handler

MB = 1024 * 1024
GB = 1024 * MB

Count = Annotated[int, Field(ge=1, le=10_000)]
Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[int, Field(ge=0)]


@handler("hello_world", extra="ignore")
async def hello_world(name: str = "World") -> dict[str, Json]:
    """Return a greeting."""
    return {"message": f"Hello, {name}!"}


@handler("echo", extra="ignore")
async def echo(ctx: Context, steps: Count = 1, step_delay: Seconds = 0) -> dict[str, Json]:
    """Return the params. With several steps it saves a checkpoint after each, and a retry resumes there."""
    if steps == 1:
        return _echo_output(ctx, "echo")
    done: list[int] = list((ctx.checkpoint_data or {}).get("completed_steps", ()))
    for step in range(len(done) + 1, steps + 1):
        await asyncio.sleep(step_delay)
        done.append(step)
        await ctx.checkpoint({"completed_steps": done}, phase=f"step_{step}")
        ctx.progress(step, steps, f"step {step} of {steps}")
    return _echo_output(ctx, "echo") | {"steps_completed": len(done), "completed_steps": done}


@handler("sleep", extra="ignore")
async def sleep(seconds: Seconds | None = None, duration_seconds: Seconds = 1) -> dict[str, Json]:
    """Wait for a time; ends at once when the attempt is cancelled."""
    chosen = duration_seconds if seconds is None else seconds
    await asyncio.sleep(chosen)
    return {"slept_for": chosen}


@handler("fail", extra="ignore")
async def fail(error_message: str = "failed on purpose", retryable: bool = True) -> None:
    """Fail with this message; retryable unless `retryable` is false."""
    raise Retry(error_message) if retryable else Fail(error_message)


@handler("flaky_echo", extra="ignore")
async def flaky_echo(ctx: Context, failure_rate: Share = 0.2) -> dict[str, Json]:
    """Return the params, or fail at random with a retryable error."""
    if random.random() < failure_rate:
        raise Retry(f"failed at random, at a rate of {failure_rate:g}")
    return _echo_output(ctx, "flaky_echo")


@handler("multi_phase", extra="ignore")
async def multi_phase(
    checkpoint: Json = None, phases: Count = 3, phase_delay: Seconds = 0
) -> AsyncGenerator[dict[str, Json], None]:
    """Run phases as a checkpointable handler; a retry resumes after the last saved phase."""
    done: list[str] = list((checkpoint or {}).get("completed_phases", ()))
    resumed_after = len(done)
    for number in range(resumed_after + 1, phases + 1):
        await asyncio.sleep(phase_delay)
        phase = f"phase_{number}"
        done.append(phase)
        yield {"type": "checkpoint", "phase": phase, "data": {"completed_phases": done}}
        yield {"type": "progress", "current": number, "total": phases, "message": phase}
    output = {"phases_completed": len(done), "completed_phases": done, "resumed_after": resumed_after}
    yield {"type": "result", "output": output}


@handler("size_check", extra="ignore")
async def size_check(size_bytes: Size) -> dict[str, Json]:
    """Return the route for work of this size: light below 100 MB, medium below 1 GB, else heavy."""
    route = "light" if size_bytes < 100 * MB else "medium" if size_bytes < GB else "heavy"
    return {"size_bytes": size_bytes, "route": route, "recommended_queue": route}


@handler("chunk_processor", extra="ignore")
async def chunk_processor(chunk_id: Json, chunk_data: Json = None) -> dict[str, Json]:
    """Pretend to process one chunk of a fan-out; returns its number of items."""
    size = len(chunk_data) if isinstance(chunk_data, list | dict | str) else int(chunk_data is not None)
    return {"chunk_id": chunk_id, "processed": True, "item_count": size}


def _echo_output(ctx: Context, name: str) -> dict[str, Json]:
    return {"echoed_params": ctx.params, "handler": name, "task_id": ctx.task_id}
