"""What a handler prints, or logs with `logging`, becomes log lines of its attempt.

The attempt that runs here is known by a context variable, so coroutines, threads of `asyncio.to_thread` and
child processes are told apart. What is printed or logged still goes where it went before.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from cograil.runners.handler_log import Log

if TYPE_CHECKING:
    from cograil.runners.context import Context

LEVELS = {"stdout": "info", "stderr": "warning"}
KEPT = "_cograil_kept"  # marks a record that is a log line already

attempt: ContextVar[Context | None] = ContextVar("attempt", default=None)  # the attempt that runs here


def capture(*, is_output_kept: bool) -> None:
    """Keep the `logging` records of handlers in this process, and what they print if that is wanted.

    Called after the logging of the process is set up, so that its own lines are not taken for a handler's.
    """
    root = logging.getLogger()
    for handler in root.handlers:  # they go on hearing what they heard
        handler.setLevel(max(handler.level, root.level))
    root.setLevel(min(root.level, logging.INFO))
    root.addHandler(_RecordKeeper())
    if is_output_kept:
        sys.stdout = _Tee(sys.stdout, "stdout")
        sys.stderr = _Tee(sys.stderr, "stderr")


class Output:
    """What one attempt prints, kept line by line."""

    __slots__ = ("_lock", "_log", "_max_length", "_parts")

    def __init__(self, log: Log, max_length: int) -> None:
        self._log = log
        self._max_length = max_length
        self._lock = threading.Lock()
        self._parts: dict[str, str] = {}  # since the last end of a line, by stream

    def write(self, stream: str, text: str) -> None:
        """Keep the lines that are complete with this text; one that is too long counts as complete."""
        with self._lock:
            *lines, rest = (self._parts.pop(stream, "") + text).split("\n")
            if len(rest) > self._max_length:
                lines, rest = [*lines, rest], ""
            if rest:
                self._parts[stream] = rest
        for line in lines:
            self._log.keep(LEVELS[stream], stream, line)

    def close(self) -> None:
        """Keep what has no end of line."""
        with self._lock:
            rest, self._parts = self._parts, {}
        for stream, line in rest.items():
            self._log.keep(LEVELS[stream], stream, line)


class _RecordKeeper(logging.Handler):
    """Keeps the records that are logged inside a handler."""

    def emit(self, record: logging.LogRecord) -> None:
        _keep(record)


def _keep(record: logging.LogRecord) -> None:
    """Keep a record once, however many handlers of `logging` see it."""
    context = attempt.get()
    if context is None or getattr(record, KEPT, False):
        return
    setattr(record, KEPT, True)
    try:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + _FORMATTER.formatException(record.exc_info)
    except Exception as error:  # arguments that do not fit the message
        message = f"{record.msg!r} (cannot be formatted: {error})"
    for line in message.splitlines() or [""]:
        context.log.keep(_level(record.levelno), record.name, line)


_FORMATTER = logging.Formatter()


def _level(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"


class _Tee:
    """A stream that also keeps what a handler writes to it."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        context = attempt.get()
        if context is not None:
            record = _record_being_written(sys._getframe(1))
            if record is None:
                context.output.write(self._name, text)
            else:
                _keep(record)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _record_being_written(caller: FrameType) -> logging.LogRecord | None:
    """The record, if it is a handler of `logging` that writes: the record is kept rather than its text."""
    if caller.f_code is not logging.StreamHandler.emit.__code__:
        return None
    record = caller.f_locals.get("record")
    return record if isinstance(record, logging.LogRecord) else None
