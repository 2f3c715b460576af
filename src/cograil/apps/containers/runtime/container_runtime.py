"""What runs containers: an engine, or a sandbox of our own. Whoever uses one need not know which.

A container is found again by its labels, whoever started it, so that a process that dies leaves nothing that
the next one could not take up. What it may do to the machine is the operator's word alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

LogStream = Literal["stdout", "stderr"]
Pull = Literal["missing", "always", "never"]
STOP_SECONDS = 10
MAX_LINE = 64 * 1024
KILLED = 137  # the exit code of what was killed


class EngineError(Exception):
    """The runtime cannot be asked, or will not do it; `code` says why. `is_final`: another try is useless."""

    def __init__(self, code: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """What containers may do to the machine, by the operator's word."""

    capabilities: tuple[str, ...] = ()
    is_root_read_only: bool = False
    user: str = ""  # the image's, where nothing is said
    network: str = "bridge"
    processes: int = 512
    pull: Pull = "missing"


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """What is to run: an image with a command, in a room of the machine that is mounted at `mount`."""

    name: str
    image: str
    command: str
    room: Path
    mount: str
    cpus: float
    memory_mb: int
    environment: Mapping[str, str]
    labels: Mapping[str, str]


class ContainerState(NamedTuple):
    """How a container is."""

    is_running: bool
    has_run: bool
    exit_code: int
    is_out_of_memory: bool


class ContainerRecord(NamedTuple):
    """A container that is there, running or not."""

    container: str
    labels: Mapping[str, str]


class LogCursor(NamedTuple):
    """How far a log was read: the stamp of the last line, and how many lines had it."""

    stamp: str = ""
    lines: int = 0


BEGINNING = LogCursor()


class Runtime(Protocol):
    """Something that runs containers. All of it raises EngineError when that cannot be asked or refuses."""

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What it does not keep apart though an engine would, in sentences for operators."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def version(self) -> str:
        """What it says of itself."""

    async def find(self, labels: Mapping[str, str]) -> str | None:
        """The container with these labels, running or not."""

    async def held(self, labels: Mapping[str, str]) -> list[ContainerRecord]:
        """All containers with these labels."""

    async def start(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        """Run it, unless it runs or has run already; its container. When it raises, nothing is left."""

    async def state(self, container: str) -> ContainerState:
        """How it is. Raises EngineError `not_found`."""

    async def wait(self, container: str) -> ContainerState:
        """How it ended; waits until it does."""

    async def stop(self, container: str, seconds: int = STOP_SECONDS) -> None:
        """Tell it to stop, and kill it with all that is in it after so many seconds."""

    async def remove(self, container: str) -> None:
        """Remove it with all that is its, whatever it does. That it is gone already is fine."""

    def lines(
        self, container: str, stream: LogStream, after: LogCursor = BEGINNING
    ) -> AsyncGenerator[tuple[LogCursor, str]]:
        """The lines of a log behind this place, each with its own, until the container ends.

        Whoever stops reading before that has to close it (`aclosing`), or the engine goes on telling.
        """
