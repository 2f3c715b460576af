"""Commands as people and scripts give them, in a directory with a few workflow files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest import mock

from cograil.cli import main

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

FILES = {
    "greet.yaml": """
workflow_id: greet
inputs:
  name: {type: string, default: World}
  times: {type: integer, default: 1}
nodes:
  hello: {handler: hello_world, params: {name: "{{ inputs.name }}"}, next: each}
  each:
    type: fan_out
    source: [a, b]
    task: {handler: echo, params: {item: "{{ item }}"}}
    next: all
  all: {type: fan_in}
""",
    "broken.yaml": """
workflow_id: broken
nodes:
  fine: {handler: echo, next: wrong}
  wrong:
    handler: fail
    params: {error_message: it broke}
    retry: {max_attempts: 2, backoff: fixed, initial_delay_seconds: 0}
    next: after
  after: {handler: echo}
""",
    "slow.yaml": "workflow_id: slow\nnodes:\n  nap: {handler: sleep, params: {seconds: 600}}\n",
    "nobody.yaml": "workflow_id: nobody\nnodes:\n  lost: {handler: nobody_has_this}\n",
    "wrong.txt": "workflow_id: wrong\nnodes:\n  a: {handler: echo, next: nowhere}\n  b: {type: fan_out}\n",
}


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """A place to give commands in."""

    directory: Path
    environment: dict[str, str]

    def run(self, *words: str, stdin: str = "") -> Answer:
        """Run a command in this process: a second is saved each time."""
        streams = {name: _stream(stdin if name == "stdin" else "") for name in ("stdin", "stdout", "stderr")}
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            contextlib.chdir(self.directory),
            mock.patch.multiple(sys, **cast(Any, streams)),
        ):
            code = main(words)
        out, err = (_written(streams[name]) for name in ("stdout", "stderr"))
        assert "Traceback" not in err, err
        return Answer(code, out, err)

    def start(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start a command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "cograil", *words],
            env=self.environment,
            cwd=self.directory,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )

    def run_process(self, *words: str) -> Answer:
        """Run a command as a process of its own."""
        process = self.start(*words)
        out, err = process.communicate(timeout=90)
        assert "Traceback" not in err, err
        return Answer(process.returncode, out, err)

    def run_on_terminal(self, *words: str) -> tuple[int, str]:
        """Run a command on a terminal of its own; its exit code and all that was drawn."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "cograil", *words],
            env=self.environment | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"},
            cwd=self.directory,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        too_long = threading.Timer(60, process.kill)
        too_long.start()
        drawn = b"".join(_chunks(ours))
        too_long.cancel()
        os.close(ours)
        return process.wait(timeout=10), drawn.decode()

    def submit(self, name: str, *words: str) -> str:
        """Submit a job; its id."""
        return str(self.run("submit", name, "--json", *words).json["job_id"])

    def with_environment(self, **more: str) -> Shell:
        return Shell(self.directory, self.environment | more)


def shell_in(directory: Path, **environment: str) -> Shell:
    """A shell in this directory; instances live in its `data`."""
    for name, text in FILES.items():
        (directory / name).write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"  # as after `. .venv/bin/activate`
    own = {"COGRAIL_DATA_DIR": str(directory / "data"), "PYTHONIOENCODING": "utf-8", "PATH": path}
    return Shell(directory, clean | own | environment)


def _stream(text: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def _chunks(descriptor: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(descriptor, 65536):
            yield chunk
