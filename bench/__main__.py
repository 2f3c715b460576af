"""Run all of it: `make bench`. `--quick` is a tenth of it, to see that it works."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import floor, idle
from bench.engine import ALIVE, UNFINISHED, VACUUM, Bench, history, open_bench, process
from bench.server import durable_postgres, fresh_database

LATEST = Path(__file__).parent / "latest.json"
console = Console(stderr=True)
Figures = dict[str, Any]


async def measure_engine(conninfo: str, scale: float) -> Figures:
    """Everything, on empty tables and again with finished jobs in them."""
    jobs, rounds = int(20_000 * scale), max(50, int(500 * scale))
    async with open_bench(conninfo) as bench:
        with process("orchestrator", conninfo):
            await bench.until(ALIVE, 1, kind="orchestrator")
            empty = await _load(bench, jobs)
            figures = empty | await _single_jobs(bench, rounds)
            console.print("making history")
            async with bench.db.transaction("history") as tx:
                await history(tx, int(200_000 * scale))
            await _vacuum(bench)
            full = await _load(bench, jobs)
            again = await _single_jobs(bench, rounds)
    figures["drain_with_history_ratio"] = round(full["drain_per_s"] / empty["drain_per_s"], 2)
    figures["with_history"] = full | again
    return figures


async def _load(bench: Bench, jobs: int) -> Figures:
    console.print(f"draining {jobs} single-node jobs")
    submitting, draining = await bench.drain("single", jobs)
    console.print("300 chains of 10 nodes")
    _, chaining = await bench.drain("chain", 300)
    return {
        "bulk_submit_per_s": round(jobs / submitting),
        "drain_per_s": round(jobs / draining),
        "chain_nodes_per_s": round(3000 / chaining),
    }


async def _single_jobs(bench: Bench, rounds: int) -> Figures:
    console.print("single submits, latency, fan-outs")
    singly = await bench.submit_singly(rounds)
    with process("worker", bench.conninfo):
        await bench.until(UNFINISHED, 0)
        async with bench.listening():
            await bench.latency(20)
            figures: Figures = {
                "submit_per_s": round(rounds / singly),
                "latency_ms": await bench.latency(rounds),
            }
            for items in (1_000, 10_000):
                given = {"numbers": list(range(items))}
                seconds = [await bench.one("fan", given) for _ in range(3)]
                figures[f"fanout_{items}_s"] = round(sorted(seconds)[1], 3)
    return figures


async def _vacuum(bench: Bench) -> None:
    async with bench.db.single("vacuum") as tx:
        await tx.execute(VACUUM)


TARGETS = (
    ("drain, jobs/s", "drain_per_s", ">= floor / 3", lambda c, f: c["drain_per_s"] >= f["drain_per_s"] / 3),
    ("chains, nodes/s", "chain_nodes_per_s", ">= 5,000", lambda c, f: c["chain_nodes_per_s"] >= 5000),
    ("fan-out 1,000, s", "fanout_1000_s", "<= 0.25", lambda c, f: c["fanout_1000_s"] <= 0.25),
    ("fan-out 10,000, s", "fanout_10000_s", "<= 2.5", lambda c, f: c["fanout_10000_s"] <= 2.5),
    (
        "latency p50, ms",
        "latency_ms.p50",
        "<= 3 x floor",
        lambda c, f: c["latency_ms"]["p50"] <= 3 * f["latency_ms"]["p50"],
    ),
    (
        "drain with history",
        "drain_with_history_ratio",
        ">= 0.9",
        lambda c, f: c["drain_with_history_ratio"] >= 0.9,
    ),
    ("idle, statements/s", "idle_queries_per_s", "< 1", lambda c, f: c["idle_queries_per_s"] < 1),
    ("worker, MB", "worker_rss_mb", "<= 80", lambda c, f: c["worker_rss_mb"] <= 80),
    ("idle `up`, MB", "rss_mb", "<= 300", lambda c, f: c["rss_mb"] <= 300),
    ("submit singly /s", "submit_per_s", "", None),
    ("submit in bulk /s", "bulk_submit_per_s", "", None),
    ("latency p95, ms", "latency_ms.p95", "", None),
    ("latency p99, ms", "latency_ms.p99", "", None),
)


def show(figures: Figures) -> None:
    """The table for people."""
    table = Table(title=f"cograil on {platform.machine()}, Python {platform.python_version()}")
    for column in ("what", "cograil", "with history", "floor", "target", ""):
        table.add_column(column, justify="left" if column in ("what", "target", "") else "right")
    ours, base = figures["cograil"], figures["floor"]
    for what, name, target, holds in TARGETS:
        verdict = "" if holds is None else ("ok" if holds(ours, base) else "MISSED")
        table.add_row(
            what, _at(ours, name), _at(ours["with_history"], name), _at(base, name), target, verdict
        )
    Console().print(table)


def _at(figures: Figures, name: str) -> str:
    value: Any = figures
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else f"{value:,}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    scale = 0.1 if parser.parse_args().quick else 1.0
    with durable_postgres() as postgres:
        console.print("the floor")
        conninfo = fresh_database(postgres, schema=False)
        base = asyncio.run(floor.measure(conninfo, int(50_000 * scale), max(50, int(500 * scale))))
        ours = asyncio.run(measure_engine(fresh_database(postgres), scale))
    console.print("an idle `up`")
    ours |= idle.measure(60 * scale)
    figures = {"floor": base, "cograil": ours}
    LATEST.write_text(json.dumps(figures, indent=2) + "\n")
    show(figures)


if __name__ == "__main__":
    main()
