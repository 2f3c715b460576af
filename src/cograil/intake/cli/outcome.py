"""How a job ended: on stdout its result, on stderr what failed, and an exit code."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

from cograil.errors import WaitTimeout
from cograil.intake.cli.client import Client, find_job
from cograil.intake.cli.output import error_line, out, say, show_result, write_json
from cograil.intake.cli.progress import view_of
from cograil.intake.cli.waiting import Bell, wait_for_end
from cograil.intake.cli.words import printable, printable_lines
from cograil.model.workflow import Workflow
from cograil.store import reading

EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 1}
SHOWN_FAILURES = 10


async def see_to_end(
    client: Client, bell: Bell, job_id: str, *, timeout: float | None, as_json: bool, is_short: bool = False
) -> int:
    """Wait for the job, show it meanwhile and its outcome then; the exit code."""
    async with client.db.transaction("show") as tx:
        _, definition_id = await find_job(tx, job_id, client.tenant)
        workflow = await client.decider.catalog.get(tx, definition_id)
    try:
        with view_of(workflow, is_quiet=as_json, tenant=client.tenant) as view:
            await wait_for_end(client, bell, job_id, view, timeout=timeout)
    except WaitTimeout as late:
        return await _too_late(client, job_id, late, as_json)
    except asyncio.CancelledError:
        say(client.future_of(job_id))
        raise
    return await show_outcome(client, job_id, as_json, is_short=is_short)


async def _too_late(client: Client, job_id: str, late: WaitTimeout, as_json: bool) -> int:
    if not as_json:
        raise late
    async with client.db.transaction("show") as tx:
        write_json((await find_job(tx, job_id, client.tenant))[0])
    say(str(late))
    return late.exit_code


async def show_outcome(client: Client, job_id: str, as_json: bool, *, is_short: bool = False) -> int:
    """Show how the job ended, if `is_short` only what its last node returned; its exit code."""
    async with client.db.transaction("show") as tx:
        job, definition_id = await find_job(tx, job_id, client.tenant)
        workflow = await client.decider.catalog.get(tx, definition_id)
        failures = (
            []
            if job["status"] == "completed"
            else await reading.list_failures(tx, job_id, tenant=client.tenant)
        )
        first = failures[0]["node_id"] if failures else None
        traceback = None if first is None else await reading.find_traceback(tx, job_id, first)
    code = EXIT_CODES[job["status"]]
    if as_json:
        write_json(job)
    elif code == 0:
        result = result_of(job, workflow)
        if is_short and isinstance(result, dict):
            result = dict(list(result.items())[-1:])
        show_result(job_id, result, is_cut=out().is_terminal)
    else:
        _show_failure(client, job, failures, traceback)
    return code


def result_of(job: dict[str, Any], workflow: Workflow) -> Any:
    """The outputs of the workflow; if it declares none, what the nodes returned, in their order."""
    result = job["result"] or {}
    if workflow.outputs is not None:
        return result
    return {name: result[name] for name in workflow.nodes if name in result}


def _show_failure(
    client: Client, job: dict[str, Any], failures: list[dict[str, Any]], traceback: reading.Traceback | None
) -> None:
    """Each failure once, and where the first one broke."""
    said = failure_lines(failures[:SHOWN_FAILURES])
    if len(said) == 1:
        say(f"job {job['job_id']} {job['status']}: {said[0]}", style="bold red")
    else:
        say(f"job {job['job_id']} {job['status']}: {error_line(job['error'])}", style="bold red")
        for line in said:
            say(f"  {line}", style="red")
    if len(failures) > SHOWN_FAILURES:
        more = len(failures) - SHOWN_FAILURES
        say(f"  and {more} more; see {client.command('show ' + job['job_id'])}")
    if traceback:
        if traceback.job_id != job["job_id"]:
            say(f"traceback of node {traceback.node_id} of child job {traceback.job_id}:", style="dim")
        say(printable_lines(traceback.text.rstrip()), style="dim")
    if failures:
        job_id, node_id = job["job_id"], failures[0]["node_id"]
        if traceback:
            job_id, node_id = traceback.job_id, traceback.node_id
        say(f"{client.command(f'show {job_id} --node {shlex.quote(node_id)}')} has its input")


def failure_lines(failures: list[dict[str, Any]]) -> list[str]:
    """What failed, and why: a line for each node."""
    return [
        f"node {printable(node['node_id'])} failed"
        + (f" after {node['attempt']} attempts" if node["attempt"] > 1 else "")
        + f": {error_line(node['error'])}"
        for node in failures
    ]
