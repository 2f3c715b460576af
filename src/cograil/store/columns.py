"""Rows as columns: arrays in PostgreSQL's own notation, one parameter each.

PostgreSQL reads an array five times faster than the same rows as JSON, and the driver's own way with
lists is slow. So we write the notation ourselves; what may hold any character is quoted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any


def array(values: Iterable[str]) -> str:
    """An array of values that need no quoting: ids, numbers, our own words."""
    return "{" + ",".join(values) + "}"


def plain(values: Sequence[Any]) -> str:
    """An array of ids, numbers, states or nulls."""
    return "{" + ",".join(["null" if value is None else str(value) for value in values]) + "}"


def text(values: Sequence[str | None]) -> str:
    """An array of any texts."""
    return "{" + ",".join(["null" if value is None else _quoted(value) for value in values]) + "}"


def json(values: Sequence[bytes | None]) -> str:
    """An array of JSON texts."""
    return "{" + ",".join(["null" if value is None else _quoted(value.decode()) for value in values]) + "}"


def times(values: Sequence[datetime | None]) -> str:
    """An array of moments."""
    return "{" + ",".join(["null" if value is None else value.isoformat() for value in values]) + "}"


def _quoted(value: str) -> str:
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    return '"' + value.replace('"', '\\"') + '"'


class Columns:
    """Rows to be written, turned into one parameter per column.

    `shape` names the columns and says how each is written: `Columns("event_", seq=plain, data=json)`
    gives the parameters event_seq and event_data.
    """

    def __init__(self, prefix: str, **shape: Any) -> None:
        self._prefix = prefix
        self._shape = shape
        self.rows: list[tuple[Any, ...]] = []

    def params(self) -> dict[str, str]:
        """The parameters of the statement."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self._shape)
        pairs = zip(self._shape.items(), columns, strict=True)
        return {f"{self._prefix}{name}": written(values) for (name, written), values in pairs}
