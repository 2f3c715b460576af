"""The interface of container runtimes: a container engine or our own sandbox.

A container is found by its labels, so that another process can take it over after a crash. Its rights on the machine
are set by the operator only.
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
    """The runtime is unavailable or refuses; `code` says why. `is_final`: a retry does not help."""

    def __init__(self, code: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """The rights of containers on the machine, set by the operator."""

    capabilities: tuple[str, ...] = ()
    is_root_read_only: bool = False
    user: str = ""  # default: the user of the image
    network: str = "bridge"
    processes: int = 512
    pull: Pull = "missing"


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """A container to run: an image with a command, and the workspace `room` that is mounted at `mount`."""

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
    """The state of a container."""

    is_running: bool
    has_run: bool
    exit_code: int
    is_out_of_memory: bool


class ContainerRecord(NamedTuple):
    """An existing container, running or not."""

    container: str
    labels: Mapping[str, str]


class ContainerLogCursor(NamedTuple):
    """A position in a log: the stamp of the last line, and how many lines had that stamp."""

    stamp: str = ""
    lines: int = 0


BEGINNING = ContainerLogCursor()


class Runtime(Protocol):
    """A container runtime. All methods raise EngineError when it is unavailable or refuses."""

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """Isolation gaps compared with an engine, as sentences for operators."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def version(self) -> str:
        """Its name and version."""

    async def find(self, labels: Mapping[str, str]) -> str | None:
        """The container with these labels, running or not."""

    async def held(self, labels: Mapping[str, str]) -> list[ContainerRecord]:
        """All containers with these labels."""

    async def start(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        """Run it, unless it runs or has run; return its container. After an error nothing is left."""

    async def state(self, container: str) -> ContainerState:
        """The state of a container. Raises EngineError `not_found`."""

    async def wait(self, container: str) -> ContainerState:
        """Wait for the end of a container; return its state."""

    async def stop(self, container: str, seconds: int = STOP_SECONDS) -> None:
        """Ask it to stop, and kill it with all its processes after `seconds`."""

    async def remove(self, container: str) -> None:
        """Kill and remove it with its volumes; a missing container is not an error."""

    def lines(
        self, container: str, stream: LogStream, after: ContainerLogCursor = BEGINNING
    ) -> AsyncGenerator[tuple[ContainerLogCursor, str]]:
        """The lines of a log after this cursor, each with its own cursor, until the container ends.

        A caller that stops earlier must close the generator (`aclosing`), or the engine keeps sending.
        """
