"""Commands that start, stop and repeat jobs: run, submit, cancel, retry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from cograil.definitions.section import MAX_VERSION
from cograil.errors import NoInstance, UsageError, WorkflowNotFound
from cograil.intake.cli.client import (
    Client,
    audit,
    callers_trace,
    connected,
    connected_to_read,
    find_job,
    find_job_and_workflow,
    private_client,
    run_traced,
    who,
)
from cograil.intake.cli.containers import why_no_containers
from cograil.intake.cli.files import handlers_nobody_has, read_file, unknown_handlers
from cograil.intake.cli.inputs import Moment, read_callback, read_inputs, read_labels
from cograil.intake.cli.options import (
    app_option,
    input_file_option,
    input_option,
    instance_options,
    settings_for,
    tenant_option,
    timeout_option,
    wait_option,
)
from cograil.intake.cli.outcome import see_to_end
from cograil.intake.cli.output import say, warn, write_json
from cograil.intake.cli.previews import show_retry, tell_keys, warn_of_changed_inputs
from cograil.intake.cli.waiting import listening
from cograil.model.workflow import CONTAINER, Workflow
from cograil.processes import guest_worker, private_instance, run_async
from cograil.settings import Settings
from cograil.store.database import Transaction
from cograil.store.reading import list_processes
from cograil.store.watching import resolve_job
from cograil.store.workflows import find_workflow
from cograil.verbs.cancel import cancel as cancel_job
from cograil.verbs.publish import keep_draft
from cograil.verbs.retry import preview_retry
from cograil.verbs.retry import retry as retry_job
from cograil.verbs.submit import Submission
from cograil.verbs.submit import submit as submit_jobs


@dataclass(frozen=True, slots=True)
class Given:
    """Where the inputs of a job come from, and how to wait for it."""

    file: str | None
    pairs: tuple[str, ...]
    timeout: float | None
    as_json: bool


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@input_option
@input_file_option
@timeout_option
@app_option
@tenant_option
@instance_options
def run(
    file: Path,
    pairs: tuple[str, ...],
    input_file: str | None,
    timeout: float | None,
    apps: tuple[str, ...],
    data_dir: Path | None,
    as_json: bool,
) -> int:
    """Run a workflow file to its end and show how it goes.

    The file is kept as a draft, nothing is published. When no instance runs on the data directory, one
    is started for this job and stopped after it; when one runs, its workers do the work with the handlers
    they have, and --app is not used. Exits 0 when the job completed, 1 when it failed.

    \b
    Examples:
      cograil run examples/hello.yaml --input name=Ada
      cograil run flow.yaml --input-file inputs.json --app my_handlers
      cograil run flow.yaml --timeout 60 --json
    """
    workflow, source = read_file(file)
    given = Given(input_file, pairs, timeout, as_json)
    return run_traced(_run(settings_for(data_dir), workflow, source, given, apps))


async def _run(
    settings: Settings, workflow: Workflow, source: str, given: Given, apps: tuple[str, ...]
) -> int:
    inputs = _inputs(settings, workflow, given)
    async with _some_instance(settings, workflow, apps) as client:
        return await run_draft(client, workflow, source, inputs, given.timeout, given.as_json)


async def run_draft(
    client: Client,
    workflow: Workflow,
    source: str,
    inputs: dict[str, Any],
    timeout: float | None = None,
    as_json: bool = False,
) -> int:
    """Submit a job of this workflow without publishing it, and see it to its end; the exit code."""
    async with listening(client) as bell:
        async with client.db.transaction("submit") as tx:
            draft = await keep_draft(tx, workflow, source, client.tenant)
            submission = Submission(
                workflow.workflow_id,
                inputs,
                definition_id=draft.definition_id,
                submitted_by=who(),
                trace_parent=callers_trace(),
            )
            (job_id,) = await submit_jobs(tx, client.decider, [submission], client.tenant)
            await audit(tx, "submit", job_id)
        return await see_to_end(client, bell, job_id, timeout=timeout, as_json=as_json)


@asynccontextmanager
async def _some_instance(
    settings: Settings, workflow: Workflow, apps: tuple[str, ...]
) -> AsyncIterator[Client]:
    """The instance that runs, else one of our own for the time of this command."""
    async with AsyncExitStack() as stack:
        client = None
        with suppress(NoInstance):
            client = await stack.enter_async_context(connected(settings))
        if client is None:
            await _require_handlers(settings, workflow, apps)
            private = private_instance(settings, apps=apps, report=say)
            client = private_client(await stack.enter_async_context(private), settings)
        else:
            if apps:
                await _visit(stack, client, apps)
            async with client.db.transaction("show") as tx:
                for message in await handlers_nobody_has(tx, workflow):
                    warn(message)
        yield client


async def _require_handlers(settings: Settings, workflow: Workflow, apps: tuple[str, ...]) -> None:
    """Raises UsageError when a worker of our own could not do what this workflow asks for."""
    from cograil.apps.app import enabled_apps  # noqa: PLC0415  only where nothing runs

    brought = {app.name for app in enabled_apps(settings)}
    unknown = [
        message
        for node, message in unknown_handlers(workflow, apps)
        if node.handler != CONTAINER and (node.handler or "").partition(".")[0] not in brought
    ]
    if unknown:
        raise UsageError("; ".join(unknown) + "; nobody else works here, so the job would never end")
    nodes = [node.node_id for node in workflow.nodes.values() if node.handler == CONTAINER]
    if nodes and (why := await why_no_containers(settings)):
        raise UsageError(f"node {nodes[0]!r} runs a container: {why}")


async def _visit(stack: AsyncExitStack, client: Client, apps: tuple[str, ...]) -> None:
    """Run a worker for the handlers of these modules beside the instance, for the time of this command."""
    async with client.db.transaction("show") as tx:
        workers = [one for one in await list_processes(tx) if one["kind"] == "worker"]
    handlers = await stack.enter_async_context(guest_worker(client.db, client.settings, apps))
    say(f"an instance runs here: this command runs a worker beside it for {', '.join(handlers) or 'nothing'}")
    for worker in workers:
        if shared := sorted(set(handlers) & set(worker["handlers"] or ())):
            names = ", ".join(shared)
            warn(
                f"the worker {worker['name']} of the instance has {names} too and may be the one that runs it"
            )


def _inputs(settings: Settings, workflow: Workflow, given: Given) -> dict[str, Any]:
    return read_inputs(given.file, given.pairs, workflow.inputs, max_bytes=settings.limits.input_bytes)


@click.command()
@click.argument("name")
@click.option(
    "--version", type=click.IntRange(1, MAX_VERSION), help="A published version; default: the latest."
)
@input_option
@input_file_option
@click.option("--priority", type=click.IntRange(0, 10), default=0, show_default=True, help="10 goes first.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the job; repeatable.")
@click.option("--correlation-id", help="An id of yours that ties jobs together, at most 64 characters.")
@click.option("--idempotency-key", "key", help="Asked again with this key, it is the same job.")
@click.option("--submitted-by", help="Who wants it, at most 64 characters; default: you.")
@click.option("--callback", metavar="URL", help="Who is told of its end: a URL, or the callback as JSON.")
@click.option("--not-before", type=Moment(), help="Start at this moment, such as 2026-01-31T09:00:00Z.")
@wait_option
@timeout_option
@tenant_option
@instance_options
def submit(
    name: str,
    version: int | None,
    pairs: tuple[str, ...],
    input_file: str | None,
    wait: bool,
    timeout: float | None,
    data_dir: Path | None,
    as_json: bool,
    **words: Any,
) -> int:
    """Start a job of a published workflow and print its id.

    With --idempotency-key the same again prints the same job, also when it was made over the API, and exits 4
    when the key was used for another one.

    With --wait it waits for the end: exits 0 when the job completed, 1 when it failed or was
    cancelled, 5 when it took longer than --timeout.

    \b
    Examples:
      cograil submit hello --input name=Ada
      cograil submit import --input-file inputs.json --wait --timeout 60 --json
      cograil submit order --input-file order.json --idempotency-key order-4711 --callback https://example.org/done
      echo '{"name": "Ada"}' | cograil submit hello --input-file - --priority 5 --label team=ops
    """
    given = Given(input_file, pairs, timeout, as_json)
    words["labels"] = read_labels(words["labels"])
    for word in ("correlation_id", "submitted_by"):
        if len(words[word] or "") > 64:
            raise click.BadParameter(
                "it has more than 64 characters", param_hint=f"--{word.replace('_', '-')}"
            )
    if words["callback"] is not None:
        words["callback"] = read_callback(words["callback"])
    return run_traced(_submit(settings_for(data_dir), name, version, given, words, wait))


async def _submit(
    settings: Settings, name: str, version: int | None, given: Given, words: dict[str, Any], wait: bool
) -> int:
    async with connected(settings) as client, listening(client) as bell:
        job_id = await _submit_one(client, name, version, given, words)
        if wait:
            return await see_to_end(client, bell, job_id, timeout=given.timeout, as_json=given.as_json)
        return await print_job(client, job_id, given.as_json)


async def run_published(client: Client, name: str, *, as_json: bool) -> int:
    """Submit a job of this published workflow, with its defaults; show what its last node returned."""
    async with listening(client) as bell:
        job_id = await _submit_one(client, name, None, Given(None, (), None, as_json), {})
        return await see_to_end(client, bell, job_id, timeout=None, as_json=as_json, is_short=True)


async def _submit_one(
    client: Client, name: str, version: int | None, given: Given, words: dict[str, Any]
) -> str:
    words = dict(words)
    key = words.pop("key", None)
    async with client.db.transaction("submit") as tx:
        found = await find_workflow(tx, client.tenant, name, version)
        if found is None:
            raise WorkflowNotFound(name, version)
        workflow = await client.decider.catalog.get(tx, found[0])
        inputs = _inputs(client.settings, workflow, given)
        by = words.get("submitted_by") or who()
        said = words | {"submitted_by": by, "trace_parent": callers_trace()}
        submission = Submission(name, inputs, definition_id=found[0], **said)
        make = partial(_make_job, client, submission)
        if key is None:
            return await make(tx)
        from cograil.intake.cli import once  # noqa: PLC0415  most have no key, and it loads the API

        return await once.submit_once(tx, key, once.request_of(name, version, inputs, words), make)


async def _make_job(client: Client, submission: Submission, tx: Transaction) -> str:
    (job_id,) = await submit_jobs(tx, client.decider, [submission], client.tenant)
    await audit(tx, "submit", job_id)
    return job_id


async def print_job(client: Client, job_id: str, as_json: bool) -> int:
    """The job as JSON, or just its id, which is all that a shell wants."""
    if as_json:
        async with client.db.transaction("show") as tx:
            write_json((await find_job(tx, job_id, client.tenant))[0])
    else:
        click.echo(job_id)
    return 0


@click.command()
@click.argument("job")
@click.option("--reason", default="", help="Why; kept in the job's events.")
@tenant_option
@instance_options
def cancel(job: str, reason: str, data_dir: Path | None, as_json: bool) -> None:
    """Cancel a job, in whatever state it is; running handlers are told.

    A job that has ended stays as it is: exits 4.

    \b
    Examples:
      cograil cancel 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e
      cograil cancel 019a8f2e77aa --reason "wrong file"
    """
    run_async(_cancel(settings_for(data_dir), job, reason, as_json))


async def _cancel(settings: Settings, job: str, reason: str, as_json: bool) -> None:
    async with connected(settings) as client:
        async with client.db.transaction("cancel") as tx:
            job_id = await resolve_job(tx, job, client.tenant)
            status = await cancel_job(tx, client.decider, job_id, by=who(), reason=reason)
            await audit(tx, "cancel", job_id, reason=reason)
        if as_json:
            await print_job(client, job_id, as_json)
        else:
            say(f"job {job_id} is {status}")


@click.command()
@click.argument("job")
@click.option(
    "--from", "--node", "node", metavar="NODE", help="The node to run again, with all that follows it."
)
@input_option
@input_file_option
@click.option("--new-keys", is_flag=True, help="Give every node that runs again a new idempotency key.")
@click.option("--preview", is_flag=True, help="Only say what would be kept and what would run again.")
@wait_option
@timeout_option
@tenant_option
@instance_options
def retry(
    job: str,
    pairs: tuple[str, ...],
    input_file: str | None,
    timeout: float | None,
    data_dir: Path | None,
    as_json: bool,
    **words: Any,
) -> int:
    """Run again what did not complete, and print the id of the job in which that happens.

    A finished job is final: a new job keeps the nodes that completed, except those from --from on. Inputs
    that are given replace those of the old job; nodes that are kept have read the old ones, and --preview
    says which. In a job that still runs, name a failed node with --from; it is tried again in place.

    A node that had not completed runs with the idempotency key it had, so that another system recognises
    what it may have done already. A node that had completed and runs again because of --from has a new one.

    \b
    Examples:
      cograil retry 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e --wait
      cograil retry 019a8f2e77aa --from import --preview
      cograil retry 019a8f2e77aa --from import --input path=/data/right.csv
      cograil retry 019a8f2e77aa --new-keys
    """
    given = Given(input_file, pairs, timeout, as_json)
    return run_traced(_retry(settings_for(data_dir), job, given, **words))


async def _retry(
    settings: Settings, job: str, given: Given, *, node: str | None, new_keys: bool, preview: bool, wait: bool
) -> int:
    async with (connected_to_read if preview else connected)(settings) as client:
        job_id, inputs = await _what_to_retry(client, job, given)
        words: dict[str, Any] = {"node_id": node, "inputs": inputs, "new_keys": new_keys}
        if preview:
            async with client.db.transaction("preview") as tx:
                seen = await preview_retry(tx, client.decider, job_id, **words)
            show_retry(seen, given.as_json)
            if inputs is not None:
                warn_of_changed_inputs(seen)
            return 0
        async with listening(client) as bell:
            async with client.db.transaction("retry") as tx:
                seen = await preview_retry(tx, client.decider, job_id, **words)
                new_id = await retry_job(
                    tx, client.decider, job_id, **words, by=who(), trace_parent=callers_trace()
                )
                said: dict[str, Any] = {"new_keys": True} if new_keys else {}
                await audit(tx, "retry", job_id, node_id=node, retried_as=new_id, **said)
            tell_keys(seen)
            if inputs is not None:
                warn_of_changed_inputs(seen)
            if wait:
                return await see_to_end(client, bell, new_id, timeout=given.timeout, as_json=given.as_json)
        return await print_job(client, new_id, given.as_json)


async def _what_to_retry(client: Client, job: str, given: Given) -> tuple[str, dict[str, Any] | None]:
    """The job that is meant, and the inputs that were given for its new run."""
    view, workflow = await find_job_and_workflow(client, job)
    has_inputs = given.file is not None or given.pairs
    return view["job_id"], _inputs(client.settings, workflow, given) if has_inputs else None
