"""A job while it runs: a picture on a terminal, a line for each move elsewhere, nothing for programs."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cograil.cli.display.event_sentences import sentence, subject
from cograil.cli.display.formatting import SKIPPED, STATE_STYLES, duration, number, printable, took
from cograil.cli.display.output import say, sign, talk, warn
from cograil.cli.job_wait import View
from cograil.model.workflow import NodeType, Workflow
from cograil.store.database import Transaction
from cograil.store.job_progress_queries import JobProgress, NodeProgress, new_events

BAR_WIDTH = 20
NAME_WIDTH = 28
QUIET_EVENTS = frozenset({"node_ready", "node_dispatched", "task_failed"})  # others say the same better


def view_of(workflow: Workflow, *, is_quiet: bool, tenant: str = "default") -> AbstractContextManager[View]:
    """How to show a job of this workflow here."""
    if talk().is_terminal and not talk().is_dumb_terminal:
        return Picture(workflow)
    return nullcontext(Silence() if is_quiet else Lines(tenant))


class Silence:
    """Shows nothing, so it looks only now and then."""

    pause = 1.0

    async def update(self, tx: Transaction, seen: JobProgress) -> None:
        pass

    def trouble(self, messages: list[str]) -> None:
        pass


class Lines:
    """A line on stderr for each move of the job and its nodes."""

    pause = 0.3

    def __init__(self, tenant: str = "default") -> None:
        self._tenant = tenant
        self._seq = -1
        self._said: set[str] = set()

    async def update(self, tx: Transaction, seen: JobProgress) -> None:
        if self._seq < 0:
            self._seq = 0
            say(f"job {seen.job_id}")
        for event in await new_events(tx, seen.job_id, self._seq, self._tenant):
            self._seq = event["seq"]
            if event["event_type"] not in QUIET_EVENTS:
                seconds = (event["created_at"] - seen.created_at).total_seconds()
                is_end = event["event_type"] == "job_failed"  # why is said by the nodes, and once more below
                say(f"{seconds:9.2f} s  {subject(event)}  {'failed' if is_end else sentence(event)}")

    def trouble(self, messages: list[str]) -> None:
        for message in messages:
            if message not in self._said:
                self._said.add(message)
                warn(message)


class Picture:
    """One line for each node, drawn again as they move; it stays when the job has ended."""

    pause = 0.2

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._seen: JobProgress | None = None
        self._seen_at = 0.0
        self._trouble: list[str] = []
        self._live = Live(
            get_renderable=self.draw, console=talk(), refresh_per_second=10, vertical_overflow="visible"
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    async def update(self, tx: Transaction, seen: JobProgress) -> None:
        self._seen, self._seen_at = seen, time.monotonic()

    def trouble(self, messages: list[str]) -> None:
        self._trouble = messages

    def draw(self) -> RenderableType:
        """The picture of this instant; between two looks only the clocks move."""
        if self._seen is None:
            return Text("")
        now = self._seen.now
        if not self._seen.is_over:
            now += timedelta(seconds=time.monotonic() - self._seen_at)
        frame = draw_job(self._workflow, self._seen, now, talk().width, talk().height)
        notes = [Text(f"  {printable(message)}", style="yellow") for message in self._trouble]
        return Group(frame, *notes)


def draw_job(workflow: Workflow, seen: JobProgress, now: datetime, width: int, height: int) -> RenderableType:
    """A job and its nodes, in at most this many columns and lines."""
    nodes = [
        seen.nodes.get(name) or NodeProgress(name)
        for name, node in workflow.nodes.items()
        if node.type not in (NodeType.START, NodeType.END)
    ]
    shown, left_out = _fold(nodes, max(4, height - 5))
    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(6):
        grid.add_column(no_wrap=True)
    name_width = min(NAME_WIDTH, max((len(node.node_id) for node in shown), default=0))
    has_bars = any(_counts(node) for node in shown)
    note_width = max(8, width - name_width - (BAR_WIDTH + 13 if has_bars else 0) - 16)
    for node in shown:
        asks = workflow.nodes[node.node_id].type is NodeType.APPROVAL
        grid.add_row(*_row(node, now, name_width, note_width, asks=asks))
    parts: list[RenderableType] = [_headline(workflow, seen, now), grid]
    if left_out:
        parts.append(Text(f"    {left_out}", style="dim"))
    return Group(*parts)


def _headline(workflow: Workflow, seen: JobProgress, now: datetime) -> Text:
    style = STATE_STYLES[seen.status]
    return Text.assemble(
        (f"{sign(seen.status)} {printable(workflow.workflow_id)}", style),
        (f"  {seen.job_id}", "dim"),
        f"  {seen.status} ",
        (took(seen.created_at, seen.finished_at, now), "bold"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _row(
    node: NodeProgress, now: datetime, name_width: int, note_width: int, *, asks: bool
) -> list[RenderableType]:
    style = STATE_STYLES.get(node.status, "")
    name = Text(printable(node.node_id), style="dim" if style == "dim" else "")
    name.truncate(name_width, overflow="ellipsis")
    note = Text(_note(node, now, asks=asks), style=_note_style(node))
    note.truncate(note_width, overflow="ellipsis")
    counts = _counts(node)
    bar = _bar(node, *counts) if counts else Text("")
    count = Text(f"{number(counts[0])}/{number(counts[1])}" if counts else "", style="dim")
    clock = took(node.started_at, node.finished_at, now)
    return [Text(f"  {sign(node.status)}", style=style), name, bar, count, Text(clock, style="dim"), note]


def _counts(node: NodeProgress) -> tuple[float, float] | None:
    """How much is done of how much: children of a fan-out, or what the handler says."""
    if node.total is not None:
        return node.ended, node.total
    if node.current is not None and node.out_of:
        done = node.out_of if node.status == "completed" else min(node.current, node.out_of)
        return done, node.out_of
    return None


def _bar(node: NodeProgress, done: float, total: float) -> ProgressBar:
    color = "red" if node.failed or node.status == "failed" else "cyan"
    return ProgressBar(
        total=max(total, 1e-9),
        completed=done if total else 1e-9,
        width=BAR_WIDTH,
        style="grey37",
        complete_style=color,
        finished_style="red" if color == "red" else "green",
    )


def _note(node: NodeProgress, now: datetime, *, asks: bool) -> str:
    match node.status:
        case "waiting" if asks:
            return "for an answer: cograil approve, or reject"
        case "ready" if node.not_before is not None:
            left = duration((node.not_before - now).total_seconds())
            return printable(f"attempt {node.attempt + 1} in {left}: {node.error_message or 'asked for'}")
        case "waiting" if node.not_before is not None:
            return f"{duration((node.not_before - now).total_seconds())} to wait"
        case "failed":
            return printable(f"{node.error_message} [{node.error_code}]")
        case "skipped":
            return SKIPPED.get(node.skip_reason or "", "")
        case "dispatched":
            return "queued" + _again(node)
        case "running":
            return (_to_be_tried_again(node) or printable(node.message or "")) + _again(node)
        case "completed":
            return _outcome(node) + _again(node)
    return ""


def _outcome(node: NodeProgress) -> str:
    if node.taken_branch is not None:
        return f"took {printable(node.taken_branch)}"
    return f"{node.failed} failed" if node.failed else ""


def _to_be_tried_again(node: NodeProgress) -> str:
    return f"{node.backing_off} to be tried again" if node.backing_off else ""


def _again(node: NodeProgress) -> str:
    return f" attempt {node.attempt}" if node.attempt > 1 else ""


def _note_style(node: NodeProgress) -> str:
    if node.status == "failed":
        return "red"
    return "yellow" if node.status == "ready" or node.attempt > 1 or node.backing_off else "dim"


def _fold(nodes: list[NodeProgress], most: int) -> tuple[list[NodeProgress], str]:
    """The nodes that fit, those that move first, in their order; and what was left out, in words."""
    if len(nodes) <= most:
        return nodes, ""
    rank = {"failed": 0, "running": 1, "ready": 1, "waiting": 1, "dispatched": 2, "pending": 4}
    order = sorted(range(len(nodes)), key=lambda index: (rank.get(nodes[index].status, 3), -index))
    kept = sorted(order[: most - 1])
    folded = [nodes[index].status for index in order[most - 1 :]]
    words = ", ".join(f"{folded.count(status)} {status}" for status in dict.fromkeys(folded))
    return [nodes[index] for index in kept], f"and {words}"
