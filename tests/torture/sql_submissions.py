"""Jobs submitted from SQL: the orchestrator, or the first process that needs one, checks and opens it."""

from __future__ import annotations

from tests.torture import oracles
from tests.torture.client_strikes import nothing, struck
from tests.torture.crash import Run
from tests.torture.lane import NUMBERS, Lane
from tests.torture.scenarios import AGAIN, Scenario

# What its inputs are and until when it may run is only known when it is opened; then it waits for its limit.
OPENED = f"""
workflow_id: opened
timeout_seconds: 3600
limits: {{concurrency: 50}}
inputs: {{many: {{type: integer, default: 2}}}}
nodes:
  first: {{handler: step, params: {{after: "{{{{ inputs.many }}}}"}}, {AGAIN}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""
HALF_OPEN = """
select j.input::text, j.deadline is not null, exists (select 1 from cograil.events e where e.job_id = j.id
  and e.type <> 'job_created') from cograil.jobs j where id = %(job)s
"""


async def submit_from_sql(lane: Lane, workflow_id: str, mark: str) -> str:
    """As an app does in a transaction of its own."""
    query = "select cograil.submit(%(workflow)s, correlation_id => %(mark)s)"
    return str((await lane.lab.rows(query, workflow=workflow_id, mark=mark))[0][0])


async def _submit(lane: Lane, scenario: Scenario) -> str:
    await lane.publish(scenario.text)
    return await submit_from_sql(lane, "opened", f"mark-{next(NUMBERS)}")


async def _see_half_open(lane: Lane, job: str) -> list[str]:
    """It has its inputs and its deadline, or nothing of it has begun."""
    ((job_input, has_deadline, has_begun),) = await lane.lab.rows(HALF_OPEN, job=job)
    is_open = (job_input, has_deadline) == ('{"many": 2}', True)
    is_shut = (job_input, has_deadline, has_begun) == ("{}", False, False)
    return [] if is_open or is_shut else [f"half open: {job_input}, {has_deadline}, {has_begun}"]


async def _see_open(lane: Lane, job: str) -> list[str]:
    ((job_input, has_deadline, _),) = await lane.lab.rows(HALF_OPEN, job=job)
    return (
        []
        if (job_input, has_deadline) == ('{"many": 2}', True)
        else [f"ended with {job_input}, {has_deadline}"]
    )


_DONE = {"first": "completed", "last": "completed"}
SQL_SUBMISSIONS = {
    "from_sql": Scenario(
        "from_sql",
        OPENED,
        "completed",
        _DONE,
        {"first": 1, "last": 1},
        roles=("orchestrator",),
        begin=_submit,
        look_at_once=_see_half_open,
        look=_see_open,
    )
}


async def cancel_unopened(lane: Lane, run: Run) -> None:
    """Nobody has opened it: its cancellation does both, or neither."""
    await lane.help_with("worker")
    job = await _submit(lane, SQL_SUBMISSIONS["from_sql"])
    answer = await struck(lane, run, "cancel", job, meanwhile=nothing)
    run.violations += await _see_half_open(lane, job)
    await lane.help_with("orchestrator", "worker")
    await lane.ended(job)
    status = (await lane.lab.job(job))["status"]
    if status not in ("cancelled", "completed") or answer not in (None, status):
        run.violations.append(f"the client was told {answer}, but the job is {status}")
    scenario = Scenario("opened", OPENED, status, {}, {"first": 1, "last": 1})
    run.violations += await oracles.in_the_end(lane, scenario, job, 0)
    run.violations += await _see_open(lane, job)
