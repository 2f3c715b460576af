"""A user's own rows, written beside the result of a handler."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.support.harness import Harness

from cograil.runners.context import Context


def conninfo_as_role(conninfo: str, role: str) -> str:
    """How to connect to the same database as this role; the server of the tests asks for no password."""
    params: dict[str, Any] = {
        k: v for k, v in conninfo_to_dict(conninfo).items() if k not in ("password", "passfile")
    }
    return make_conninfo(**params | {"user": role})


async def list_bookings(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select attempt, amount from bookings order by attempt")


async def insert_booking(tx: Any, ctx: Context, amount: int = 5) -> None:
    await tx.execute("insert into bookings values (%s, %s, %s)", (ctx.job_id, ctx.attempt, amount))
