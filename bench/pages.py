"""What open pages cost: draining jobs while ten others are watched, beside the same with nobody watching."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median

import orjson

from bench.engine import Bench
from bench.figures import Figures
from bench.http import Line, api
from cograil.verbs.cancel import cancel

WATCHED, ROUNDS = 10, 3
STEPS = 400
POLL_SECONDS, REDRAW_SECONDS = 1.0, 3.0  # as static/job.js has them
TEXT = "workflow_id: watched\nnodes:\n" + "".join(
    f"  step{n}: {{type: wait, wait: {{seconds: 0.4}}, next: {f'step{n + 1}' if n < STEPS - 1 else 'END'}}}\n"
    for n in range(STEPS)
)


async def measure(bench: Bench, jobs: int) -> Figures:
    """Jobs drained a second with ten live jobs, watched and not, in turns; and what share is left."""
    await bench.publish(TEXT)
    watched = await bench.submit("watched", [{} for _ in range(WATCHED)])
    alone, seen = [], []
    async with api(bench) as lines:
        for _ in range(ROUNDS):
            alone.append(jobs / (await bench.drain("single", jobs, beside=WATCHED))[1])
            async with _open_pages(lines, watched):
                seen.append(jobs / (await bench.drain("single", jobs, beside=WATCHED))[1])
    for job in watched:
        async with bench.db.transaction("cancel") as tx:
            await cancel(tx, bench.engine_context, job)
    return {
        "drain_unwatched_per_s": round(median(alone)),
        "drain_watched_per_s": round(median(seen)),
        "drain_watched_ratio": round(median(seen) / median(alone), 2),
    }


@contextlib.asynccontextmanager
async def _open_pages(lines: Sequence[Line], jobs: Sequence[str]) -> AsyncIterator[None]:
    """The page of each job is open: it listens, asks how the job stands, and draws itself anew."""
    port = lines[0].port
    tasks = [asyncio.create_task(_listen(await Line(port).open(), job)) for job in jobs]
    tasks += [asyncio.create_task(_look(line, job)) for line, job in zip(lines, jobs, strict=False)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _listen(line: Line, job: str) -> None:
    head = (
        f"GET /ui/jobs/{job}/events/stream HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
    )
    line.writer.write(head.encode())
    try:
        while await line.reader.read(65536):
            pass
    finally:
        line.writer.close()


async def _look(line: Line, job: str) -> None:
    seq, drawn = -1, 0.0
    while True:
        status, body = await line.ask("GET", f"/ui/jobs/{job}/state")
        assert status == 200, body
        state = orjson.loads(body)
        if state["seq"] != seq and time.monotonic() - drawn > REDRAW_SECONDS:
            status, body = await line.ask("GET", f"/ui/jobs/{job}")
            assert status == 200, body
            seq, drawn = state["seq"], time.monotonic()
        await asyncio.sleep(POLL_SECONDS)
