"""Whether a worker grows: `python -m bench.soak`. Mixed jobs in rounds, after each the memory of both.

A leak grows with every round; a plateau is reached within the first few. `--trace` runs the worker with
tracemalloc and prints what it holds at the end of the second and of the last round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.engine import ALIVE, RESULT, UNFINISHED, Bench, open_bench, process
from bench.server import durable_postgres, fresh_database

RETRY = "retry: {max_attempts: 2, backoff: fixed, initial_delay_seconds: 0.05}"
SOAK = f"""
workflow_id: soak
inputs: {{size: {{type: integer}}}}
nodes:
  first: {{handler: soak_async, params: {{size: "{{{{ inputs.size }}}}"}}}}
  second: {{handler: soak_thread, depends_on: [first], params: {{size: 500}}}}
  third: {{handler: soak_failing, depends_on: [first], {RETRY}}}
  fourth: {{handler: soak_joint, depends_on: [second]}}
  fifth: {{handler: bench_steps, depends_on: [second], params: {{steps: 3}}}}
"""
ATTEMPTS = 6  # of each job
LOOK = "workflow_id: look\nnodes:\n  held: {handler: soak_memory}\n"


def memory_of(pid: int) -> dict[str, float]:
    """Resident memory of a process in MB: all of it, and the part that no file backs."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        name: int(status[key].split()[0]) / 1024 for name, key in (("rss", "VmRSS"), ("anonymous", "RssAnon"))
    }


async def soak(conninfo: str, rounds: int, jobs: int, *, has_trace: bool) -> list[dict[str, Any]]:
    """These rounds; after each what the processes have."""
    samples = []
    async with open_bench(conninfo) as bench:
        await bench.publish(SOAK, LOOK)
        with (
            process("orchestrator", conninfo) as orchestrator,
            process("worker", conninfo, "--app", "bench.handlers") as worker,
        ):
            await bench.until(ALIVE, 1, kind="orchestrator")
            await bench.until(ALIVE, 1, kind="worker")
            for number in range(1, rounds + 1):
                began = time.perf_counter()
                await bench.submit("soak", [{"size": 100_000 if i % 50 == 0 else 2_000} for i in range(jobs)])
                await bench.until(UNFINISHED, 0)
                line: dict[str, Any] = {"attempts": ATTEMPTS * jobs * number}
                line |= {f"worker_{name}": round(mb, 1) for name, mb in memory_of(worker.pid).items()}
                line["orchestrator_rss"] = round(memory_of(orchestrator.pid)["rss"], 1)
                line["seconds"] = round(time.perf_counter() - began, 1)
                print(json.dumps(line), flush=True)
                samples.append(line)
                if has_trace and number in (2, rounds):
                    print(json.dumps(await _look(bench), indent=1), flush=True)
    return samples


async def _look(bench: Bench) -> Any:
    (job,) = await bench.submit("look", [{}])
    await bench.until(UNFINISHED, 0)
    async with bench.db.single("bench") as tx:
        return json.loads((await tx.fetch(RESULT, id=job))[0][1])["held"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=500, help=f"of each round, with {ATTEMPTS} attempts each")
    parser.add_argument("--trace", action="store_true", help="print what the worker holds")
    options = parser.parse_args()
    if options.trace:
        os.environ["PYTHONTRACEMALLOC"] = "1"
    with durable_postgres() as postgres:
        samples = asyncio.run(
            soak(fresh_database(postgres), options.rounds, options.jobs, has_trace=options.trace)
        )
    grown = samples[-1]["worker_rss"] - samples[len(samples) // 2]["worker_rss"]
    print(f"the worker grew by {grown:.1f} MB in the second half", file=sys.stderr)


if __name__ == "__main__":
    main()
