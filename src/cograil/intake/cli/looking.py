"""Commands that look: workflows, jobs, show, events, logs, explain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from cograil.engine.states import JOB_STATES
from cograil.errors import NodeNotFound
from cograil.intake.cli.client import Client, connected, find_job, find_job_and_workflow
from cograil.intake.cli.describing import show_job, show_node
from cograil.intake.cli.options import instance_options, settings_for
from cograil.intake.cli.output import out, plain, say, state, table, write_json, write_json_line
from cograil.intake.cli.sentences import how_it_ended, sentence, subject
from cograil.intake.cli.words import ago, printable, took
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store import reading
from cograil.store.retrying import load_node
from cograil.store.watching import is_over, resolve_job
from cograil.store.workflows import list_workflows
from cograil.verbs.explain import Explanation
from cograil.verbs.explain import explain as explain_job

FOLLOW_SECONDS = 0.3
PAGE = 10_000


@click.command()
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
    rows = table("workflow", "version", "name", "published", right=("version",))
    for one in found:
        rows.add_row(
            plain(one["workflow_id"]), str(one["version"]), plain(one["name"]), ago(one["published_at"])
        )
    out().print(rows)


async def _workflows(settings: Settings) -> list[dict[str, Any]]:
    async with connected(settings) as client, client.db.transaction("show") as tx:
        return await list_workflows(tx, "default")


@click.command()
@click.option("--status", "statuses", multiple=True, type=click.Choice(JOB_STATES), help="Repeatable.")
@click.option("--workflow", help="Only jobs of this workflow.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many.")
@click.option("--before", metavar="JOB", help="Only jobs older than this one, to turn the page.")
@instance_options
def jobs(
    statuses: tuple[str, ...],
    workflow: str | None,
    limit: int,
    before: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      cograil jobs
      cograil jobs --status running --status pending
      cograil jobs --workflow import --limit 10 --json
    """
    found = run_async(_jobs(settings_for(data_dir), statuses, workflow, limit, before))
    if as_json:
        write_json({"jobs": found})
        return
    rows = table("job", "status", "workflow", "created", "took", right=("created", "took"))
    for job in found:
        rows.add_row(
            Text(job["job_id"], no_wrap=True),
            state(job["status"]),
            plain(job["workflow_id"]),
            ago(job["created_at"]),
            took(job["started_at"], job["completed_at"]),
        )
    out().print(rows if found else "no jobs")
    if len(found) == limit:
        say(f"there may be more: --before {found[-1]['job_id']}")


async def _jobs(
    settings: Settings, statuses: tuple[str, ...], workflow: str | None, limit: int, before: str | None
) -> list[dict[str, Any]]:
    async with connected(settings) as client, client.db.transaction("show") as tx:
        last = None if before is None else await resolve_job(tx, before)
        return await reading.list_jobs(tx, statuses=statuses, workflow=workflow, before=last, limit=limit)


@click.command()
@click.argument("job")
@click.option("--node", help="Only this node, with its input and output.")
@instance_options
def show(job: str, node: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Show a job and its nodes. JOB may be the beginning of an id, 8 characters or more.

    \b
    Examples:
      cograil show 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e
      cograil show 019a8f2e77aa --node import
      cograil show 019a8f2e77aa --json | jq .job.status
    """
    run_async(_show(settings_for(data_dir), job, node, as_json))


async def _show(settings: Settings, job: str, node: str | None, as_json: bool) -> None:
    async with connected(settings) as client:
        view, workflow = await find_job_and_workflow(client, job)
        async with client.db.transaction("show") as tx:
            is_all = as_json or node is not None
            nodes = await reading.list_nodes(tx, view["job_id"], workflow, children=is_all)
            failures = [] if is_all else await reading.list_failures(tx, view["job_id"])
            traceback = None if node is None else await reading.find_traceback(tx, view["job_id"], node)
    if node is not None:
        nodes = [one for one in nodes if one["node_id"] == node]
        if not nodes:
            raise NodeNotFound(view["job_id"], node)
    if as_json:
        write_json({"job": view, "nodes": nodes})
    elif node is not None:
        show_node(nodes[0], traceback)
    else:
        show_job(view, workflow, nodes, failures)


@click.command()
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events after this number.")
@instance_options
def events(job: str, follow: bool, after: int, data_dir: Path | None, as_json: bool) -> None:
    """Show what happened in a job, or follow it. With --follow --json, one object on each line.

    \b
    Examples:
      cograil events 019a8f2e77aa
      cograil events 019a8f2e77aa --follow
      cograil events 019a8f2e77aa --after 12 --json
    """
    run_async(_events(settings_for(data_dir), job, follow, after, as_json))


async def _events(settings: Settings, job: str, follow: bool, after: int, as_json: bool) -> None:
    async with connected(settings) as client:
        async with client.db.transaction("show") as tx:
            job_id = await resolve_job(tx, job)
        if as_json and not follow:
            pages = [page async for page in _pages(client, job_id, after, follow=False)]
            write_json({"events": [event for page in pages for event in page]})
            return
        async for page in _pages(client, job_id, after, follow=follow):
            for event in page:
                write_json_line(event) if as_json else _print_event(event)


async def _pages(
    client: Client, job_id: str, after: int, *, follow: bool
) -> AsyncIterator[list[dict[str, Any]]]:
    """The events in pages; when following, until the job has ended and all were seen."""
    while True:
        async with client.db.transaction("show") as tx:
            was_over = not follow or await is_over(tx, job_id)
            page = await reading.list_events(tx, job_id, after=after, limit=PAGE)
        yield page
        after = page[-1]["seq"] if page else after
        if len(page) == PAGE:
            continue
        if was_over:
            return
        await asyncio.sleep(FOLLOW_SECONDS)


def _print_event(event: dict[str, Any]) -> None:
    moment = event["created_at"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    styles = {"failure": "red", "warning": "yellow", "success": "green"}
    line = Text.assemble(
        (f"{event['seq']:5} {moment}  ", "dim"),
        f"{printable(subject(event)):16} ",
        (sentence(event), styles.get(event["event_status"], "")),
    )
    out().print(line, soft_wrap=True)


@click.command()
@click.argument("job")
@click.option("--node", help="Only this node.")
@instance_options
def logs(job: str, node: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Show what the handlers of a job logged.

    \b
    Examples:
      cograil logs 019a8f2e77aa
      cograil logs 019a8f2e77aa --node import --json
    """
    lines = run_async(_logs(settings_for(data_dir), job, node))
    if as_json:
        write_json({"logs": lines})
        return
    for line in lines:
        out().print(_log_line(line), soft_wrap=True)


async def _logs(settings: Settings, job: str, node: str | None) -> list[dict[str, Any]]:
    async with connected(settings) as client, client.db.transaction("show") as tx:
        view, definition_id = await find_job(tx, job)
        lines = await reading.list_logs(tx, view["job_id"], node)
        if node is not None and not lines:
            workflow = await client.decider.catalog.get(tx, definition_id)
            if node not in workflow.nodes and await load_node(tx, view["job_id"], node) is None:
                raise NodeNotFound(view["job_id"], node)
        return lines


def _log_line(line: dict[str, Any]) -> Text:
    known = {"node_id", "attempt", "at", "level", "message", "fields"}
    given = {**line.get("fields", {}), **{key: value for key, value in line.items() if key not in known}}
    fields = " ".join(f"{key}={value}" for key, value in given.items())
    return Text.assemble(
        (f"{printable(line.get('at', ''))}  ", "dim"),
        f"{printable(line['node_id'])}#{line['attempt']}  ",
        f"{printable(line.get('level', ''))}  {printable(line.get('message', ''))} ",
        (printable(fields), "dim"),
    )


@click.command()
@click.argument("job")
@instance_options
def explain(job: str, data_dir: Path | None, as_json: bool) -> None:
    """Say why a job is not done: what it waits for, the most fundamental first; or how it ended.

    \b
    Examples:
      cograil explain 019a8f2e77aa
      cograil explain 019a8f2e77aa --json
    """
    found, view = run_async(_explain(settings_for(data_dir), job))
    if as_json:
        write_json(asdict(found))
        return
    out().print(Text.assemble(f"job {found.job_id} is ", state(found.status)), soft_wrap=True)
    reasons = [blocker.message for blocker in found.blockers] or how_it_ended(view)
    for reason in reasons or ["nothing holds it up"]:
        out().print(Text(f"  {printable(reason)}"), soft_wrap=True)


async def _explain(settings: Settings, job: str) -> tuple[Explanation, dict[str, Any]]:
    async with connected(settings) as client, client.db.transaction("explain") as tx:
        view, _ = await find_job(tx, job)
        return await explain_job(tx, client.decider.catalog, view["job_id"]), view
