"""The outcome of a job: its result on stdout, its failures on stderr, and an exit code."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

from cograil.cli.backends.interface import Backend, EndOfJob
from cograil.cli.display.formatting import printable, printable_lines
from cograil.cli.display.job_progress import progress_view
from cograil.cli.display.output import error_line, out, say, show_result, write_json
from cograil.cli.job_wait import wait_for_end
from cograil.errors import WaitTimeout
from cograil.model.workflow import Workflow
from cograil.store.job_queries import Traceback

EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 1}
SHOWN_FAILURES = 10


async def wait_and_show(
    backend: Backend,
    ends: EndOfJob,
    job_id: str,
    *,
    timeout: float | None,
    as_json: bool,
    is_short: bool = False,
) -> int:
    """Wait for the job and show its progress and outcome. Return the exit code."""
    workflow = await backend.job_workflow(job_id)
    try:
        with progress_view(workflow, is_quiet=as_json) as view:
            await wait_for_end(backend, ends, job_id, view, timeout=timeout)
    except WaitTimeout as error:
        return await _report_timeout(backend, job_id, error, as_json)
    except asyncio.CancelledError:
        say(backend.next_steps(job_id))
        raise
    return await show_job_outcome(backend, job_id, workflow, as_json, is_short=is_short)


async def _report_timeout(backend: Backend, job_id: str, error: WaitTimeout, as_json: bool) -> int:
    if not as_json:
        raise error
    write_json(await backend.find_job(job_id))
    say(str(error))
    return error.exit_code


async def show_job_outcome(
    backend: Backend, job_id: str, workflow: Workflow, as_json: bool, *, is_short: bool = False
) -> int:
    """Show the outcome of the job; if `is_short`, only the output of its last node. Return the exit code."""
    job = await backend.find_job(job_id)
    failures = [] if job["status"] == "completed" else await backend.list_failures(job_id)
    traceback = await backend.find_traceback(job_id, failures[0]["node_id"]) if failures else None
    code = EXIT_CODES[job["status"]]
    if as_json:
        write_json(job)
    elif code == 0:
        result = result_of(job, workflow)
        if is_short and isinstance(result, dict):
            result = dict(list(result.items())[-1:])
        show_result(job_id, result, is_short=out().is_terminal)
    else:
        _show_failure(backend, job, failures, traceback)
    return code


def result_of(job: dict[str, Any], workflow: Workflow) -> Any:
    """Return the outputs of the workflow; if it declares none, the outputs of its nodes in order."""
    result = job["result"] or {}
    if workflow.outputs is not None:
        return result
    return {name: result[name] for name in workflow.nodes if name in result}


def _show_failure(
    backend: Backend,
    job: dict[str, Any],
    failures: list[dict[str, Any]],
    traceback: Traceback | None,
) -> None:
    """Print each failure once, with the traceback of the first."""
    lines = failure_lines(failures[:SHOWN_FAILURES])
    if len(lines) == 1:
        say(f"job {job['job_id']} {job['status']}: {lines[0]}", style="bold red")
    else:
        say(f"job {job['job_id']} {job['status']}: {error_line(job['error'])}", style="bold red")
        for line in lines:
            say(f"  {line}", style="red")
    if len(failures) > SHOWN_FAILURES:
        more = len(failures) - SHOWN_FAILURES
        say(f"  and {more} more; see {backend.command('show ' + job['job_id'])}")
    if traceback:
        if traceback.job_id != job["job_id"]:
            say(f"traceback of node {traceback.node_id} of child job {traceback.job_id}:", style="dim")
        say(printable_lines(traceback.text.rstrip()), style="dim")
    if failures:
        job_id, node_id = job["job_id"], failures[0]["node_id"]
        if traceback:
            job_id, node_id = traceback.job_id, traceback.node_id
        say(f"{backend.command(f'show {job_id} --node {shlex.quote(node_id)}')} shows its input")


def failure_lines(failures: list[dict[str, Any]]) -> list[str]:
    """Return one line per failed node, with its error."""
    return [
        f"node {printable(node['node_id'])} failed"
        + (f" after {node['attempt']} attempts" if node["attempt"] > 1 else "")
        + f": {error_line(node['error'])}"
        for node in failures
    ]
