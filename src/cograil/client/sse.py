"""Reading a stream of server-sent events, and when to come again after it broke off."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from cograil.client.models import StreamedEvent
from cograil.errors import CograilError

FIRST_PAUSE, MAX_PAUSE = 0.2, 5.0
MAY_PASS = (429, 502, 503, 504)  # what a server or a proxy answers while something restarts
JOB_OVER = "job_over"


@dataclass(slots=True)
class Following:
    """Where one who follows is; whatever breaks, they go on there."""

    place: str | None
    patience: float
    is_over: bool = False
    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)
    _lost_at: float | None = None
    _pause: float = FIRST_PAUSE

    def begin(self) -> dict[str, str]:
        """The headers of a new request; what was heard of an event that broke off is forgotten."""
        self._rest, self._fields = b"", {}
        headers = {"accept": "text/event-stream"}
        return headers if self.place is None else headers | {"last-event-id": self.place}

    def take(self, chunk: bytes) -> list[StreamedEvent]:
        """The events that end in this piece of the stream.

        Lines end with a line feed and with nothing else: what JSON may hold as it is, such as U+2028, ends
        none.
        """
        self._lost_at, self._pause = None, FIRST_PAUSE
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            if line.rstrip(b"\r"):
                self._keep(line.rstrip(b"\r").decode())
            elif (event := self._ended()) is not None:
                events.append(event)
        return events

    def _keep(self, line: str) -> None:
        name, _, text = line.partition(":")
        if name:  # else a comment
            self._fields[name] = text.removeprefix(" ")

    def _ended(self) -> StreamedEvent | None:
        """The event that ends here, unless this was a sign of life or the end of the stream."""
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
        """For how many seconds to wait before the next try. Raises this error when that goes on too long."""
        self._lost_at = self._lost_at or time.monotonic()
        if time.monotonic() - self._lost_at > self.patience:
            raise error
        seconds, self._pause = self._pause, min(2 * self._pause, MAX_PAUSE)
        return seconds * random.uniform(0.5, 1.0)
