"""Captures what a handler prints or logs with `logging` as log lines of its attempt.

A context variable identifies the attempt, which works for coroutines, threads of `asyncio.to_thread` and child
processes. The output still goes to its original stream or logger.
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
CAPTURED_MARK = "_cograil_kept"  # marks a record that is a log line already

attempt: ContextVar[Context | None] = ContextVar("attempt", default=None)  # the attempt that runs here


def capture(*, is_output_captured: bool) -> None:
    """Capture the `logging` records of handlers in this process and, if wanted, their printed output.

    Call it after the logging of the process is set up, so that its own lines are not captured.
    """
    root = logging.getLogger()
    for handler in root.handlers:  # existing handlers keep their level
        handler.setLevel(max(handler.level, root.level))
    root.setLevel(min(root.level, logging.INFO))
    root.addHandler(_RecordKeeper())
    if is_output_captured:
        sys.stdout = _Tee(sys.stdout, "stdout")
        sys.stderr = _Tee(sys.stderr, "stderr")


class Output:
    """The printed output of one attempt, split into lines."""

    __slots__ = ("_lock", "_log", "_max_length", "_parts")

    def __init__(self, log: Log, max_length: int) -> None:
        self._log = log
        self._max_length = max_length
        self._lock = threading.Lock()
        self._parts: dict[str, str] = {}  # the incomplete line of each stream

    def write(self, stream: str, text: str) -> None:
        """Add text and keep its complete lines. A line that is too long counts as complete."""
        with self._lock:
            *lines, rest = (self._parts.pop(stream, "") + text).split("\n")
            if len(rest) > self._max_length:
                lines, rest = [*lines, rest], ""
            if rest:
                self._parts[stream] = rest
        for line in lines:
            self._log.keep(LEVELS[stream], stream, line)

    def close(self) -> None:
        """Keep the incomplete lines."""
        with self._lock:
            rest, self._parts = self._parts, {}
        for stream, line in rest.items():
            self._log.keep(LEVELS[stream], stream, line)


class _RecordKeeper(logging.Handler):
    """Captures the records that a handler logs."""

    def emit(self, record: logging.LogRecord) -> None:
        _capture_record(record)


def _capture_record(record: logging.LogRecord) -> None:
    """Capture a record once, however many `logging` handlers get it."""
    context = attempt.get()
    if context is None or getattr(record, CAPTURED_MARK, False):
        return
    setattr(record, CAPTURED_MARK, True)
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
    """A stream that also captures what a handler writes to it."""

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
                _capture_record(record)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _record_being_written(caller: FrameType) -> logging.LogRecord | None:
    """Return the record that a `logging` handler writes; the record is captured instead of its text."""
    if caller.f_code is not logging.StreamHandler.emit.__code__:
        return None
    record = caller.f_locals.get("record")
    return record if isinstance(record, logging.LogRecord) else None
