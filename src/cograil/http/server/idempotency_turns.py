"""Whose turn it is, of all requests under one idempotency key; who would wait too long is told."""

from __future__ import annotations

import asyncio

from cograil.http.server.problem_details import Refusal
from cograil.store.database import Transaction
from cograil.verbs import idempotency
from cograil.verbs.idempotency import Key

KEEP_SECONDS = 30 * 86_400.0
IN_PROGRESS_SECONDS = 5.0


async def decided(tx: Transaction, name: Key, asked: str) -> idempotency.Decision:
    """What to do with this request. Raises Refusal when another one has been at it for too long."""
    try:
        async with asyncio.timeout(IN_PROGRESS_SECONDS):
            return await idempotency.decide(tx, name, asked, idempotency.replay(KEEP_SECONDS))
    except TimeoutError:
        told = "the first request with this idempotency key is not done yet"
        raise Refusal(409, "in_progress", told, headers={"Retry-After": "1"}) from None
