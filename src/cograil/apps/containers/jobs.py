"""Container jobs: submit, show, list, cancel and settle them.

Each is a job of the engine with one node. A row with the caller's id is created in the same transaction.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import NamedTuple

from cograil.apps.containers import queries as store
from cograil.apps.containers.queries import ContainerJob
from cograil.apps.containers.request import ContainerRequest
from cograil.apps.containers.status import Status, status_of, view_of
from cograil.definitions import read_workflow
from cograil.errors import AlreadyTerminal, Conflict, JobNotFound, NotFound
from cograil.model.workflow import CONTAINER, Json
from cograil.store.database import Transaction
from cograil.verbs.advance import EngineContext
from cograil.verbs.callback_targets import ORCHESTRATOR
from cograil.verbs.cancel import cancel
from cograil.verbs.outbox import tell
from cograil.verbs.publish import publish
from cograil.verbs.submit import Submission, submit

EXIT = "orchestrator.job.exit"
USUAL_EVENTS = [f"orchestrator.job.{kind}" for kind in ("start", "artifact", "log")] + [EXIT]
MAX_LISTED = 10_000
QUEUE = "containers"
APP = "containers"
WORKFLOW_ID = "cograil.containers"
WORKFLOW = f"""\
workflow_id: {WORKFLOW_ID}
name: One container, asked for at /v1/jobs
inputs:
  name: {{type: string, description: What its caller calls it.}}
  body: {{type: object}}
nodes:
  run:
    handler: {CONTAINER}
    queue: {QUEUE}
    params: {{name: "{{{{ inputs.name }}}}", body: "{{{{ inputs.body }}}}"}}
    timeout_seconds: 259200
    retry: {{max_attempts: 1}}
"""


class ContainerJobNotFound(NotFound):
    """No container job has this id, or it ended too long ago."""

    code = "container_job_not_found"

    def __init__(self, id: str) -> None:
        super().__init__("Job not found")
        self.id = id


class ContainerJobExists(Conflict):
    """Another container job has this id."""

    code = "container_job_exists"

    def __init__(self, id: str) -> None:
        super().__init__("Job already exists")
        self.id = id


class SettledEnd(NamedTuple):
    """The final status of a container job that was just settled, and the seconds since its acceptance."""

    status: Status
    seconds: float


@dataclass(frozen=True, slots=True)
class ContainerCaller:
    """The caller: its tenant, name and trace, and how long ids of ended jobs are remembered."""

    tenant: str
    by: str | None
    retention_seconds: float
    trace_parent: str | None = None


async def make(
    tx: Transaction, engine_context: EngineContext, request: ContainerRequest, caller: ContainerCaller
) -> str:
    """Submit the job; return its id in the engine. Raises ContainerJobExists, or InvalidInput for the callback."""
    published = await publish(tx, read_workflow(WORKFLOW, app=APP), WORKFLOW, caller.tenant)
    body = request.model_dump(mode="json", by_alias=True, exclude={"id", "callback"}, exclude_unset=True)
    submission = Submission(
        WORKFLOW_ID,
        {"name": request.id, "body": body},
        definition_id=published.definition_id,
        app=APP,
        submitted_by=caller.by,
        labels={"container_job": request.id},
        callback=_callback(request),
        trace_parent=caller.trace_parent,
    )
    (job_id,) = await submit(tx, engine_context, [submission], caller.tenant)
    if not await store.take_container_id(tx, caller.tenant, request.id, job_id, caller.retention_seconds):
        raise ContainerJobExists(request.id)
    return job_id


def _callback(request: ContainerRequest) -> dict[str, Json] | None:
    """The callback for the engine; without named events, the four usual ones."""
    if request.callback is None:
        return None
    callback: dict[str, Json] = {"url": request.callback.url, "style": ORCHESTRATOR}
    callback["events"] = request.callback.events or USUAL_EVENTS
    return callback | ({"secret": request.callback.key} if request.callback.key else {})


async def show(tx: Transaction, id: str, caller: ContainerCaller) -> dict[str, Json]:
    """The view of a container job. Raises ContainerJobNotFound."""
    return view_of(id, status_of(await _find(tx, id, caller)))


async def list_all(tx: Transaction, caller: ContainerCaller) -> list[dict[str, Json]]:
    """All remembered container jobs, newest first."""
    container_jobs = await store.find_container_jobs(
        tx, caller.tenant, caller.retention_seconds, limit=MAX_LISTED
    )
    return [view_of(job.id, status_of(job)) for job in container_jobs]


async def stop(
    tx: Transaction, engine_context: EngineContext, id: str, caller: ContainerCaller
) -> tuple[str | None, SettledEnd | None]:
    """Cancel a container job unless it has ended; return its job and end. Raises ContainerJobNotFound.

    Its exit is told with this commit. The container is stopped by the worker that learns of it.
    """
    job = await _find(tx, id, caller)
    if status_of(job).is_final:
        return None, None
    with contextlib.suppress(AlreadyTerminal, JobNotFound):  # it ended just now
        await cancel(tx, engine_context, job.job_id, by=caller.by or "", reason=f"DELETE of {id}")
    return job.job_id, await settle(tx, caller.tenant, id, caller.retention_seconds)


async def _find(tx: Transaction, id: str, caller: ContainerCaller) -> ContainerJob:
    container_jobs = await store.find_container_jobs(tx, caller.tenant, caller.retention_seconds, id)
    if not container_jobs:
        raise ContainerJobNotFound(id)
    return container_jobs[0]


async def settle(tx: Transaction, tenant: str, id: str, retention_seconds: float) -> SettledEnd | None:
    """Write the end of an ended job, once, and publish it unless its attempt did; None if not settled here."""
    if not await store.lock_container_job(tx, tenant, id):
        return None
    (job,) = await store.find_container_jobs(tx, tenant, retention_seconds, id)
    status = status_of(job)
    if not status.is_final or job.job_status in ("pending", "running"):
        return None
    if not status.is_told:
        await _tell_exit(tx, tenant, job, status)
    await store.settle_container_job(tx, tenant, id, status.word, status.exit_code, status.error)
    return SettledEnd(status, job.seconds)


async def _tell_exit(tx: Transaction, tenant: str, job: ContainerJob, status: Status) -> None:
    data = {"jobId": job.id, "exitCode": status.exit_code, "error": status.error, "meta": job.meta or {}}
    await tell(tx, tenant, EXIT, job.id, data, job_id=job.job_id, sequence=job.number + 1)
