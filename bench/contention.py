"""Many who want the same: named slots, a token bucket, a concurrency limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.engine import Bench, query
from bench.figures import Figures
from cograil.settings import DatabaseSettings
from cograil.store.database import Database
from cograil.verbs import buckets, slots

CLIENTS = 8
PLACES = 3
PLENTY = 1e6  # nobody is refused: it is the row of the bucket that they wait for
LIMITED = """
workflow_id: limited
limits: {concurrency: 50}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
FAILED = query("select count(*) from cograil.jobs where workflow_id = 'limited' and status <> 'completed'")


async def measure(bench: Bench, jobs: int = 5_000, grants: int = 2_000) -> Figures:
    """Slots and buckets with eight connections, then a drain with a limit beside one without."""
    figures = await primitives(bench.conninfo, grants)
    return figures | await limited(bench, jobs)


async def primitives(conninfo: str, grants: int) -> Figures:
    """Grants per second of eight who fight for three slots (take, heartbeat, release), and for one bucket."""
    settings = DatabaseSettings(pool_size=CLIENTS)
    async with Database(conninfo, settings, application="bench") as db:
        seconds, attempts = await _fight(grants, lambda: _slot(db))
        figures = {"slot_grants_per_s": round(grants / seconds), "slot_asks_per_s": round(attempts / seconds)}
        seconds, _ = await _fight(grants, lambda: _tokens(db))
    return figures | {"bucket_grants_per_s": round(grants / seconds)}


async def limited(bench: Bench, jobs: int) -> Figures:
    """A drain of jobs of which fifty may run at once, and the same jobs without a limit."""
    await bench.publish(LIMITED)
    _, plain = await bench.drain("single", jobs)
    _, seconds = await bench.drain("limited", jobs)
    await bench.none(FAILED)
    return {
        "drain_limited_per_s": round(jobs / seconds),
        "drain_limited_ratio": round(plain / seconds, 2),
    }


async def _fight(grants: int, ask: Callable[[], Awaitable[bool]]) -> tuple[float, int]:
    """(seconds until all grants were made to all clients together, how often they asked)."""
    left, attempts = grants, 0

    async def client() -> None:
        nonlocal left, attempts
        while left > 0:
            left -= 1  # before we ask, or the others would ask too often in the end
            attempts += 1
            if not await ask():
                left += 1

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
    return time.perf_counter() - began, attempts


async def _slot(db: Database) -> bool:
    async with db.transaction("slot") as tx:
        got = await slots.take(tx, "bench", PLACES, "client", seconds=60)
    if isinstance(got, slots.Full):
        return False
    async with db.single("slot") as tx:  # else it would be free again before anybody else could ask
        await slots.heartbeat(tx, "bench", got, seconds=60)
    async with db.single("slot") as tx:
        return await slots.release(tx, "bench", got)


async def _tokens(db: Database) -> bool:
    async with db.single("bucket") as tx:
        return not await buckets.take(tx, "bench", PLENTY, PLENTY)
