"""Commands that answer approvals: approve, reject, signal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from cograil import strict_json
from cograil.cli.display.output import say, write_json
from cograil.cli.instance_client import Client, audit, connected, find_job, who
from cograil.cli.options import instance_options, settings_for, tenant_option
from cograil.engine.approvals import DECISIONS
from cograil.errors import UsageError
from cograil.model.job import Signalled
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store import job_queries
from cograil.store.database import Transaction
from cograil.store.job_progress_queries import resolve_job
from cograil.verbs.signal import signal as send_signal
from cograil.verbs.signal import waiting_approval

Command = TypeVar("Command", bound=Callable[..., Any])


def _answer_options(command: Command) -> Command:
    by = click.option("--by", help="Who answers. Default: whoever runs this command.")
    reason = click.option("--reason", help="Why; kept with the answer.")
    data = click.option("--data", metavar="JSON", help="What the form asks for, as JSON.")
    return by(reason(data(tenant_option(instance_options(command)))))


@click.command()
@click.argument("job")
@click.argument("node", required=False)
@_answer_options
def approve(job: str, node: str | None, **given: Any) -> None:
    """Approve what a node of a job asks.

    Without NODE it is the one that waits; if several do, they are listed. The first answer counts: exits 4
    when it was answered already, does not wait for an answer, or is not yours to give; 2 when --data does not
    fit the form; 3 when there is no such job or node.

    \b
    Examples:
      cograil approve 019a8f2e77aa
      cograil approve 019a8f2e77aa release
      cograil approve 019a8f2e77aa release --reason "looks good" --data '{"window": "tonight"}'
    """
    _send(job, node, "approve", **given)


@click.command()
@click.argument("job")
@click.argument("node", required=False)
@_answer_options
def reject(job: str, node: str | None, **given: Any) -> None:
    """Reject what a node of a job asks. The job goes on: what follows reads the decision.

    Without NODE it is the one that waits; if several do, they are listed. Exits as `cograil approve` does.

    \b
    Examples:
      cograil reject 019a8f2e77aa --reason "not on a Friday"
      cograil reject 019a8f2e77aa release --reason "not on a Friday"
    """
    _send(job, node, "reject", **given)


@click.command()
@click.argument("job")
@click.argument("node")
@click.argument("name", type=click.Choice(list(DECISIONS)))
@_answer_options
def signal(job: str, node: str, name: str, **given: Any) -> None:
    """Send a signal to a node of a job: approve or reject, for scripts that have the word in a variable.

    \b
    Examples:
      cograil signal 019a8f2e77aa release approve --by ann
    """
    _send(job, node, name, **given)


def _send(
    job: str,
    node: str | None,
    name: str,
    *,
    by: str | None,
    reason: str | None,
    data: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    answer = Signalled(name, node or "", (who() if by is None else by) or None, reason, _read_data(data))
    run_async(_answer(settings_for(data_dir), job, answer, as_json))


def _read_data(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return strict_json.read(text)
    except strict_json.InvalidJson as error:
        raise UsageError(f"--data: {error}") from error


async def _waiting_node(client: Client, tx: Transaction, job_id: str) -> str:
    view, definition_id = await find_job(tx, job_id, client.tenant)
    workflow = await client.engine_context.definitions.get(tx, definition_id)
    nodes = await job_queries.list_nodes(tx, job_id, workflow, tenant=client.tenant, children=False)
    return waiting_approval(view, nodes)


async def _answer(settings: Settings, job: str, answer: Signalled, as_json: bool) -> None:
    async with connected(settings) as client, client.db.transaction("signal") as tx:
        job_id = await resolve_job(tx, job, client.tenant)
        if not answer.node_id:
            answer = replace(answer, node_id=await _waiting_node(client, tx, job_id))
        given = await send_signal(tx, client.engine_context, job_id, answer)
        node_id, reason = answer.node_id, answer.reason
        await audit(tx, f"signal {answer.name}", job_id, node_id=node_id, reason=reason)
    if not as_json:
        say(f"{answer.node_id} is {given.decision}; job {job_id} is {given.job_status}")
        return
    write_json(
        {
            "job_id": job_id,
            "node_id": answer.node_id,
            "decision": given.decision,
            "by": answer.by,
            "reason": answer.reason,
            "data": answer.data,
            "job_status": given.job_status,
        }
    )
