"""The client of a run: how it is struck, and what it may have left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.torture import oracles
from tests.torture.crash import Fault, Run
from tests.torture.forked_processes import Child
from tests.torture.lane import NUMBERS, Lane
from tests.torture.scenarios import Scenario

GONE_SECONDS = 10.0
STOPPED_SECONDS = 0.5
Meanwhile = Callable[[Lane, str], Awaitable["asyncio.Future[Any] | None"]]


async def report_meanwhile(lane: Lane, job: str) -> None:
    """Let the slow node end now, and wait for its report to count, unless somebody is in its way."""
    if not await lane.lab.rows("select 1 from torture.gates where job::text = %(job)s", job=job):
        return
    await lane.set_gate(job, is_closed=False)
    query = "select 1 from cograil.inbox where job_id = %(job)s and kind = 'report'"
    if await lane.until(query, 0.5, job=job):
        await lane.lab.rows("insert into torture.mended values (%(job)s)", job=f"reported {job}")


async def struck(
    lane: Lane, run: Run, act: str, subject: str, *, meanwhile: Meanwhile = report_meanwhile, **more: str
) -> str | None:
    """Run the client and strike it; what it answered, None when nobody heard an answer."""
    answer = f"{lane.fork_server.directory}/answer-{next(NUMBERS)}"
    order: dict[str, Any] = {"act": act, "subject": subject, "answer": answer} | more
    order |= {"fault": run.fault and run.fault.order, "idle_seconds": idle_seconds(run.fault)}
    client = await lane.fork("client", **order)
    async with asyncio.timeout(GONE_SECONDS):
        await client.struck()
    run.violations += await oracles.at_once(lane)
    run.points = client.points()
    run.struck = client.is_struck
    if client.stopped.is_set():
        await _wake(lane, run, subject, client, meanwhile)
    path = Path(answer)
    if run.fault is None and not path.exists():
        run.violations.append("nothing happened to the client, but it got no answer")
    return json.loads(path.read_text()) if path.exists() else None


def idle_seconds(fault: Fault | None) -> float:
    """Only of a client that is stopped must the server take the locks away, and soon."""
    return STOPPED_SECONDS if fault is not None and fault.mode == "stop" else 5.0


async def _wake(lane: Lane, run: Run, subject: str, client: Child, meanwhile: Meanwhile) -> None:
    """`pause`: wake it while it still has its locks. `stop`: when the server has taken them away."""
    assert run.fault is not None
    waiting = None
    if run.fault.mode == "pause":
        waiting = await meanwhile(lane, subject)
    else:
        await asyncio.sleep(STOPPED_SECONDS + 0.1)  # by then the server has ended the transaction
    client.resume()
    async with asyncio.timeout(GONE_SECONDS):
        await client.ended.wait()
        if waiting is not None:
            await waiting


async def made(lane: Lane, run: Run, answer: str | None, column: str, value: str) -> list[str]:
    """The jobs the client made: none or one, and the one it was told."""
    query = f"select id::text from cograil.jobs where {column}::text = %(value)s"
    jobs = [job_id for (job_id,) in await lane.lab.rows(query, value=value)]
    if len(jobs) > 1 or (answer is not None and jobs != [answer]):
        run.violations.append(f"the client was told {answer}, but there is {jobs}")
    return jobs


async def nothing(lane: Lane, subject: str) -> None:
    """Nobody else has to do with this."""


async def all_end(lane: Lane, run: Run, scenario: Scenario, jobs: list[str]) -> None:
    """All of these end as they must."""
    for job in jobs:
        await lane.ended(job)
        run.violations += await oracles.in_the_end(lane, scenario, job, 0)
