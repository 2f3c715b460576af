"""Commands that change jobs: submit, cancel, retry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from cograil.cli.display.job_result import wait_and_show
from cograil.cli.display.output import say, write_json
from cograil.cli.display.previews import show_keys, show_retry, warn_of_changed_inputs
from cograil.cli.input_parsing import Timestamp, read_callback, read_inputs, read_labels
from cograil.cli.instance_client import (
    InstanceClient,
    audit,
    caller_traceparent,
    connected,
    connected_to_read,
    current_user,
    find_job,
    find_job_and_workflow,
)
from cograil.cli.job_wait import listen_for_job_ends
from cograil.cli.options import (
    async_command,
    input_file_option,
    input_option,
    instance_options,
    tenant_option,
    timeout_option,
    traced_async_command,
    wait_option,
)
from cograil.definitions.mapping_reader import MAX_VERSION
from cograil.errors import WorkflowNotFound
from cograil.model.workflow import Workflow
from cograil.settings import Settings
from cograil.store.database import Transaction
from cograil.store.job_progress_queries import resolve_job
from cograil.store.workflow_queries import find_workflow
from cograil.verbs.cancel import cancel as cancel_job
from cograil.verbs.retry import preview_retry
from cograil.verbs.retry import retry as retry_job
from cograil.verbs.submit import Submission
from cograil.verbs.submit import submit as submit_jobs

MAX_ID_LENGTH = 64


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The options --input-file and --input."""

    file: str | None = None
    pairs: tuple[str, ...] = ()

    def read(self, settings: Settings, workflow: Workflow) -> dict[str, Any]:
        """Return the inputs, parsed by the types that the workflow declares."""
        return read_inputs(self.file, self.pairs, workflow.inputs, max_bytes=settings.limits.input_bytes)


@click.command()
@click.argument("name")
@click.option(
    "--version", type=click.IntRange(1, MAX_VERSION), help="A published version; default: the latest."
)
@input_option
@input_file_option
@click.option(
    "--priority", type=click.IntRange(0, 10), default=0, show_default=True, help="10 is the highest."
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of the job; repeatable.")
@click.option("--correlation-id", help="Your own id that relates jobs, at most 64 characters.")
@click.option("--idempotency-key", "key", help="Submitting again with this key returns the same job.")
@click.option("--submitted-by", help="Who submits, at most 64 characters; default: the current user.")
@click.option("--callback", metavar="URL", help="Callback at the end of the job: a URL, or JSON.")
@click.option("--not-before", type=Timestamp(), help="Earliest start, such as 2026-01-31T09:00:00Z.")
@wait_option
@timeout_option
@tenant_option
@instance_options
@traced_async_command
async def submit(
    settings: Settings,
    name: str,
    version: int | None,
    pairs: tuple[str, ...],
    input_file: str | None,
    wait: bool,
    timeout: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Submit a job of a published workflow and print its id.

    With --idempotency-key a repeated submission prints the existing job, also when it was submitted through
    the API, and exits 4 when the key was used for a different request.

    With --wait the command waits for the job: it exits 0 when the job completed, 1 when it failed or was
    cancelled, 5 when it took longer than --timeout.

    \b
    Examples:
      cograil submit hello --input name=Ada
      cograil submit import --input-file inputs.json --wait --timeout 60 --json
      cograil submit order --input-file order.json --idempotency-key order-4711 --callback https://example.org/done
      echo '{"name": "Ada"}' | cograil submit hello --input-file - --priority 5 --label team=ops
    """
    _read_options(options)
    inputs = InputOptions(input_file, pairs)
    async with connected(settings) as client, listen_for_job_ends(client) as listener:
        job_id = await _submit_one(client, name, version, inputs, options)
        if wait:
            return await wait_and_show(client, listener, job_id, timeout=timeout, as_json=as_json)
        return await print_job(client, job_id, as_json)


def _read_options(options: dict[str, Any]) -> None:
    """Parse and check the options of a submission in place. Raises UsageError or BadParameter."""
    options["labels"] = read_labels(options["labels"])
    for name in ("correlation_id", "submitted_by"):
        if len(options[name] or "") > MAX_ID_LENGTH:
            hint = f"--{name.replace('_', '-')}"
            raise click.BadParameter(f"it has more than {MAX_ID_LENGTH} characters", param_hint=hint)
    if options["callback"] is not None:
        options["callback"] = read_callback(options["callback"])


async def run_published(client: InstanceClient, name: str, *, as_json: bool) -> int:
    """Submit a job of this published workflow with default inputs, and show the output of its last node."""
    async with listen_for_job_ends(client) as listener:
        job_id = await _submit_one(client, name, None, InputOptions(), {})
        return await wait_and_show(client, listener, job_id, timeout=None, as_json=as_json, is_short=True)


async def _submit_one(
    client: InstanceClient,
    name: str,
    version: int | None,
    input_options: InputOptions,
    options: dict[str, Any],
) -> str:
    options = dict(options)
    key = options.pop("key", None)
    async with client.db.transaction("submit") as tx:
        row = await find_workflow(tx, client.tenant, name, version)
        if row is None:
            raise WorkflowNotFound(name, version)
        definition_id = row[0]
        workflow = await client.engine_context.definitions.get(tx, definition_id)
        inputs = input_options.read(client.settings, workflow)
        by = options.get("submitted_by") or current_user()
        attributes = options | {"submitted_by": by, "trace_parent": caller_traceparent()}
        submission = Submission(name, inputs, definition_id=definition_id, **attributes)
        create = partial(_create_job, client, submission)
        if key is None:
            return await create(tx)
        from cograil.cli.commands import idempotent_submit  # noqa: PLC0415  rarely needed, and loads the API

        request = idempotent_submit.build_request(name, version, inputs, options)
        return await idempotent_submit.submit_once(tx, key, request, create)


async def _create_job(client: InstanceClient, submission: Submission, tx: Transaction) -> str:
    (job_id,) = await submit_jobs(tx, client.engine_context, [submission], client.tenant)
    await audit(tx, "submit", job_id)
    return job_id


async def print_job(client: InstanceClient, job_id: str, as_json: bool) -> int:
    """Print the job as JSON, or only its id, for shell scripts. Return exit code 0."""
    if as_json:
        async with client.db.transaction("show") as tx:
            write_json((await find_job(tx, job_id, client.tenant))[0])
    else:
        click.echo(job_id)
    return 0


@click.command()
@click.argument("job")
@click.option("--reason", default="", help="Why; stored in the events of the job.")
@tenant_option
@instance_options
@async_command
async def cancel(settings: Settings, job: str, reason: str, as_json: bool) -> None:
    """Cancel a job in any state; running handlers are notified.

    Exits 4 when the job has already ended.

    \b
    Examples:
      cograil cancel 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e
      cograil cancel 019a8f2e77aa --reason "wrong file"
    """
    async with connected(settings) as client:
        async with client.db.transaction("cancel") as tx:
            job_id = await resolve_job(tx, job, client.tenant)
            status = await cancel_job(tx, client.engine_context, job_id, by=current_user(), reason=reason)
            await audit(tx, "cancel", job_id, reason=reason)
        if as_json:
            await print_job(client, job_id, as_json)
        else:
            say(f"job {job_id} is {status}")


@click.command()
@click.argument("job")
@click.option(
    "--from", "--node", "node_id", metavar="NODE", help="Node to run again, with all nodes that follow it."
)
@input_option
@input_file_option
@click.option("--new-keys", is_flag=True, help="Give every node that runs again a new idempotency key.")
@click.option("--preview", is_flag=True, help="Only show what would be kept and what would run again.")
@wait_option
@timeout_option
@tenant_option
@instance_options
@traced_async_command
async def retry(
    settings: Settings,
    job: str,
    pairs: tuple[str, ...],
    input_file: str | None,
    timeout: float | None,
    preview: bool,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run the nodes that did not complete again, and print the id of the job that runs them.

    An ended job is final: a new job keeps the completed nodes, except those from --from on. The given inputs
    replace those of the old job; kept nodes have read the old inputs, and --preview shows which. In a job
    that still runs, name a failed node with --from; it is retried in
    place.

    A node that had not completed keeps its idempotency key, so that another system recognises work it may
    have done already. A completed node that runs again because of --from gets a new key.

    \b
    Examples:
      cograil retry 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e --wait
      cograil retry 019a8f2e77aa --from import --preview
      cograil retry 019a8f2e77aa --from import --input path=/data/right.csv
      cograil retry 019a8f2e77aa --new-keys
    """
    async with (connected_to_read if preview else connected)(settings) as client:
        view, workflow = await find_job_and_workflow(client, job)
        has_inputs = input_file is not None or pairs
        inputs = InputOptions(input_file, pairs)
        options["inputs"] = inputs.read(settings, workflow) if has_inputs else None
        if preview:
            await _preview_retry(client, view["job_id"], options, as_json)
            return 0
        async with listen_for_job_ends(client) as listener:
            new_id = await _retry_job(client, view["job_id"], options)
            if wait:
                return await wait_and_show(client, listener, new_id, timeout=timeout, as_json=as_json)
        return await print_job(client, new_id, as_json)


async def _preview_retry(client: InstanceClient, job_id: str, options: dict[str, Any], as_json: bool) -> None:
    async with client.db.transaction("preview") as tx:
        preview = await preview_retry(tx, client.engine_context, job_id, **options)
    show_retry(preview, as_json)
    if options["inputs"] is not None:
        warn_of_changed_inputs(preview)


async def _retry_job(client: InstanceClient, job_id: str, options: dict[str, Any]) -> str:
    """Retry the job and show its idempotency keys; return the id of the job that runs again."""
    async with client.db.transaction("retry") as tx:
        preview = await preview_retry(tx, client.engine_context, job_id, **options)
        new_id = await retry_job(
            tx,
            client.engine_context,
            job_id,
            **options,
            by=current_user(),
            trace_parent=caller_traceparent(),
        )
        details: dict[str, Any] = {"new_keys": True} if options["new_keys"] else {}
        await audit(tx, "retry", job_id, node_id=options["node_id"], retried_as=new_id, **details)
    show_keys(preview)
    if options["inputs"] is not None:
        warn_of_changed_inputs(preview)
    return new_id
