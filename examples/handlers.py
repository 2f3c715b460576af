"""Three handlers that keep what they have done: `cograil up --workflows examples --app examples.handlers`."""

from __future__ import annotations

import asyncio
import hashlib

from cograil import Context, handler

TABLE = "create table if not exists invoices (customer text primary key, amount numeric, digest text)"


async def fetch_rates(day: str) -> dict[str, float]:
    """Stands for a slow service somewhere else."""
    await asyncio.sleep(0.2)
    return {"EUR": 1.0, "CHF": 0.95, "day_length": len(day)}


@handler("collect")
async def collect(ctx: Context, customer: str, day: str = "2026-01-31") -> dict:
    """Each step is done once: when the second fails, the next attempt does not repeat the first."""
    rates = await ctx.step("rates", fetch_rates, day)
    amount = await ctx.step("amount", lambda: round(100 * rates["CHF"], 2))
    return {"customer": customer, "amount": amount}


@handler("digest", process=True)
def digest(ctx: Context, customer: str, rounds: int = 200_000) -> dict:
    """A function that computes runs in a child process: it is killed when its time is up."""
    hashed = hashlib.pbkdf2_hmac("sha256", customer.encode(), b"cograil", rounds)
    return {"digest": hashed.hex()}


@handler("book")
async def book(ctx: Context, customer: str, amount: float, digest: str) -> dict:
    """The row and the result are there together or not at all, whatever dies in between."""
    async with ctx.transaction() as tx:
        await tx.execute(TABLE)
        await tx.execute(
            "insert into invoices values (%s, %s, %s)"
            " on conflict (customer) do update set amount = excluded.amount",
            (customer, amount, digest),
        )
        cursor = await tx.execute("select count(*) from invoices")
        return {"invoices": (await cursor.fetchone())[0]}
