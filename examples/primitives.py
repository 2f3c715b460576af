"""A handler that uses all primitives: `cograil up --workflows examples --app examples.primitives`.

What is asked twice is done once (idempotency record), for each symbol by one job at a time (lease), by three
jobs at most (slots), seven times a second at most (bucket). All of it belongs to the job until that ends,
however it ends: nobody has to give anything back.
"""

from __future__ import annotations

from cograil import Context, Retry, handler
from cograil.verbs import buckets, idempotency, leases, slots
from cograil.verbs.idempotency import Attach, Key, New, Replay
from cograil.verbs.transaction_verbs import Transaction, joined


def quote_of(symbol: str) -> Key:
    """Of one tenant, and one kind of work."""
    return Key("default", "quotes", symbol)


@handler("reserve")
async def reserve(ctx: Context, symbol: str) -> dict:
    """Everything is the job's own together with this result, or nothing is."""
    async with ctx.transaction() as mine:
        tx = joined(mine.connection, "reserve")
        fingerprint = idempotency.fingerprint({"symbol": symbol})
        match await idempotency.decide(
            tx, quote_of(symbol), fingerprint, idempotency.attach(keep_seconds=3600)
        ):
            case Replay(record):
                return {"is_mine": False, "quote": record.answer}
            case Attach(record):
                return {"is_mine": False, "watch": record.job_id}
            case New(turn):
                await idempotency.give(tx, quote_of(symbol), turn, ctx.job_id)
                return {"is_mine": True, "turn": turn, "lease": await _take_all(tx, ctx.job_id, symbol)}
            case other:
                raise Retry(f"{symbol}: {other}")


async def _take_all(tx: Transaction, job_id: str, symbol: str) -> int:
    """The fence of the lease. Who is refused tries again later, and has nothing until then."""
    lease = await leases.acquire(tx, f"quote:{symbol}", holder=job_id, seconds=60, job_id=job_id)
    if isinstance(lease, leases.Taken):
        raise Retry(f"{symbol} is with job {lease.job_id}", code="taken")
    slot = await slots.take(tx, "quotes", limit=3, holder=job_id, seconds=60, job_id=job_id)
    if isinstance(slot, slots.Full):
        raise Retry(f"all places are taken: {[holder.job_id for holder in slot.holders]}", code="full")
    if wait := await buckets.take(tx, "registry", capacity=20, per_second=7):
        raise Retry(f"too fast by {wait:.1f} s", code="too_fast")
    return lease.fence


@handler("quote")
async def quote(ctx: Context, symbol: str, turn: int, lease: int) -> dict:
    """The answer is kept under the lease: of a job that lost it nothing is written."""
    quoted = {"symbol": symbol, "cents": 100 + len(symbol)}
    async with ctx.transaction() as mine:
        tx = joined(mine.connection, "quote")
        if not await leases.check(tx, f"quote:{symbol}", lease):
            raise Retry("the lease is lost", code="lease_lost")
        await idempotency.answer(tx, quote_of(symbol), turn, quoted)
        return quoted
