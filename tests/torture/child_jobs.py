"""Jobs that have jobs: parents, their children, and what they tell each other."""

from __future__ import annotations

from tests.torture.forked_processes import Child
from tests.torture.lane import Lane
from tests.torture.scenarios import AGAIN, Scenario, be_late, submit_behind_a_gate

ONCE = "retry: {max_attempts: 1}"
FAMILY = """
with recursive family(id) as (
  select %(job)s::uuid union
  select j.id from family f join cograil.jobs j on j.parent_job = f.id or j.retry_of = f.id
)
"""

# Under a limit, so that it waits for its admission; its handler waits for the gate of its family.
LEAF = f"""
workflow_id: leaf
limits: {{concurrency: 50}}
inputs:
  after: {{type: object, default: {{}}}}
nodes:
  deep: {{handler: until_let, {AGAIN}}}
"""

# Ends in the very decision in which it begins.
MOMENT = """
workflow_id: moment
nodes:
  none: {type: fan_out, source: [], task: {handler: step}, next: gather}
  gather: {type: fan_in}
"""

CHILDREN = f"""
workflow_id: children
nodes:
  first: {{handler: step, {AGAIN}, next: inside}}
  inside: {{type: subworkflow, {AGAIN}, subworkflow: {{workflow_id: inner}}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

INNER = f"""
workflow_id: inner
nodes:
  deep: {{handler: flaky_step, {AGAIN}, next: below}}
  below: {{type: subworkflow, {ONCE}, subworkflow: {{workflow_id: leaf}}}}
  once: {{type: subworkflow, {ONCE}, subworkflow: {{workflow_id: moment}}}}
"""

ORPHANS = f"""
workflow_id: orphans
timeout_seconds: 3600
nodes:
  inside: {{type: subworkflow, {ONCE}, subworkflow: {{workflow_id: inner}}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

# In the middle of a family, with something of everything: a child that runs, others that would come next,
# children of a fan-out, somebody who is asked, a node that failed.
MIDDLE = f"""
workflow_id: middle
timeout_seconds: 3600
nodes:
  first: {{handler: step, {AGAIN}, next: [ask, split]}}
  ask: {{type: approval, approval: {{message: "Go on?"}}, next: more}}
  more: {{type: subworkflow, {ONCE}, subworkflow: {{workflow_id: leaf}}, next: last}}
  last: {{handler: step, params: {{after: "{{{{ nodes.first.output }}}}"}}, {AGAIN}, next: END}}
  below: {{type: subworkflow, {ONCE}, subworkflow: {{workflow_id: leaf}}, next: END}}
  split: {{type: fan_out, source: [0, 1], task: {{handler: until_let, {AGAIN}}}, next: gather}}
  gather: {{type: fan_in, aggregation: collect, next: also}}
  also:
    type: subworkflow
    {ONCE}
    subworkflow: {{workflow_id: leaf, inputs: {{after: "{{{{ nodes.first.output }}}}"}}}}
    next: END
  wrong: {{handler: fragile, params: {{item: 1}}, required: false, {AGAIN}, next: END}}
"""

TOP = f"""
workflow_id: top
nodes:
  inside: {{type: subworkflow, {ONCE}, subworkflow: {{workflow_id: middle}}}}
"""


async def publish_families(lane: Lane) -> None:
    """Whatever a job of these may begin."""
    for text in (LEAF, MOMENT, INNER, MIDDLE):
        await lane.publish(text)


async def _submit_with_children(lane: Lane, scenario: Scenario) -> str:
    await publish_families(lane)
    return await lane.submit(scenario.text)


async def _submit_with_a_slow_child(lane: Lane, scenario: Scenario) -> str:
    await publish_families(lane)
    return await submit_behind_a_gate(lane, scenario)


async def _cut_short(lane: Lane, job: str, victim: Child) -> None:
    """The deadline passes while the child of the child runs, whichever process is dead by then."""
    query = f"{FAMILY} select 1 from torture.effects e join cograil.jobs j on j.id = e.job"
    query += " where j.workflow_id = 'leaf' and j.id in (select id from family)"
    await lane.until(query, lane.watchdog_seconds, job=job)
    await be_late(lane, job)


async def see_family(lane: Lane, job: str) -> list[str]:
    """All of them end, none of them runs an attempt twice, and nothing of them is held back or unread."""
    violations = []
    query = f"{FAMILY} select j.id::text from cograil.jobs j join family f on f.id = j.id"
    for (child,) in await lane.lab.rows(f"{query} where finished_at is null", job=job):
        await lane.ended(child)
    for kind, rest in LEFT_OVER.items():
        if rows := await lane.lab.rows(f"{FAMILY} {rest}", job=job):
            violations.append(f"{kind} in the family of {job}: {rows}")
    return violations


LEFT_OVER = {
    "an attempt was executed twice": (
        "select job::text, node, attempt, count(*) from torture.effects"
        " where job in (select id from family) group by 1, 2, 3 having count(*) > 1"
    ),
    "a task is left": (
        "select job_id::text, node_id from cograil.tasks where job_id in (select id from family)"
    ),
    "a job is still held": (
        "select id::text from cograil.jobs where is_held and finished_at is null"
        " and id in (select id from family)"
    ),
    "a parent outlived a child that it waited for": (
        "select p.id::text, n.node_id from cograil.nodes n join cograil.jobs p on p.id = n.job_id"
        " join cograil.jobs c on c.id = n.child_job where p.id in (select id from family)"
        " and n.status = 'completed' and c.status <> 'completed'"
    ),
}


CHILD_JOBS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "children",
            CHILDREN,
            "completed",
            {"first": "completed", "inside": "completed", "last": "completed"},
            {"first": 1, "last": 1},
            begin=_submit_with_children,
            look=see_family,
        ),
        Scenario(
            "orphans",
            ORPHANS,
            "failed",
            {"inside": "cancelled", "last": "cancelled"},
            {},
            begin=_submit_with_a_slow_child,
            meddle=_cut_short,
            look=see_family,
            error="job_timeout",
        ),
    )
}
