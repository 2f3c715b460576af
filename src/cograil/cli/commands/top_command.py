"""`cograil top`: how all of it is doing, drawn again and again until somebody presses q."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psycopg
from rich.live import Live
from rich.text import Text

from cograil.cli.display.output import out, write_json
from cograil.cli.display.top_data import look
from cograil.cli.display.top_layout import TALL, draw
from cograil.cli.instance_client import Client, connected
from cograil.cli.options import Amount, instance_options, settings_for
from cograil.errors import DatabaseUnavailable
from cograil.processes import run_async
from cograil.settings import Settings

QUITS = frozenset("qQ\x04")


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and end; so it does where there is no terminal.")
@click.option(
    "--interval",
    type=Amount(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option("--tenant", default="default", show_default=True, help="Whose jobs and queues.")
@instance_options
def top(once: bool, interval: float, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Watch how all of it is doing: jobs, throughput, queues, workers, what waits and why, what fails.

    Of the instance of the data directory, or of COGRAIL_DATABASE_URL. q or Ctrl-C ends it. With --json it
    prints one frame for programs.

    \b
    Examples:
      cograil top
      cograil top --once
      cograil top --json | jq .jobs
      COGRAIL_DATABASE_URL=postgresql://... cograil top --interval 5
    """
    is_live = out().is_terminal and sys.stdin.isatty() and not (once or as_json or out().is_dumb_terminal)
    settings = settings_for(data_dir)
    if is_live:
        run_async(_watch(settings, tenant, interval))
    else:
        run_async(_print(settings, tenant, as_json))


async def _print(settings: Settings, tenant: str, as_json: bool) -> None:
    async with connected(settings) as client:
        frame = await look(client, tenant)
    if as_json:
        write_json(frame)
        return
    height = out().height if out().is_terminal else TALL
    out().print(draw(frame, out().width, height, is_plain=_is_plain()))


def _is_plain() -> bool:
    return not (out().encoding or "").lower().startswith("utf")


async def _watch(settings: Settings, tenant: str, interval: float) -> None:
    async with connected(settings) as client:
        await Screen(client, tenant, interval).run()


class Screen:
    """The terminal while it is ours. A key or a signal ends it; another size is drawn at once."""

    def __init__(self, client: Client, tenant: str, interval: float) -> None:
        self._client, self._tenant, self._interval = client, tenant, interval
        self._stop, self._stir = asyncio.Event(), asyncio.Event()
        self._frame: dict[str, Any] | None = None
        self._note = ""

    async def run(self) -> None:
        """Draw until it is enough."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGWINCH, self._stir.set)
        with _keys_at_once(), Live(Text("..."), console=out(), screen=True, auto_refresh=False) as live:
            loop.add_reader(sys.stdin.fileno(), self._hear)
            looking = asyncio.create_task(self._look_on())
            try:
                while not self._stop.is_set():
                    self._draw(live)
                    await self._stir.wait()
                    self._stir.clear()
            finally:
                loop.remove_reader(sys.stdin.fileno())
                looking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await looking

    async def _look_on(self) -> None:
        """Look again and again; a database that is away is waited for."""
        while True:
            try:
                self._frame, self._note = await look(self._client, self._tenant), ""
            except (psycopg.Error, DatabaseUnavailable):
                self._note = "the database does not answer; this is how it was"
            self._stir.set()
            await asyncio.sleep(self._interval)

    def _draw(self, live: Live) -> None:
        if self._frame is not None:
            size = live.console.size
            frame = draw(self._frame, size.width, size.height, self._note, is_plain=_is_plain())
            live.update(frame, refresh=True)

    def _hear(self) -> None:
        typed = os.read(sys.stdin.fileno(), 64).decode(errors="ignore")
        if not typed or QUITS & set(typed):
            self._end()

    def _end(self) -> None:
        self._stop.set()
        self._stir.set()


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Keys come without Enter and are not shown; afterwards the terminal is as it was."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
