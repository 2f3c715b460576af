"""Logging: text on a terminal, JSON elsewhere, on standard error.

A line that cannot be written (full disk, closed pipe) is counted and dropped: logging never stops work.
Keys, signing secrets and passwords in URLs are masked in every line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TextIO

import structlog
from structlog.typing import EventDict

dropped = 0
SERVICE_VARIABLE = "_COGRAIL_LOG_SERVICE"  # value of the field `service` in this process and its children
MAX_SECRET = 512
# The id of a key stays visible: it tells the operator which key leaked into a log.
_SECRETS = re.compile(
    r"(?P<key>cog_[a-z2-7]{16}_)[\w-]{20,}"
    r"|(?P<signs>whsec_)[A-Za-z0-9+/=_-]{16,}"
    r"|(?P<bearer>\bbearer\s)\s*[\w.~+/=-]{16,}"
    r"|(?P<user>://[^\s:/@\"']{0,128}:)[^\s/@\"']{1,256}(?=@)",
    re.IGNORECASE,
)
_SECRET_MARKERS = ("cog_", "whsec_", "earer", "EARER", "://")


def redact_secrets(text: str) -> str:
    """Return the text with API keys, signing secrets and passwords in URLs masked."""
    if not any(marker in text for marker in _SECRET_MARKERS):
        return text
    return _SECRETS.sub(lambda match: f"{match[match.lastgroup or 0]}***", text)


class LoggedAttempt(Protocol):
    """The attempt that a log line is about; a work item is one."""

    @property
    def job_id(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def handler(self) -> str: ...
    @property
    def trace_parent(self) -> str | None: ...


# Functions that return an app's own fields for a line about an attempt, by handler prefix such as `companies`.
app_log_fields: dict[str, Callable[[Any], dict[str, Any]]] = {}
# The attempt that runs in this context; its fields are added to lines logged inside the handler.
current_attempt: ContextVar[LoggedAttempt | None] = ContextVar("current_attempt", default=None)


def attempt_fields(item: LoggedAttempt, known: Any = None) -> dict[str, Any]:
    """Return the log fields of an attempt, with its trace id if it has one.

    `known` supplies values for fields of an app that the attempt alone does not have, such as an error.
    """
    fields = {"job_id": item.job_id, "node_id": item.node_id, "attempt": item.attempt}
    if item.trace_parent is not None:
        fields["trace_id"] = item.trace_parent[3:35]
    read_app_fields = app_log_fields.get(item.handler.partition(".")[0])
    if read_app_fields is None:
        return fields
    app_fields, overrides = read_app_fields(item), known if isinstance(known, dict) else {}
    return app_fields | {name: value for name, value in overrides.items() if name in app_fields} | fields


class LineWriter:
    """Writes log lines to a stream and counts the lines that could not be written."""

    def __init__(self, stream: TextIO, name: str = "cograil") -> None:
        self.name = name
        self._stream = stream

    def msg(self, line: str) -> None:
        global dropped  # noqa: PLW0603  one number for the process
        try:
            self._stream.write(redact_secrets(line) + "\n")  # one call, so lines of threads do not mix
            self._stream.flush()
        except (OSError, ValueError):
            dropped += 1

    debug = info = warning = error = critical = msg


@contextlib.contextmanager
def service_name(service: str) -> Iterator[None]:
    """Add the fields `service` and `message` to JSON lines when logging is configured inside this block."""
    before = os.environ.get(SERVICE_VARIABLE)
    os.environ[SERVICE_VARIABLE] = service
    try:
        yield
    finally:
        os.environ.pop(SERVICE_VARIABLE)
        if before is not None:
            os.environ[SERVICE_VARIABLE] = before


def configure(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:
    """Set up the logging of this process. Libraries log at `warning` and above."""
    out = stream or sys.stderr
    is_text = format == "text" or (format == "auto" and out.isatty())
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_attempt,
            structlog.processors.add_log_level,
            _add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_text_renderers(out) if is_text else _json_renderers()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *name: LineWriter(out, *name),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_StructlogHandler()], level=max(threshold, logging.WARNING), force=True)


class _StructlogHandler(logging.Handler):
    """Sends the log records of libraries through structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def _add_attempt(logger: Any, method: str, event: EventDict) -> EventDict:
    """Add the fields of the current attempt; fields of the line itself win."""
    item = current_attempt.get()
    return event if item is None else {**attempt_fields(item), **event}


def _add_logger_name(logger: Any, method: str, event: EventDict) -> EventDict:
    event["logger"] = logger.name
    return event


def _text_renderers(out: TextIO) -> list[Any]:
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]


def _json_renderers() -> list[Any]:
    service = os.environ.get(SERVICE_VARIABLE)
    add_service = [partial(_add_service, service)] if service else []
    return [
        structlog.processors.format_exc_info,
        *add_service,
        structlog.processors.JSONRenderer(default=str),
    ]


def _add_service(service: str, logger: Any, method: str, event: EventDict) -> EventDict:
    return {"service": service, **event, "message": event["event"]}
