"""Reads a stream of server-sent events, and decides when to reconnect."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from cograil.client.models import StreamedEvent
from cograil.errors import CograilError

FIRST_PAUSE, MAX_PAUSE = 0.2, 5.0
MAY_PASS = (429, 502, 503, 504)  # statuses of a server or a proxy during a restart
JOB_OVER = "job_over"


@dataclass(slots=True)
class StreamReader:
    """The state of a stream: its position, which survives reconnects."""

    place: str | None
    patience: float
    is_over: bool = False
    _incomplete: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)
    _lost_at: float | None = None
    _pause: float = FIRST_PAUSE

    def start(self) -> dict[str, str]:
        """Return the headers of a new request. An incomplete event is discarded."""
        self._incomplete, self._fields = b"", {}
        headers = {"accept": "text/event-stream"}
        return headers if self.place is None else headers | {"last-event-id": self.place}

    def take(self, chunk: bytes) -> list[StreamedEvent]:
        """Return the events that end in this chunk.

        Only a line feed ends a line: JSON may contain other line separators, such as U+2028.
        """
        self._lost_at, self._pause = None, FIRST_PAUSE
        *lines, self._incomplete = (self._incomplete + chunk).split(b"\n")
        events = []
        for line in lines:
            if line.rstrip(b"\r"):
                self._add_field(line.rstrip(b"\r").decode())
            elif (event := self._end_event()) is not None:
                events.append(event)
        return events

    def _add_field(self, line: str) -> None:
        name, _, text = line.partition(":")
        if name:  # else a comment
            self._fields[name] = text.removeprefix(" ")

    def _end_event(self) -> StreamedEvent | None:
        """Return the event that ends here; None for a heartbeat or the end of the stream."""
        fields, self._fields = self._fields, {}
        self.place = fields.get("id", self.place)
        if "data" not in fields:
            return None
        data: Any = json.loads(fields["data"])
        if fields.get("event") == "end":
            self.is_over = data.get("reason") == JOB_OVER
            return None
        event: StreamedEvent = data | {"place": self.place}
        return event

    def pause(self, error: CograilError) -> float:
        """Return the seconds to wait before reconnecting. Raises this error after `patience` seconds."""
        self._lost_at = self._lost_at or time.monotonic()
        if time.monotonic() - self._lost_at > self.patience:
            raise error
        seconds, self._pause = self._pause, min(2 * self._pause, MAX_PAUSE)
        return seconds * random.uniform(0.5, 1.0)
