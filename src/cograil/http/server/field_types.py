"""Field types of request bodies that have their own error codes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from cograil.definitions.mapping_reader import ID

LAST_YEAR = 9998  # later times cannot be converted to every time zone
MAX_LABELS, MAX_LABEL_KEY, MAX_LABEL = 64, 63, 255
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

TIMESTAMP, LABEL, NAME = "invalid_timestamp", "invalid_label", "invalid_name"
CODES = frozenset({TIMESTAMP, LABEL, NAME})  # the names of these errors are the codes of the response


def _moment(value: object) -> object:
    """Parse a time with its zone; pydantic would also accept numbers and times without a zone."""
    if not isinstance(value, str):
        raise PydanticCustomError(TIMESTAMP, "a time must be a string such as 2026-01-31T09:00:00Z")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError(TIMESTAMP, "a time must have the format 2026-01-31T09:00:00Z") from None
    if moment.tzinfo is None:
        raise PydanticCustomError(TIMESTAMP, "a time must include its zone, as in 2026-01-31T09:00:00Z")
    if not 1 < moment.year <= LAST_YEAR:
        raise PydanticCustomError(TIMESTAMP, f"the year of a time must be between 2 and {LAST_YEAR}")
    return moment.astimezone(UTC)


def _labels(value: dict[str, str]) -> dict[str, str]:
    if len(value) > MAX_LABELS:
        raise PydanticCustomError(LABEL, f"at most {MAX_LABELS} labels")
    for key, text in value.items():
        if not 1 <= len(key) <= MAX_LABEL_KEY or CONTROL.search(key):
            raise PydanticCustomError(
                LABEL, f"the key of a label has 1 to {MAX_LABEL_KEY} characters and no control characters"
            )
        if len(text) > MAX_LABEL or CONTROL.search(text):
            raise PydanticCustomError(
                LABEL, f"a label has at most {MAX_LABEL} characters and no control characters"
            )
    return value


def _name(value: str) -> str:
    if not ID.fullmatch(value):
        raise PydanticCustomError(
            NAME, "a workflow name has 1 to 64 letters, digits, _, . and -, and starts with a letter or digit"
        )
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]
Labels = Annotated[
    dict[str, str],
    AfterValidator(_labels),
    Field(
        json_schema_extra={
            "maxProperties": MAX_LABELS,
            "propertyNames": {"minLength": 1, "maxLength": MAX_LABEL_KEY},
        }
    ),
]
WorkflowName = Annotated[
    str, AfterValidator(_name), Field(json_schema_extra={"pattern": f"^{ID.pattern}$", "maxLength": 64})
]
