"""Log lines: text on a terminal, JSON elsewhere, on standard error.

A line that cannot be written (a full disk, a closed pipe) is counted and forgotten: logging never
stops work. What looks like a secret of ours, or a password in a URL, is in no line.
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
SERVICE_VARIABLE = "_COGRAIL_LOG_SERVICE"  # what JSON lines of this process and its children call it
MAX_SECRET = 512
# Of a key its id is left: it says whose key somebody let into a log.
_SECRETS = re.compile(
    r"(?P<key>cog_[a-z2-7]{16}_)[\w-]{20,}"
    r"|(?P<signs>whsec_)[A-Za-z0-9+/=_-]{16,}"
    r"|(?P<bearer>\bbearer\s)\s*[\w.~+/=-]{16,}"
    r"|(?P<user>://[^\s:/@\"']{0,128}:)[^\s/@\"']{1,256}(?=@)",
    re.IGNORECASE,
)
_SIGNS_OF_ONE = ("cog_", "whsec_", "earer", "EARER", "://")


def redacted(text: str) -> str:
    """The text without what looks like a key, a signing secret, or a password in a URL."""
    if not any(sign in text for sign in _SIGNS_OF_ONE):
        return text
    return _SECRETS.sub(lambda found: f"{found[found.lastgroup or 0]}***", text)


class About(Protocol):
    """An attempt, of which lines are said: a work item is one."""

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


# What an app wants on every line about an attempt, by how the names of its handlers begin: `companies`.
app_facts: dict[str, Callable[[Any], dict[str, Any]]] = {}
about: ContextVar[About | None] = ContextVar("about", default=None)  # what runs here, for lines said inside


def facts_of(item: About, known: Any = None) -> dict[str, Any]:
    """What a line that is said about an attempt has, with the id of its trace if it has one.

    `known` fills what an app wants to hear and cannot tell by the attempt alone, such as an error.
    """
    facts = {"job_id": item.job_id, "node_id": item.node_id, "attempt": item.attempt}
    if item.trace_parent is not None:
        facts["trace_id"] = item.trace_parent[3:35]
    tell = app_facts.get(item.handler.partition(".")[0])
    if tell is None:
        return facts
    own, said = tell(item), known if isinstance(known, dict) else {}
    return own | {name: value for name, value in said.items() if name in own} | facts


class Lines:
    """Writes lines to a stream, and counts those it could not."""

    def __init__(self, stream: TextIO, name: str = "cograil") -> None:
        self.name = name
        self._stream = stream

    def msg(self, line: str) -> None:
        global dropped  # noqa: PLW0603  one number for the process
        try:
            self._stream.write(redacted(line) + "\n")  # in one piece, so that lines of threads do not mix
            self._stream.flush()
        except (OSError, ValueError):
            dropped += 1

    debug = info = warning = error = critical = msg


@contextlib.contextmanager
def lines_of(service: str) -> Iterator[None]:
    """JSON lines that are configured in this block have `service` and `message` too."""
    before = os.environ.get(SERVICE_VARIABLE)
    os.environ[SERVICE_VARIABLE] = service
    try:
        yield
    finally:
        os.environ.pop(SERVICE_VARIABLE)
        if before is not None:
            os.environ[SERVICE_VARIABLE] = before


def configure(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:
    """Set up the logging of this process, also that of libraries, which are heard from `warning` on."""
    out = stream or sys.stderr
    is_text = format == "text" or (format == "auto" and out.isatty())
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_about,
            structlog.processors.add_log_level,
            _add_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_text(out) if is_text else _json()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *name: Lines(out, *name),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=max(threshold, logging.WARNING), force=True)


class _ToStructlog(logging.Handler):
    """What libraries log comes out like the rest."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def _add_about(logger: Any, method: str, event: EventDict) -> EventDict:
    """Inside a handler: whose line it is. What the line says itself counts more."""
    item = about.get()
    return event if item is None else {**facts_of(item), **event}


def _add_name(logger: Any, method: str, event: EventDict) -> EventDict:
    event["logger"] = logger.name
    return event


def _text(out: TextIO) -> list[Any]:
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]


def _json() -> list[Any]:
    service = os.environ.get(SERVICE_VARIABLE)
    named = [partial(_add_service, service)] if service else []
    return [structlog.processors.format_exc_info, *named, structlog.processors.JSONRenderer(default=str)]


def _add_service(service: str, logger: Any, method: str, event: EventDict) -> EventDict:
    return {"service": service, **event, "message": event["event"]}
