"""What a worker and its child processes say to each other: JSON objects, each with its length before it.

worker -> child   {"order": ...}           once: what to import, how much memory
                  {"run": [...]}           one attempt
                  {"stop": reason}         that attempt should end
                  {"answer": n, "saved"}   to an "ask" of the child
child -> worker   {"ready": bytes}         it has imported everything; the memory it takes
                  {"ask": n, ...}          save a checkpoint or a step, tell an event
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

from cograil.model.app_events import Event
from cograil.model.outcome import Completed, Failed, Outcome, Released, WorkItem

LENGTH = Struct(">I")
MAX_MESSAGE = 256 * 1024 * 1024
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """What a child must know before its first task."""

    modules: tuple[str, ...]
    path: tuple[str, ...]
    limits: dict[str, Any]
    memory_bytes: int
    log_level: str
    log_format: str
    is_output_kept: bool = True


def packed(message: Message) -> bytes:
    """The message as it goes over the wire."""
    text = orjson.dumps(message)
    return LENGTH.pack(len(text)) + text


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None when the other end is gone. Raises ValueError for what is none."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > MAX_MESSAGE:
            raise ValueError(f"a message of {length:,} bytes")
        message: Message = orjson.loads(await reader.readexactly(length))
        return message
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def open_link(link: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Both directions of a socket."""
    return await asyncio.open_connection(sock=link)


def order_message(order: ChildSetup) -> bytes:
    return packed({"order": asdict(order)})


def read_order(message: Message) -> ChildSetup:
    facts = message["order"]
    return ChildSetup(**{**facts, "modules": tuple(facts["modules"]), "path": tuple(facts["path"])})


def run_message(item: WorkItem) -> bytes:
    return packed({"run": item._replace(claimed_at=None)._asdict()})


def read_item(message: Message) -> WorkItem:
    return WorkItem(**message["run"])


def event_message(event: Event) -> Message:
    """An event as the child asks for it to be told."""
    checkpoint = None if event.checkpoint is None else event.checkpoint.decode()
    return {"event": [event.mark, event.type, event.subject, event.data.decode(), checkpoint, event.phase]}


def read_event(message: Message) -> Event:
    mark, kind, subject, data, checkpoint, phase = message["event"]
    saved = None if checkpoint is None else checkpoint.encode()
    return Event(mark, kind, subject, data.encode(), saved, phase)


def outcome_message(outcome: Outcome, memory: int) -> bytes:
    """How an attempt ended in the child, and how much memory it takes now."""
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
