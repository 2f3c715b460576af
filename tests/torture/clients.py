"""One run of one point of a client: submit, publish, cancel or retry, struck while it does so.

`operator_actions.py` has those that pause, answer and do things to many jobs or to families.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from hashlib import sha256
from typing import Any

from tests.torture import oracles
from tests.torture.app_primitives import use_primitives
from tests.torture.callers import CALLERS
from tests.torture.client_strikes import GONE_SECONDS, all_end, made, nothing, struck
from tests.torture.crash import Fault, Run
from tests.torture.lane import NUMBERS, Lane, Stuck
from tests.torture.operator_actions import OPERATOR_ACTIONS, Act
from tests.torture.relays import RELAYS
from tests.torture.remote_workers import REMOTE_WORKERS
from tests.torture.scenarios import (
    AGAIN,
    IN_PLACE,
    SCENARIOS,
    Scenario,
    be_late,
    child_failed,
    fail_for_retry,
    mend,
)
from tests.torture.schedule_firings import SCHEDULE_CALLS, SCHEDULE_FIRINGS
from tests.torture.sweepers import SWEEPERS

from cograil.verbs.key_management import create_key

DRAFT = f"""
workflow_id: draft
description: %s
nodes:
  none: {{type: fan_out, source: [], task: {{handler: step}}, next: gather}}
  gather: {{type: fan_in, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""

PUBLISHED = f"""
workflow_id: published
version: %s
nodes:
  last: {{handler: step, {AGAIN}, next: END}}
"""

# What comes after the children needs outputs that only the database has.
GATHERED = f"""
workflow_id: gathered
nodes:
  first: {{handler: step, {AGAIN}, next: split}}
  split: {{type: fan_out, source: [0, 1], task: {{handler: until_told, {AGAIN}}}, next: gather}}
  gather: {{type: fan_in, aggregation: collect, next: last}}
  last: {{handler: step, params: {{after: "{{{{ nodes.first.output }}}}"}}, {AGAIN}, next: END}}
"""


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


async def _submit(lane: Lane, run: Run) -> None:
    """An acknowledged job ends; one that was not is there in full or not at all."""
    scenario, mark = SCENARIOS["fan"], f"mark-{next(NUMBERS)}"
    await lane.publish(scenario.text)
    answer = await struck(lane, run, "submit", "fan", mark=mark)
    await all_end(lane, run, scenario, await made(lane, run, answer, "correlation_id", mark))


async def _draft(lane: Lane, run: Run) -> None:
    """The same for `run FILE`; the draft is there if and only if its job is."""
    nodes = {"gather": "completed", "last": "completed"}
    await _strike_draft(lane, run, Scenario("draft", DRAFT, "completed", nodes, {"last": 1}))


async def _draft_too_late(lane: Lane, run: Run) -> None:
    """The same for a job whose time is over before it begins."""
    text = f"timeout_seconds: 1e-7{DRAFT}"
    await _strike_draft(lane, run, Scenario("draft", text, "failed", {}, {}, error="job_timeout"))


async def _strike_draft(lane: Lane, run: Run, scenario: Scenario) -> None:
    mark = f"mark-{next(NUMBERS)}"
    text = scenario.text % mark
    answer = await struck(lane, run, "draft", text, meanwhile=nothing, mark=mark)
    jobs = await made(lane, run, answer, "correlation_id", mark)
    drafts = await lane.lab.rows("select 1 from cograil.workflows where source = %(text)s", text=text)
    if len(drafts) != len(jobs):
        run.violations.append(f"there are {len(drafts)} drafts for {len(jobs)} jobs")
    await all_end(lane, run, scenario, jobs)


async def _publish(lane: Lane, run: Run) -> None:
    """An acknowledged version is there; a client without an answer may publish again, and there is one."""
    version = next(NUMBERS)
    text = PUBLISHED % version
    answer = await struck(lane, run, "publish", text, meanwhile=_publish_meanwhile)
    if answer is not None and await _sources(lane, version) != [text]:
        run.violations.append(f"the client was told that version {version} is published, but it is not")
    job = await lane.submit(text)
    if await _sources(lane, version) != [text]:
        run.violations.append(f"version {version}: {await _sources(lane, version)}")
    scenario = Scenario("published", text, "completed", {"last": "completed"}, {"last": 1})
    await all_end(lane, run, scenario, [job])


async def _sources(lane: Lane, version: int) -> list[str]:
    query = (
        "select source from cograil.workflows"
        " where workflow_id = 'published' and version = %(version)s and not is_draft"
    )
    return [source for (source,) in await lane.lab.rows(query, version=version)]


async def _publish_meanwhile(lane: Lane, text: str) -> asyncio.Future[Any]:
    """Somebody publishes the same, and has to wait when the client has written but not committed."""
    publishing = asyncio.ensure_future(lane.publish(text))
    await asyncio.wait({publishing}, timeout=0.2)
    return publishing


async def _publish_taken(lane: Lane, run: Run) -> None:
    """A version that is published stays what it is, whatever happens to who wants to replace it."""
    version = next(NUMBERS)
    text = PUBLISHED % version
    await lane.publish(text)
    answer = await struck(lane, run, "publish", f"{text}description: another", meanwhile=nothing)
    if answer not in (None, "version taken"):
        run.violations.append(f"the client was told {answer}, but the version was taken")
    if await _sources(lane, version) != [text]:
        run.violations.append(f"version {version} is now {await _sources(lane, version)}")


async def _retry(lane: Lane, run: Run) -> None:
    """The same for the new job of a retry."""
    scenario = SCENARIOS["retry"]
    failed = await fail_for_retry(lane, scenario)
    answer = await struck(lane, run, "retry", failed)
    await all_end(lane, run, scenario, await made(lane, run, answer, "retry_of", failed))


async def _retry_from(lane: Lane, run: Run) -> None:
    """The same for a job that completed, from a node on whose inputs are all kept."""
    old = await lane.submit(GATHERED)
    await lane.ended(old)
    answer = await struck(lane, run, "retry", old, node="gather")
    done = dict.fromkeys(["first", "split", "split__0", "gather", "last"], "completed")
    scenario = Scenario("gathered", GATHERED, "completed", done, {"last": 1})
    await all_end(lane, run, scenario, await made(lane, run, answer, "retry_of", old))


async def _retry_in_place(lane: Lane, run: Run) -> None:
    """An acknowledged retry happens in the running job; who was not told may try again."""
    scenario = SCENARIOS["in_place"]
    job = await scenario.begin(lane, scenario)
    await child_failed(lane, job)
    await mend(lane, job)
    answer = await struck(lane, run, "retry", job, node="split__1")
    if answer not in (None, job):  # the job had ended before it came to that: then it is a new one
        again = replace(scenario, executions={"split__1": 1, "last": 1})
        await all_end(lane, run, again, await made(lane, run, answer, "retry_of", job))
        return
    if not await _is_retried(lane, job):
        if answer is not None:
            run.violations.append("the client was told that the node is retried, but it is not")
        await lane.lab.retry(job, "split__1")
    await lane.set_gate(job, is_closed=False)
    await all_end(lane, run, scenario, [job])
    run.violations += await _forgotten_report(lane, job)


async def _is_retried(lane: Lane, job: str) -> bool:
    query = (
        "select 1 from cograil.events where job_id = %(job)s and node_id = 'split__1'"
        " and type = 'node_retry' and data ->> 'by' is not null"
    )
    return bool(await lane.lab.rows(query, job=job))


async def _retry_too_late(lane: Lane, run: Run) -> None:
    """The deadline has passed, and no orchestrator was there to see it: the client's transaction does."""
    text = f"timeout_seconds: 3600{IN_PLACE}".replace("in_place", "too_late")
    job = await lane.submit(text, is_gated=True)
    await child_failed(lane, job)
    await lane.help_with("worker")
    await be_late(lane, job)
    await struck(lane, run, "retry", job, meanwhile=nothing, node="split__1")
    await lane.help_with("orchestrator", "worker")
    executions = {"split__0": 1, "split__1": 1, "split__2": 1, "slow": 1}
    nodes = {"split__1": "failed", "slow": "cancelled"}
    scenario = Scenario("too_late", text, "failed", nodes, executions, error="job_timeout")
    await all_end(lane, run, scenario, [job])


async def _cancel(lane: Lane, run: Run) -> None:
    """An acknowledged cancel is final; without an answer the job is cancelled or goes on to its end."""
    scenario = SCENARIOS["cancel"]
    job = await scenario.begin(lane, scenario)
    query = "select 1 from torture.effects where job = %(job)s and node = 'slow'"
    await lane.until(query, GONE_SECONDS, job=job)
    answer = await struck(lane, run, "cancel", job)
    await lane.set_gate(job, is_closed=False)
    await lane.ended(job)
    status = (await lane.lab.job(job))["status"]
    if answer is not None and answer != status:
        run.violations.append(f"the client was told {answer}, but the job is {status}")
    executions = {"first": 1, "slow": 1, "last": 1}
    expected = replace(scenario, status=status, executions=executions)
    run.violations += await oracles.in_the_end(lane, expected, job, 0)
    run.violations += await _forgotten_report(lane, job)


async def _cancel_reported(lane: Lane, run: Run) -> None:
    """Reports that nobody has taken yet are taken by the cancel, and count."""
    job = await lane.submit(GATHERED, is_gated=True)
    query = "select 1 from torture.effects where job = %(job)s and node like 'split%%' having count(*) = 2"
    await lane.until(query, GONE_SECONDS, job=job)
    await lane.help_with("worker")
    await lane.set_gate(job, is_closed=False)
    query = "select 1 from cograil.inbox where job_id = %(job)s and kind = 'report' having count(*) = 2"
    await lane.until(query, GONE_SECONDS, job=job)
    answer = await struck(lane, run, "cancel", job)
    await lane.help_with("orchestrator", "worker")
    await lane.ended(job)
    status = (await lane.lab.job(job))["status"]
    if answer is not None and answer != status:
        run.violations.append(f"the client was told {answer}, but the job is {status}")
    nodes = dict.fromkeys(["first", "split__0", "split__1"], "completed")
    executions = {"first": 1, "split__0": 1, "split__1": 1, "last": 1}
    scenario = Scenario("gathered", GATHERED, status, nodes, executions)
    run.violations += await oracles.in_the_end(lane, scenario, job, 0)


async def _make_key(lane: Lane, run: Run) -> None:
    """A key that was told is one; of one that was not there is at most a row that nobody can use."""
    name = f"key-{next(NUMBERS)}"
    key = await struck(lane, run, "make_key", name, meanwhile=nothing)
    hashes = [key_hash for (key_hash,) in await lane.lab.rows(KEY_HASHES, name=name)]
    if len(hashes) > 1 or (key is not None and [sha256(key.split("_", 2)[2].encode()).digest()] != hashes):
        run.violations.append(f"the client was told {key}, but there are {len(hashes)} keys")


async def _revoke_key(lane: Lane, run: Run) -> None:
    """An acknowledged end of a key is one; without an answer it has ended or works."""
    name = f"key-{next(NUMBERS)}"
    async with lane.lab.db.transaction("test") as tx:
        await create_key(tx, role="viewer", name=name)
    answer = await struck(lane, run, "revoke_key", name, meanwhile=nothing)
    if answer is not None and await lane.lab.rows(KEY_HASHES, name=name):
        run.violations.append("the client was told that the key is revoked, but it works")


KEY_HASHES = "select hash from cograil.keys where name = %(name)s and revoked_at is null"


async def _forgotten_report(lane: Lane, job: str) -> list[str]:
    """A report that counted before the cancel is part of the history."""
    mark = f"reported {job}"
    if not await lane.lab.rows("select 1 from torture.mended where correlation_id = %(mark)s", mark=mark):
        return []
    status = (await lane.lab.nodes(job))["slow"]["status"]
    return [] if status == "completed" else [f"the report of slow counted, but it is {status}"]


STRIKES: dict[str, Act] = {
    "submit": _submit,
    "draft": _draft,
    "draft_too_late": _draft_too_late,
    "publish": _publish,
    "publish_taken": _publish_taken,
    "cancel": _cancel,
    "cancel_reported": _cancel_reported,
    "retry": _retry,
    "retry_from": _retry_from,
    "retry_in_place": _retry_in_place,
    "retry_too_late": _retry_too_late,
    "make_key": _make_key,
    "revoke_key": _revoke_key,
    "app": use_primitives,
    **OPERATOR_ACTIONS,
    **SCHEDULE_FIRINGS,
    **SWEEPERS,
}
ACTS = tuple(STRIKES)
API_CALLS = CALLERS | REMOTE_WORKERS | SCHEDULE_CALLS
STRIKES |= API_CALLS | RELAYS
