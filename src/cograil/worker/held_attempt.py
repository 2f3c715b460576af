"""An attempt that a worker holds, and how it starts."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass

from cograil import logs, tracing
from cograil.model.outcome import Failed, Outcome, Released, WorkItem
from cograil.runners import handler_output
from cograil.runners import python_runner as runner
from cograil.runners.context import Channel, Context, Limits
from cograil.runners.handler_registry import HandlerSpec
from cograil.runners.process_pool import ProcessPool


@dataclass(slots=True)
class HeldAttempt:
    """One attempt that a worker holds, from the claim of its task until its report is recorded."""

    item: WorkItem
    ctx: Context
    spec: HandlerSpec
    claim: int  # number of the claim that returned its task
    running: runner.Running | Outcome
    started_at: float
    task: asyncio.Task[None] | None = None  # follows the attempt, unless it ended at once
    is_ended: bool = False
    trace: tracing.AttemptSpan | None = None  # None when tracing is off

    @property
    def work(self) -> asyncio.Future[Outcome] | None:
        """The future of the running handler; None when the attempt ended at its start."""
        return self.running.work if isinstance(self.running, runner.Running) else None

    def end(self, outcome: Outcome) -> None:
        """Mark the attempt as ended with this outcome, and end its trace."""
        self.is_ended = True
        if self.trace is not None:
            self._end_trace(self.trace, outcome)

    def _end_trace(self, trace: tracing.AttemptSpan, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            trace.end("failed", outcome.code)
        elif isinstance(outcome, Released):
            status = "released" if self.ctx.reason == "shutdown" else "lost"
            trace.end(status, status)
        else:
            trace.end("completed")


@dataclass(frozen=True, slots=True)
class Executors:
    """Where the handlers of a worker run, and the limits of an attempt."""

    threads: Executor
    limits: Limits
    processes: ProcessPool


def start(
    item: WorkItem, spec: HandlerSpec, channel: Channel, executors: Executors, claim: int, now: float
) -> HeldAttempt:
    """Start an attempt. Sets the context variables that assign log lines and output to it.

    The caller resets these variables afterwards.
    """
    ctx = Context(item, channel, executors.limits)
    logs.current_attempt.set(item)
    handler_output.attempt.set(ctx)
    started = runner.start(
        item, spec, ctx, executor=executors.threads, limits=executors.limits, children=executors.processes
    )
    return HeldAttempt(item, ctx, spec, claim, started, now)


def start_traced(
    item: WorkItem,
    spec: HandlerSpec,
    channel: Channel,
    executors: Executors,
    claim: int,
    now: float,
    workflow: tuple[str, int] | None,
) -> HeldAttempt:
    """Start an attempt inside a span. Requests of its handler become children of that span."""
    trace = tracing.start_attempt(
        item.job_id, item.node_id, item.attempt, item.trace_parent, item.handler, workflow
    )
    if trace is None:
        return start(item, spec, channel, executors, claim, now)
    with trace.inside():
        attempt = start(item._replace(trace_parent=trace.trace_parent), spec, channel, executors, claim, now)
    attempt.trace = trace
    return attempt
