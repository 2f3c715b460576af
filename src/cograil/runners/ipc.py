"""Messages between a worker and its child processes: length-prefixed JSON objects.

worker -> child   {"setup": ...}           once: modules to import, memory limit
                  {"run": [...]}           one attempt
                  {"stop": reason}         the attempt should stop
                  {"answer": n, "saved"}   reply to an "ask" of the child
child -> worker   {"ready": bytes}         all modules are imported; memory in use
                  {"ask": n, ...}          save a checkpoint or a step, publish an event
                  {"progress": ...}, {"log": ...}
                  {"outcome": ..., "memory": bytes}
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Any

import orjson

from cograil.model.app_events import AppEvent
from cograil.model.outcome import Completed, Failed, Outcome, Released, WorkItem

LENGTH = Struct(">I")
MAX_MESSAGE = 256 * 1024 * 1024
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """The configuration of a child process."""

    modules: tuple[str, ...]
    path: tuple[str, ...]
    limits: dict[str, Any]
    memory_bytes: int
    log_level: str
    log_format: str
    is_output_captured: bool = True


def packed(message: Message) -> bytes:
    """Encode a message."""
    text = orjson.dumps(message)
    return LENGTH.pack(len(text)) + text


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message; None when the connection is closed. Raises ValueError for invalid data."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > MAX_MESSAGE:
            raise ValueError(f"a message of {length:,} bytes")
        message: Message = orjson.loads(await reader.readexactly(length))
        return message
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def open_link(link: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open both streams of a socket."""
    return await asyncio.open_connection(sock=link)


def setup_message(setup: ChildSetup) -> bytes:
    return packed({"setup": asdict(setup)})


def read_setup(message: Message) -> ChildSetup:
    fields = message["setup"]
    return ChildSetup(**{**fields, "modules": tuple(fields["modules"]), "path": tuple(fields["path"])})


def run_message(item: WorkItem) -> bytes:
    return packed({"run": item._replace(claimed_at=None)._asdict()})


def read_item(message: Message) -> WorkItem:
    return WorkItem(**message["run"])


def event_message(event: AppEvent) -> Message:
    """Encode the request of a child to publish an event."""
    checkpoint = None if event.checkpoint is None else event.checkpoint.decode()
    return {"event": [event.mark, event.type, event.subject, event.data.decode(), checkpoint, event.phase]}


def read_event(message: Message) -> AppEvent:
    mark, kind, subject, data, checkpoint, phase = message["event"]
    saved = None if checkpoint is None else checkpoint.encode()
    return AppEvent(mark, kind, subject, data.encode(), saved, phase)


def outcome_message(outcome: Outcome, memory: int) -> bytes:
    """Encode the outcome of an attempt in a child, with its memory in use."""
    if isinstance(outcome, Completed):
        return packed({"outcome": "completed", "output": outcome.output.decode(), "memory": memory})
    if isinstance(outcome, Failed):
        return packed({"outcome": "failed", "error": asdict(outcome), "memory": memory})
    return packed({"outcome": "released", "memory": memory})


def read_outcome(message: Message) -> Outcome:
    match message["outcome"]:
        case "completed":
            return Completed(message["output"].encode())
        case "failed":
            return Failed(**message["error"])
        case _:
            return Released()
