"""Commands that change jobs: submit, cancel, retry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from cograil.cli.backends.interface import Backend, JobRequest, RetryOptions
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.job_result import wait_and_show
from cograil.cli.display.output import say, write_json
from cograil.cli.display.previews import show_keys, show_retry, warn_of_changed_inputs
from cograil.cli.input_parsing import Timestamp, read_callback, read_inputs, read_labels
from cograil.cli.options import (
    input_file_option,
    input_option,
    instance_options,
    tenant_option,
    timeout_option,
    wait_option,
)
from cograil.definitions.mapping_reader import MAX_VERSION
from cograil.model.workflow import Workflow

MAX_ID_LENGTH = 64


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The options --input-file and --input."""

    file: str | None = None
    pairs: tuple[str, ...] = ()

    def read(self, backend: Backend, workflow: Workflow) -> dict[str, Any]:
        """Return the inputs, parsed by the types that the workflow declares."""
        return read_inputs(self.file, self.pairs, workflow.inputs, max_bytes=backend.max_input_bytes)


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
@instance_command(creates_jobs=True)
async def submit(
    target: Target,
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
    async with target.open() as backend, backend.job_ends() as ends:
        job_id = await _submit_one(backend, name, version, inputs, options)
        if wait:
            return await wait_and_show(backend, ends, job_id, timeout=timeout, as_json=as_json)
        return await print_job(backend, job_id, as_json)


def _read_options(options: dict[str, Any]) -> None:
    """Parse and check the options of a submission in place. Raises UsageError or BadParameter."""
    options["labels"] = read_labels(options["labels"])
    for name in ("correlation_id", "submitted_by"):
        if len(options[name] or "") > MAX_ID_LENGTH:
            hint = f"--{name.replace('_', '-')}"
            raise click.BadParameter(f"it has more than {MAX_ID_LENGTH} characters", param_hint=hint)
    if options["callback"] is not None:
        options["callback"] = read_callback(options["callback"])
    if options["key"] is not None:
        from cograil.cli.backends.idempotent_submit import check_key  # noqa: PLC0415  rarely needed

        check_key(options["key"])


async def run_published(backend: Backend, name: str, *, as_json: bool) -> int:
    """Submit a job of this published workflow with default inputs, and show the output of its last node."""
    async with backend.job_ends() as ends:
        job_id = await _submit_one(backend, name, None, InputOptions(), {})
        return await wait_and_show(backend, ends, job_id, timeout=None, as_json=as_json, is_short=True)


async def _submit_one(
    backend: Backend, name: str, version: int | None, input_options: InputOptions, options: dict[str, Any]
) -> str:
    attributes = {field: value for field, value in options.items() if field != "key"}
    workflow = await backend.published_workflow(name, version)
    inputs = input_options.read(backend, workflow)
    return await backend.submit(JobRequest(name, version, inputs, options.get("key"), attributes))


async def print_job(backend: Backend, job_id: str, as_json: bool) -> int:
    """Print the job as JSON, or only its id, for shell scripts. Return exit code 0."""
    if as_json:
        write_json(await backend.find_job(job_id))
    else:
        click.echo(job_id)
    return 0


@click.command()
@click.argument("job")
@click.option("--reason", default="", help="Why; stored in the events of the job.")
@tenant_option
@instance_options
@instance_command
async def cancel(target: Target, job: str, reason: str, as_json: bool) -> None:
    """Cancel a job in any state; running handlers are notified.

    Exits 4 when the job has already ended.

    \b
    Examples:
      cograil cancel 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e
      cograil cancel 019a8f2e77aa --reason "wrong file"
    """
    async with target.open() as backend:
        job_id = await backend.resolve_job(job)
        status = await backend.cancel(job_id, reason)
        if as_json:
            await print_job(backend, job_id, as_json)
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
@instance_command(creates_jobs=True)
async def retry(
    target: Target,
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
    async with target.open_to_read() if preview else target.open() as backend:
        job_id = (await backend.find_job(job))["job_id"]
        workflow = await backend.job_workflow(job_id)
        has_inputs = input_file is not None or pairs
        inputs = InputOptions(input_file, pairs).read(backend, workflow) if has_inputs else None
        retry_options = RetryOptions(inputs=inputs, **options)
        if preview:
            await _preview_retry(backend, job_id, retry_options, as_json)
            return 0
        async with backend.job_ends() as ends:
            new_id = await _retry_job(backend, job_id, retry_options)
            if wait:
                return await wait_and_show(backend, ends, new_id, timeout=timeout, as_json=as_json)
        return await print_job(backend, new_id, as_json)


async def _preview_retry(backend: Backend, job_id: str, options: RetryOptions, as_json: bool) -> None:
    preview = await backend.preview_retry(job_id, options)
    show_retry(preview, as_json)
    if options.inputs is not None:
        warn_of_changed_inputs(preview)


async def _retry_job(backend: Backend, job_id: str, options: RetryOptions) -> str:
    """Retry the job and show its idempotency keys; return the id of the job that runs again."""
    new_id, preview = await backend.retry(job_id, options)
    show_keys(preview)
    if options.inputs is not None:
        warn_of_changed_inputs(preview)
    return new_id
