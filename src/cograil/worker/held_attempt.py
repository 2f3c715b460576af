"""An attempt that a worker holds, from its claim until its report is recorded."""

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
    """One task this worker holds, from claim until its report is recorded."""

    item: WorkItem
    ctx: Context
    spec: HandlerSpec
    claim: int  # the number of the claim that brought it
    running: runner.Running | Outcome
    began: float
    task: asyncio.Task[None] | None = None  # that follows it, when it is not through at once
    is_ended: bool = False
    trace: tracing.AttemptSpan | None = None  # only where traces are made

    @property
    def work(self) -> asyncio.Future[Outcome] | None:
        """What the loop runs of it."""
        return self.running.work if isinstance(self.running, runner.Running) else None

    def end(self, outcome: Outcome) -> None:
        """It has come to this."""
        self.is_ended = True
        if self.trace is not None:
            self._end_trace(self.trace, outcome)

    def _end_trace(self, trace: tracing.AttemptSpan, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            trace.end("failed", outcome.code)
        elif isinstance(outcome, Released):
            why = "released" if self.ctx.reason == "shutdown" else "lost"
            trace.end(why, why)
        else:
            trace.end("completed")


@dataclass(frozen=True, slots=True)
class Executors:
    """With what a worker runs attempts."""

    executor: Executor
    limits: Limits
    children: ProcessPool


def start(
    item: WorkItem, spec: HandlerSpec, channel: Channel, executors: Executors, claim: int, now: float
) -> HeldAttempt:
    """Start this one; whatever is said inside is said about it. The caller forgets it afterwards."""
    ctx = Context(item, channel, executors.limits)
    logs.current_attempt.set(item)
    handler_output.attempt.set(ctx)
    started = runner.start(
        item, spec, ctx, executor=executors.executor, limits=executors.limits, children=executors.children
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
    """The same inside a span, from which hangs what it asks of others."""
    trace = tracing.start_attempt(
        item.job_id, item.node_id, item.attempt, item.trace_parent, item.handler, workflow
    )
    if trace is None:
        return start(item, spec, channel, executors, claim, now)
    with trace.inside():
        attempt = start(item._replace(trace_parent=trace.trace_parent), spec, channel, executors, claim, now)
    attempt.trace = trace
    return attempt
