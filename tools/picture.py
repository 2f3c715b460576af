"""Draws docs/demo.svg: a frame of `cograil demo` in the middle of the job, and its last one."""

from __future__ import annotations

import asyncio
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from cograil.cli.display.job_progress import draw_job
from cograil.definitions import read_workflow
from cograil.processes import private_instance, run_async
from cograil.settings import load_settings
from cograil.store.job_progress_queries import JobProgressSnapshot, load_progress
from cograil.verbs.advance import EngineContext
from cograil.verbs.publish import publish
from cograil.verbs.submit import Submission, submit

ROOT = Path(__file__).parent.parent
WIDTH = 92


async def record(directory: str) -> list[JobProgressSnapshot]:
    """What was seen of one run of the demo, a look every 50 ms."""
    text = (ROOT / "examples" / "demo.yaml").read_text("utf-8")
    seen: list[JobProgressSnapshot] = []
    async with private_instance(load_settings({"data_dir": Path(directory)})) as db:
        async with db.transaction("publish") as tx:
            await publish(tx, read_workflow(text), text)
        async with db.transaction("submit") as tx:
            (job_id,) = await submit(tx, EngineContext(), [Submission("demo", {"failure_rate": 0.5})])
        while not seen or not seen[-1].is_over:
            async with db.transaction("look") as tx:
                seen.append(await load_progress(tx, job_id))
            await asyncio.sleep(0.05)
    return seen


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        seen = run_async(record(directory))
    workflow = read_workflow((ROOT / "examples" / "demo.yaml").read_text("utf-8"))
    busy = [look for look in seen if (split := look.nodes.get("split")) and 3 <= (split.ended or 0) < 10]
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for look in (busy[len(busy) // 2] if busy else seen[len(seen) // 2], seen[-1]):
        console.print(Group(draw_job(workflow, look, look.now, WIDTH, 40), Text("")))
    console.save_svg(str(ROOT / "docs" / "demo.svg"), title="cograil demo")


if __name__ == "__main__":
    main()
