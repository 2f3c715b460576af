"""One side of `bench.against`: measures the program on its path, with that program's own bench, as JSON.

Run by its path, so that `bench` is the one of the commit under measurement: only what every commit's
bench has may be used here.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from importlib.util import find_spec

import bench.engine
import cograil
from bench.engine import ALIVE, Bench, open_bench, process


async def measure(conninfo: str, jobs: int, chains: int, latencies: int) -> dict[str, float]:
    """Drain, chains and latency, on an empty database."""
    # Commits from before `python -m cograil` had the command line in another package.
    module = "cograil" if find_spec("cograil.__main__") else "cograil.intake.cli"
    command = [sys.executable, "-m", module, "db", "migrate"]
    subprocess.run(command, env=os.environ | {"COGRAIL_DATABASE_URL": conninfo}, check=True)
    async with open_bench(conninfo) as bench:
        with process("orchestrator", conninfo):
            await bench.until(ALIVE, 1, kind="orchestrator")
            submitting, draining = await bench.drain("single", jobs)
            _, chaining = await bench.drain("chain", chains)
            latency = await _latency(bench, latencies)
    return {
        "drain_per_s": round(jobs / draining),
        "bulk_submit_per_s": round(jobs / submitting),
        "chain_nodes_per_s": round(10 * chains / chaining),
        "latency_p50_ms": latency["p50"],
        "latency_p95_ms": latency["p95"],
    }


async def _latency(bench: Bench, rounds: int) -> dict[str, float]:
    with process("worker", bench.conninfo):
        await bench.until(ALIVE, 1, kind="worker")
        async with bench.listening():
            await bench.latency(20)
            return await bench.latency(rounds)


if __name__ == "__main__":
    figures = asyncio.run(measure(sys.argv[1], *map(int, sys.argv[2:])))
    print(json.dumps({"figures": figures, "program": cograil.__file__, "bench": bench.engine.__file__}))
