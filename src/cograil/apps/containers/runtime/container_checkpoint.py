"""What is known of the run of a container: kept in the checkpoint, for the next attempt to go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cograil.apps.containers.runtime.docker_engine import BEGINNING, ContainerLogCursor, LogStream
from cograil.model.workflow import Json

KILLED = 137  # what a container that was stopped by us ended with, whatever it says itself
NEVER_RAN = -1


@dataclass(frozen=True, slots=True)
class Exit:
    """How it ended; `kind` is the code by which a node fails, and empty for a good end."""

    code: int
    kind: str = ""
    error: str | None = None


@dataclass(slots=True)
class RunCheckpoint:
    """How far a run has come, on the machine that has its room."""

    place: str
    run: int = 1
    done: dict[str, dict[str, Json]] = field(default_factory=dict)  # what became of artifacts
    container: str | None = None
    started_at: float = 0.0
    logs: dict[LogStream, ContainerLogCursor] = field(default_factory=dict)
    exit: Exit | None = None
    is_late: bool = False  # it ran for too long and is being stopped
    is_complete: bool = False
    was_elsewhere: bool = False  # it was begun on a machine from which nothing was heard again

    @property
    def phase(self) -> str:
        """In a word, for people."""
        if self.exit is not None:
            return "complete" if self.is_complete else "outputs"
        return "inputs" if self.container is None else "running"

    def log_place(self, stream: LogStream) -> ContainerLogCursor:
        """How far this log was told."""
        return self.logs.get(stream, BEGINNING)

    def as_json(self) -> dict[str, Json]:
        """As it is kept."""
        known: dict[str, Any] = {"place": self.place, "run": self.run, "done": self.done}
        if self.container is not None:
            known |= {"container": self.container, "started_at": self.started_at}
            known["logs"] = {stream: list(place) for stream, place in self.logs.items()}
        if self.exit is not None:
            known["exit"] = {"code": self.exit.code, "kind": self.exit.kind, "error": self.exit.error}
        marks = ("is_late", "is_complete", "was_elsewhere")
        return known | {mark: True for mark in marks if getattr(self, mark)}


def read_checkpoint(kept: Json, place: str, *, is_end_final: bool = False) -> RunCheckpoint:
    """What the last attempt left. What is elsewhere cannot be reached from here: then it begins anew.

    Unless it has ended and its caller was told so (`is_end_final`): then its files alone are out of reach.
    """
    if not isinstance(kept, dict):
        return RunCheckpoint(place)
    run = int(kept.get("run", 1))
    is_over = "exit" in kept and (is_end_final or bool(kept.get("is_complete")))
    if kept.get("place", place) != place and not is_over:
        return RunCheckpoint(
            place, run + 1, was_elsewhere=bool(kept.get("container") or kept.get("was_elsewhere"))
        )
    exit_ = kept.get("exit")
    return RunCheckpoint(
        kept.get("place", place),
        run,
        dict(kept.get("done", {})),
        kept.get("container"),
        float(kept.get("started_at", 0.0)),
        {stream: ContainerLogCursor(*where) for stream, where in kept.get("logs", {}).items()},
        None if exit_ is None else Exit(exit_["code"], exit_["kind"], exit_["error"]),
        bool(kept.get("is_late")),
        "exit" in kept and bool(kept.get("is_complete")),
        bool(kept.get("was_elsewhere")),
    )
