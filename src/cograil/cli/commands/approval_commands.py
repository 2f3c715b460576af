"""Commands that answer approvals: approve, reject, signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cograil import strict_json
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.output import render
from cograil.cli.options import instance_options, tenant_option
from cograil.engine.approvals import DECISIONS
from cograil.errors import UsageError
from cograil.model.job import Signalled

Command = TypeVar("Command", bound=Callable[..., Any])


def _answer_options(command: Command) -> Command:
    by = click.option("--by", help="Who answers. Default: the current user.")
    reason = click.option("--reason", help="Why; stored with the answer.")
    data = click.option("--data", metavar="JSON", help="Values for the approval form, as JSON.")
    return by(reason(data(tenant_option(instance_options(command)))))


@click.command()
@click.argument("job")
@click.argument("node", required=False)
@_answer_options
@instance_command
async def approve(target: Target, job: str, node: str | None, **answer: Any) -> None:
    """Approve a waiting approval node of a job.

    NODE may be omitted when only one node waits; if several wait, they are listed. Only the first answer
    counts. Exits 4 when the node is already answered, does not wait, or may not be answered by you; 2 when
    --data does not match the form; 3 when the job or node does not exist.

    \b
    Examples:
      cograil approve 019a8f2e77aa
      cograil approve 019a8f2e77aa release
      cograil approve 019a8f2e77aa release --reason "looks good" --data '{"window": "tonight"}'
    """
    await _answer(target, job, node, "approve", **answer)


@click.command()
@click.argument("job")
@click.argument("node", required=False)
@_answer_options
@instance_command
async def reject(target: Target, job: str, node: str | None, **answer: Any) -> None:
    """Reject a waiting approval node of a job. The job continues; later nodes can read the decision.

    NODE may be omitted when only one node waits; if several wait, they are listed. The exit codes are those
    of `cograil approve`.

    \b
    Examples:
      cograil reject 019a8f2e77aa --reason "not on a Friday"
      cograil reject 019a8f2e77aa release --reason "not on a Friday"
    """
    await _answer(target, job, node, "reject", **answer)


@click.command()
@click.argument("job")
@click.argument("node")
@click.argument("name", type=click.Choice(list(DECISIONS)))
@_answer_options
@instance_command
async def signal(target: Target, job: str, node: str, name: str, **answer: Any) -> None:
    """Send the signal approve or reject to a node of a job, for scripts that keep it in a variable.

    \b
    Examples:
      cograil signal 019a8f2e77aa release approve --by ann
    """
    await _answer(target, job, node, name, **answer)


async def _answer(
    target: Target,
    job: str,
    node: str | None,
    name: str,
    *,
    by: str | None,
    reason: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    answer = Signalled(name, node or "", by, reason, _read_data(data))
    async with target.open() as backend:
        job_id = await backend.resolve_job(job)
        result = await backend.answer(job_id, answer)
    value = {
        "job_id": job_id,
        "node_id": result["node_id"],
        "decision": result["decision"],
        "by": result["by"],
        "reason": answer.reason,
        "data": answer.data,
        "job_status": result["job_status"],
    }
    message = f"{result['node_id']} is {result['decision']}; job {job_id} is {result['job_status']}"
    render(value, message, as_json)


def _read_data(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return strict_json.read(text)
    except strict_json.InvalidJson as error:
        raise UsageError(f"--data: {error}") from error
