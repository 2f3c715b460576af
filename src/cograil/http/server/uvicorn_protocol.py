"""The HTTP/1.1 protocol of a connection: unreadable requests get the API's error format, and input is
bounded.

uvicorn answers an unreadable request with a line of text and accepts headers without a limit. Between two
requests its keep-alive timeout applies, as long as the client sends nothing.
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
FRAMING_WORDS = ("Content-Length", "Transfer-Encoding", "chunk")
LAST_READ_SECONDS = 0.01
ALLOWED = "DELETE, GET, HEAD, POST"


class Protocol(HttpToolsProtocol):
    """One connection. `render_error` makes the response to a request that cannot be read."""

    render_error: ErrorRenderer
    _received = b""
    _head_bytes = 0
    _header_bytes = 0
    _is_in_head = False
    _is_upgraded = False
    _head_timer: asyncio.TimerHandle | None = None
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
        """Read what has arrived before closing: a request may have come while the loop was busy."""
        self.timeout_keep_alive_task = self.loop.call_later(LAST_READ_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        super().timeout_keep_alive_handler()
        self._write_timeout.arm()

    def data_received(self, data: bytes) -> None:
        """Parse these bytes. Answers 431 when the head of the request is too long."""
        if self._lingering.is_lingering:
            self._lingering.drain(data)
            return
        self._received = data
        super().data_received(data)
        self._received = b""
        self._head_bytes = self._head_bytes + len(data) if self._is_in_head else 0
        if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
            self._refuse(_url_too_long(self.url) or _headers_too_large())
        if self._is_between_requests() and not self.transport.is_closing():
            self._await_head()

    def _is_between_requests(self) -> bool:
        """Return whether no request is being read or answered."""
        if self._is_upgraded:
            return False
        return self.cycle is None or self.cycle.response_complete

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol: the timeouts of requests no longer apply."""
        self._is_upgraded = True
        self._is_in_head = False
        self._stop_waiting()
        self._write_timeout.stop()
        self._lingering.has_rest = True  # frames may come until the client has read the close frame
        super().handle_websocket_upgrade()

    def _await_head(self) -> None:
        """Start the timeout of a request head; more bytes do not extend it."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(request_limits.HEAD_SECONDS, self._on_head_timeout)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        """Answer half a head with 408. A client that sent nothing, or only blank lines, gets no response."""
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self._is_in_head:
            self._refuse(_head_timeout())
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stop_waiting()
        self._is_in_head = True
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if (refusal := _url_too_long(self.url)) is not None:
            raise refusal

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Raises Refusal when there are too many, also for routes without authentication."""
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if (
            len(self.headers) > request_limits.MAX_HEADERS
            or self._header_bytes > request_limits.MAX_HEADER_BYTES
        ):
            raise _headers_too_large()

    def on_headers_complete(self) -> None:
        """Start the request. Raises Refusal for a transfer encoding other than chunked, and for CONNECT."""
        self._is_in_head = False
        self._lingering.has_rest = True
        self._stop_waiting()
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise Refusal(
                400,
                "bad_framing",
                "the only supported Transfer-Encoding is chunked",
                headers=request_limits.CLOSE,
            )
        if self.parser.get_method() == b"CONNECT":
            raise _method_not_allowed()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._lingering.has_rest = False

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser rejected; called while its error is being handled."""
        self._refuse(_refusal_of(sys.exc_info()[1], self._received))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and close. A response in progress is finished first, and a started one is not answered twice."""
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
        self.transport.write(_encode(self.render_error(refusal, new_id())))
        self.transport.close()


# Created for each use: a shared exception would collect the frames of every raise.


def _method_not_allowed() -> Refusal:
    headers = {"Allow": ALLOWED} | request_limits.CLOSE
    return Refusal(405, "method_not_allowed", f"the supported methods are {ALLOWED}", headers=headers)


def _headers_too_large() -> Refusal:
    return Refusal(
        431, "headers_too_large", "too many headers, or too long ones", headers=request_limits.CLOSE
    )


def _head_timeout() -> Refusal:
    message = f"the request head did not arrive within {request_limits.HEAD_SECONDS:g} seconds"
    return Refusal(408, "request_timeout", message, headers=request_limits.CLOSE)


def _url_too_long(url: bytes) -> Refusal | None:
    if len(url) <= request_limits.MAX_URL:
        return None
    return Refusal(
        414,
        "uri_too_long",
        f"a URL has at most {request_limits.MAX_URL:,} bytes",
        headers=request_limits.CLOSE,
    )


def _refusal_of(error: BaseException | None, received: bytes) -> Refusal:
    """Return the error for bytes that are not a request."""
    if error is not None and isinstance(error.__context__, Refusal):
        return error.__context__
    if isinstance(error, httptools.HttpParserInvalidMethodError) and IS_METHOD(received):
        return _method_not_allowed()
    if any(word in str(error) for word in FRAMING_WORDS):
        return Refusal(
            400,
            "bad_framing",
            "the length of the body is invalid: check Content-Length and Transfer-Encoding",
            headers=request_limits.CLOSE,
        )
    return Refusal(400, "malformed_request", "this is not an HTTP/1.1 request", headers=request_limits.CLOSE)


def _encode(response: Response) -> bytes:
    lines = [STATUS_LINE[response.status_code].rstrip(), *(b"%b: %b" % pair for pair in response.raw_headers)]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
