"""Requests as bytes: what never becomes one is answered in our own shape, and nothing is kept without bound.

uvicorn's own answers what it cannot read with a line of text, and takes headers for as long as they come.
Between two requests its own time for keep-alive counts, as long as nothing is sent.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import cast

import httptools
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from cograil.http.server import request_limits
from cograil.http.server.lingering_close import LingeringTransport
from cograil.http.server.problem_details import ErrorRenderer, Refusal
from cograil.http.server.write_timeout import WriteTimeout
from cograil.model.ids import new_id

MAX_HEAD = request_limits.MAX_URL + request_limits.MAX_HEADER_BYTES + 4 * request_limits.MAX_HEADERS + 1024
IS_METHOD = re.compile(rb"[A-Za-z]{1,40} ").match
ABOUT_LENGTH = ("Content-Length", "Transfer-Encoding", "chunk")
SECOND_LOOK_SECONDS = 0.01
ALLOWED = "DELETE, GET, HEAD, POST"


class Protocol(HttpToolsProtocol):
    """One connection. `told` is how it says what goes wrong."""

    told: ErrorRenderer
    _received = b""
    _head_bytes = 0
    _header_bytes = 0
    _is_in_head = False
    _is_upgraded = False
    _patience: asyncio.TimerHandle | None = None
    _write_timeout: WriteTimeout

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._lingering = LingeringTransport(transport, self.loop)
        self.transport = cast(asyncio.Transport, self._lingering)
        self._write_timeout = WriteTimeout(transport, self.loop)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._write_timeout.stop()
        self._lingering.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timeout.arm()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timeout.stop()

    def timeout_keep_alive_handler(self) -> None:
        """A request may have come while we were busy: what is there is read first.

        Closing waits for what is still to be taken.
        """
        self.timeout_keep_alive_task = self.loop.call_later(SECOND_LOOK_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        super().timeout_keep_alive_handler()
        self._write_timeout.arm()

    def data_received(self, data: bytes) -> None:
        """Bytes, until the head is too long or takes too long."""
        if self._lingering.is_lingering:
            self._lingering.drain(data)
            return
        self._received = data
        super().data_received(data)
        self._received = b""
        self._head_bytes = self._head_bytes + len(data) if self._is_in_head else 0
        if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
            self._refuse(_too_long(self.url) or _too_much())
        if self._is_idle() and not self.transport.is_closing():
            self._await_head()

    def _is_idle(self) -> bool:
        """Whether no request is being read or answered."""
        if self._is_upgraded:
            return False
        return self.cycle is None or self.cycle.response_complete

    def handle_websocket_upgrade(self) -> None:
        """From now on the connection is not ours: its silence is not a request that does not come."""
        self._is_upgraded = True
        self._is_in_head = False
        self._stop_waiting()
        self._write_timeout.stop()
        self._lingering.has_rest = True  # frames may come until the caller has seen ours that closes
        super().handle_websocket_upgrade()

    def _await_head(self) -> None:
        """From now on there is only so much time for the rest of it, however it is dealt out."""
        if self._patience is None:
            self._patience = self.loop.call_later(request_limits.HEAD_SECONDS, self._lose_patience)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        """Half a head is answered. Who said nothing at all, or only blank lines, is not."""
        self._patience = None
        if self.transport.is_closing():
            return
        if self._is_in_head:
            self._refuse(_too_slow())
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stop_waiting()
        self._is_in_head = True
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if (refusal := _too_long(self.url)) is not None:
            raise refusal

    def on_header(self, name: bytes, value: bytes) -> None:
        """Raises Refusal for one too many; also routes that nobody needs a key for have a bound."""
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if (
            len(self.headers) > request_limits.MAX_HEADERS
            or self._header_bytes > request_limits.MAX_HEADER_BYTES
        ):
            raise _too_much()

    def on_headers_complete(self) -> None:
        """Raises Refusal for a body of which nobody knows the end, before anything is done for it."""
        self._is_in_head = False
        self._lingering.has_rest = True
        self._stop_waiting()
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise Refusal(
                400, "bad_framing", "a body is sent as it is, or in chunks", headers=request_limits.CLOSE
            )
        if self.parser.get_method() == b"CONNECT":
            raise _no_method()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._lingering.has_rest = False

    def send_400_response(self, msg: str) -> None:
        """Called while the error is at hand."""
        self._refuse(_refusal_of(sys.exc_info()[1], self._received))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and hang up; but an answer that has begun, or one that comes first, is not cut into."""
        self._is_in_head = False
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.cycle.more_body:
                self.cycle.keep_alive = False
                self.flow.pause_reading()
                return
            if self.cycle.response_started:
                self.transport.close()
                return
        self._lingering.has_rest = True
        self.transport.write(_written(self.told(refusal, new_id())))
        self.transport.close()


# Made anew each time: an exception that is kept gathers the frames of all who raised it.


def _no_method() -> Refusal:
    told = {"Allow": ALLOWED} | request_limits.CLOSE
    return Refusal(405, "method_not_allowed", f"there are {ALLOWED}", headers=told)


def _too_much() -> Refusal:
    return Refusal(
        431, "headers_too_large", "too many headers, or too long ones", headers=request_limits.CLOSE
    )


def _too_slow() -> Refusal:
    message = f"the head of the request did not come within {request_limits.HEAD_SECONDS:g} seconds"
    return Refusal(408, "request_timeout", message, headers=request_limits.CLOSE)


def _too_long(url: bytes) -> Refusal | None:
    if len(url) <= request_limits.MAX_URL:
        return None
    return Refusal(
        414,
        "uri_too_long",
        f"a URL has at most {request_limits.MAX_URL:,} bytes",
        headers=request_limits.CLOSE,
    )


def _refusal_of(error: BaseException | None, received: bytes) -> Refusal:
    """What a caller is told of bytes that are no request."""
    if error is not None and isinstance(error.__context__, Refusal):
        return error.__context__
    if isinstance(error, httptools.HttpParserInvalidMethodError) and IS_METHOD(received):
        return _no_method()
    if any(word in str(error) for word in ABOUT_LENGTH):
        return Refusal(
            400,
            "bad_framing",
            "the length of the body cannot be told from this",
            headers=request_limits.CLOSE,
        )
    return Refusal(400, "malformed_request", "this is no request of HTTP/1.1", headers=request_limits.CLOSE)


def _written(answer: Response) -> bytes:
    lines = [STATUS_LINE[answer.status_code].rstrip(), *(b"%b: %b" % pair for pair in answer.raw_headers)]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])
