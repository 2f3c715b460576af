"""Waiting for a job: a wake-up says when to query its state; the query decides."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import psycopg

from cograil.cli.backends.database_jobs import CliJobEndListener
from cograil.cli.backends.database_jobs import listen_for_job_ends as _listen
from cograil.cli.backends.interface import EndOfJob, JobReads
from cograil.cli.display.output import warn
from cograil.cli.instance_client import InstanceClient
from cograil.errors import DatabaseUnavailable, WaitTimeout
from cograil.store.job_progress_queries import JobProgressSnapshot
from cograil.store.job_queries import View

__all__ = ["CliJobEndListener", "ProgressView", "WaitedFor", "listen_for_job_ends", "wait_for_end"]

STALLED_SECONDS = 3.0  # without a change; then the view shows why the job waits
MAX_OUTAGE_SECONDS = 60.0  # how long to wait for a database or a server that does not answer
STALL_REASONS = frozenset({"no_worker", "no_orchestrator"})


class WaitedFor(JobReads, Protocol):
    """The part of a backend that waiting needs."""

    @property
    def subject(self) -> str: ...

    def next_steps(self, job_id: str) -> str: ...


class ProgressView(Protocol):
    """Shows a job while it runs. `after` is the last event that it has shown; None if it shows no events."""

    pause: float
    after: int | None

    def update(self, job: JobProgressSnapshot, events: Sequence[View]) -> None: ...

    def show_stall(self, messages: list[str]) -> None: ...


def listen_for_job_ends(client: InstanceClient) -> AbstractAsyncContextManager[CliJobEndListener]:
    """Listen in this block. Enter it before the job is created: else its end may be noticed late."""
    return _listen(client.db)


async def wait_for_end(
    backend: WaitedFor,
    ends: EndOfJob,
    job_id: str,
    view: ProgressView,
    *,
    timeout: float | None = None,
) -> JobProgressSnapshot:
    """Return the job once it has ended; `view` shows it until then.

    Raises WaitTimeout after `timeout` seconds; the job continues. An outage of the database or the server is
    waited out for a minute, then DatabaseUnavailable is raised.
    """
    clock = asyncio.get_running_loop().time
    began = changed_at = answered_at = clock()
    before: JobProgressSnapshot | None = None
    while True:
        try:
            job = await _query(backend, job_id, view, is_stalled=clock() - changed_at > STALLED_SECONDS)
        except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable) as error:
            if clock() - answered_at > MAX_OUTAGE_SECONDS:
                raise DatabaseUnavailable(
                    f"the connection to the {backend.subject} was lost: {error}; job {job_id} is stored there"
                ) from error
            warn(f"the {backend.subject} does not answer; trying again")
        else:
            answered_at = clock()
            if job.is_over:
                return job
            if before is None or job.nodes != before.nodes:
                before, changed_at = job, clock()
        left = None if timeout is None else began + timeout - clock()
        if left is not None and left <= 0:
            raise WaitTimeout(f"job {job_id} did not end within {timeout:g} s; {backend.next_steps(job_id)}")
        await ends.wait(view.pause if left is None else min(view.pause, left))


async def _query(
    backend: WaitedFor, job_id: str, view: ProgressView, *, is_stalled: bool
) -> JobProgressSnapshot:
    job, events = await backend.watch(job_id, view.after)
    view.update(job, events)
    if is_stalled and not job.is_over:
        blockers = (await backend.explain(job_id)).blockers
        view.show_stall([blocker.message for blocker in blockers if blocker.kind in STALL_REASONS])
    else:
        view.show_stall([])
    return job
