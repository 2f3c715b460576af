"""What must hold right after a crash, and what must hold when the job has ended. Violations are sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.torture.lane import Lane
from tests.torture.scenarios import Scenario

from cograil.store.doctor import Finding

View = dict[str, Any]


async def at_once(lane: Lane) -> list[str]:
    """The invariants at this moment, whoever just died."""
    return [f"at once: {finding}" for finding in await _new_findings(lane)]


async def _new_findings(lane: Lane) -> list[Finding]:
    """Each offender is blamed once: what an earlier run left behind is not of this one."""
    found = [finding for finding in await lane.lab.findings() if not lane.blamed.issuperset(finding.ids)]
    lane.blamed.update(*(finding.ids for finding in found))
    return found


async def in_the_end(lane: Lane, scenario: Scenario, job: str, crashes: int) -> list[str]:
    """All that is promised of a job that has ended; `crashes` of workers excuse as many executions."""
    found = [f"in the end: {finding}" for finding in await _new_findings(lane)]
    view, nodes = await lane.lab.job(job), await lane.lab.nodes(job)
    found += _wrong_ends(scenario, view, nodes)
    found += await _double_winners(lane, job)
    columns = "id, node, attempt, seen"
    effects = await lane.lab.rows(
        f"select {columns} from torture.effects where job = %(job)s order by id", job=job
    )
    by_node: dict[str, list[View]] = {}
    for row in effects:
        by_node.setdefault(row[1], []).append(dict(zip(columns.split(", "), row, strict=True)))
    for node_id, runs in by_node.items():
        allowed = scenario.executions.get(node_id, 0) + crashes
        found += _wrong_executions(nodes[node_id], runs, allowed, 2 if scenario.is_drained else 1)
        found += await _wrong_checkpoints(lane, job, nodes[node_id], runs)
    return found


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


def _wrong_executions(node: View, runs: list[View], allowed: int, per_attempt: int) -> Iterator[str]:
    """At most one execution for each attempt, and the recorded output is that of the last attempt."""
    name = node["node_id"]
    if len(runs) > allowed:
        yield f"{name} was executed {len(runs)} times, not {allowed}"
    for attempt, times in Counter(run["attempt"] for run in runs).items():
        if times > per_attempt:
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
    found = [
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
                found.append(f"the last checkpoint of {name} is {data!r}, not 3")
    return found
