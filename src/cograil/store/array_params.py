"""Array parameters: the rows of a statement as one binary array per column.

Parsing text arrays took an eighth of the server's CPU time under load, and the driver encodes lists slowly. So
this module encodes the columns of the hot statements: a header (one dimension, null flag, element type, length,
lower bound 1), then each element with its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct
from typing import Any

from psycopg import pq
from psycopg.adapt import Buffer, Dumper

_NULL = b"\xff\xff\xff\xff"
_EMPTY = Struct(">iiI").pack
_HEADER = Struct(">iiIii").pack
_LENGTH = Struct(">i").pack
_INT8 = Struct(">iq").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Packed(bytes):
    """An array in binary format; the cast in the statement gives its type."""


class PackedDumper(Dumper):
    """Sends a packed array unchanged, in binary format."""

    format = pq.Format.BINARY

    def dump(self, obj: Buffer) -> Buffer:
        """Return the bytes unchanged."""
        return obj


Column = Callable[[Sequence[Any]], Packed]
Pack = Callable[[Sequence[Any]], list[bytes]]


def _column(type_oid: int, pack: Pack) -> Column:
    """Return the function that packs a column of this type."""

    def packed(values: Sequence[Any]) -> Packed:
        count = len(values)
        if not count:
            return Packed(_EMPTY(0, 0, type_oid))
        has_nulls = None in values
        parts = [_NULL] * count if has_nulls and values.count(None) == count else pack(values)
        return Packed(_HEADER(1, has_nulls, type_oid, count, 1) + b"".join(parts))

    return packed


def _numbers(size: int, code: str) -> Pack:
    pack = Struct(f">i{code}").pack
    return lambda values: [_NULL if value is None else pack(size, value) for value in values]


def _repeated(pack: Callable[[Any], bytes]) -> Pack:
    """Pack each distinct value once, for columns with many equal values."""

    def packed(values: Sequence[Any]) -> list[bytes]:
        known = {value: pack(value) for value in set(values) if value is not None}
        known[None] = _NULL
        return [known[value] for value in values]

    return packed


def _documents(prefix: bytes = b"") -> Pack:
    """Pack JSON texts, each after this prefix."""

    def packed(values: Sequence[Any]) -> list[bytes]:
        before = len(prefix)
        return [_NULL if value is None else _LENGTH(before + len(value)) + prefix + value for value in values]

    return packed


def _pack_text(value: str) -> bytes:
    """Raises ValueError for a text with NUL, which PostgreSQL cannot store."""
    if "\0" in value:
        raise ValueError("the text contains NUL, which PostgreSQL cannot store")
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


def _pack_time(value: datetime) -> bytes:
    return _INT8(8, (value - _EPOCH) // _MICROSECOND)


@lru_cache(8192)  # the id of a job is in every row of its changes
def _pack_uuid(value: str) -> bytes:
    return b"\0\0\0\x10" + bytes.fromhex(value.replace("-", ""))


uuids = _column(2950, _repeated(_pack_uuid))
texts = _column(25, _repeated(_pack_text))
times = _column(1184, _repeated(_pack_time))
jsons = _column(114, _documents())
jsonbs = _column(3802, _documents(b"\1"))
smallints = _column(21, _numbers(2, "h"))
ints = _column(23, _numbers(4, "i"))
bigints = _column(20, _numbers(8, "q"))
floats = _column(701, _numbers(8, "d"))
bools = _column(16, _numbers(1, "?"))


class Columns:
    """Rows to write, packed into one parameter per column.

    `shape` gives the name and the packer of each column: `Columns("events", seq=ints, data=jsons)` makes the
    parameters events_seq and events_data.
    """

    def __init__(self, name: str, /, **shape: Column) -> None:
        self.name = name
        self._shape = shape
        self.rows: list[tuple[Any, ...]] = []

    def params(self) -> dict[str, Packed]:
        """Return the parameters of the statement."""
        columns: Iterable[Sequence[Any]] = (
            zip(*self.rows, strict=True) if self.rows else [()] * len(self._shape)
        )
        pairs = zip(self._shape.items(), columns, strict=True)
        return {f"{self.name}_{column}": packed(values) for (column, packed), values in pairs}
