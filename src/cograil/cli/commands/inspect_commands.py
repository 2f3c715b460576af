"""Commands that read: workflows, jobs, show, events, explain."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from cograil.cli.backends.interface import Backend
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.event_sentences import describe_end, event_sentence, event_subject
from cograil.cli.display.formatting import ago, printable, timestamp, took
from cograil.cli.display.job_description import job_state, show_job, show_node
from cograil.cli.display.job_result import SHOWN_FAILURES, failure_lines, result_of
from cograil.cli.display.output import (
    error_line,
    out,
    plain,
    render,
    say,
    state,
    table,
    write_json,
    write_json_line,
)
from cograil.cli.input_parsing import TimestampOrAge, read_labels
from cograil.cli.options import instance_options, tenant_option
from cograil.definitions.suggestions import hint_of_nodes
from cograil.errors import Conflict, NodeNotFound
from cograil.model.states import DISPLAY_STATUSES
from cograil.store.job_filter_queries import JobSearch
from cograil.store.job_queries import View, shown_status

MAX_ERROR_WIDTH = 60
ID_WIDTH = 36
WIDTH_WITH_ERRORS = 120  # terminals at least this wide get the column `error`


@click.command()
@tenant_option
@instance_options
@instance_command
async def workflows(target: Target, as_json: bool) -> None:
    """List published workflows, all versions.

    \b
    Examples:
      cograil workflows
      cograil workflows --json
    """
    async with target.open_to_read() as backend:
        listed = await backend.list_workflows()
    render({"workflows": listed}, lambda: _show_workflows(listed), as_json)


def _show_workflows(listed: list[dict[str, Any]]) -> None:
    rows = table("workflow", "version", "name", "nodes", "published", right=("version", "nodes"))
    for workflow in listed:
        rows.add_row(
            plain(workflow["workflow_id"]),
            str(workflow["version"]),
            plain(workflow["name"]),
            str(workflow["node_count"]),
            ago(workflow["published_at"]),
        )
    out().print(rows)


class Statuses(click.ParamType[str]):
    """One job status, or several separated by commas."""

    name = "STATUS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for name in str(value).split(","):
            if name not in DISPLAY_STATUSES:
                self.fail(f"{name!r} is not one of {', '.join(DISPLAY_STATUSES)}.", param, ctx)
        return str(value)


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=Statuses(),
    help=f"One of {', '.join(DISPLAY_STATUSES)}; separate several with commas, or repeat the option.",
)
@click.option("--workflow", help="Only jobs of this workflow.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only this label; repeatable.")
@click.option("--since", type=TimestampOrAge(), help="Created since: 2h, 3d, or 2026-01-31T09:00:00Z.")
@click.option("--until", type=TimestampOrAge(), help="Created before, in the same format.")
@click.option("--text", help="Only jobs with this text in their input, labels or error.")
@click.option("--error", help="Only jobs with this text in their error.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number.")
@click.option("--before", metavar="JOB", help="Only jobs older than this one, for the next page.")
@tenant_option
@instance_options
@instance_command
async def jobs(target: Target, limit: int, before: str | None, as_json: bool, **options: Any) -> None:
    """List jobs, newest first.

    A job that waits for an approval, a timer, its next attempt or its start has the status `waiting`, not
    pending or running: no worker holds a task of it.

    \b
    Examples:
      cograil jobs
      cograil jobs --status running,pending
      cograil jobs --status waiting
      cograil jobs --status failed --since 2h --error timeout
      cograil jobs --workflow import --label team=ops --tenant acme --json
    """
    options["statuses"] = tuple(name for value in options["statuses"] for name in value.split(","))
    options["labels"] = read_labels(options["labels"]) or {}
    async with target.open_to_read() as backend:
        listed = await backend.list_jobs(JobSearch(**options), before=before, limit=limit)
    render({"jobs": listed}, lambda: _show_jobs(listed, limit), as_json)


def _show_jobs(listed: list[dict[str, Any]], limit: int) -> None:
    rows = table("job", "status", "workflow", "created", "took", right=("created", "took"))
    rows.columns[0].min_width = ID_WIDTH
    has_errors = out().width >= WIDTH_WITH_ERRORS
    if has_errors:
        rows.add_column("error", overflow="fold")
    for job in listed:
        rows.add_row(
            Text(job["job_id"], no_wrap=True),
            state(shown_status(job)),
            plain(job["workflow_id"]),
            ago(job["created_at"]),
            took(job["started_at"], job["completed_at"]),
            *([plain(_shorten_error(job["error"]), style="red")] if has_errors else []),
        )
    out().print(rows if listed else "no jobs")
    if len(listed) == limit:
        say(f"there may be more: --before {listed[-1]['job_id']}")


def _shorten_error(error: Any) -> str:
    text = error_line(error) if error else ""
    return text if len(text) <= MAX_ERROR_WIDTH else text[: MAX_ERROR_WIDTH - 3] + "..."


@click.command()
@click.argument("job")
@click.option("--node", help="Only this node, with its input and output.")
@tenant_option
@click.option("--result", "is_result", is_flag=True, help="Only the complete result of the job, as JSON.")
@instance_options
@instance_command
async def show(target: Target, job: str, node: str | None, is_result: bool, as_json: bool) -> None:
    """Show a job and its nodes. JOB is an id, or a prefix of at least 8 characters.

    \b
    Examples:
      cograil show 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e
      cograil show 019a8f2e77aa --node import
      cograil show 019a8f2e77aa --json | jq .job.status
      cograil show 019a8f2e77aa --result > result.json
    """
    async with target.open_to_read() as backend:
        if is_result:
            await _show_result(backend, job)
        elif node is not None:
            await _show_node(backend, job, node, as_json)
        else:
            await _show_job(backend, job, as_json)


async def _show_result(backend: Backend, job: str) -> None:
    view = await backend.find_job(job)
    if view["status"] != "completed":
        raise Conflict(f"job {view['job_id']} has no result: it is {shown_status(view)}")
    write_json(result_of(view, await backend.job_workflow(view["job_id"])))


async def _show_job(backend: Backend, job: str, as_json: bool) -> None:
    view = await backend.find_job(job)
    workflow = await backend.job_workflow(view["job_id"])
    nodes = await backend.list_nodes(view["job_id"], workflow, children=as_json)
    if as_json:
        write_json({"job": view, "nodes": nodes})
    else:
        show_job(view, workflow, nodes, await backend.list_failures(view["job_id"]))


async def _show_node(backend: Backend, job: str, node: str, as_json: bool) -> None:
    view = await backend.find_job(job)
    job_id = view["job_id"]
    workflow = await backend.job_workflow(job_id)
    nodes = await backend.list_nodes(job_id, workflow, children=True)
    nodes = [entry for entry in nodes if entry["node_id"] == node]
    if not nodes:
        raise NodeNotFound(job_id, node, hint_of_nodes(node, workflow.nodes))
    if as_json:
        write_json({"job": view, "nodes": nodes})
    else:
        show_node(nodes[0], job_id, await backend.find_traceback(job_id, node))


async def require_node(backend: Backend, job_id: str, node: str) -> None:
    """Raise NodeNotFound, with the closest name, when the job has no such node or child."""
    nodes = (await backend.job_workflow(job_id)).nodes
    if node not in nodes and not await backend.has_node(job_id, node):
        raise NodeNotFound(job_id, node, hint_of_nodes(node, nodes))


@click.command()
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Continue until the job ends.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events after this number.")
@click.option("--node", help="Only events of this node.")
@tenant_option
@instance_options
@instance_command
async def events(target: Target, job: str, follow: bool, after: int, node: str | None, as_json: bool) -> None:
    """Show or follow the events of a job. With --follow --json, each line is one JSON object.

    \b
    Examples:
      cograil events 019a8f2e77aa
      cograil events 019a8f2e77aa --follow
      cograil events 019a8f2e77aa --node import
      cograil events 019a8f2e77aa --after 12 --json
    """
    async with target.open() if follow else target.open_to_read() as backend:
        job_id = await backend.resolve_job(job)
        if node is not None:
            await require_node(backend, job_id, node)
        pages = backend.event_pages(job_id, after=after, node=node, follow=follow)
        if as_json and not follow:
            write_json({"events": [event async for page in pages for event in page]})
            return
        async for page in pages:
            for event in page:
                write_json_line(event) if as_json else _print_event(event)


def _print_event(event: dict[str, Any]) -> None:
    styles = {"failure": "red", "warning": "yellow", "success": "green"}
    line = Text.assemble(
        (f"{event['seq']:5} {timestamp(event['created_at'])}  ", "dim"),
        f"{printable(event_subject(event)):16} ",
        (event_sentence(event), styles.get(event["event_status"], "")),
    )
    out().print(line, soft_wrap=True)


@click.command()
@click.argument("job")
@tenant_option
@instance_options
@instance_command
async def explain(target: Target, job: str, as_json: bool) -> None:
    """Explain why a job does not progress, most fundamental reason first; or how it ended.

    \b
    Examples:
      cograil explain 019a8f2e77aa
      cograil explain 019a8f2e77aa --json
    """
    async with target.open_to_read() as backend:
        view = await backend.find_job(job)
        explanation = await backend.explain(view["job_id"])
        failures = await backend.list_failures(view["job_id"]) if view["status"] == "failed" else []
    reasons = [blocker.message for blocker in explanation.blockers]
    if not reasons:
        failed = _failure_lines(backend, view["job_id"], failures)
        reasons = describe_end(view, backend.command, failed) or ["nothing blocks it"]
    render(asdict(explanation), lambda: _show_reasons(view, reasons), as_json)


def _failure_lines(backend: Backend, job_id: str, failures: list[View]) -> list[str]:
    lines = failure_lines(failures[:SHOWN_FAILURES])
    if failures:
        show = backend.command(f"show {job_id} --node {shlex.quote(failures[0]['node_id'])}")
        lines.append(f"{show} shows its input and traceback")
    return lines


def _show_reasons(view: dict[str, Any], reasons: list[str]) -> None:
    out().print(Text.assemble(f"job {view['job_id']} is ", job_state(view)), soft_wrap=True)
    for reason in reasons:
        out().print(Text(f"  {printable(reason)}"), soft_wrap=True)
