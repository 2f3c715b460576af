"""What an old snapshot costs: `python -m bench.snapshot`.

Somebody begins a transaction, looks at something and goes to lunch. Until it ends nothing that was
deleted can be cleared away, and a reader of a queue from its beginning walks over all of it. Drains
without and with such a session take turns, each on a fresh database; the promise is that the second
kind is at most a tenth slower. Index entries read per job tell the same story without a clock.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from statistics import median
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from bench.engine import ALIVE, open_bench, process, query
from bench.server import durable_postgres, fresh_database

PROMISE = 0.9
ENTRIES = query("""
select indexrelname, idx_tup_read from pg_stat_user_indexes
where schemaname = 'cograil' and relname in ('tasks', 'inbox') and idx_tup_read > 0""")
console = Console(stderr=True)
Figures = dict[str, Any]


@contextlib.asynccontextmanager
async def old_snapshot(conninfo: str) -> AsyncIterator[None]:
    """A session that is idle in a transaction and has seen the database as it was."""
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await connection.execute("begin isolation level repeatable read")
        await connection.execute("select count(*) from cograil.jobs")
        yield
        await connection.execute("rollback")


async def drain(conninfo: str, workflow: str, jobs: int, *, is_held: bool) -> Figures:
    """One drain, with or without the old snapshot."""
    async with open_bench(conninfo) as bench, contextlib.AsyncExitStack() as stack:
        if is_held:
            await stack.enter_async_context(old_snapshot(conninfo))
        with process("orchestrator", conninfo):
            await bench.until(ALIVE, 1, kind="orchestrator")
            _, seconds = await bench.drain(workflow, jobs)
        async with bench.db.single("bench") as tx:  # its processes have gone, so all is counted
            entries = {name: read / jobs for name, read in await tx.fetch(ENTRIES)}
    return {"jobs_per_s": jobs / seconds} | entries


def measure(workflow: str, jobs: int, rounds: int) -> Figures:
    """Drains in turn; the medians, and the second kind in terms of the first."""
    figures: dict[bool, list[Figures]] = {False: [], True: []}
    with durable_postgres() as postgres:
        for number in range(rounds):
            for is_held in (False, True):
                console.print(f"round {number + 1}: {jobs} jobs{', an old snapshot held' * is_held}")
                result = asyncio.run(drain(fresh_database(postgres), workflow, jobs, is_held=is_held))
                figures[is_held].append(result)
    clean, held = (_medians(figures[is_held]) for is_held in (False, True))
    return {"clean": clean, "held": held, "ratio": round(held["jobs_per_s"] / clean["jobs_per_s"], 3)}


def _medians(rounds: list[Figures]) -> Figures:
    return {name: round(median(figures.get(name, 0) for figures in rounds), 1) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.snapshot", description=__doc__)
    parser.add_argument("--jobs", type=int, default=60_000, help="jobs of each drain")
    parser.add_argument("--rounds", type=int, default=3, help="how often both are measured")
    parser.add_argument("--workflow", choices=("single", "chain"), default="single")
    parser.add_argument("--json", action="store_true", help="print figures, not a table")
    options = parser.parse_args()
    figures = measure(options.workflow, options.jobs, options.rounds)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    table = Table(title=f"{options.jobs:,} {options.workflow} jobs, an old snapshot held all the while")
    for column in ("per job, entries of", "clean", "held"):
        table.add_column(column, justify="right")
    for name in figures["held"]:
        table.add_row(name, f"{figures['clean'].get(name, 0):,}", f"{figures['held'][name]:,}")
    verdict = "ok" if figures["ratio"] >= PROMISE else "MISSED"
    table.add_row(f"ratio >= {PROMISE}", verdict, f"{figures['ratio']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
