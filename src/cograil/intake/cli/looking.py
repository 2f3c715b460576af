"""Commands that look: workflows, jobs, show, events, explain."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from cograil.definitions.hints import hint_of_nodes
from cograil.errors import Conflict, NodeNotFound
from cograil.intake.cli.client import Client, connected, connected_to_read, find_job, find_job_and_workflow
from cograil.intake.cli.describing import job_state, show_job, show_node
from cograil.intake.cli.inputs import SpanOrMoment, read_labels
from cograil.intake.cli.options import instance_options, settings_for, tenant_option
from cograil.intake.cli.outcome import SHOWN_FAILURES, failure_lines, result_of
from cograil.intake.cli.output import error_line, out, plain, say, state, table, write_json, write_json_line
from cograil.intake.cli.sentences import how_it_ended, sentence, subject
from cograil.intake.cli.words import ago, moment, printable, took
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store import reading
from cograil.store.job_filters import JobCriteria, filter_jobs
from cograil.store.watching import is_over, resolve_job
from cograil.store.workflows import list_workflows
from cograil.verbs.explain import Explanation
from cograil.verbs.explain import explain as explain_job

FOLLOW_SECONDS = 0.3
PAGE = 10_000
SHOWN_ERROR = 60
ID_WIDTH = 36
WIDTH_WITH_ERRORS = 120  # of the terminal, for a column more


@click.command()
@tenant_option
@instance_options
def workflows(data_dir: Path | None, as_json: bool) -> None:
    """List published workflows, every version.

    \b
    Examples:
      cograil workflows
      cograil workflows --json
    """
    found = run_async(_workflows(settings_for(data_dir)))
    if as_json:
        write_json({"workflows": found})
        return
    rows = table("workflow", "version", "name", "nodes", "published", right=("version", "nodes"))
    for one in found:
        rows.add_row(
            plain(one["workflow_id"]),
            str(one["version"]),
            plain(one["name"]),
            str(one["node_count"]),
            ago(one["published_at"]),
        )
    out().print(rows)


async def _workflows(settings: Settings) -> list[dict[str, Any]]:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        return await list_workflows(tx, client.tenant)


class Statuses(click.ParamType[str]):
    """One state of jobs, or several separated by commas."""

    name = "STATUS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for name in str(value).split(","):
            if name not in reading.SHOWN_STATUSES:
                self.fail(f"{name!r} is not one of {', '.join(reading.SHOWN_STATUSES)}.", param, ctx)
        return str(value)


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=Statuses(),
    help=f"One of {', '.join(reading.SHOWN_STATUSES)}; several with commas, or repeat it.",
)
@click.option("--workflow", help="Only jobs of this workflow.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="With this label; repeatable.")
@click.option("--since", type=SpanOrMoment(), help="Made since then: 2h, 3d, or 2026-01-31T09:00:00Z.")
@click.option("--until", type=SpanOrMoment(), help="Made before then, in the same way.")
@click.option("--text", help="Only with this text in their input, labels or error.")
@click.option("--error", help="Only with this text in their error.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many.")
@click.option("--before", metavar="JOB", help="Only jobs older than this one, to turn the page.")
@tenant_option
@instance_options
def jobs(limit: int, before: str | None, data_dir: Path | None, as_json: bool, **words: Any) -> None:
    """List jobs, newest first.

    A job that waits for an approval, a timer, its next attempt or its start is `waiting`, not pending or
    running: no worker has anything of it.

    \b
    Examples:
      cograil jobs
      cograil jobs --status running,pending
      cograil jobs --status waiting
      cograil jobs --status failed --since 2h --error timeout
      cograil jobs --workflow import --label team=ops --tenant acme --json
    """
    words["statuses"] = tuple(name for given in words["statuses"] for name in given.split(","))
    words["labels"] = read_labels(words["labels"]) or {}
    found = run_async(_jobs(settings_for(data_dir), JobCriteria(**words), limit, before))
    if as_json:
        write_json({"jobs": found})
        return
    rows = table("job", "status", "workflow", "created", "took", right=("created", "took"))
    rows.columns[0].min_width = ID_WIDTH
    has_errors = out().width >= WIDTH_WITH_ERRORS
    if has_errors:
        rows.add_column("error", overflow="fold")
    for job in found:
        rows.add_row(
            Text(job["job_id"], no_wrap=True),
            state(reading.shown_status(job)),
            plain(job["workflow_id"]),
            ago(job["created_at"]),
            took(job["started_at"], job["completed_at"]),
            *([plain(_shortened(job["error"]), style="red")] if has_errors else []),
        )
    out().print(rows if found else "no jobs")
    if len(found) == limit:
        say(f"there may be more: --before {found[-1]['job_id']}")


def _shortened(error: Any) -> str:
    text = error_line(error) if error else ""
    return text if len(text) <= SHOWN_ERROR else text[: SHOWN_ERROR - 3] + "..."


async def _jobs(
    settings: Settings, criteria: JobCriteria, limit: int, before: str | None
) -> list[dict[str, Any]]:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        last = None if before is None else await resolve_job(tx, before, client.tenant)
        if criteria == JobCriteria(statuses=criteria.statuses, workflow=criteria.workflow):
            statuses, workflow = criteria.statuses, criteria.workflow
            return await reading.list_jobs(
                tx,
                tenant=client.tenant,
                statuses=statuses,
                workflow=workflow,
                before=last,
                limit=limit,
                is_apart=True,
            )
        return await filter_jobs(tx, criteria, tenant=client.tenant, before=last, limit=limit)


@click.command()
@click.argument("job")
@click.option("--node", help="Only this node, with its input and output.")
@tenant_option
@click.option("--result", "is_result", is_flag=True, help="Only the result of the job, all of it, as JSON.")
@instance_options
def show(job: str, node: str | None, is_result: bool, data_dir: Path | None, as_json: bool) -> None:
    """Show a job and its nodes. JOB may be the beginning of an id, 8 characters or more.

    \b
    Examples:
      cograil show 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e
      cograil show 019a8f2e77aa --node import
      cograil show 019a8f2e77aa --json | jq .job.status
      cograil show 019a8f2e77aa --result > result.json
    """
    if is_result:
        run_async(_show_result(settings_for(data_dir), job))
        return
    run_async(_show(settings_for(data_dir), job, node, as_json))


async def _show_result(settings: Settings, job: str) -> None:
    async with connected_to_read(settings) as client:
        view, workflow = await find_job_and_workflow(client, job)
    if view["status"] != "completed":
        raise Conflict(f"job {view['job_id']} has no result: it is {reading.shown_status(view)}")
    write_json(result_of(view, workflow))


async def _show(settings: Settings, job: str, node: str | None, as_json: bool) -> None:
    async with connected_to_read(settings) as client:
        view, workflow = await find_job_and_workflow(client, job)
        async with client.db.transaction("show") as tx:
            is_all = as_json or node is not None
            nodes = await reading.list_nodes(
                tx, view["job_id"], workflow, tenant=client.tenant, children=is_all
            )
            failures = [] if is_all else await reading.list_failures(tx, view["job_id"], tenant=client.tenant)
            traceback = None if node is None else await reading.find_traceback(tx, view["job_id"], node)
    if node is not None:
        nodes = [one for one in nodes if one["node_id"] == node]
        if not nodes:
            raise NodeNotFound(view["job_id"], node, hint_of_nodes(node, workflow.nodes))
    if as_json:
        write_json({"job": view, "nodes": nodes})
    elif node is not None:
        show_node(nodes[0], view["job_id"], traceback)
    else:
        show_job(view, workflow, nodes, failures)


@click.command()
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events after this number.")
@click.option("--node", help="Only events of this node.")
@tenant_option
@instance_options
def events(
    job: str, follow: bool, after: int, node: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Show what happened in a job, or follow it. With --follow --json, one object on each line.

    \b
    Examples:
      cograil events 019a8f2e77aa
      cograil events 019a8f2e77aa --follow
      cograil events 019a8f2e77aa --node import
      cograil events 019a8f2e77aa --after 12 --json
    """
    run_async(_events(settings_for(data_dir), job, follow, after, node, as_json))


async def _events(
    settings: Settings, job: str, follow: bool, after: int, node: str | None, as_json: bool
) -> None:
    async with (connected if follow else connected_to_read)(settings) as client:
        async with client.db.transaction("show") as tx:
            job_id = await resolve_job(tx, job, client.tenant)
        if as_json and not follow:
            pages = [page async for page in _pages(client, job_id, after, node, follow=False)]
            write_json({"events": [event for page in pages for event in page]})
            return
        async for page in _pages(client, job_id, after, node, follow=follow):
            for event in page:
                write_json_line(event) if as_json else _print_event(event)


async def _pages(
    client: Client, job_id: str, after: int, node: str | None, *, follow: bool
) -> AsyncIterator[list[dict[str, Any]]]:
    """The events in pages; when following, until the job has ended and all were seen."""
    while True:
        async with client.db.transaction("show") as tx:
            was_over = not follow or await is_over(tx, job_id, client.tenant)
            page = await reading.list_events(
                tx, job_id, tenant=client.tenant, after=after, limit=PAGE, node=node
            )
        yield page
        after = page[-1]["seq"] if page else after
        if len(page) == PAGE:
            continue
        if was_over:
            return
        await asyncio.sleep(FOLLOW_SECONDS)


def _print_event(event: dict[str, Any]) -> None:
    styles = {"failure": "red", "warning": "yellow", "success": "green"}
    line = Text.assemble(
        (f"{event['seq']:5} {moment(event['created_at'])}  ", "dim"),
        f"{printable(subject(event)):16} ",
        (sentence(event), styles.get(event["event_status"], "")),
    )
    out().print(line, soft_wrap=True)


@click.command()
@click.argument("job")
@tenant_option
@instance_options
def explain(job: str, data_dir: Path | None, as_json: bool) -> None:
    """Say why a job is not done: what it waits for, the most fundamental first; or how it ended.

    \b
    Examples:
      cograil explain 019a8f2e77aa
      cograil explain 019a8f2e77aa --json
    """
    found, view, failures = run_async(_explain(settings_for(data_dir), job))
    if as_json:
        write_json(asdict(found))
        return
    out().print(Text.assemble(f"job {found.job_id} is ", job_state(view)), soft_wrap=True)
    reasons = [blocker.message for blocker in found.blockers] or how_it_ended(view, failures)
    for reason in reasons or ["nothing holds it up"]:
        out().print(Text(f"  {printable(reason)}"), soft_wrap=True)


async def _explain(settings: Settings, job: str) -> tuple[Explanation, dict[str, Any], list[str]]:
    async with connected_to_read(settings) as client, client.db.transaction("explain") as tx:
        view, _ = await find_job(tx, job, client.tenant)
        job_id = view["job_id"]
        found = await explain_job(tx, client.decider.catalog, job_id, client.tenant)
        if view["status"] != "failed":
            return found, view, []
        failures = await reading.list_failures(tx, job_id, tenant=client.tenant)
    said = failure_lines(failures[:SHOWN_FAILURES])
    if failures:
        show = client.command(f"show {job_id} --node {shlex.quote(failures[0]['node_id'])}")
        said.append(f"{show} has its input and traceback")
    return found, view, said
