"""Whether it pays that an orchestrator remembers jobs: `python -m bench.memory`.

Drains with and without the memory (`verbs/job_cache.py`) take turns, each on a fresh database of one
server, so that other load on the machine affects both. The reads of nodes per job tell the same story without
a clock: a job of one node is read once either way, one of ten nodes once instead of ten times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.engine import ALIVE, open_bench, process, query
from bench.server import durable_postgres, fresh_database

MODULES = {"with": "cograil", "without": "bench.forgetful"}
NODES_READ = query("""
select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::float8
from pg_stat_user_tables where schemaname = 'cograil' and relname like 'nodes%'""")
console = Console(stderr=True)
Figures = dict[str, Any]


async def drain(conninfo: str, workflow: str, jobs: int, kind: str) -> Figures:
    """One drain, by an orchestrator of this kind."""
    async with open_bench(conninfo) as bench:
        with process("orchestrator", conninfo, module=MODULES[kind]):
            await bench.until(ALIVE, 1, kind="orchestrator")
            _, seconds = await bench.drain(workflow, jobs)
        async with bench.db.single("bench") as tx:  # its processes have gone, so all is counted
            read = (await tx.fetch(NODES_READ))[0][0]
    return {"jobs_per_s": jobs / seconds, "nodes_read_per_job": read / jobs}


def measure(jobs: dict[str, int], rounds: int) -> Figures:
    """Drains in turn; for each workflow the medians, and the first kind in terms of the second."""
    figures: dict[str, dict[str, list[Figures]]] = {name: {kind: [] for kind in MODULES} for name in jobs}
    with durable_postgres() as postgres:
        for number in range(rounds):
            order = list(MODULES) if number % 2 == 0 else list(MODULES)[::-1]
            for name, kind in [(name, kind) for name in jobs for kind in order]:
                console.print(f"round {number + 1}: {jobs[name]} {name} jobs {kind} memory")
                result = asyncio.run(drain(fresh_database(postgres), name, jobs[name], kind))
                figures[name][kind].append(result)
    return {name: _compare(kinds) for name, kinds in figures.items()}


def _compare(kinds: dict[str, list[Figures]]) -> Figures:
    medians: Figures = {
        kind: {name: round(median(figures[name] for figures in rounds), 1) for name in rounds[0]}
        for kind, rounds in kinds.items()
    }
    pace = {kind: medians[kind]["jobs_per_s"] for kind in MODULES}
    return medians | {"ratio": round(pace["with"] / pace["without"], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="single jobs of each drain")
    parser.add_argument("--chains", type=int, default=3_000, help="chains of ten nodes of each drain")
    parser.add_argument("--rounds", type=int, default=3, help="how often all are measured")
    parser.add_argument("--json", action="store_true", help="print figures, not a table")
    options = parser.parse_args()
    figures = measure({"single": options.jobs, "chain": options.chains}, options.rounds)
    read = {kind: figures["chain"][kind]["nodes_read_per_job"] for kind in MODULES}
    assert read["with"] < read["without"], f"the memory made no difference: {read}"
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    table = Table(title="an orchestrator with and without its memory, medians")
    for column in ("jobs", "", "with", "without", "ratio"):
        table.add_column(column, justify="right")
    for name, kinds in figures.items():
        for what in kinds["with"]:
            ratio = f"{kinds['ratio']:.2f}" if what == "jobs_per_s" else ""
            table.add_row(name, what, f"{kinds['with'][what]:,}", f"{kinds['without'][what]:,}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
