"""What a command can ask of an instance, whether it is reached through its database or through its server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from cograil.model.job import Signalled
from cograil.model.schedule import SchedulePlan
from cograil.model.workflow import Json, Workflow
from cograil.store.job_filter_queries import JobSearch
from cograil.store.job_progress_queries import JobProgressSnapshot
from cograil.store.job_queries import Traceback, View
from cograil.verbs.bulk import BulkForecast, JobFilter
from cograil.verbs.callback_targets import Receiver
from cograil.verbs.explain import JobExplanation
from cograil.verbs.retry import RetryForecast


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to submit. `attributes` are the optional fields of a submission, such as priority and labels."""

    workflow_id: str
    version: int | None
    inputs: Mapping[str, Json]
    idempotency_key: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """From which node a job is retried, with which inputs and keys."""

    node_id: str | None = None
    inputs: Mapping[str, Json] | None = None
    new_keys: bool = False


class EndOfJob(Protocol):
    """Wakes up a command that waits for the end of a job."""

    async def wait(self, seconds: float) -> None:
        """Return when a job may have ended, or after this many seconds."""


class JobReads(Protocol):
    """Jobs and their nodes, events and logs. A job id is complete, except where `text` may be a prefix of it."""

    async def resolve_job(self, text: str) -> str:
        """Return the id of the job with this id or prefix. Raises JobNotFound, Conflict or UsageError."""

    async def find_job(self, text: str) -> View:
        """Return the job with this id or prefix. Raises as `resolve_job` does."""

    async def job_workflow(self, job_id: str) -> Workflow:
        """Return the workflow that the job runs. Raises JobNotFound."""

    async def list_jobs(self, criteria: JobSearch, *, before: str | None, limit: int) -> list[View]:
        """Return the newest jobs that meet all criteria; `before` is the last job of the previous page."""

    async def list_nodes(self, job_id: str, workflow: Workflow, *, children: bool) -> list[View]:
        """Return the nodes in workflow order, with or without the children of fan-outs."""

    async def has_node(self, job_id: str, node_id: str) -> bool:
        """Return whether the job has a node or child with this name that is no longer pending."""

    async def list_failures(self, job_id: str) -> list[View]:
        """Return the failed nodes and children, the first to fail first."""

    async def find_traceback(self, job_id: str, node_id: str) -> Traceback | None:
        """Return the traceback of the last failed attempt of this node; None if it did not raise."""

    def event_pages(
        self, job_id: str, *, after: int, node: str | None, follow: bool
    ) -> AsyncIterator[list[View]]:
        """Yield the events in pages; with `follow`, until the job has ended and all events were read."""

    def log_lines(self, job_id: str, *, node: str | None, follow: bool) -> AsyncIterator[View]:
        """Yield the log lines; with `follow`, until the job has ended and all lines were read."""

    async def explain(self, job_id: str) -> JobExplanation:
        """Return what blocks the job. Raises JobNotFound."""

    async def watch(self, job_id: str, after: int | None) -> tuple[JobProgressSnapshot, list[View]]:
        """Return the progress of the job, and its events after this number; none without a number."""

    def job_ends(self) -> AbstractAsyncContextManager[EndOfJob]:
        """Listen for ends of jobs. Enter it before the job is submitted."""


class JobActions(Protocol):
    """Changes of jobs. Each raises the CograilError that says why nothing was changed."""

    async def submit(self, request: JobRequest) -> str:
        """Submit a job, and return its id. The same idempotency key again returns the same job."""

    async def cancel(self, job_id: str, reason: str) -> str:
        """Cancel the job, and return its status."""

    async def preview_retry(self, job_id: str, options: RetryOptions) -> RetryForecast:
        """Return what a retry would do. Changes nothing."""

    async def retry(self, job_id: str, options: RetryOptions) -> tuple[str, RetryForecast]:
        """Retry the job; return the id of the job that runs again, and what it keeps and runs again."""

    async def answer(self, job_id: str, answer: Signalled) -> View:
        """Answer an approval; without a node id, the only one that waits. Return node, decision and status."""

    async def preview_bulk(self, verb: str, job_filter: JobFilter) -> BulkForecast:
        """Return how many jobs match, and the first of them. Changes nothing."""

    async def begin_bulk(self, verb: str, job_filter: JobFilter, reason: str) -> str:
        """Start a bulk operation, and return the id of the job that runs it."""

    async def bulk_progress(self, text: str) -> View:
        """Return the progress of the bulk operation of the job with this id or prefix. Raises NotFound."""

    async def pause(self, kind: str, name: str, reason: str) -> str:
        """Pause a job, a queue or a workflow, and return its complete name."""

    async def resume(self, kind: str, name: str) -> str:
        """Resume a job, a queue or a workflow, and return its complete name."""

    async def list_pauses(self) -> list[View]:
        """Return everything that is paused."""


class WorkflowOperations(Protocol):
    """Published workflows and their schedules."""

    async def list_workflows(self) -> list[View]:
        """Return all published versions."""

    async def published_workflow(self, name: str, version: int | None) -> Workflow:
        """Return a published version, the latest when `version` is None. Raises WorkflowNotFound."""

    async def publish(self, files: Sequence[tuple[Workflow, str]]) -> list[View]:
        """Publish these workflows with their sources, all or none; return what was done for each."""

    async def list_schedules(self) -> list[View]:
        """Return the schedules, by name."""

    async def find_schedule(self, name: str) -> View:
        """Return a schedule, with the times it skipped since its last job. Raises ScheduleNotFound."""

    async def create_schedule(self, name: str, plan: SchedulePlan) -> View:
        """Create a schedule."""

    async def change_schedule(self, name: str, plan: SchedulePlan) -> View:
        """Replace the plan of a schedule."""

    async def run_schedule(self, name: str) -> View:
        """Submit a job of the schedule now."""

    async def list_firings(self, name: str, limit: int) -> list[View]:
        """Return the scheduled times of a schedule and their outcomes, latest first."""

    async def pause_schedule(self, name: str, reason: str) -> View:
        """Skip the runs of the schedule until it is resumed."""

    async def resume_schedule(self, name: str, *, detach: bool) -> View:
        """Run the schedule again from now on."""

    async def remove_schedule(self, name: str) -> None:
        """Remove the schedule and its history."""

    async def backfill(self, name: str, first: datetime, until: datetime, *, preview: bool) -> View:
        """Submit a job for each scheduled time in a period that has none; with `preview`, only count them."""


class AdminOperations(Protocol):
    """Webhooks, keys, and the state of the instance."""

    async def subscribe(self, receiver: Receiver, types: Sequence[str], workflow_id: str | None) -> View:
        """Subscribe a receiver, and return the subscription with its secret."""

    async def list_subscriptions(self) -> list[View]:
        """Return the subscriptions without their secrets."""

    async def unsubscribe(self, subscription_id: str) -> None:
        """Remove a subscription and its pending deliveries."""

    async def enable_subscription(self, subscription_id: str) -> View:
        """Enable a disabled subscription again."""

    async def rotate_subscription(
        self, subscription_id: str, secret: str | None, overlap_hours: float
    ) -> View:
        """Replace the secret of a subscription, and return it with the new one."""

    async def list_deliveries(self, state: str | None, job: str | None, limit: int) -> list[View]:
        """Return deliveries, newest first; `job` is an id or a prefix of one."""

    async def resend(self, delivery_ids: Sequence[str]) -> list[View]:
        """Queue these ended deliveries again."""

    async def list_keys(self, tenant: str | None) -> list[View]:
        """Return the API keys without the keys themselves."""

    async def overview(self) -> View:
        """Return one frame of `cograil top`."""


class Backend(JobReads, JobActions, WorkflowOperations, AdminOperations, Protocol):
    """An instance of cograil. Lost connections raise DatabaseUnavailable."""

    @property
    def subject(self) -> str:
        """What answers: "database" or "server"."""

    @property
    def max_input_bytes(self) -> int:
        """How large the inputs of a job may be."""

    def command(self, arguments: str) -> str:
        """Return a command that addresses this instance when pasted: `cograil show ... --server URL`."""

    def next_steps(self, job_id: str) -> str:
        """Describe how a job continues that this command no longer waits for."""
