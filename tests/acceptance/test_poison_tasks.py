"""A task that kills its worker is failed; those that happen to share the worker with it are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.acceptance.instances import Start, open_client_lab
from tests.support.harness import Harness

# The killer waits until somebody shares its worker, but not for ever: in the end it runs alone.
KILLERS = """
import asyncio, os, pathlib, signal
from cograil import handler

HERE = pathlib.Path(f"bystander-{os.getpid()}")

@handler("killer")
async def killer() -> dict:
    for _ in range(100):
        if HERE.exists():
            break
        await asyncio.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)

@handler("bystander")
async def bystander() -> dict:
    HERE.touch()
    await asyncio.sleep(2.5)
    return {"alive": True}
"""
ONE = "workflow_id: {0}\nnodes:\n  a: {{handler: {0}, retry: {{max_attempts: 10}}}}\n"


async def losses(lab: Harness, job: str) -> list[str]:
    """What each attempt that ended badly says."""
    return [e["data"]["error"]["code"] for e in await lab.events(job) if e["event_type"] == "task_failed"]


async def test_a_bystander_of_a_killer_completes_and_the_killer_is_failed_after_three_losses(
    start: Start, eventually: Any, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "killers.py").write_text(KILLERS)
    at = {"COGRAIL_DATABASE_URL": dsn, "COGRAIL_DATABASE__ALLOW_UNSAFE": "true"}
    async with open_client_lab(dsn) as lab:
        killer, bystander = [await lab.submit(ONE.format(name)) for name in ("killer", "bystander")]
        up = start("up", "--port", "0", "--app", "killers", **at)
        await eventually(up.is_ready, timeout=30)
        ends = {job: await lab.ended(job, timeout=60) for job in (killer, bystander)}
        lost = {job: await losses(lab, job) for job in ends}
        findings = await lab.findings()
    assert lost[killer] == ["worker_lost"] * 3
    assert (ends[killer]["status"], ends[killer]["error"]["code"]) == ("failed", "poison")
    assert lost[bystander] == ["worker_lost"] * 2, "they shared a worker while they could"
    assert (ends[bystander]["status"], ends[bystander]["result"]["a"]) == ("completed", {"alive": True})
    assert findings == []
    assert up.events().count("worker ended, starting another") == 3
