"""Event streams: events as they are committed.

Written by `make docs` from _async/streams_api.py; do not edit.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from time import sleep
from typing import Any

import httpx2

from cograil.client._sync.transport import PREFIX, Transport
from cograil.client.errors import ApiError, Unreachable, problem_of
from cograil.client.models import StreamedEvent, step
from cograil.client.sse import MAY_PASS, StreamReader
from cograil.errors import CograilError

PATIENCE = 60.0
SILENCE = 45.0  # the server sends at least a comment every 15 seconds


class StreamsApi(Transport):
    """The methods for live events. A broken stream resumes after the last event, so no event is missed."""

    def follow(
        self, job_id: str, *, after: int = 0, types: Sequence[str] = (), patience: float = PATIENCE
    ) -> Generator[StreamedEvent, None, None]:
        """Yield the events of a job, in order, as they are committed, until it is over.

        Raises what `job` raises; transient errors, such as a restart of the server, only after `patience` seconds.
        """
        return self._stream(f"/jobs/{step(job_id)}/events/stream", str(after), types, patience)

    def follow_all(
        self, *, after: str | None = None, types: Sequence[str] = (), patience: float = PATIENCE
    ) -> Generator[StreamedEvent, None, None]:
        """Yield the events of all jobs, from now on or after the `place` of an earlier event; without an end."""
        return self._stream("/events/stream", after, types, patience)

    def _stream(
        self, path: str, place: str | None, types: Sequence[str], patience: float
    ) -> Generator[StreamedEvent, None, None]:
        reader = StreamReader(place, patience)
        params = {"types": ",".join(types)} if types else {}
        timeout = httpx2.Timeout(self._timeout, read=SILENCE)
        while not reader.is_over:
            broken: CograilError = Unreachable(f"the stream of {self._http.base_url} ended early")
            try:
                with self._http.stream(
                    "GET", PREFIX + path, params=params, headers=reader.start(), timeout=timeout
                ) as answer:
                    if answer.status_code == 204:  # the job is over, and all events were sent
                        return
                    if answer.status_code >= 400:
                        raise ApiError(answer.status_code, problem_of(answer.read()))
                    chunks: Any = answer.iter_bytes()
                    with closing(chunks):
                        for chunk in chunks:
                            yield from reader.take(chunk)
            except httpx2.TransportError as error:
                broken = Unreachable(f"{self._http.base_url} does not answer: {error}")
            except ApiError as error:
                if error.status not in MAY_PASS:
                    raise
                broken = error
            if not reader.is_over:
                sleep(reader.pause(broken))
