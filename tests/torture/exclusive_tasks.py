"""Tasks that run alone: two workers died over one, so nothing may run beside it."""

from __future__ import annotations

import asyncio

from tests.torture.forked_processes import Child
from tests.torture.lane import Lane
from tests.torture.scenarios import AGAIN, Scenario, submit_behind_a_gate

SUSPECT = f"""
workflow_id: lonely
nodes:
  alone: {{handler: lonely, required: false, {AGAIN}, next: END}}
  last: {{handler: until_told, {AGAIN}, next: END}}
"""
BESIDE = f"""
workflow_id: beside
nodes:
  split: {{type: fan_out, source: [0, 1, 2], task: {{handler: within, {AGAIN}}}, next: gather}}
  gather: {{type: fan_in}}
"""
NOT_ALONE = """
select a.attempt, b.job::text, b.node from torture.spans a join torture.spans b
on b.pid = a.pid and b.id <> a.id and a.began < b.ended and b.began < a.ended
join cograil.nodes n on n.job_id = a.job and n.node_id = a.node and n.attempt = a.attempt
where a.job = %(job)s and a.node = 'alone' and n.status = 'completed'
"""
LOST = "select 1 from cograil.tasks where job_id = %(job)s and state = 'ready' and is_alone"


async def _submit_lonely(lane: Lane, scenario: Scenario) -> str:
    """Two workers died over it, so what it waits for is to run alone; others would run beside it."""
    job = await submit_behind_a_gate(lane, scenario)
    for number in range(2):
        hand = await lane.lab.manual_worker(f"lost-{job}-{number}")
        while not await hand.claim(handlers=["lonely"]):  # noqa: ASYNC110  an orchestrator hands it out
            await asyncio.sleep(0.01)
        await lane.lab.expire_worker(hand)
    await lane.until(LOST, lane.watchdog_seconds, job=job)
    lane.beside.append(await lane.submit(BESIDE))
    return job


async def _open_when_tried(lane: Lane, job: str, victim: Child) -> None:
    query = (
        "select 1 from cograil.nodes where job_id = %(job)s and node_id = 'alone' and finished_at is not null"
    )
    await lane.until(query, lane.watchdog_seconds, job=job)
    await lane.set_gate(job, is_closed=False)


async def _see_alone(lane: Lane, job: str) -> list[str]:
    """Nothing ran beside it; or it took one more worker down and was given up.

    Who is woken after it was taken from him runs on beside what he claims next, and nobody can prevent that.
    """
    for other in lane.beside:
        await lane.ended(other)
    violations = [f"not alone: {row}" for row in await lane.lab.rows(NOT_ALONE, job=job)]
    node = (await lane.lab.nodes(job))["alone"]
    code = (node["error"] or {}).get("code")
    if node["status"] != "completed" and code != "poison":
        violations.append(f"what ran alone is {node['status']}: {node['error']}")
    return violations


ALONE = Scenario(
    "alone",
    SUSPECT,
    "completed",
    {"last": "completed"},
    {"alone": 1, "last": 1},
    roles=("worker",),
    begin=_submit_lonely,
    meddle=_open_when_tried,
    look=_see_alone,
)
