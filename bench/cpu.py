"""CPU per node of drains, also under a limit, and of chains, by who spends it: `python -m bench.cpu`.

Less noisy than rates: whatever else runs on the machine takes time, and no CPU of ours. It is not the rate's
inverse, for what waits for the disk or for each other costs nothing here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from bench.contention import LIMITED
from bench.engine import ALIVE, Bench, open_bench, process, query
from bench.server import durable_postgres, fresh_database

NODES = {"single": 1, "chain": 10, "limited": 1}
BACKENDS = query("select pid from pg_stat_activity")


class Spent:
    """CPU seconds of the processes of one part, the ended ones included."""

    def __init__(self) -> None:
        self.before: dict[int, float] = {}
        self.last: dict[int, float] = {}

    def look(self, pids: list[int]) -> None:
        for pid in pids:
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.NoSuchProcess:
                continue
            self.last[pid] = times.user + times.system
            self.before.setdefault(pid, self.last[pid])

    @property
    def seconds(self) -> float:
        return sum(self.last[pid] - self.before[pid] for pid in self.last)


async def measure(conninfo: str, server: int, workflow: str, jobs: int) -> dict[str, float]:
    """Microseconds of CPU per node: of PostgreSQL, the orchestrator and the worker."""
    async with open_bench(conninfo) as bench:
        await bench.publish(LIMITED)
        with process("orchestrator", conninfo) as orchestrator:
            await bench.until(ALIVE, 1, kind="orchestrator")
            await bench.drain("single", 100)  # all is warm, and plans are made
            await bench.submit(workflow, [{"name": f"n{i}"} for i in range(jobs)])
            with process("worker", conninfo) as worker:
                await bench.until(ALIVE, 1, kind="worker")
                spent = await _until_done(bench, server, orchestrator.pid, worker.pid)
    return {name: cost.seconds * 1e6 / (jobs * NODES[workflow]) for name, cost in spent.items()}


async def _until_done(bench: Bench, server: int, orchestrator: int, worker: int) -> dict[str, Spent]:
    spent = {name: Spent() for name in ("postgres", "orchestrator", "worker")}
    own = psutil.Process().pid
    left = query("select count(*) from cograil.jobs where finished_at is null")
    while True:
        backends = [child.pid for child in psutil.Process(server).children()]
        spent["postgres"].look([pid for pid in backends if pid != own])
        spent["orchestrator"].look([orchestrator])
        spent["worker"].look([worker])
        async with bench.db.single("bench") as tx:
            if not (await tx.fetch(left))[0][0]:
                return spent
        await asyncio.sleep(0.1)


@contextmanager
def running_server() -> Iterator[tuple[str, int]]:
    """How to connect, and the postmaster's process."""
    with durable_postgres() as conninfo:
        known = {child.pid for child in psutil.Process().children() if "postgres" in child.name()}
        (postmaster,) = known
        yield conninfo, postmaster


def main(rounds: int = 3) -> None:
    """Print a line for each round."""
    with running_server() as (postgres, server):
        for _ in range(rounds):
            for workflow, jobs in (("single", 20_000), ("chain", 600), ("limited", 5_000)):
                costs = asyncio.run(measure(fresh_database(postgres), server, workflow, jobs))
                parts = "  ".join(f"{name} {value:5.0f}" for name, value in costs.items())
                print(f"{workflow:7} {sum(costs.values()):5.0f} µs of CPU per node: {parts}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
