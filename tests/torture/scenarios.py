"""The jobs that are tortured: what they are, what is done to them, how they must end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tests.torture.lane import Lane
from tests.torture.nursery import Child

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

LIVE = """
workflow_id: live
nodes:
  alone: {handler: step, params: {seconds: 0.25}, next: END}
"""


async def _submit(lane: Lane, scenario: Scenario) -> str:
    return await lane.submit(scenario.text)


async def _submit_behind_a_gate(lane: Lane, scenario: Scenario) -> str:
    return await lane.submit(scenario.text, is_gated=True)


async def fail_for_retry(lane: Lane, scenario: Scenario) -> str:
    """A job that has failed and would succeed if tried again."""
    job = await lane.submit(scenario.text)
    async with lane.helped():
        await lane.ended(job)
    query = "insert into torture.mended select correlation_id from cograil.jobs where id = %(job)s"
    await lane.lab.rows(query, job=job)
    return job


async def _retry(lane: Lane, scenario: Scenario) -> str:
    return await lane.lab.retry(await fail_for_retry(lane, scenario))


async def _leave_alone(lane: Lane, job: str, victim: Child) -> None:
    """Nothing is done to this job."""


async def _cancel(lane: Lane, job: str, victim: Child) -> None:
    """Cancel as soon as the slow node runs, or its process is struck before that."""
    await _slow_runs(lane, job, victim)
    with contextlib.suppress(AlreadyTerminal):
        await lane.lab.cancel(job)


async def _stop_worker(lane: Lane, job: str, victim: Child) -> None:
    """Ask the worker to stop as soon as the slow node runs."""
    await _slow_runs(lane, job, victim)
    victim.send(signal.SIGTERM)


async def _slow_runs(lane: Lane, job: str, victim: Child) -> None:
    query = "select 1 from torture.effects where job = %(job)s and node = 'slow'"
    while not (victim.stopped.is_set() or victim.ended.is_set()):
        if await lane.until(query, 0.02, job=job):
            return


@dataclass(frozen=True)
class Scenario:
    """One job. `executions` says how often each node runs when nothing crashes."""

    name: str
    text: str
    status: str
    nodes: Mapping[str, str]
    executions: Mapping[str, int]
    roles: tuple[str, ...] = ("orchestrator", "worker")
    begin: Callable[[Lane, Scenario], Awaitable[str]] = field(default=_submit)
    meddle: Callable[[Lane, str, Child], Awaitable[None]] = field(default=_leave_alone)
    is_drained: bool = False  # the worker is asked to stop, so the zombie ends instead of living on


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
            begin=_submit_behind_a_gate,
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
            {"slow": "completed"} | _DONE,
            {"slow": 2, "last": 1},
            roles=("worker",),
            begin=_submit_behind_a_gate,
            meddle=_stop_worker,
            is_drained=True,
        ),
    )
}
