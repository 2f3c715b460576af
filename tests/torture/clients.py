"""One run of one point of a client: submit, cancel or retry, struck while it does so."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.torture import oracles
from tests.torture.crash import Fault, Run
from tests.torture.lane import NUMBERS, Lane, Stuck
from tests.torture.nursery import Child
from tests.torture.scenarios import SCENARIOS, Scenario, fail_for_retry

ACTS = ("submit", "cancel", "retry")
GONE_SECONDS = 10.0


async def crash_client(lane: Lane, act: str, fault: Fault | None) -> Run:
    """Strike a client once; orchestrator and worker go on around it."""
    run, started = Run(fault), time.monotonic()
    await lane.help_with("orchestrator", "worker")
    try:
        await STRIKES[act](lane, run)
    except Stuck as stuck:
        run.violations.append(str(stuck))
    finally:
        await lane.clear()
    run.seconds = time.monotonic() - started
    return run


async def _struck(lane: Lane, run: Run, act: str, subject: str, mark: str = "") -> str | None:
    """Run the client and strike it; what it answered, None when nobody heard an answer."""
    answer = f"{lane.nursery.directory}/answer-{next(NUMBERS)}"
    order: dict[str, Any] = {"act": act, "subject": subject, "mark": mark, "answer": answer}
    order |= {"fault": run.fault and run.fault.order, "idle_seconds": _idle_seconds(run.fault)}
    client = await lane.fork("client", **order)
    async with asyncio.timeout(GONE_SECONDS):
        await client.struck()
    run.violations += await oracles.at_once(lane)
    run.points = client.points()
    run.struck = any(point.startswith("!") for point in run.points)
    if client.stopped.is_set():
        await _wake(lane, run, subject, client)
    path = Path(answer)
    return json.loads(path.read_text()) if path.exists() else None


def _idle_seconds(fault: Fault | None) -> float:
    return 5.0 if fault is not None and fault.mode == "pause" else 0.3


async def _wake(lane: Lane, run: Run, subject: str, client: Child) -> None:
    """`pause`: wake it while it still has its locks. `stop`: when the server has taken them away."""
    assert run.fault is not None
    if run.fault.mode == "pause":
        await _report_meanwhile(lane, subject)
    else:
        await asyncio.sleep(0.4)  # the server ends the transaction after 0.3 s of silence
    client.resume()
    async with asyncio.timeout(GONE_SECONDS):
        await client.ended.wait()


async def _report_meanwhile(lane: Lane, job: str) -> None:
    """Let the slow node end now, and wait for its report to count, unless somebody is in its way."""
    if not await lane.lab.rows("select 1 from torture.gates where job::text = %(job)s", job=job):
        return
    await lane.set_gate(job, is_closed=False)
    query = "select 1 from cograil.inbox where job_id = %(job)s and kind = 'report'"
    if await lane.until(query, 0.5, job=job):
        await lane.lab.rows("insert into torture.mended values (%(job)s)", job=f"reported {job}")


async def _submit(lane: Lane, run: Run) -> None:
    """An acknowledged job ends; one that was not is there in full or not at all."""
    scenario, mark = SCENARIOS["fan"], f"mark-{next(NUMBERS)}"
    await lane.publish(scenario.text)
    answer = await _struck(lane, run, "submit", "fan", mark)
    query = "select id::text from cograil.jobs where correlation_id = %(mark)s"
    jobs = [row[0] for row in await lane.lab.rows(query, mark=mark)]
    if answer is not None and jobs != [answer]:
        run.violations.append(f"the client was told {answer}, but there is {jobs}")
    await _all_end(lane, run, scenario, jobs)


async def _retry(lane: Lane, run: Run) -> None:
    """The same for the new job of a retry."""
    scenario = SCENARIOS["retry"]
    failed = await fail_for_retry(lane, scenario)
    answer = await _struck(lane, run, "retry", failed)
    query = "select id::text from cograil.jobs where retry_of = %(job)s"
    jobs = [row[0] for row in await lane.lab.rows(query, job=failed)]
    if answer is not None and jobs != [answer]:
        run.violations.append(f"the client was told {answer}, but there is {jobs}")
    await _all_end(lane, run, scenario, jobs)


async def _all_end(lane: Lane, run: Run, scenario: Scenario, jobs: list[str]) -> None:
    for job in jobs:
        await lane.ended(job)
        run.violations += await oracles.in_the_end(lane, scenario, job, 0)


async def _cancel(lane: Lane, run: Run) -> None:
    """An acknowledged cancel is final; without an answer the job is cancelled or goes on to its end."""
    scenario = SCENARIOS["cancel"]
    job = await scenario.begin(lane, scenario)
    query = "select 1 from torture.effects where job = %(job)s and node = 'slow'"
    await lane.until(query, GONE_SECONDS, job=job)
    answer = await _struck(lane, run, "cancel", job)
    await lane.set_gate(job, is_closed=False)
    await lane.ended(job)
    status = (await lane.lab.job(job))["status"]
    if answer is not None and answer != status:
        run.violations.append(f"the client was told {answer}, but the job is {status}")
    executions = {"first": 1, "slow": 1, "last": 1}
    expected = replace(scenario, status=status, executions=executions)
    run.violations += await oracles.in_the_end(lane, expected, job, 0)
    run.violations += await _forgotten_report(lane, job)


async def _forgotten_report(lane: Lane, job: str) -> list[str]:
    """A report that counted before the cancel is part of the history."""
    mark = f"reported {job}"
    if not await lane.lab.rows("select 1 from torture.mended where correlation_id = %(mark)s", mark=mark):
        return []
    status = (await lane.lab.nodes(job))["slow"]["status"]
    return [] if status == "completed" else [f"the report of slow counted, but it is {status}"]


STRIKES = {"submit": _submit, "cancel": _cancel, "retry": _retry}
