"""Jobs that something holds back: limits, pauses, and people who are asked."""

from __future__ import annotations

from tests.torture.forked_processes import Child
from tests.torture.lane import NUMBERS, Lane
from tests.torture.scenarios import AGAIN, Scenario, slow_runs, submit_behind_a_gate

from cograil.model.job import Signalled
from cograil.store.pause_queries import list_pauses
from cograil.verbs import pause
from cograil.verbs.signal import signal

JOBS_AT_ONCE, JOBS = 1, 2

# One job at a time, and one of its children at a time.
LIMITED = f"""
workflow_id: limited
limits: {{concurrency: {JOBS_AT_ONCE}}}
nodes:
  split:
    type: fan_out
    source: [0, 1]
    task: {{handler: within, {AGAIN}}}
    limits: {{concurrency: 1, rate: {{count: 100, per_seconds: 1}}}}
    next: gather
  gather: {{type: fan_in}}
"""

PAUSED = f"""
workflow_id: paused
nodes:
  first: {{handler: step, queue: halting, {AGAIN}, next: slow}}
  slow: {{handler: until_told, queue: halting, {AGAIN}, next: last}}
  last: {{handler: step, queue: halting, {AGAIN}, next: END}}
"""

ASKED = f"""
workflow_id: asked
nodes:
  first: {{handler: step, {AGAIN}, next: [ask, veto]}}
  ask: {{type: approval, approval: {{message: "Pay?"}}, next: decide}}
  decide:
    type: conditional
    condition: "{{{{ nodes.ask.output.decision == 'approved' }}}}"
    branches: {{true: last, false: END}}
  veto: {{type: approval, approval: {{message: "Stop?"}}, next: stop}}
  stop: {{handler: step, when: "{{{{ nodes.veto.output.decision == 'approved' }}}}", next: END}}
  last: {{handler: step, {AGAIN}, next: END}}
"""


# -- limits ------------------------------------------------------------------------------------------


async def _submit_too_many(lane: Lane, scenario: Scenario) -> str:
    """The last of them waits for all others, so it is the one to look at."""
    mark = f"mark-{next(NUMBERS)}"
    jobs = [await lane.submit(scenario.text, mark=mark) for _ in range(JOBS)]
    lane.beside += jobs[:-1]
    return jobs[-1]


async def _see_limits(lane: Lane, job: str) -> list[str]:
    """Never more than the limits allow, all of them end, and nothing is held back in the end.

    A worker that wakes after its task was taken away runs on beside the next one, and no limit can prevent
    that: such a span, of an attempt that is not the recorded one, does not count.
    """
    for other in lane.beside:
        await lane.ended(other)
    jobs = [*lane.beside, job]
    violations = [
        f"{what}: {rows}"
        for what, query in (
            ("children at the same time", TOGETHER),
            ("let go over the limit", TOO_MANY),
            ("left over", HELD_YET),
        )
        if (rows := await lane.lab.rows(query, jobs=jobs))
    ]
    ((most,),) = await lane.lab.rows(MAX_JOBS, jobs=jobs)
    return [*violations, f"{most} jobs at the same time"] if most > JOBS_AT_ONCE else violations


SPANS = """
with spans as (
  select s.job, s.node, s.began, s.ended from torture.spans s
  join cograil.nodes n on n.job_id = s.job and n.node_id = s.node
  where s.job = any(%(jobs)s::uuid[]) and s.ended is not null and s.attempt = n.attempt
)
"""
TOGETHER = f"""{SPANS}
select a.job::text, a.node, b.job::text, b.node from spans a join spans b on (a.job, a.node) < (b.job, b.node)
where a.node like 'split%%' and b.node like 'split%%' and a.began < b.ended and b.began < a.ended
"""
MAX_JOBS = f"""{SPANS},
lives as (select job, min(began) as began, max(ended) as ended from spans group by job)
select max((select count(*) from lives o where o.began <= l.began and o.ended > l.began)) from lives l
"""
TOO_MANY = "select limit_key, job::text from torture.too_many where job = any(%(jobs)s::uuid[])"
HELD_YET = """
select 'task', job_id::text from cograil.tasks where job_id = any(%(jobs)s::uuid[])
union all select 'job', id::text from cograil.jobs where is_held and id = any(%(jobs)s::uuid[])
union all select 'admission', job_id::text from cograil.admissions
  where admitted_at is null and job_id = any(%(jobs)s::uuid[])
"""


# -- pauses ------------------------------------------------------------------------------------------

QUIET = """
select 1 from cograil.jobs j where id = %(job)s
and not exists (select 1 from cograil.inbox i where i.job_id = j.id)
and not exists (select 1 from cograil.tasks t where t.job_id = j.id and state = 'running')
"""


async def _pause_and_resume(lane: Lane, job: str, victim: Child) -> None:
    """Pause the job, its workflow and its queue while a node runs; go on when all that ran is through."""
    await slow_runs(lane, job, victim)
    async with lane.lab.db.transaction("pause") as tx:
        await pause.pause_job(tx, job, by="torture")
        await pause.pause_workflow(tx, "paused")
        await pause.pause_queue(tx, "halting")
    try:
        seq = await _seq(lane, job)
        await lane.set_gate(job, is_closed=False)
        await lane.until(QUIET, lane.watchdog_seconds, job=job)
        await _note_pause(lane, job, seq)
    finally:
        await resume_all(lane, job)


async def _seq(lane: Lane, job: str) -> int:
    return int((await lane.lab.rows("select seq from cograil.jobs where id = %(job)s", job=job))[0][0])


async def _note_pause(lane: Lane, job: str, before: int) -> None:
    """Between these two events it was paused."""
    query = "insert into torture.pauses values (%(job)s, %(before)s, %(after)s)"
    await lane.lab.rows(query, job=job, before=before, after=await _seq(lane, job))


async def resume_all(lane: Lane, job: str) -> None:
    """Whatever is paused goes on."""
    async with lane.lab.db.transaction("resume") as tx:
        for kind, name, *_ in await list_pauses(tx):
            if kind == "queue":
                await pause.resume_queue(tx, name)
            elif kind == "workflow":
                await pause.resume_workflow(tx, name)
            elif name == job:
                await pause.resume_job(tx, name)


async def _see_pause(lane: Lane, job: str) -> list[str]:
    """While it was paused nothing of it began."""
    query = (
        "select type, node_id from cograil.events e join torture.pauses p on p.job = e.job_id"
        " where e.job_id = %(job)s and e.seq > p.before and e.seq <= p.after"
        " and type in ('node_ready', 'node_dispatched')"
    )
    return [f"while it was paused: {row}" for row in await lane.lab.rows(query, job=job)]


# -- people ------------------------------------------------------------------------------------------

WAITS = "select 1 from cograil.nodes where job_id = %(job)s and node_id = %(node)s and status = 'waiting'"
TICKED = """
select 1 from cograil.processes where kind = 'orchestrator' and pulsed_at > (
  select max(at) from cograil.events where job_id = %(job)s and type = 'approval_requested')
"""


async def _answer_both(lane: Lane, job: str, victim: Child) -> None:
    """Answer when they were asked and an orchestrator has looked at its clock since."""
    for node, decision in (("ask", "approve"), ("veto", "reject")):
        await lane.until(WAITS, lane.watchdog_seconds, job=job, node=node)
        await lane.until(TICKED, lane.watchdog_seconds, job=job)
        async with lane.lab.db.transaction("signal") as tx:
            await signal(tx, lane.lab.engine_context, job, Signalled(decision, node, by="ada"))


async def see_answers(lane: Lane, job: str, decisions: dict[str, str]) -> list[str]:
    """Each question was answered once, by whom it says."""
    nodes = await lane.lab.nodes(job)
    violations = [
        f"{node} is {nodes[node]['output']}, not {decision}"
        for node, decision in decisions.items()
        if (nodes[node]["output"] or {}).get("decision") != decision
    ]
    events = [e["node_id"] for e in await lane.lab.events(job) if e["event_type"] == "approval_decided"]
    if sorted(events) != sorted(decisions):
        violations.append(f"decided: {events}, not {sorted(decisions)}")
    return violations


async def _see_both(lane: Lane, job: str) -> list[str]:
    return await see_answers(lane, job, {"ask": "approved", "veto": "rejected"})


_DONE = {"first": "completed", "last": "completed"}
HELD_JOBS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "limits",
            LIMITED,
            "completed",
            {"split": "completed", "gather": "completed"},
            {"split__0": 1, "split__1": 1},
            begin=_submit_too_many,
            look=_see_limits,
        ),
        Scenario(
            "paused",
            PAUSED,
            "completed",
            {"slow": "completed"} | _DONE,
            {"first": 1, "slow": 1, "last": 1},
            begin=submit_behind_a_gate,
            meddle=_pause_and_resume,
            look=_see_pause,
        ),
        Scenario(
            "asked",
            ASKED,
            "completed",
            {"ask": "completed", "veto": "completed", "stop": "skipped"} | _DONE,
            {"first": 1, "last": 1},
            meddle=_answer_both,
            look=_see_both,
        ),
    )
}
