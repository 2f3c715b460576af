"""Columns in binary form: PostgreSQL must read back exactly what was packed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.store.array_params import (
    Columns,
    bigints,
    floats,
    ints,
    jsonbs,
    jsons,
    smallints,
    texts,
    times,
    uuids,
)
from cograil.store.statements import Statement

READ = """
select t, i, b, s, f, u::text, at, j, jb from unnest(
  %(c_t)s::text[], %(c_i)s::int[], %(c_b)s::bigint[],
  %(c_s)s::smallint[], %(c_f)s::double precision[], %(c_u)s::uuid[], %(c_at)s::timestamptz[], %(c_j)s::json[],
  %(c_jb)s::jsonb[]) as r(t, i, b, s, f, u, at, j, jb)"""


def columns() -> Columns:
    shape = {"t": texts, "i": ints, "b": bigints, "s": smallints, "f": floats, "u": uuids, "at": times}
    return Columns("c", **shape, j=jsons, jb=jsonbs)


async def read_back(harness: Harness, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    params = columns()
    params.rows = rows
    async with harness.db.single("test") as tx:
        return await tx.fetch(Statement("test", READ, ""), **params.params())


async def test_postgresql_reads_back_what_was_packed(harness: Harness) -> None:
    rows = [
        ("a,b{}\\\"'\t\n", 1, 2**62, -3, 0.1, "01a1e3ac-f8d7-7838-882d-dd73edc06aeb",
         datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC), b'{"b":1, "a":2}', b'{"a": 2}'),
        (None,) * 9,
        ("", -(2**31), -(2**63), 2**15 - 1, -1e300, "00000000-0000-0000-0000-000000000000",
         datetime(1999, 12, 31, tzinfo=timezone(timedelta(hours=5))), b"[]", b"[]"),
        ("\u00e9\U0001f600null", 0, 0, 0, 0.0, "ffffffff-ffff-ffff-ffff-ffffffffffff",
         datetime(2026, 11, 16, tzinfo=UTC), b'"x"', b'"x"'),
    ]  # fmt: skip
    fetched_rows = await read_back(harness, rows)
    assert [tuple(fetched_row) for fetched_row in fetched_rows] == rows
    assert await read_back(harness, []) == []
    assert await read_back(harness, [(None,) * 9] * 3) == [(None,) * 9] * 3


def test_a_text_with_nul_is_refused_and_nothing_is_shifted() -> None:
    with pytest.raises(ValueError, match="NUL"):
        texts(["fine", "a\0b"])
