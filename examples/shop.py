"""Handlers of a small shop: run it with `cograil up --workflows examples --app examples.shop`."""

from __future__ import annotations

import asyncio

from cograil import handler


@handler("charge")
async def charge(ctx, order_id: int, amount: float):
    """Charge an order. The key is the same in every attempt: a real bank would charge it once."""
    ctx.progress(1, 2, "asking the bank")
    await asyncio.sleep(0.2)
    ctx.log.info("charged", order=order_id)
    return {"receipt": f"{order_id}-{amount:.2f}", "key": ctx.idempotency_key}


@handler("pack")
def pack(order_id: int, receipt: str):
    """A plain function runs in a thread."""
    return {"parcel": f"order {order_id}, receipt {receipt}"}
