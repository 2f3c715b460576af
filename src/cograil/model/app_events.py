"""Events of apps and handlers, and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from cograil import strict_json
from cograil.errors import InvalidInput, Problem
from cograil.model.workflow import Json

MAX_DATA_BYTES = 256 * 1024
MAX_SUBJECT = 256

_TYPE = re.compile(r"[a-z][a-z0-9_-]*(?:\.[A-Za-z0-9_-]+)+")


class AppEvent(NamedTuple):
    """An event of an attempt; `data` and `checkpoint` are JSON text. Without a checkpoint the last one
    stays.

    `mark` identifies the event: a repetition after a lost response is not recorded twice.
    """

    mark: str
    type: str
    subject: str
    data: bytes
    checkpoint: bytes | None = None
    phase: str = ""


def checked_event(
    type: str, subject: str, data: Mapping[str, Json], most_bytes: int = MAX_DATA_BYTES
) -> bytes:
    """Return the data as text. Raises InvalidInput: a type is a name with dots, and not one of cograil's
    own.
    """
    if not _TYPE.fullmatch(type) or len(type) > 128 or type.startswith("cograil."):
        message = "a type is a name such as captures.sealed, and does not begin with cograil."
        raise InvalidInput([Problem("invalid_value", message, "/type")])
    if not 0 < len(subject) <= MAX_SUBJECT or "\0" in subject:
        message = f"a subject has 1 to {MAX_SUBJECT} characters"
        raise InvalidInput([Problem("invalid_value", message, "/subject")])
    try:
        return strict_json.write(dict(data), max_bytes=most_bytes)
    except strict_json.InvalidJson as error:
        raise InvalidInput([Problem(error.code, error.message, f"/data{error.pointer}")]) from error
