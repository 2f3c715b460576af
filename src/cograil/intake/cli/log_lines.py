"""`cograil logs`: the log lines of a job, as they were written or as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from cograil.definitions.hints import hint_of_nodes
from cograil.errors import NodeNotFound, UsageError
from cograil.intake.cli.client import Client, connected, connected_to_read, find_job
from cograil.intake.cli.options import instance_options, settings_for, tenant_option
from cograil.intake.cli.output import out, say, write_json, write_json_line
from cograil.intake.cli.words import moment, printable
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store.job_filters import LogTail
from cograil.store.retrying import load_node
from cograil.store.watching import is_over

FOLLOW_SECONDS = 0.3
KNOWN = {"node_id", "attempt", "at", "level", "logger", "message", "fields"}
Line = dict[str, Any]
STYLES = {"error": "red", "warning": "yellow"}


@click.command()
@click.argument("job")
@click.option("--node", help="Only this node.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends.")
@click.option("--grep", "pattern", metavar="PATTERN", help="Only lines with this regular expression.")
@tenant_option
@instance_options
def logs(
    job: str, node: str | None, follow: bool, pattern: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Show what the handlers of a job logged: with ctx.log, with logging, or by printing.

    With --follow --json, one object on each line. Capital letters do not matter to --grep.

    \b
    Examples:
      cograil logs 019a8f2e77aa
      cograil logs 019a8f2e77aa --follow
      cograil logs 019a8f2e77aa --node import --grep 'timeout|refused' --json
    """
    run_async(_logs(settings_for(data_dir), job, node, follow, _compile(pattern), as_json))


def _compile(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(pattern or "", re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"--grep {pattern!r} is not a regular expression: {error}") from error


async def _logs(
    settings: Settings, job: str, node: str | None, follow: bool, pattern: re.Pattern[str], as_json: bool
) -> None:
    count, shown = 0, []
    async with (connected if follow else connected_to_read)(settings) as client:
        async for line in _lines(client, job, node, follow=follow):
            count += 1
            if not pattern.search(_text(line)):
                continue
            if not as_json:
                out().print(_render(line), soft_wrap=True)
            elif follow:
                write_json_line(line)
            else:
                shown.append(line)
    if as_json and not follow:
        write_json({"logs": shown})
    elif not count:
        say("nothing was logged; ctx.log.info(...), logging and print() of a handler are kept here")


async def _lines(
    client: Client, job: str, node: str | None, *, follow: bool
) -> AsyncIterator[dict[str, Any]]:
    async with client.db.transaction("show") as tx:
        view, definition_id = await find_job(tx, job, client.tenant)
        job_id = view["job_id"]
        if node is not None:
            workflow = await client.decider.catalog.get(tx, definition_id)
            if node not in workflow.nodes and await load_node(tx, job_id, node) is None:
                raise NodeNotFound(job_id, node, hint_of_nodes(node, workflow.nodes))
    tail = LogTail(job_id, node, client.tenant)
    while True:
        async with client.db.transaction("show") as tx:
            is_last = not follow or await is_over(tx, job_id, client.tenant)
            lines = await tail.read(tx)
        for line in lines:
            yield line
        if is_last:
            return
        await asyncio.sleep(FOLLOW_SECONDS)


def _text(line: Line) -> str:
    return f"{line.get('logger', '')} {line.get('message', '')} {_fields(line)}"


def _fields(line: Line) -> str:
    fields = {**line.get("fields", {}), **{key: value for key, value in line.items() if key not in KNOWN}}
    return " ".join(f"{key}={value}" for key, value in fields.items())


def _render(line: Line) -> Text:
    level = printable(line.get("level", ""))
    logger = f"{printable(line['logger'])}: " if line.get("logger") else ""
    return Text.assemble(
        (f"{moment(line.get('at', ''))}  ", "dim"),
        f"{printable(line['node_id'])}#{line['attempt']}  ",
        (f"{level:7}  ", STYLES.get(level, "")),
        (logger, "dim"),
        f"{printable(line.get('message', ''))} ",
        (printable(_fields(line)), "dim"),
    )
