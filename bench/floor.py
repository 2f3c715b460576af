"""The floor: what a batch loop written by hand reaches. No retries, no leases, no events, no graph.

Insert, claim with SKIP LOCKED, mark done, in batches, with the same driver. It is what the engine's
figures are divided by.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import orjson
import psycopg

from bench.figures import percentiles

BATCH = 200
CLAIM = """
with c as materialized (select id from floor where state = 'q' order by id limit %(n)s for update skip locked)
update floor f set state = 'r' where f.id = any(array(select id from c)) returning f.id, f.payload"""
DONE = """
update floor f set state = 'd', result = u.result
from json_to_recordset(%(done)s) as u(id bigint, result jsonb) where f.id = u.id"""
SCHEMA = """
create table floor (id bigint generated always as identity primary key, state text not null default 'q',
  payload jsonb not null, result jsonb) with (fillfactor = 70);
create index floor_ready on floor (id) where state = 'q';"""
INSERT = 'insert into floor (payload) select \'{"name": "World"}\'::jsonb from generate_series(1, %(n)s)'


async def _connect(conninfo: str) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    connection.prepare_threshold = 0
    return connection


async def work(conninfo: str) -> None:
    """The worker process: claim a batch, do nothing with it, mark it done, tell who listens."""
    connection, ears = await _connect(conninfo), await _connect(conninfo)
    await ears.execute("listen floor_work")
    await connection.execute("select pg_notify('floor_ready', '')")
    calls = ears.notifies()
    while True:
        rows = await (await connection.execute(CLAIM, {"n": BATCH})).fetchall()
        if not rows:
            await anext(calls)
            continue
        ids = [task_id for task_id, _ in rows]
        done = orjson.dumps([{"id": task_id, "result": {"message": "Hello"}} for task_id in ids]).decode()
        async with connection.transaction():
            await connection.execute(DONE, {"done": done})
            await connection.execute("select pg_notify('floor_done', %s)", [f"{len(rows)} {ids[-1]}"])


async def measure(conninfo: str, jobs: int, rounds: int) -> dict[str, Any]:
    """Drain and latency."""
    connection, ears = await _connect(conninfo), await _connect(conninfo)
    await connection.execute(SCHEMA, prepare=False)
    await ears.execute("listen floor_ready")
    await ears.execute("listen floor_done")
    calls = ears.notifies()
    await connection.execute(INSERT, {"n": jobs})
    process = subprocess.Popen([sys.executable, "-m", "bench.floor", conninfo])
    try:
        await anext(calls)
        began = time.perf_counter()
        left = jobs
        while left:
            left -= int((await anext(calls)).payload.split()[0])
        drain = jobs / (time.perf_counter() - began)
        times = [await _one(connection, calls) for _ in range(rounds)]
    finally:
        process.kill()
        process.wait()
        await connection.close()
        await ears.close()
    return {"drain_per_s": round(drain), "latency_ms": percentiles(times)}


async def _one(connection: psycopg.AsyncConnection[Any], calls: Any) -> float:
    began = time.perf_counter()
    async with connection.transaction():
        insert = 'insert into floor (payload) values (\'{"name": "World"}\') returning id'
        ((task_id,),) = await (await connection.execute(insert)).fetchall()
        await connection.execute("select pg_notify('floor_work', '')")
    while True:
        notice = await anext(calls)
        if notice.payload.split()[1] == str(task_id):
            break
    await (await connection.execute("select result from floor where id = %s", [task_id])).fetchone()
    return time.perf_counter() - began


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
