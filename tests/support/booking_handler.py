"""A handler for workers in processes of their own: it writes a row together with its result."""

from __future__ import annotations

from typing import Any

from cograil import Context, handler


@handler("book_it")
async def book_it(ctx: Context) -> dict[str, Any]:
    async with ctx.transaction() as tx:
        await tx.execute("insert into bookings values (%s, %s, 5)", (ctx.job_id, ctx.attempt))
        return {"attempt": ctx.attempt}
