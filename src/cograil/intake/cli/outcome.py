"""How a job ended: on stdout its result, on stderr what failed, and an exit code."""

from __future__ import annotations

import asyncio
from typing import Any

from cograil.errors import WaitTimeout
from cograil.intake.cli.client import Client, find_job
from cograil.intake.cli.output import error_line, say, show_value, write_json
from cograil.intake.cli.progress import view_of
from cograil.intake.cli.waiting import Bell, wait_for_end
from cograil.model.workflow import Workflow
from cograil.store import reading

EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 1}
SHOWN_FAILURES = 10


async def see_to_end(client: Client, bell: Bell, job_id: str, *, timeout: float | None, as_json: bool) -> int:
    """Wait for the job, show it meanwhile and its outcome then; the exit code."""
    async with client.db.transaction("show") as tx:
        _, definition_id = await find_job(tx, job_id)
        workflow = await client.decider.catalog.get(tx, definition_id)
    try:
        with view_of(workflow, is_quiet=as_json) as view:
            await wait_for_end(client, bell, job_id, view, timeout=timeout)
    except WaitTimeout as late:
        return await _too_late(client, job_id, late, as_json)
    except asyncio.CancelledError:
        say(client.future_of(job_id))
        raise
    return await show_outcome(client, job_id, as_json)


async def _too_late(client: Client, job_id: str, late: WaitTimeout, as_json: bool) -> int:
    if not as_json:
        raise late
    async with client.db.transaction("show") as tx:
        write_json((await find_job(tx, job_id))[0])
    say(str(late))
    return late.exit_code


async def show_outcome(client: Client, job_id: str, as_json: bool) -> int:
    """Show how the job ended; its exit code."""
    async with client.db.transaction("show") as tx:
        job, definition_id = await find_job(tx, job_id)
        workflow = await client.decider.catalog.get(tx, definition_id)
        failures = [] if job["status"] == "completed" else await reading.list_failures(tx, job_id)
    code = EXIT_CODES[job["status"]]
    if as_json:
        write_json(job)
    elif code == 0:
        show_value(result_of(job, workflow))
    else:
        _show_failure(job, failures)
    return code


def result_of(job: dict[str, Any], workflow: Workflow) -> Any:
    """What the nodes returned, in their order, without where it came from: the job is known here."""
    result = job["result"] or {}
    return {name: result[name] for name in workflow.nodes if name in result}


def _show_failure(job: dict[str, Any], failures: list[dict[str, Any]]) -> None:
    say(f"job {job['job_id']} {job['status']}: {error_line(job['error'])}", style="bold red")
    for node in failures[:SHOWN_FAILURES]:
        attempts = f" after {node['attempt']} attempts" if node["attempt"] > 1 else ""
        say(f"  {node['node_id']} failed{attempts}: {error_line(node['error'])}", style="red")
    if len(failures) > SHOWN_FAILURES:
        say(f"  and {len(failures) - SHOWN_FAILURES} more; see `cograil show {job['job_id']}`")
    if failures:
        say(f"`cograil show {job['job_id']} --node {failures[0]['node_id']}` has its input and traceback")
