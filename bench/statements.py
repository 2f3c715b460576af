"""CPU of PostgreSQL per job and statement: `python -m bench.statements [jobs] [SQL ...]`.

Claims, reports and passes of 200 follow each other, and the kernel tells what each backend has spent
(`/proc/PID/schedstat`). Good to 2 % whatever else runs on the machine, so it shows what an index or a column
costs: each SQL that is given runs on a new database first, and all are measured in turns.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.engine import Bench, open_bench, query
from bench.server import durable_postgres, fresh_database
from cograil.model.outcome import Completed, WorkItem
from cograil.store.database import Transaction
from cograil.store.statements import Statement
from cograil.verbs import tasks
from cograil.verbs.advance import EngineContext, advance_due
from cograil.verbs.job_cache import JobCache
from cograil.verbs.tasks import Report, Slots

BATCH = 200
ROUNDS = 3
OUTPUT = Completed(b'{"message": "Hello, World!"}')


def backend_seconds(pid: int) -> float:
    """What this process has had of the processors."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def counting(spent: Counter[str]) -> AbstractContextManager[Any]:
    """Add up what each statement costs its backend, by its name."""
    run = Transaction._run

    async def counted(tx: Transaction, statement: Statement, params: dict[str, Any]) -> Any:
        pid = tx.connection.info.backend_pid
        before = backend_seconds(pid)
        cursor = await run(tx, statement, params)
        spent[statement.name] += backend_seconds(pid) - before  # type: ignore[assignment]
        return cursor

    return patch.object(Transaction, "_run", counted)


async def drain(bench: Bench) -> None:
    """Claim, report and advance, one after another, until nothing is left."""
    async with bench.db.single("bench") as tx:
        worker = await tasks.register_process(tx, "worker", "bench", 3600)
    engine_context = EngineContext(job_cache=JobCache())
    while items := await _claim(bench, worker):
        async with bench.db.single("report") as tx:
            await tasks.report(tx, worker, "bench", [Report(item, OUTPUT) for item in items])
        async with bench.db.transaction("advance") as tx:
            done = await advance_due(tx, engine_context, BATCH)
        done.on_commit()


async def _claim(bench: Bench, worker: int) -> list[WorkItem]:
    async with bench.db.single("claim") as tx:
        return await tasks.claim(tx, worker, Slots(["hello_world"], [], BATCH, 0, None))


async def measure(conninfo: str, jobs: int, before: str) -> None:
    """Print microseconds per job."""
    spent: Counter[str] = Counter()
    async with open_bench(conninfo) as bench:
        async with bench.db.single("bench") as tx:
            for text in before.split(";") if before else ():
                await tx.execute(query(text))
        await bench.submit("single", [{"name": f"n{i}"} for i in range(jobs)])
        own = time.process_time()
        with counting(spent):
            await drain(bench)
        own = time.process_time() - own
    parts = "  ".join(f"{name} {seconds * 1e6 / jobs:.1f}" for name, seconds in spent.most_common(5))
    print(
        f"{sum(spent.values()) * 1e6 / jobs:5.1f} µs: {parts}; Python {own * 1e6 / jobs:.0f}  {before}",
        flush=True,
    )


def main(jobs: str = "20000", *changes: str) -> None:
    """As the page says."""
    with durable_postgres() as postgres:
        for _ in range(ROUNDS):
            for before in ("", *changes):
                asyncio.run(measure(fresh_database(postgres), int(jobs), before))


if __name__ == "__main__":
    main(*sys.argv[1:])
