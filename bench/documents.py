"""Documents beside ocrmypdf itself, on the same pages in turns; and a thousand small files at once.

Direct is what a shell script would do: img2pdf, then the command ocrmypdf with the same options, one document
after the other. Ours is from the drop into `in` to the last input in `archive`. On a machine that is busy
with other things the seconds of the processors say more than those of the clock: both are told.

`python -m bench.documents` measures this alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import img2pdf
import psutil
from tests.apps.documents import sample_documents

from bench.engine import ALIVE, Bench, open_bench, process, query
from bench.figures import Figures
from bench.server import durable_postgres, fresh_database

WORDS = (
    "Il était une fois une vache qui allait à l'école, et le maître ne la voyait pas.",
    "The quick brown fox jumps over the lazy dog, and nobody asks why it does.",
)
TAKEN = query("select count(*), count(distinct name) from cograil_documents.documents")
JOBS = query("select count(*) from cograil.jobs where workflow_id = 'cograil.documents'")


async def measure(bench: Bench, documents: int, pages: int, small: int, rounds: int = 2) -> Figures:
    """Pages per second and processor seconds per page, ours and direct; files taken per second."""
    with tempfile.TemporaryDirectory(prefix="cograil-bench-") as place:
        costs: list[tuple[Cost, Cost]] = []
        for number in range(rounds):
            comics = [comic(Path(place), f"{number}-{index}", pages) for index in range(documents)]
            direct = by_ocrmypdf(comics, Path(place))
            costs.append((direct, await by_folder(bench, comics, Path(place) / f"data{number}")))
        figures = _compared(costs, documents * pages)
        return figures | await many(bench, Path(place) / "many", small)


def _compared(costs: list[tuple[Cost, Cost]], pages: int) -> Figures:
    direct, ours = ([pair[side] for pair in costs] for side in (0, 1))
    return {
        "ocr_direct_pages_per_s": round(pages / median(cost.wall for cost in direct), 3),
        "ocr_pages_per_s": round(pages / median(cost.wall for cost in ours), 3),
        "ocr_ratio": round(median(b.wall / a.wall for a, b in costs), 3),
        "ocr_direct_cpu_s_per_page": round(median(cost.cpu for cost in direct) / pages, 3),
        "ocr_cpu_s_per_page": round(median(cost.cpu for cost in ours) / pages, 3),
        "ocr_cpu_ratio": round(median(b.cpu / a.cpu for a, b in costs), 3),
    }


class Cost:
    """What something took, by the clock and by the processors."""

    wall = cpu = 0.0


@contextmanager
def costing(process: psutil.Process | None = None) -> Iterator[Cost]:
    """Of this block: by a process that runs, with all that it started; else by processes that end in it."""
    cost = Cost()
    wall, cpu = time.monotonic(), _cpu(process)
    yield cost
    cost.wall, cost.cpu = time.monotonic() - wall, _cpu(process) - cpu


def _cpu(process: psutil.Process | None) -> float:
    if process is None:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in used)
    return sum(sum(member.cpu_times()[:4]) for member in (process, *process.children(recursive=True)))


def comic(place: Path, name: str, pages: int) -> Path:
    """A comic of pages with text on them, unlike any other."""
    path = place / f"{name}.cbz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(pages):
            text = "\n".join([f"{name} {number}", *WORDS * 4])
            archive.writestr(f"{number}.png", sample_documents.page(text, size=(1700, 700)))
    return path


def by_ocrmypdf(comics: list[Path], place: Path) -> Cost:
    """One after the other, as a script would."""
    with costing() as cost:
        for path in comics:
            with zipfile.ZipFile(path) as archive:
                pictures = [archive.read(name) for name in archive.namelist()]
            raw, final = place / "direct.pdf", place / "direct-final.pdf"
            raw.write_bytes(img2pdf.convert(pictures))
            options = [
                "--output-type",
                "pdf",
                "--rotate-pages",
                "--deskew",
                "--optimize",
                "1",
                "-l",
                "fra+eng",
            ]
            command = [sys.executable, "-m", "ocrmypdf", "-q", *options, str(raw), str(final)]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return cost


async def by_folder(bench: Bench, comics: list[Path], root: Path) -> Cost:
    """From the drop to the last in `archive`. The worker is there before, as a watcher is, and warm."""
    os.environ["COGRAIL_DOCUMENTS__DATA_DIR"] = str(root)
    try:
        with process("worker", bench.conninfo) as worker:
            await bench.until(ALIVE, 1, kind="worker")
            await _until((root / "in").is_dir)
            drop([comic(root.parent, f"{root.name}-first", 1)], root)
            await _until(lambda: len(list((root / "archive").glob("*.cbz"))) == 1)
            with costing(psutil.Process(worker.pid)) as cost:
                drop(comics, root)
                await _until(lambda: len(list((root / "archive").glob("*.cbz"))) == len(comics) + 1)
    finally:
        del os.environ["COGRAIL_DOCUMENTS__DATA_DIR"]
    return cost


def drop(comics: list[Path], root: Path) -> None:
    """Put copies of these into the folder."""
    for path in comics:
        shutil.copy(path, root / "in" / f"{path.name}.part")
        (root / "in" / f"{path.name}.part").rename(root / "in" / path.name)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  others do it
        await asyncio.sleep(0.05)


async def many(bench: Bench, root: Path, count: int) -> Figures:
    """Many small files at once, two watchers: how long until each is a job, and that each is one."""
    (root / "in").mkdir(parents=True)
    for number in range(count):
        with zipfile.ZipFile(root / "in" / f"{number}.cbz", "w") as archive:
            archive.writestr("1.txt", f"{number}")
    before = await _counts(bench)
    os.environ["COGRAIL_DOCUMENTS__DATA_DIR"] = str(root)
    try:
        began = time.monotonic()
        queue = ("--queue", "none")  # they watch, and work on nothing
        with process("worker", bench.conninfo, *queue), process("worker", bench.conninfo, *queue):
            await _until((root / "work/_staging").is_dir)
            while (await _counts(bench))[0] - before[0] < count:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            seconds = time.monotonic() - began
            await _until(lambda: not list((root / "work/_staging").iterdir()))
    finally:
        del os.environ["COGRAIL_DOCUMENTS__DATA_DIR"]
    after = await _counts(bench)
    taken = after[0] - before[0]
    assert taken == after[1] - before[1] == count, "each file is one document and one job"
    assert not list((root / "hold/duplicates").iterdir())
    return {"documents_taken": taken, "documents_taken_per_s": round(taken / seconds, 1)}


async def _counts(bench: Bench) -> tuple[int, int]:
    async with bench.db.single("bench") as tx:
        documents = (await tx.fetch(TAKEN))[0][0]
        return documents, (await tx.fetch(JOBS))[0][0]


async def _alone(conninfo: str, documents: int, pages: int, small: int, rounds: int) -> None:
    async with open_bench(conninfo) as bench:
        with process("orchestrator", conninfo):
            await bench.until(ALIVE, 1, kind="orchestrator")
            print(json.dumps(await measure(bench, documents, pages, small, rounds), indent=2))


def main(documents: int = 3, pages: int = 6, small: int = 1000, rounds: int = 2) -> None:
    """Measure this alone."""
    with durable_postgres() as postgres:
        asyncio.run(_alone(fresh_database(postgres), documents, pages, small, rounds))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
