"""`cograil run`: run a workflow file once, on the running instance or on a temporary one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import click

from cograil.cli.backends.database_backend import DatabaseBackend
from cograil.cli.command_decorators import database_command
from cograil.cli.commands.workflow_file_commands import read_file, unknown_handlers
from cograil.cli.display.job_result import wait_and_show
from cograil.cli.display.output import say, warn
from cograil.cli.input_parsing import read_inputs
from cograil.cli.instance_client import (
    InstanceClient,
    audit,
    caller_traceparent,
    connected,
    current_user,
    private_client,
)
from cograil.cli.job_wait import listen_for_job_ends
from cograil.cli.options import (
    app_option,
    input_file_option,
    input_option,
    instance_options,
    tenant_option,
    timeout_option,
)
from cograil.errors import NoInstance, UsageError
from cograil.model.workflow import Workflow
from cograil.processes import guest_worker, private_instance
from cograil.settings import Settings
from cograil.store.job_queries import list_processes
from cograil.verbs.publish import keep_draft, missing_handlers
from cograil.verbs.submit import Submission, submit


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@input_option
@input_file_option
@timeout_option
@app_option
@tenant_option
@instance_options
@database_command(creates_jobs=True)
async def run(
    settings: Settings,
    file: Path,
    pairs: tuple[str, ...],
    input_file: str | None,
    timeout: float | None,
    apps: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run a workflow file to its end and show its progress.

    The file is stored as a draft; nothing is published. When no instance runs on the data directory, one is
    started for this job and stopped afterwards. When one runs, its workers run the tasks; with --app this
    command also runs a worker for the handlers of these modules. Exits 0 when the job completed, 1 when it
    failed.

    \b
    Examples:
      cograil run examples/hello.yaml --input name=Ada
      cograil run flow.yaml --input-file inputs.json --app my_handlers
      cograil run flow.yaml --timeout 60 --json
    """
    workflow, source = read_file(file)
    inputs = read_inputs(input_file, pairs, workflow.inputs, max_bytes=settings.limits.input_bytes)
    async with _open_instance(settings, workflow, apps) as client, listen_for_job_ends(client) as listener:
        job_id = await _submit_draft(client, workflow, source, inputs)
        return await wait_and_show(
            DatabaseBackend(client), listener, job_id, timeout=timeout, as_json=as_json
        )


async def _submit_draft(
    client: InstanceClient, workflow: Workflow, source: str, inputs: dict[str, Any]
) -> str:
    """Submit a job of this workflow without publishing it; return the job id."""
    async with client.db.transaction("submit") as tx:
        draft = await keep_draft(tx, workflow, source, client.tenant)
        submission = Submission(
            workflow.workflow_id,
            inputs,
            definition_id=draft.definition_id,
            submitted_by=current_user(),
            trace_parent=caller_traceparent(),
        )
        (job_id,) = await submit(tx, client.engine_context, [submission], client.tenant)
        await audit(tx, "submit", job_id)
    return job_id


@asynccontextmanager
async def _open_instance(
    settings: Settings, workflow: Workflow, apps: tuple[str, ...]
) -> AsyncIterator[InstanceClient]:
    """Connect to the running instance, or start a private one for this block."""
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
                await _start_guest_worker(stack, client, apps)
            async with client.db.transaction("show") as tx:
                for message in await missing_handlers(tx, workflow):
                    warn(message)
        yield client


async def _require_handlers(settings: Settings, workflow: Workflow, apps: tuple[str, ...]) -> None:
    """Raise UsageError when a private worker cannot run a node of this workflow."""
    from cograil.app_registry import enabled_apps  # noqa: PLC0415  only for a private instance

    local_apps = enabled_apps(settings)
    prefixes = {app.name for app in local_apps}
    offered = {name: app for app in local_apps for name in app.offers}
    unknown = [
        message
        for node, message in unknown_handlers(workflow, apps)
        if node.handler not in offered and (node.handler or "").partition(".")[0] not in prefixes
    ]
    if unknown:
        raise UsageError("; ".join(unknown) + "; no other worker runs here, so the job would never end")
    for node in workflow.nodes.values():
        app = offered.get(node.handler)
        if app is not None and (reason := await app.unavailable(settings)):
            raise UsageError(f"node {node.node_id!r} needs the app {app.name!r}: {reason}")


async def _start_guest_worker(stack: AsyncExitStack, client: InstanceClient, apps: tuple[str, ...]) -> None:
    """Run a worker for the handlers of these modules on the instance until the stack is closed."""
    async with client.db.transaction("show") as tx:
        workers = [process for process in await list_processes(tx) if process["kind"] == "worker"]
    handlers = await stack.enter_async_context(guest_worker(client.db, client.settings, apps))
    names = ", ".join(handlers) or "no handlers"
    say(f"an instance runs here; this command adds a worker for {names}")
    for worker in workers:
        if shared := sorted(set(handlers) & set(worker["handlers"] or ())):
            warn(f"worker {worker['name']} of the instance also has {', '.join(shared)} and may run the task")
