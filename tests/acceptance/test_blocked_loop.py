"""A coroutine that blocks its worker's loop: it is stopped, told, and the others go on."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from tests.acceptance.instances import Start, open_client_lab
from tests.support.harness import Harness

HANDLERS = """
import asyncio, os, pathlib, time
from cograil import handler

@handler("spin")
async def spin() -> dict:
    while True:
        pass

@handler("compute")
async def compute(seconds: float) -> dict:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return {"pid": os.getpid()}

@handler("bystander")
async def bystander(ctx) -> dict:
    pathlib.Path("bystander").touch()
    while not pathlib.Path("go_on").exists():
        await asyncio.sleep(0.02)
    return {"attempt": ctx.attempt}
"""
SPIN = """
workflow_id: spin
nodes:
  a: {handler: spin, timeout_seconds: %s, retry: {max_attempts: 2, initial_delay_seconds: 0}}
"""
COMPUTE = """
workflow_id: compute
nodes:
  a: {handler: compute, params: {seconds: 1.6}, timeout_seconds: 1, retry: {max_attempts: 1}, next: b}
  b: {handler: compute, params: {seconds: 3}, depends_on: {any_of: [c]}}
  c: {handler: compute, params: {seconds: 0}}
"""
BYSTANDER = "workflow_id: bystander\nnodes:\n  a: {handler: bystander, retry: {max_attempts: 1}}\n"


def beside(dsn: str, tmp_path: Path, **more: str) -> dict[str, str]:
    """The settings of an instance with these handlers on this database."""
    (tmp_path / "blocking.py").write_text(HANDLERS)
    return {"COGRAIL_DATABASE_URL": dsn, "COGRAIL_DATABASE__ALLOW_UNSAFE": "true", **more}


async def failures(lab: Harness, job: str) -> list[dict[str, Any]]:
    return [e["data"]["error"] for e in await lab.events(job) if e["event_type"] == "task_failed"]


async def test_a_spinning_handler_times_out_and_a_bystander_loses_nothing(
    start: Start, eventually: Any, dsn: str, tmp_path: Path
) -> None:
    up = start("up", "--port", "0", "--app", "blocking", **beside(dsn, tmp_path))
    await eventually(up.is_ready, timeout=30)
    async with open_client_lab(dsn) as lab:
        bystander = await lab.submit(BYSTANDER)
        await eventually((tmp_path / "bystander").exists)
        began = time.monotonic()
        spin = await lab.submit(SPIN % 1.5)
        await eventually(lambda: failures(lab, spin))
        assert time.monotonic() - began < 1.5 + 1.5, "and half a second for everything else"
        ended = await lab.ended(spin)
        (tmp_path / "go_on").touch()
        there = await lab.ended(bystander)
        errors = await failures(lab, spin)
        findings = await lab.findings()
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timeout")
    assert [error["code"] for error in errors] == ["timeout"] * 2
    assert "in spin" in errors[0]["details"]["traceback"]
    assert there["status"] == "completed"
    assert there["result"]["a"]["attempt"] > 1
    assert findings == []
    assert up.events().count("worker ended, starting another") == 2


async def test_a_blocked_loop_ends_its_worker_though_there_is_time_left(
    start: Start, eventually: Any, dsn: str, tmp_path: Path
) -> None:
    at = beside(dsn, tmp_path, COGRAIL_WORKER__BLOCKED_SECONDS="2.5")
    orchestrator, worker = start("orchestrator", **at), start("worker", "--app", "blocking", **at)
    await eventually(orchestrator.is_ready, timeout=30)
    await eventually(worker.is_ready, timeout=30)
    async with open_client_lab(dsn) as lab:
        spin = await lab.submit(SPIN % 600)
        assert worker.ended(10) == 75
        (error,) = await eventually(lambda: failures(lab, spin))
    assert error["code"] == "loop_blocked"
    assert "the event loop is blocked, ending this worker" in worker.events()


async def test_a_worker_whose_coroutine_computes_for_a_while_lives_on(
    start: Start, eventually: Any, dsn: str, tmp_path: Path
) -> None:
    """Also past its time, and for longer than that while it has time."""
    up = start("up", "--port", "0", "--app", "blocking", **beside(dsn, tmp_path))
    await eventually(up.is_ready, timeout=30)
    async with open_client_lab(dsn) as lab:
        job = await lab.submit(COMPUTE)
        await lab.ended(job)
        nodes = await lab.nodes(job)
    assert nodes["b"]["status"] == "completed"
    assert nodes["b"]["output"]["pid"] == nodes["c"]["output"]["pid"]
    assert "worker ended, starting another" not in up.events()


async def test_sigterm_of_a_blocked_instance_does_not_take_for_ever(
    start: Start, eventually: Any, dsn: str, tmp_path: Path
) -> None:
    at = beside(dsn, tmp_path, COGRAIL_WORKER__BLOCKED_SECONDS="3")
    up = start("up", "--port", "0", "--app", "blocking", **at)
    await eventually(up.is_ready, timeout=30)
    async with open_client_lab(dsn) as lab:
        await lab.submit(SPIN % 600)
        await eventually(lambda: lab.rows("select 1 from cograil.tasks where state = 'running'"))
    up.send(signal.SIGTERM)
    assert up.ended(10) == 0
