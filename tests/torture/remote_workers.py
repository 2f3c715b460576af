"""A worker that is elsewhere and works over HTTP alone; the server between it and its tasks is struck."""

from __future__ import annotations

from typing import Any

from tests.torture import oracles
from tests.torture.caller_sessions import CallerSession, Reply, caller_session
from tests.torture.client_strikes import all_end
from tests.torture.crash import Run
from tests.torture.lane import NUMBERS, Lane, Stuck
from tests.torture.operator_actions import Act
from tests.torture.scenarios import AGAIN, Scenario

FAR = f"""
workflow_id: far
nodes:
  far: {{handler: far_away, queue: far, {AGAIN}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""
ATTEMPTS = 8
DATA = 3  # what the last checkpoint must be, as in effect_handlers.py
HELD = """
select 1 from cograil.tasks t join cograil.processes p on p.id = t.worker_id
where t.job_id = %(job)s and t.state = 'running' and p.name = %(worker)s
"""
END_LEASE = """
update cograil.processes set lease_until = now() - interval '1 s' where name = %(worker)s and state = 'alive'
"""
EFFECT = """
insert into torture.effects (job, node, attempt, seen) values (%(job)s, 'far', %(attempt)s, %(seen)s)
returning id
"""
ACK = """
insert into torture.acks (job, node, attempt, number, effects)
values (%(job)s, 'far', %(attempt)s, %(number)s, %(attempt)s)
"""


async def _nothing() -> list[str]:
    """What a worker does is not audited; the oracles that all have in common say the rest."""
    return []


async def _claim(lane: Lane, session: CallerSession, job: str, worker: str) -> dict[str, Any]:
    """A task of this job. One whose claim was not heard is lost, and comes again."""
    for _ in range(ATTEMPTS):
        order = {"worker_id": worker, "queues": ["far"], "wait_seconds": 1}
        for task in (await session.ask("/tasks/claim", order)).body["tasks"]:
            claimed: dict[str, Any] = task
            return claimed
        if await lane.lab.rows(HELD, job=job, worker=worker):
            await lane.lab.rows(END_LEASE, worker=worker)
    raise Stuck(f"job {job} has no task for the far worker: {await lane.lab.explain(job)}")


async def _work(lane: Lane, run: Run) -> None:
    """Claim, checkpoint, progress, heartbeat, result: what is acknowledged counts, once."""
    mark = f"mark_{next(NUMBERS)}"
    job = await lane.submit(FAR, mark=mark)
    async with caller_session(lane, run, mark, _nothing) as session:
        task = await _claim(lane, session, job, mark)
        attempt = task["retry_count"] + 1
        effect = {"job": job, "attempt": attempt, "seen": task["checkpoint"] or 0}
        ((execution,),) = await lane.lab.rows(EFFECT, **effect)
        of = {"task_id": task["task_id"], "fence": task["fence"], "node_id": "far", "worker_id": mark}
        _expect(run, await session.ask("/callbacks/checkpoint", of | {"state_data": DATA}), 202)
        await lane.lab.rows(ACK, job=job, attempt=attempt, number=DATA)
        _expect(run, await session.ask("/callbacks/task-progress", of | {"progress_current": 1}), 202)
        _expect(run, await session.ask(f"/tasks/{task['task_id']}/pulse", {"fence": task["fence"]}), 200)
        result = {"status": "completed", "output": {"execution": execution, "attempt": attempt}}
        reply = await session.ask("/callbacks/task-result", of | result)
        if (reply.status, reply.times > 1) != (200, True):  # said again, and recorded the first time
            _expect(run, reply, 202)
    nodes = {"far": "completed", "last": "completed"}
    await all_end(lane, run, Scenario("far", FAR, "completed", nodes, {"far": 1, "last": 1}), [job])
    await _refuse_late(lane, run, session)


async def _refuse_late(lane: Lane, run: Run, session: CallerSession) -> None:
    """What a server that was woken handed out had been lost meanwhile: nothing of it counts."""
    tasks = [task for answer in session.late for task in (answer.body or {}).get("tasks", ())]
    for task in tasks:
        result = {"status": "completed", "output": {}, "task_id": task["task_id"], "fence": task["fence"]}
        _expect(run, await session.ask("/callbacks/task-result", result), 409)


async def _lose(lane: Lane, run: Run) -> None:
    """The job was cancelled: whatever its worker says of it is refused, and changes nothing."""
    mark = f"mark_{next(NUMBERS)}"
    job = await lane.submit(FAR, mark=mark)
    async with caller_session(lane, run, mark, _nothing) as session:
        task = await _claim(lane, session, job, mark)
        await lane.lab.cancel(job)
        of = {"task_id": task["task_id"], "fence": task["fence"], "node_id": "far", "worker_id": mark}
        reply = await session.ask(f"/tasks/{task['task_id']}/pulse", {"fence": task["fence"]})
        _expect(run, reply, 200)
        if not reply.body["cancelled"]:
            run.violations.append("the worker was not told that its job is cancelled")
        reply = await session.ask("/callbacks/task-progress", of | {"progress_current": 1})
        if (reply.status, reply.times > 1) != (202, True):  # asked again too soon, it is passed over
            _expect(run, reply, 409)
        _expect(run, await session.ask("/callbacks/checkpoint", of | {"state_data": DATA}), 409)
        result = {"status": "completed", "output": {}}
        _expect(run, await session.ask("/callbacks/task-result", of | result), 409)
    scenario = Scenario("far", FAR, "cancelled", {"far": "cancelled"}, {})
    run.violations += await oracles.in_the_end(lane, scenario, job, 0)
    for table in ("checkpoints", "progress", "tasks", "inbox"):
        query = f"select count(*) from cograil.{table} where job_id = %(job)s"
        if (await lane.lab.rows(query, job=job))[0][0]:
            run.violations.append(f"{table}: something of the cancelled job was kept")


def _expect(run: Run, reply: Reply, status: int) -> None:
    if reply.status != status:
        run.violations.append(f"the far worker was told {reply}, not {status}")


REMOTE_WORKERS: dict[str, Act] = {
    "door_far_worker": _work,
    "door_far_worker_lost": _lose,
}
