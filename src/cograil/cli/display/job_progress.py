"""Progress of a running job: a live view on a terminal, lines elsewhere, nothing with --json."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cograil.cli.display.event_sentences import event_sentence, event_subject
from cograil.cli.display.formatting import SKIPPED, STATE_STYLES, duration, number, printable, took
from cograil.cli.display.output import err, say, sign, warn
from cograil.cli.job_wait import ProgressView
from cograil.model.workflow import NodeType, Workflow
from cograil.store.job_progress_queries import JobProgressSnapshot, NodeProgressSnapshot
from cograil.store.job_queries import View

BAR_WIDTH = 20
NAME_WIDTH = 28
HIDDEN_EVENTS = frozenset({"node_ready", "node_dispatched", "task_failed"})  # other events cover them


def progress_view(workflow: Workflow, *, is_quiet: bool) -> AbstractContextManager[ProgressView]:
    """Return the view for a job of this workflow on this terminal."""
    if err().is_terminal and not err().is_dumb_terminal:
        return LiveProgress(workflow)
    return nullcontext(SilentProgress() if is_quiet else LineProgress())


class SilentProgress:
    """Shows nothing, so it queries rarely."""

    pause = 1.0
    after: int | None = None

    def update(self, job: JobProgressSnapshot, events: Sequence[View]) -> None:
        pass

    def show_stall(self, messages: list[str]) -> None:
        pass


class LineProgress:
    """Prints a line on stderr for each transition of the job and its nodes."""

    pause = 0.3

    def __init__(self) -> None:
        self.after: int | None = 0
        self._is_first = True
        self._warned: set[str] = set()

    def update(self, job: JobProgressSnapshot, events: Sequence[View]) -> None:
        if self._is_first:
            self._is_first = False
            say(f"job {job.job_id}")
        for event in events:
            self.after = event["seq"]
            if event["event_type"] not in HIDDEN_EVENTS:
                seconds = (event["created_at"] - job.created_at).total_seconds()
                is_end = event["event_type"] == "job_failed"  # the nodes and the outcome show the error
                say(
                    f"{seconds:9.2f} s  {event_subject(event)}  {'failed' if is_end else event_sentence(event)}"
                )

    def show_stall(self, messages: list[str]) -> None:
        for message in messages:
            if message not in self._warned:
                self._warned.add(message)
                warn(message)


class LiveProgress:
    """Draws one line per node and updates it; the last state stays when the job has ended."""

    pause = 0.2
    after: int | None = None

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._job: JobProgressSnapshot | None = None
        self._queried_at = 0.0
        self._stall: list[str] = []
        self._live = Live(
            get_renderable=self.draw, console=err(), refresh_per_second=10, vertical_overflow="visible"
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, job: JobProgressSnapshot, events: Sequence[View]) -> None:
        self._job, self._queried_at = job, time.monotonic()

    def show_stall(self, messages: list[str]) -> None:
        self._stall = messages

    def draw(self) -> RenderableType:
        """Return the current frame; between two queries only the durations change."""
        if self._job is None:
            return Text("")
        now = self._job.now
        if not self._job.is_over:
            now += timedelta(seconds=time.monotonic() - self._queried_at)
        frame = draw_job(self._workflow, self._job, now, err().width, err().height)
        notes = [Text(f"  {printable(message)}", style="yellow") for message in self._stall]
        return Group(frame, *notes)


def draw_job(
    workflow: Workflow, job: JobProgressSnapshot, now: datetime, width: int, height: int
) -> RenderableType:
    """Draw a job and its nodes in at most this many columns and lines."""
    nodes = [
        job.nodes.get(name) or NodeProgressSnapshot(name)
        for name, node in workflow.nodes.items()
        if node.type not in (NodeType.START, NodeType.END)
    ]
    visible, omitted = _fold(nodes, max(4, height - 5))
    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(6):
        grid.add_column(no_wrap=True)
    name_width = min(NAME_WIDTH, max((len(node.node_id) for node in visible), default=0))
    has_bars = any(_counts(node) for node in visible)
    note_width = max(8, width - name_width - (BAR_WIDTH + 13 if has_bars else 0) - 16)
    for node in visible:
        is_approval = workflow.nodes[node.node_id].type is NodeType.APPROVAL
        grid.add_row(*_row(node, now, name_width, note_width, is_approval=is_approval))
    parts: list[RenderableType] = [_headline(workflow, job, now), grid]
    if omitted:
        parts.append(Text(f"    {omitted}", style="dim"))
    return Group(*parts)


def _headline(workflow: Workflow, job: JobProgressSnapshot, now: datetime) -> Text:
    style = STATE_STYLES[job.status]
    return Text.assemble(
        (f"{sign(job.status)} {printable(workflow.workflow_id)}", style),
        (f"  {job.job_id}", "dim"),
        f"  {job.status} ",
        (took(job.created_at, job.finished_at, now), "bold"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _row(
    node: NodeProgressSnapshot, now: datetime, name_width: int, note_width: int, *, is_approval: bool
) -> list[RenderableType]:
    style = STATE_STYLES.get(node.status, "")
    name = Text(printable(node.node_id), style="dim" if style == "dim" else "")
    name.truncate(name_width, overflow="ellipsis")
    note = Text(_note(node, now, is_approval=is_approval), style=_note_style(node))
    note.truncate(note_width, overflow="ellipsis")
    counts = _counts(node)
    bar = _bar(node, *counts) if counts else Text("")
    count = Text(f"{number(counts[0])}/{number(counts[1])}" if counts else "", style="dim")
    clock = took(node.started_at, node.finished_at, now)
    return [Text(f"  {sign(node.status)}", style=style), name, bar, count, Text(clock, style="dim"), note]


def _counts(node: NodeProgressSnapshot) -> tuple[float, float] | None:
    """Return done and total: children of a fan-out, or the progress that the handler reports."""
    if node.total is not None:
        return node.ended, node.total
    if node.current is not None and node.out_of:
        done = node.out_of if node.status == "completed" else min(node.current, node.out_of)
        return done, node.out_of
    return None


def _bar(node: NodeProgressSnapshot, done: float, total: float) -> ProgressBar:
    color = "red" if node.failed or node.status == "failed" else "cyan"
    return ProgressBar(
        total=max(total, 1e-9),
        completed=done if total else 1e-9,
        width=BAR_WIDTH,
        style="grey37",
        complete_style=color,
        finished_style="red" if color == "red" else "green",
    )


def _note(node: NodeProgressSnapshot, now: datetime, *, is_approval: bool) -> str:
    match node.status:
        case "waiting" if is_approval:
            return "for approval: cograil approve, or reject"
        case "ready" if node.not_before is not None:
            left = duration((node.not_before - now).total_seconds())
            return printable(
                f"attempt {node.attempt + 1} in {left}: {node.error_message or 'requested by the handler'}"
            )
        case "waiting" if node.not_before is not None:
            return f"{duration((node.not_before - now).total_seconds())} left"
        case "failed":
            return printable(f"{node.error_message} [{node.error_code}]")
        case "skipped":
            return SKIPPED.get(node.skip_reason or "", "")
        case "dispatched":
            return "queued" + _attempt_suffix(node)
        case "running":
            return (_to_be_tried_attempt_suffix(node) or printable(node.message or "")) + _attempt_suffix(
                node
            )
        case "completed":
            return _outcome(node) + _attempt_suffix(node)
    return ""


def _outcome(node: NodeProgressSnapshot) -> str:
    if node.taken_branch is not None:
        return f"took {printable(node.taken_branch)}"
    return f"{node.failed} failed" if node.failed else ""


def _to_be_tried_attempt_suffix(node: NodeProgressSnapshot) -> str:
    return f"{node.backing_off} wait for a retry" if node.backing_off else ""


def _attempt_suffix(node: NodeProgressSnapshot) -> str:
    return f" attempt {node.attempt}" if node.attempt > 1 else ""


def _note_style(node: NodeProgressSnapshot) -> str:
    if node.status == "failed":
        return "red"
    return "yellow" if node.status == "ready" or node.attempt > 1 or node.backing_off else "dim"


def _fold(nodes: list[NodeProgressSnapshot], max_lines: int) -> tuple[list[NodeProgressSnapshot], str]:
    """Return the nodes that fit, active ones first, in their order, and a summary of the omitted ones."""
    if len(nodes) <= max_lines:
        return nodes, ""
    rank = {"failed": 0, "running": 1, "ready": 1, "waiting": 1, "dispatched": 2, "pending": 4}
    order = sorted(range(len(nodes)), key=lambda index: (rank.get(nodes[index].status, 3), -index))
    kept = sorted(order[: max_lines - 1])
    folded = [nodes[index].status for index in order[max_lines - 1 :]]
    summary = ", ".join(f"{folded.count(status)} {status}" for status in dict.fromkeys(folded))
    return [nodes[index] for index in kept], f"and {summary}"
