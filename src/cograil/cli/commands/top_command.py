"""`cograil top`: a live overview of jobs, queues and workers, refreshed until q is pressed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

import click
import psycopg
from rich.live import Live
from rich.text import Text

from cograil.cli.backends.interface import Backend
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.output import out, render
from cograil.cli.display.top_layout import DEFAULT_HEIGHT, render_frame
from cograil.cli.options import Amount, instance_options, tenant_option
from cograil.errors import DatabaseUnavailable

QUIT_KEYS = frozenset("qQ\x04")


@click.command()
@click.option(
    "--once", is_flag=True, help="Print one frame and exit; this is the default without a terminal."
)
@click.option(
    "--interval",
    type=Amount(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between refreshes.",
)
@tenant_option
@instance_options
@instance_command
async def top(target: Target, once: bool, interval: float, as_json: bool) -> None:
    """Show a live overview: jobs, throughput, queues, workers, waiting jobs with reasons, failures.

    The instance is that of --server, of the data directory, or of COGRAIL_DATABASE_URL. q or Ctrl-C quits. With
    --json the command prints one frame as JSON.

    \b
    Examples:
      cograil top
      cograil top --once
      cograil top --json | jq .jobs
      COGRAIL_DATABASE_URL=postgresql://... cograil top --interval 5
    """
    is_live = out().is_terminal and sys.stdin.isatty() and not (once or as_json or out().is_dumb_terminal)
    async with target.open() as backend:
        if is_live:
            await Screen(backend, interval).run()
            return
        frame = await backend.overview()
    render(frame, lambda: _print_frame(frame), as_json)


def _print_frame(frame: dict[str, Any]) -> None:
    height = out().height if out().is_terminal else DEFAULT_HEIGHT
    out().print(render_frame(frame, out().width, height, is_plain=_is_plain()))


def _is_plain() -> bool:
    return not (out().encoding or "").lower().startswith("utf")


class Screen:
    """The full-screen view. A key or a signal quits; a resize redraws at once."""

    def __init__(self, backend: Backend, interval: float) -> None:
        self._backend, self._interval = backend, interval
        self._stop, self._redraw = asyncio.Event(), asyncio.Event()
        self._frame: dict[str, Any] | None = None
        self._note = ""

    async def run(self) -> None:
        """Draw until the user quits."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._quit)
        loop.add_signal_handler(signal.SIGWINCH, self._redraw.set)
        with _raw_keys(), Live(Text("..."), console=out(), screen=True, auto_refresh=False) as live:
            loop.add_reader(sys.stdin.fileno(), self._on_key)
            refresher = asyncio.create_task(self._refresh())
            try:
                while not self._stop.is_set():
                    self._draw(live)
                    await self._redraw.wait()
                    self._redraw.clear()
            finally:
                loop.remove_reader(sys.stdin.fileno())
                refresher.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await refresher

    async def _refresh(self) -> None:
        """Load frames for ever; during an outage the last frame stays."""
        while True:
            try:
                self._frame, self._note = await self._backend.overview(), ""
            except (psycopg.Error, DatabaseUnavailable):
                self._note = f"the {self._backend.subject} does not answer; showing the last state"
            self._redraw.set()
            await asyncio.sleep(self._interval)

    def _draw(self, live: Live) -> None:
        if self._frame is not None:
            size = live.console.size
            frame = render_frame(self._frame, size.width, size.height, self._note, is_plain=_is_plain())
            live.update(frame, refresh=True)

    def _on_key(self) -> None:
        typed = os.read(sys.stdin.fileno(), 64).decode(errors="ignore")
        if not typed or QUIT_KEYS & set(typed):
            self._quit()

    def _quit(self) -> None:
        self._stop.set()
        self._redraw.set()


@contextlib.contextmanager
def _raw_keys() -> Iterator[None]:
    """Read keys without Enter and without echo in this block; restore the terminal afterwards."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
