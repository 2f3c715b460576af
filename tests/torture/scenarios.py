"""The jobs that are tortured: what they are, what is done to them, how they must end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.torture.forked_processes import Child
from tests.torture.lane import Lane

from cograil.errors import AlreadyTerminal

AGAIN = "retry: {max_attempts: 8, backoff: fixed, initial_delay_seconds: 0.01}"

DAG = f"""
workflow_id: dag
nodes:
  first: {{handler: step, {AGAIN}, next: choose}}
  choose:
    type: conditional
    condition_field: output.attempt
    branches:
      - {{name: done, condition: "> 0", next: flaky}}
      - {{name: never, default: true, next: other}}
  other: {{handler: step, next: last}}
  flaky: {{handler: flaky_step, {AGAIN}, next: count}}
  count: {{handler: counting, {AGAIN}, next: last}}
  last: {{handler: thread_step, {AGAIN}, next: END}}
"""

FAN = f"""
workflow_id: fan
inputs:
  fails: {{type: array, default: [false, false, false, true, false]}}
nodes:
  split:
    type: fan_out
    source: "{{{{ inputs.fails }}}}"
    task:
      handler: flaky_step
      params: {{fails: "{{{{ item }}}}"}}
      {AGAIN}
    next: gather
  gather: {{type: fan_in, aggregation: collect, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

CANCEL = f"""
workflow_id: cancel
nodes:
  first: {{handler: step, {AGAIN}, next: slow}}
  slow: {{handler: until_told, {AGAIN}, next: last}}
  last: {{handler: step, next: END}}
"""

DRAIN = f"""
workflow_id: drain
nodes:
  first: {{handler: step, {AGAIN}, next: slow}}
  slow: {{handler: until_told, params: {{only_first: true}}, {AGAIN}, next: last}}
  last: {{handler: thread_step, {AGAIN}, next: END}}
"""

RETRY = f"""
workflow_id: retry
nodes:
  split:
    type: fan_out
    source: [0, 1, 2]
    task: {{handler: fragile, params: {{item: "{{{{ item }}}}"}}, {AGAIN}}}
    next: gather
  gather: {{type: fan_in, aggregation: collect, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

DEADLINE = f"""
workflow_id: deadline
timeout_seconds: 3600
nodes:
  first: {{handler: step, {AGAIN}, next: split}}
  split:
    type: fan_out
    source: [0, 1, 2]
    task: {{handler: until_told, {AGAIN}}}
    next: gather
  gather: {{type: fan_in, aggregation: collect, next: last}}
  last: {{handler: step, next: END}}
"""

CLOCK = f"""
workflow_id: clock
nodes:
  pause: {{type: wait, wait: {{seconds: 0.2}}, next: late}}
  late: {{handler: late_once, timeout_seconds: 0.4, {AGAIN}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

IN_PLACE = f"""
workflow_id: in_place
nodes:
  split:
    type: fan_out
    source: [0, 1, 2]
    task: {{handler: fragile, params: {{item: "{{{{ item }}}}"}}, {AGAIN}}}
    next: gather
  gather: {{type: fan_in, aggregation: collect, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
  slow: {{handler: until_told, {AGAIN}, next: END}}
"""

PLAIN = f"""
workflow_id: plain
nodes:
  first: {{handler: step, {AGAIN}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

LONE = f"""
workflow_id: lone
nodes:
  last: {{handler: step, {AGAIN}}}
"""

CULPRIT = """
workflow_id: culprit
nodes:
  slow: {handler: until_told, next: END}
"""

LIVE = """
workflow_id: live
nodes:
  alone: {handler: step, params: {seconds: 0.25}, next: END}
"""


async def _submit(lane: Lane, scenario: Scenario) -> str:
    return await lane.submit(scenario.text)


async def submit_behind_a_gate(lane: Lane, scenario: Scenario) -> str:
    """Whose handlers, those that heed it, wait until the gate opens."""
    return await lane.submit(scenario.text, is_gated=True)


async def fail_for_retry(lane: Lane, scenario: Scenario) -> str:
    """A job that has failed and would succeed if tried again."""
    job = await lane.submit(scenario.text)
    async with lane.helped():
        await lane.ended(job)
    await mend(lane, job)
    return job


async def mend(lane: Lane, job: str) -> None:
    """From now on nothing of this job fails for good."""
    query = "insert into torture.mended select correlation_id from cograil.jobs where id = %(job)s"
    await lane.lab.rows(query, job=job)


async def _retry(lane: Lane, scenario: Scenario) -> str:
    return await lane.lab.retry(await fail_for_retry(lane, scenario))


async def _submit_with_a_culprit(lane: Lane, scenario: Scenario) -> str:
    """Beside this job there is one, older than it, that cannot be advanced: its news name no node."""
    await _acquit(lane)
    culprit = await lane.submit(CULPRIT, is_gated=True)
    await lane.lab.rows(BAD_NEWS, job=culprit)
    return await lane.submit(scenario.text)


BAD_NEWS = "insert into cograil.inbox (job_id, kind, node_id) values (%(job)s, 'more', 'nowhere')"


async def _acquit(lane: Lane) -> None:
    """Take the bad news away, and the jobs that had them."""
    query = "delete from cograil.inbox where node_id = 'nowhere' returning job_id::text"
    for (culprit,) in await lane.lab.rows(query):
        await lane.give_up(culprit)


async def _leave_alone(lane: Lane, job: str, victim: Child) -> None:
    """Nothing is done to this job."""


async def _see_nothing(lane: Lane, job: str) -> list[str]:
    """What all scenarios have in common says all there is to say."""
    return []


async def _cancel(lane: Lane, job: str, victim: Child) -> None:
    """Cancel as soon as the slow node runs, or its process is struck before that."""
    await slow_runs(lane, job, victim)
    with contextlib.suppress(AlreadyTerminal):
        await lane.lab.cancel(job)


async def _stop(lane: Lane, job: str, victim: Child) -> None:
    """Ask the victim to stop as soon as the slow node runs."""
    await slow_runs(lane, job, victim)
    victim.send(signal.SIGTERM)


async def _reach_deadline(lane: Lane, job: str, victim: Child) -> None:
    """Let the time be over as soon as all children run: how long that takes must not matter."""
    await _runs(lane, job, victim, "split%", 3)
    await be_late(lane, job)


async def be_late(lane: Lane, job: str) -> None:
    """What waiting until its deadline does, at once."""
    query = "update cograil.jobs set deadline = now(), wake_at = now() where id = %(job)s"
    await lane.lab.rows(f"{query} and finished_at is null", job=job)


async def slow_runs(lane: Lane, job: str, victim: Child) -> None:
    """Wait until the slow node runs, or the victim is struck before that."""
    await _runs(lane, job, victim, "slow", 1)


async def _runs(lane: Lane, job: str, victim: Child, pattern: str, count: int) -> None:
    """Wait until `count` executions of such nodes have begun, or the victim is struck before that."""
    query = (
        "select 1 from torture.effects where job = %(job)s and node like %(pattern)s"
        " having count(*) >= %(count)s"
    )
    while not (victim.stopped.is_set() or victim.ended.is_set()):
        if await lane.until(query, 0.02, job=job, pattern=pattern, count=count):
            return


async def _retry_in_place(lane: Lane, job: str, victim: Child) -> None:
    """Retry the child that failed, whichever process is dead by then, and let the job end after that."""
    if await child_failed(lane, job):
        await mend(lane, job)
        await lane.lab.retry(job, "split__1")
        await lane.set_gate(job, is_closed=False)


async def child_failed(lane: Lane, job: str) -> bool:
    """Wait until the fragile child has failed for good, and what follows it was given up."""
    query = (
        "select 1 from cograil.nodes where job_id = %(job)s"
        " and (node_id, status) in (('split__1', 'failed'), ('last', 'skipped')) having count(*) = 2"
    )
    return await lane.until(query, lane.watchdog_seconds, job=job)


async def _acquit_in_the_end(lane: Lane, job: str, victim: Child) -> None:
    """The culprit is in the way until this job has ended in spite of it."""
    while not await lane.is_over(job):  # noqa: ASYNC110  the condition is in the database
        await asyncio.sleep(0.02)
    await _acquit(lane)


@dataclass(frozen=True)
class Scenario:
    """One job. `executions` says how often each node runs when nothing crashes.

    `stumbles` are points at which the victim's connection seems to break, whatever else happens to it: so
    the points of its recovery from that are passed, and struck like all others. `look_at_once` and `look`
    say what is wrong with it that no other scenario could have wrong: right after the fault, and in the end.
    """

    name: str
    text: str
    status: str
    nodes: Mapping[str, str]
    executions: Mapping[str, int]
    roles: tuple[str, ...] = ("orchestrator", "worker")
    begin: Callable[[Lane, Scenario], Awaitable[str]] = field(default=_submit)
    meddle: Callable[[Lane, str, Child], Awaitable[None]] = field(default=_leave_alone)
    is_drained: bool = False  # the victim is asked to stop, so the zombie ends instead of living on
    is_torn: bool = False  # its attempts end with their connections, as they do with their process
    stumbles: tuple[str, ...] = ()
    error: str | None = None  # the code of the job's error
    look_at_once: Callable[[Lane, str], Awaitable[list[str]]] = field(default=_see_nothing)
    look: Callable[[Lane, str], Awaitable[list[str]]] = field(default=_see_nothing)  # in the end
    order: Mapping[str, Any] = field(default_factory=dict)  # what its processes are told beside


_DONE = {"last": "completed"}
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "dag",
            DAG,
            "completed",
            {"first": "completed", "flaky": "completed", "count": "completed", "other": "skipped"} | _DONE,
            {"first": 1, "flaky": 2, "count": 2, "last": 1},
        ),
        Scenario(
            "fan",
            FAN,
            "completed",
            {"split": "completed", "gather": "completed", "split__3": "completed"} | _DONE,
            {"split__0": 1, "split__1": 1, "split__2": 1, "split__3": 2, "split__4": 1, "last": 1},
        ),
        Scenario(
            "cancel",
            CANCEL,
            "cancelled",
            {},
            {"first": 1, "slow": 1},
            begin=submit_behind_a_gate,
            meddle=_cancel,
        ),
        Scenario(
            "retry",
            RETRY,
            "completed",
            {"split": "completed", "gather": "completed", "split__1": "completed"} | _DONE,
            {"split__1": 1, "last": 1},
            begin=_retry,
        ),
        Scenario(
            "drain",
            DRAIN,
            "completed",
            {"first": "completed", "slow": "completed"} | _DONE,
            {"first": 1, "slow": 2, "last": 1},
            begin=submit_behind_a_gate,
            meddle=_stop,
            is_drained=True,
        ),
        Scenario(
            "deadline",
            DEADLINE,
            "failed",
            {"gather": "cancelled", "last": "cancelled"},
            {"first": 1, "split__0": 1, "split__1": 1, "split__2": 1},
            begin=submit_behind_a_gate,
            meddle=_reach_deadline,
            error="job_timeout",
        ),
        Scenario(
            "clock",
            CLOCK,
            "completed",
            {"pause": "completed", "late": "completed"} | _DONE,
            {"late": 2, "last": 1},
        ),
        Scenario(
            "in_place",
            IN_PLACE,
            "completed",
            dict.fromkeys(["split", "split__1", "gather", "slow"], "completed") | _DONE,
            {"split__0": 1, "split__1": 2, "split__2": 1, "last": 1, "slow": 1},
            begin=submit_behind_a_gate,
            meddle=_retry_in_place,
        ),
        Scenario("lone", LONE, "completed", _DONE, {"last": 1}),
        Scenario(
            "lone_unheard",
            LONE,
            "completed",
            _DONE,
            {"last": 1},
            roles=("worker",),
            stumbles=("report.commit.after:1",),
        ),
        Scenario(
            "unheard",
            PLAIN,
            "completed",
            {"first": "completed"} | _DONE,
            {"first": 1, "last": 1},
            roles=("worker",),
            stumbles=("claim.commit.after:1", "report.commit.after:1", "report.report_tasks:2"),
        ),
        Scenario(
            "culprit",
            PLAIN,
            "completed",
            {"first": "completed"} | _DONE,
            {"first": 1, "last": 1},
            roles=("orchestrator",),
            begin=_submit_with_a_culprit,
            meddle=_acquit_in_the_end,
        ),
    )
}
