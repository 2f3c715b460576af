"""`cograil logs`: the log lines of a job, stored or live."""

from __future__ import annotations

import re
from typing import Any

import click
from rich.text import Text

from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.commands.inspect_commands import require_node
from cograil.cli.display.formatting import printable, timestamp
from cograil.cli.display.output import out, say, write_json, write_json_line
from cograil.cli.options import instance_options, tenant_option
from cograil.errors import UsageError

KNOWN = {"node_id", "attempt", "at", "level", "logger", "message", "fields"}
Line = dict[str, Any]
STYLES = {"error": "red", "warning": "yellow"}


@click.command()
@click.argument("job")
@click.option("--node", help="Only this node.")
@click.option("--follow", "-f", is_flag=True, help="Continue until the job ends.")
@click.option(
    "--grep",
    "pattern",
    metavar="PATTERN",
    help="Only lines that match this regular expression, ignoring case.",
)
@tenant_option
@instance_options
@instance_command
async def logs(
    target: Target, job: str, node: str | None, follow: bool, pattern: str | None, as_json: bool
) -> None:
    """Show the log lines of a job's handlers: ctx.log, logging and printed output.

    With --follow --json, each line is one JSON object.

    \b
    Examples:
      cograil logs 019a8f2e77aa
      cograil logs 019a8f2e77aa --follow
      cograil logs 019a8f2e77aa --node import --grep 'timeout|refused' --json
    """
    expression = _compile(pattern)
    count, matches = 0, []
    async with target.open() if follow else target.open_to_read() as backend:
        job_id = await backend.resolve_job(job)
        if node is not None:
            await require_node(backend, job_id, node)
        async for line in backend.log_lines(job_id, node=node, follow=follow):
            count += 1
            if not expression.search(_searchable_text(line)):
                continue
            if not as_json:
                out().print(_format_line(line), soft_wrap=True)
            elif follow:
                write_json_line(line)
            else:
                matches.append(line)
    if as_json and not follow:
        write_json({"logs": matches})
    elif not count:
        say("no log lines; ctx.log.info(...), logging and print() in a handler are stored here")


def _compile(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(pattern or "", re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"--grep {pattern!r} is not a regular expression: {error}") from error


def _searchable_text(line: Line) -> str:
    return f"{line.get('logger', '')} {line.get('message', '')} {_fields(line)}"


def _fields(line: Line) -> str:
    fields = {**line.get("fields", {}), **{key: value for key, value in line.items() if key not in KNOWN}}
    return " ".join(f"{key}={value}" for key, value in fields.items())


def _format_line(line: Line) -> Text:
    level = printable(line.get("level", ""))
    logger = f"{printable(line['logger'])}: " if line.get("logger") else ""
    return Text.assemble(
        (f"{timestamp(line.get('at', ''))}  ", "dim"),
        f"{printable(line['node_id'])}#{line['attempt']}  ",
        (f"{level:7}  ", STYLES.get(level, "")),
        (logger, "dim"),
        f"{printable(line.get('message', ''))} ",
        (printable(_fields(line)), "dim"),
    )
