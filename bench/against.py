"""This program against an earlier one, in turns on one server: `python -m bench.against REV`.

Machines are noisy, so two runs an hour apart say little. Here both programs meet the same noise: each
round measures both, every time on a fresh database, and the one that begins changes from round to round.
A side is `git archive REV` or a copy of what is here now, by PYTHONPATH; see side.py.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figures, medians
from bench.server import durable_postgres, fresh_database

ROOT = Path(__file__).parents[1]
SIDE = Path(__file__).with_name("side.py")
PARTS = ("src", "bench")
CLOSE = 0.05
SIZES = {"jobs": 10_000, "chains": 300, "latencies": 200}
NAMES = {
    "drain_per_s": "drain, jobs/s",
    "bulk_submit_per_s": "submit in bulk /s",
    "chain_nodes_per_s": "chains, nodes/s",
    "latency_p50_ms": "latency p50, ms",
    "latency_p95_ms": "latency p95, ms",
}
console = Console(stderr=True)


def compare(revision: str, rounds: int, sizes: Sequence[int]) -> Figures:
    """The medians of both, how the second stands to the first, and each round."""
    figures: dict[str, list[Figures]] = {"then": [], "now": []}
    with tempfile.TemporaryDirectory(prefix="cograil-against-") as directory, durable_postgres() as postgres:
        sources = {side: Path(directory, side) for side in figures}
        _export(revision, sources["then"])
        for part in PARTS:
            shutil.copytree(ROOT / part, sources["now"] / part, ignore=shutil.ignore_patterns("__pycache__"))
        for number in range(rounds):
            for side in sorted(figures, reverse=number % 2 == 0):
                console.print(f"round {number + 1} of {rounds}: {side}")
                conninfo = fresh_database(postgres, schema=False)
                figures[side].append(_side(sources[side], conninfo, sizes))
    then, now = medians(figures["then"]), medians(figures["now"])
    ratios = {name: round(now[name] / then[name], 3) for name in then}
    return {"revision": revision, "then": then, "now": now, "ratio": ratios, "rounds": figures}


def _export(revision: str, directory: Path) -> None:
    command = ["git", "-C", str(ROOT), "archive", revision, *PARTS]
    archive = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")


def _side(source: Path, conninfo: str, sizes: Sequence[int]) -> Figures:
    """One program, measured by a process that has it instead of the installed one."""
    done = subprocess.run(
        [sys.executable, "-P", str(SIDE), conninfo, *map(str, sizes)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(source / part) for part in ("src", ""))},
        cwd=source,
        stdout=subprocess.PIPE,
        check=True,
    )
    report = json.loads(done.stdout)
    for part in ("program", "bench"):
        assert Path(report[part]).is_relative_to(source), f"{report[part]} was measured, not {source}"
    figures: Figures = report["figures"]
    return figures


def show(figures: Figures) -> None:
    """The table for people."""
    rounds = len(figures["rounds"]["now"])
    table = Table(title=f"{figures['revision']} and what is here now, medians of {rounds}")
    for column in ("what", "then", "now", "ratio", f"within {CLOSE:.0%}"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, what in NAMES.items():
        then, now, ratio = (figures[part][name] for part in ("then", "now", "ratio"))
        is_close = ratio <= 1 + CLOSE if name.endswith("_ms") else ratio >= 1 - CLOSE
        table.add_row(what, f"{then:,.1f}", f"{now:,.1f}", f"{ratio:.3f}", "ok" if is_close else "MISSED")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="how often both are measured")
    for name, size in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=size, help="how many in each measurement")
    parser.add_argument("--json", action="store_true", help="print figures, not a table")
    options = parser.parse_args()
    figures = compare(options.revision, options.rounds, [getattr(options, name) for name in SIZES])
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    main()
