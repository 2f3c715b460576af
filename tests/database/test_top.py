"""`cograil top`, on a terminal, a pipe and for programs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support.harness import Harness

BROKEN = "workflow_id: broken\nnodes: {a: {handler: fail, retry: {max_attempts: 1}}}\n"
ASKING = "workflow_id: asking\nnodes: {sign: {type: approval, approval: {message: May we?}}}\n"
NOBODY = "workflow_id: lonely\nnodes: {a: {handler: nobody_has, queue: far}}\n"
COMMAND = [sys.executable, "-P", "-m", "cograil", "top"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
async def busy(harness: Harness, dsn: str) -> str:
    """A database in which something waits, something failed, and something is done."""
    async with harness.running():
        await harness.ended(await harness.submit(BROKEN))
        await harness.ended(await harness.submit("workflow_id: fine\nnodes: {a: {handler: echo}}\n"))
        await harness.submit(ASKING)
        await harness.submit(NOBODY)
    await harness.manual_worker("a-worker")
    return dsn


def environment(dsn: str, **more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("COGRAIL_")}
    return kept | {"COGRAIL_DATABASE_URL": dsn} | more


def run(dsn: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], env=environment(dsn, **more), capture_output=True, text=True, check=False
    )


async def test_a_frame_for_programs_has_all_of_it(busy: str) -> None:
    done = run(busy, "--json")
    assert done.returncode == 0, done.stderr
    frame = json.loads(done.stdout)
    assert frame["jobs"] == {
        "pending": 0,
        "running": 1,
        "waiting": 1,
        "completed": 1,
        "failed": 1,
        "cancelled": 0,
    }
    queues = {queue["queue"]: queue for queue in frame["queues"]}
    assert (queues["far"]["depth"], frame["missing_handlers"]) == (1, ["nobody_has"])
    assert [worker["name"] for worker in frame["workers"] if worker["is_live"]] == ["a-worker"]
    assert {waiting_job["workflow_id"]: waiting_job["why"]["kind"] for waiting_job in frame["waiting"]} == {
        "asking": "no_orchestrator",
        "lonely": "no_orchestrator",
    }
    assert [(failure["workflow_id"], failure["node_id"]) for failure in frame["failing"]] == [("broken", "a")]
    assert len(frame["throughput"]["minutes"]) == 30
    assert sum(minute["ended"] for minute in frame["throughput"]["minutes"]) == 2


async def test_without_a_terminal_it_is_one_frame(busy: str) -> None:
    done = run(busy, COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for words in (
        "running 1",
        "waiting 1",
        "failed 1",
        "far",
        "a-worker",
        "asking",
        "no_orchestrator: no orch",
        "broken",
    ):
        assert words in re.sub(" +", " ", done.stdout), words
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(("columns", "lines"), [(110, 24), (20, 6)])
async def test_a_frame_fits_the_terminal(busy: str, columns: int, lines: int) -> None:
    with on_terminal(busy, columns, lines, "--once") as screen:
        text = ESCAPES.sub("", screen.until_end())
    drawn = text.replace("\r", "").rstrip("\n").split("\n")
    assert len(drawn) <= lines, text
    assert max(map(len, drawn)) <= columns, text


async def test_top_without_an_instance_says_so(dsn: str, tmp_path: object) -> None:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("COGRAIL_")}
    done = subprocess.run(
        [*COMMAND, "--data-dir", str(tmp_path)], env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "nothing runs on" in done.stderr


@dataclass
class Terminal:
    """A program on a terminal of its own."""

    process: subprocess.Popen[bytes]
    master: int
    seen: str = ""

    def until(self, pattern: str, seconds: float = 20.0) -> str:
        """What it showed since the last look, once that has this in it."""
        end = time.monotonic() + seconds
        while not re.search(pattern, ESCAPES.sub("", self.seen)):
            assert time.monotonic() < end, f"no {pattern!r} in {ESCAPES.sub('', self.seen)[-1500:]}"
            self._read(0.05)
        seen, self.seen = self.seen, ""
        return seen

    def until_end(self, seconds: float = 20.0) -> str:
        end = time.monotonic() + seconds
        while self._read(0.05) or self.process.poll() is None:
            assert time.monotonic() < end, self.seen[-1500:]
        return self.seen

    def _read(self, seconds: float) -> bool:
        if select.select([self.master], [], [], seconds)[0]:
            with contextlib.suppress(OSError):  # the other end is closed
                if data := os.read(self.master, 65536):
                    self.seen += data.decode(errors="replace")
                    return True
        return False

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@contextlib.contextmanager
def on_terminal(dsn: str, columns: int, lines: int, *words: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    variables = environment(dsn, TERM="xterm-256color", LANG="C.UTF-8")
    variables = {
        name: text for name, text in variables.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    process = subprocess.Popen(
        [*COMMAND, *words],
        env=variables,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no threads here
    )
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        os.close(slave)
        os.close(master)


async def test_top_goes_on_until_q_and_leaves_the_terminal_as_it_was(busy: str, harness: Harness) -> None:
    with on_terminal(busy, 120, 40, "--interval", "0.2") as screen:
        before = termios.tcgetattr(screen.master)
        screen.until("failed 1")
        assert termios.tcgetattr(screen.master)[3] != before[3], "keys come at once"
        await harness.submit(ASKING)
        screen.until("waiting 2")
        screen.type("xyz")
        screen.type("q")
        last = screen.until_end()
        assert screen.process.returncode == 0
        assert "\x1b[?1049l" in last, "the screen of before is back"
        assert termios.tcgetattr(screen.master)[3] == before[3]


async def test_another_size_is_drawn_at_once(busy: str) -> None:
    with on_terminal(busy, 120, 40, "--interval", "3600") as screen:
        screen.until("broken")
        screen.resize(50, 20)
        narrow = screen.until("broken")
        lines = ESCAPES.sub("", narrow.split("\x1b[H")[-1]).replace("\r", "").split("\n")
        assert max(map(len, lines)) <= 50
        screen.type("q")
        screen.until_end()


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
async def test_top_ends_on_a_signal(busy: str, how: str) -> None:
    with on_terminal(busy, 100, 30) as screen:
        screen.until("failed 1")
        screen.type("\x03") if how == "Ctrl-C" else screen.process.send_signal(signal.SIGTERM)
        last = screen.until_end()
    assert screen.process.returncode == 0
    assert "Traceback" not in last


async def test_while_the_database_is_away_it_shows_how_it_was(busy: str, harness: Harness) -> None:
    with on_terminal(busy, 160, 30, "--interval", "0.2") as screen:
        screen.until("failed 1")
        await harness.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'cograil cli'"
        )
        screen.until("failed 1")
        await harness.submit(ASKING)
        screen.until("waiting 2")
        screen.type("q")
        screen.until_end()
    assert screen.process.returncode == 0
