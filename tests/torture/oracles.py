"""What must hold right after a crash, and what must hold when the job has ended. Violations are sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.webhook_receiver import WebhookReceiver
from tests.torture.lane import Lane
from tests.torture.scenarios import Scenario

from cograil.store.doctor import Finding

View = dict[str, Any]


async def at_once(lane: Lane) -> list[str]:
    """The invariants at this moment, whichever process just died."""
    return [f"at once: {finding}" for finding in await _new_findings(lane)]


async def _new_findings(lane: Lane) -> list[Finding]:
    """Each offender is blamed once: what an earlier run left behind is not of this one."""
    new_findings = [
        finding for finding in await lane.lab.findings() if not lane.blamed.issuperset(finding.ids)
    ]
    lane.blamed.update(*(finding.ids for finding in new_findings))
    return new_findings


async def in_the_end(lane: Lane, scenario: Scenario, job: str, crashes: int) -> list[str]:
    """All that is promised of a job that has ended; `crashes` of workers excuse as many executions."""
    violations = [f"in the end: {finding}" for finding in await _new_findings(lane)]
    view, nodes = await lane.lab.job(job), await lane.lab.nodes(job)
    violations += _wrong_ends(scenario, view, nodes)
    violations += await _double_winners(lane, job)
    columns = "id, node, attempt, seen"
    effects = await lane.lab.rows(
        f"select {columns} from torture.effects where job = %(job)s order by id", job=job
    )
    by_node: dict[str, list[View]] = {}
    for effect_id, node, attempt, checkpoint in effects:
        by_node.setdefault(node, []).append(
            {"id": effect_id, "node": node, "attempt": attempt, "seen": checkpoint}
        )
    for node_id, runs in by_node.items():
        allowed = scenario.executions.get(node_id, 0) + crashes
        violations += _wrong_executions(nodes[node_id], runs, allowed)
        violations += await _wrong_checkpoints(lane, job, nodes[node_id], runs)
    return violations


def _wrong_ends(scenario: Scenario, view: View, nodes: dict[str, View]) -> Iterator[str]:
    if view["status"] != scenario.status:
        yield f"the job is {view['status']}, not {scenario.status}: {view['error']}"
    code = (view["error"] or {}).get("code")
    if scenario.error is not None and code != scenario.error:
        yield f"the job's error is {code}, not {scenario.error}"
    for node_id, status in scenario.nodes.items():
        if nodes[node_id]["status"] != status:
            yield f"{node_id} is {nodes[node_id]['status']}, not {status}"


async def _double_winners(lane: Lane, job: str) -> list[str]:
    """A fan-out that was resumed for a child retried by hand may complete once more."""
    wins: Counter[str] = Counter()
    for event in await lane.lab.events(job):
        if event["event_type"] == "node_completed":
            wins[event["node_id"]] += 1
        elif event["event_type"] == "node_retry":
            wins.subtract(event["data"].get("resumed", ()))
    return [f"{node_id} completed {times} times" for node_id, times in wins.items() if times > 1]


def _wrong_executions(node: View, runs: list[View], allowed: int) -> Iterator[str]:
    """At most one execution for each attempt, and the recorded output is that of the last attempt."""
    name = node["node_id"]
    if len(runs) > allowed:
        yield f"{name} was executed {len(runs)} times, not {allowed}"
    for attempt, times in Counter(run["attempt"] for run in runs).items():
        if times > 1:
            yield f"attempt {attempt} of {name} was executed {times} times"
        if attempt > node["attempt"]:
            yield f"attempt {attempt} of {name} was executed, but only {node['attempt']} are recorded"
    if node["status"] == "completed":
        winner = node["output"]
        attempts = {run["id"]: run["attempt"] for run in runs}
        if not attempts.get(winner["execution"]) == winner["attempt"] == node["attempt"]:
            yield f"the output of {name} is {winner}, which is not that of attempt {node['attempt']}"


async def _wrong_checkpoints(lane: Lane, job: str, node: View, runs: list[View]) -> list[str]:
    """Whatever was acknowledged is seen by every later attempt, and the last word is the highest."""
    name = node["node_id"]
    query = "select attempt, number from torture.acks where job = %(job)s and node = %(node)s"
    acks = await lane.lab.rows(query, job=job, node=name)
    violations = [
        f"attempt {run['attempt']} of {name} saw checkpoint {run['seen']},"
        f" but attempt {attempt} was told that {number} is safe"
        for run in runs
        for attempt, number in acks
        if attempt < run["attempt"] and run["seen"] < number
    ]
    if acks and node["status"] == "completed":
        query = "select data from cograil.checkpoints where job_id = %(job)s and node_id = %(node)s"
        for (data,) in await lane.lab.rows(query, job=job, node=name):
            if int(data) != 3:
                violations.append(f"the last checkpoint of {name} is {data!r}, not 3")
    return violations


# -- what the log of the doors says ------------------------------------------------------------------

MOVES = """
with family as (
  select j.* from cograil.jobs j where j.correlation_id = %(correlation)s and j.parent_job is null
), moves(action, target) as (
  select 'submit', id::text from family where retry_of is null
  union all select 'retry', retry_of::text from family where retry_of is not null
  union all select 'cancel', job_id::text from cograil.events
    where type = 'job_cancelled' and job_id in (select id from family)
  union all select 'signal approve', job_id::text from cograil.events
    where type = 'approval_decided' and job_id in (select id from family)
  union all select 'publish', workflow_id || ' ' || version from cograil.workflows
    where workflow_id = %(mark)s and not is_draft
), audited(action, target) as (
  select action, target from cograil.audit_log where request_id = %(mark)s
)
(select 'nobody audited', * from moves where action = %(action)s
 except all select 'nobody audited', * from audited)
union all
(select 'audited, but it never happened', * from audited
 except all select 'audited, but it never happened', * from moves where action = %(action)s)
"""


async def unaudited(lane: Lane, mark: str, action: str, correlation: str | None = None) -> list[str]:
    """Every move made at a door under this request id is in its log, once, and nothing else is."""
    rows = await lane.lab.rows(MOVES, mark=mark, action=action, correlation=correlation or mark)
    return [f"{what}: {action} {target}" for what, action, target in rows]


BALANCE = """
select count(*) filter (where action = %(begin)s) - count(*) filter (where action = %(end)s)
from cograil.audit_log where request_id = %(mark)s and target = %(target)s
"""
PAUSES = {
    "job": "select count(*) from cograil.jobs where id::text = %(name)s and paused_at is not null",
    "queue": "select count(*) from cograil.pauses where kind = 'queue' and name = %(name)s",
    "workflow": "select count(*) from cograil.pauses where kind = 'workflow' and name = %(name)s",
}


async def wrong_pauses(lane: Lane, mark: str, names: Mapping[str, str], before: int) -> list[str]:
    """What is paused is what was paused and not resumed, before and by the log."""
    violations = []
    for kind, name in names.items():
        ((is_paused,),) = await lane.lab.rows(PAUSES[kind], name=name)
        actions = {"begin": f"pause {kind}", "end": f"resume {kind}"}
        ((audited,),) = await lane.lab.rows(BALANCE, mark=mark, target=name, **actions)
        if is_paused != before + audited:
            violations.append(f"the {kind} is {'' if is_paused else 'not '}paused; the log says {audited}")
    return violations


SUBSCRIPTIONS = """
select (select count(*) from cograil.subscriptions where url = %(url)s),
       (select count(*) from cograil.subscriptions where url = %(url)s and disabled_at is null),
       (select count(*) from cograil.deliveries where url = %(url)s and state = 'pending'),
       (select coalesce(sum(jsonb_array_length(old_secrets)), 0) from cograil.subscriptions
        where url = %(url)s),
       count(*) filter (where action = 'rotate subscription'),
       count(*) filter (where action = 'subscribe'), count(*) filter (where action = 'unsubscribe'),
       count(*) filter (where action = 'resend'), count(*) filter (where action = 'enable subscription')
from cograil.audit_log where request_id = %(mark)s
"""


async def wrong_subscriptions(lane: Lane, mark: str, url: str) -> list[str]:
    """There is a subscription while the log says so; what was sent again waits, and goes with it."""
    ((there, enabled, waiting, secrets, rotated, begun, ended, resent, again),) = await lane.lab.rows(
        SUBSCRIPTIONS, mark=mark, url=url
    )
    violations = []
    if there != begun - ended:
        violations.append(f"there are {there} subscriptions; the log says {begun} - {ended}")
    if waiting != resent - ended and not (resent == 0 and waiting == 0):
        violations.append(f"{waiting} deliveries are to be sent again; the log says {resent}")
    if there and not ended and secrets != rotated:
        violations.append(f"{secrets} secrets were replaced; the log says {rotated}")
    if there and resent and not ended and bool(enabled) != bool(again):
        violations.append(
            f"the subscription is {'' if enabled else 'not '}enabled; the log says {again} times"
        )
    return violations


# -- what is told ------------------------------------------------------------------------------------

TOLD_OF_A_JOB = ("cograil.job.created", "cograil.job.started", "cograil.job.completed")
WHERE_EVENTS_ARE = """
select job::text, destination, array(
  select type from (
    select seq, type from cograil.outbox o where o.job_id = j.job
    union all select seq, type from cograil.deliveries d
      where d.job_id = j.job and d.destination = j.destination
  ) as e where type like 'cograil.job.%%' order by seq)
from (select job, destination from unnest(%(jobs)s::uuid[]) as job cross join (
        select destination from cograil.deliveries where job_id = any(%(jobs)s::uuid[])
        union select 'callback' from cograil.jobs where id = any(%(jobs)s::uuid[]) and callback is not null
      ) as t
) as j
"""


async def untold(lane: Lane, jobs: list[str], receiver: WebhookReceiver) -> list[str]:
    """Each event is in the outbox or on its way, not both nor neither; what is marked as told was told."""
    violations = [
        f"at once: of {job} there is {types} for {destination}"
        for job, destination, types in await lane.lab.rows(WHERE_EVENTS_ARE, jobs=jobs)
        if tuple(types) != TOLD_OF_A_JOB
    ]
    early = await marked_as_told(lane, receiver) - set(receiver.ids())
    return [
        *violations,
        *(f"at once: {event_id} is marked as told, but nobody was told" for event_id in sorted(early)),
    ]


async def marked_as_told(lane: Lane, receiver: WebhookReceiver) -> set[str]:
    """The deliveries that are through, as the database says."""
    query = "select id::text from cograil.deliveries where url = %(url)s and state = 'delivered'"
    return {delivery_id for (delivery_id,) in await lane.lab.rows(query, url=receiver.url)}


def wrong_tellings(receiver: WebhookReceiver, jobs: list[str], recorded: set[str]) -> Iterator[str]:
    """All of it was told, in its order, signed, with the same bytes whenever it came again; and it came again
    once at most, and only if nobody had marked it as told when the relay was struck."""
    for job in jobs:
        kinds = [kind for kind in dict.fromkeys(receiver.types(job)) if kind.startswith("cograil.job.")]
        if kinds != list(TOLD_OF_A_JOB):
            yield f"of {job} was told: {kinds}"
        numbers = [
            request.event["sequence"] for request in receiver.requests if request.event["subject"] == job
        ]
        if (first := list(dict.fromkeys(numbers))) != sorted(first):
            yield f"of {job} was told in the order {first}"
    for name, times in Counter(receiver.ids()).items():
        if times > 2 or (times > 1 and name in recorded):
            yield f"{name} was told {times} times"
    bodies = {(request.event["id"], request.body) for request in receiver.requests}
    if len(bodies) != len(set(receiver.ids())):
        yield "an event was told again with other words"
    if not all(request.is_signed() for request in receiver.requests):
        yield "an event came without the right signature"
