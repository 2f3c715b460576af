"""Run all of it: `make bench`. `--quick` is a tenth of it, to see that it works."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import (
    captures,
    companies,
    containers,
    contention,
    deliveries,
    documents,
    floor,
    http,
    idle,
    pages,
    steps,
)
from bench.engine import ALIVE, UNFINISHED, VACUUM, Bench, history, open_bench, process
from bench.figures import Figures, medians
from bench.server import durable_postgres, fresh_database

ROUNDS = 3
LATEST = Path(__file__).parent / "latest.json"
console = Console(stderr=True)


async def measure(postgres: str, databases: Sequence[str], scale: float) -> Figures:
    """The floor and the engine in turns, each on a database of its own, so that both meet the same noise;
    then with a long history, then the API."""
    jobs, rounds = int(40_000 * scale), max(20, int(200 * scale))
    base, empty = [], []
    for number in range(ROUNDS):
        console.print(f"round {number + 1} of {ROUNDS}: the floor")
        base.append(await floor.measure(fresh_database(postgres, schema=False), jobs, rounds))
        async with _engine(databases[2 * number]) as bench:
            drained = await _drain(bench, jobs)
        # On another one: nothing of the drain is cleaned up beside it.
        async with _engine(databases[2 * number + 1]) as bench:
            empty.append(drained | await _chains(bench) | await _single_jobs(bench, rounds))
    figures = medians(empty)
    async with _engine(databases[2 * ROUNDS]) as bench:
        figures |= await _special(bench, scale)
        console.print("making history")
        await bench.drain("single", 10)
        async with bench.db.transaction("history") as tx:
            await history(tx, int(200_000 * scale))
        full = medians([await _load(bench, jobs, rounds) for _ in range(ROUNDS)])
    figures["drain_with_history_ratio"] = round(full["drain_per_s"] / figures["drain_per_s"], 2)
    figures["with_history"] = full
    async with _engine(databases[2 * ROUNDS + 1]) as bench:
        figures |= await _door(bench, scale)
    async with _engine(databases[2 * ROUNDS + 2]) as bench:
        figures |= await _containers(bench, scale)
        console.print("companies, of registers that answer at once")
        figures |= await companies.measure(bench, int(500 * scale), int(4_000 * scale))
    async with open_bench(databases[2 * ROUNDS + 3]) as bench:  # its keys close the door to those without
        console.print("captures over HTTP")
        figures |= await captures.measure(bench, int(4_000 * scale))
    async with _engine(databases[2 * ROUNDS + 4]) as bench:
        figures |= await _documents(bench, scale)
    return {"floor": medians(base), "cograil": figures}


@asynccontextmanager
async def _engine(conninfo: str) -> AsyncIterator[Bench]:
    async with open_bench(conninfo) as bench:
        with process("orchestrator", conninfo):
            await bench.until(ALIVE, 1, kind="orchestrator")
            yield bench


async def _door(bench: Bench, scale: float) -> Figures:
    console.print("callbacks")
    figures = await deliveries.measure(bench, int(2_000 * scale))
    console.print("draining with ten pages open")
    figures |= await pages.measure(bench, int(20_000 * scale))
    console.print("submits over HTTP")
    figures |= await http.submits(bench, int(4_000 * scale))
    console.print("reads over HTTP, with 1,000 and 1,000,000 jobs")
    with process("worker", bench.conninfo):
        await bench.until(UNFINISHED, 0)
    return figures | await http.reads(bench, 1_000, int(1_000_000 * scale), 600)


async def _containers(bench: Bench, scale: float) -> Figures:
    if shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        console.print("no containers: dockerd is not installed")
        return {}
    console.print("containers, beside the bare engine")
    return await containers.measure(bench, max(4, int(40 * scale)))


async def _documents(bench: Bench, scale: float) -> Figures:
    if shutil.which("tesseract") is None:
        console.print("no documents: tesseract is not installed")
        return {}
    console.print("documents, beside ocrmypdf itself")
    return await documents.measure(bench, 2, max(1, int(6 * scale)), int(1_000 * scale))


async def _load(bench: Bench, jobs: int, rounds: int) -> Figures:
    """All of it, each on tables that were cleaned up after the one before, as those of the others are new."""
    await _vacuum(bench)
    figures = await _drain(bench, jobs)
    await _vacuum(bench)
    return figures | await _chains(bench) | await _single_jobs(bench, rounds)


async def _drain(bench: Bench, jobs: int) -> Figures:
    console.print(f"draining {jobs} single-node jobs")
    submitting, draining = await bench.drain("single", jobs)
    return {"bulk_submit_per_s": round(jobs / submitting), "drain_per_s": round(jobs / draining)}


async def _chains(bench: Bench) -> Figures:
    console.print("300 chains of 10 nodes")
    _, chaining = await bench.drain("chain", 300)
    return {"chain_nodes_per_s": round(3000 / chaining)}


async def _special(bench: Bench, scale: float) -> Figures:
    console.print("steps of handlers")
    figures = await steps.measure(bench, int(500 * scale), int(300 * scale))
    console.print("slots, buckets, a concurrency limit")
    return figures | await contention.measure(bench, int(5_000 * scale), int(2_000 * scale))


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
                job_input = {"numbers": list(range(items))}
                figures[f"fanout_{items}_s"] = round(await bench.time_job("fan", job_input), 3)
    return figures


async def _vacuum(bench: Bench) -> None:
    async with bench.db.single("vacuum") as tx:
        await tx.execute(VACUUM)


TARGETS: tuple[tuple[str, str, str, Callable[[Figures, Figures], bool] | None], ...] = (
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
    ("steps in one, /s", "steps_per_s", "", None),
    ("steps 300 x 10, /s", "steps_300x10_per_s", "", None),
    ("3 slots for 8, /s", "slot_grants_per_s", "", None),
    ("bucket for 8, /s", "bucket_grants_per_s", "", None),
    ("drain by 50, jobs/s", "drain_limited_per_s", "", None),
    ("drain by 50, ratio", "drain_limited_ratio", "", None),
    ("callbacks /s", "deliveries_per_s", "", None),
    ("drain, unwatched", "drain_unwatched_per_s", "", None),
    ("drain, 10 pages open", "drain_watched_ratio", ">= 0.9", lambda c, f: c["drain_watched_ratio"] >= 0.9),
    ("HTTP submits /s", "http_submit_per_s", "", None),
    ("of a plain Starlette", "http_submit_of_plain", "", None),
    ("of the bare POST", "http_submit_ratio", ">= 0.4", lambda c, f: c["http_submit_ratio"] >= 0.4),
    ("HTTP batches, jobs/s", "http_batch_per_s", "", None),
    ("captures, first posts /s", "capture_first_per_s", "", None),
    ("captures, replays /s", "capture_replay_per_s", "", None),
    ("container of engine, ms", "container_engine_ms", "", None),
    ("container job, ms", "container_job_ms", "", None),
    ("of the bare engine", "container_ratio", "<= 1.3", lambda c, f: c["container_ratio"] <= 1.3),
    ("containers by 8, /s", "containers_per_s", "", None),
    ("of engine by 8, /s", "containers_engine_per_s", "", None),
    ("companies asked for, /s", "enrichments_per_s", "", None),
    ("companies looked at, /s", "company_reads_per_s", "", None),
    ("of the cache, POST /s", "company_cached_requests_per_s", "", None),
    ("pages by ocrmypdf, /s", "ocr_direct_pages_per_s", "", None),
    ("pages by the folder, /s", "ocr_pages_per_s", "", None),
    ("time of ocrmypdf's", "ocr_ratio", "<= 1.05", lambda c, f: c["ocr_ratio"] <= 1.05),
    ("CPU of ocrmypdf's", "ocr_cpu_ratio", "<= 1.05", lambda c, f: c["ocr_cpu_ratio"] <= 1.05),
    ("files taken /s", "documents_taken_per_s", "", None),
    ("reads p99, 10^6 jobs", "http_read_ratio", "<= 3 x of 10^3", lambda c, f: c["http_read_ratio"] <= 3),
)


def show(figures: Figures) -> None:
    """The table for people."""
    table = Table(title=f"cograil on {platform.machine()}, Python {platform.python_version()}")
    for column in ("what", "cograil", "with history", "floor", "target", ""):
        table.add_column(column, justify="left" if column in ("what", "target", "") else "right")
    ours, base = figures["cograil"], figures["floor"]
    for what, name, target, holds in TARGETS:
        verdict = ""
        if holds is not None and _at(ours, name) != "":
            verdict = "ok" if holds(ours, base) else "MISSED"
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
        databases = [fresh_database(postgres) for _ in range(2 * ROUNDS + 5)]
        figures = asyncio.run(measure(postgres, databases, scale))
    console.print("an idle `up`")
    figures["cograil"] |= idle.measure(60 * scale)
    LATEST.write_text(json.dumps(figures, indent=2) + "\n")
    show(figures)


if __name__ == "__main__":
    main()
