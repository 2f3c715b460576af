"""Handlers in child processes: killable, bounded, replaced; whatever they do, the worker lives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support import child_handlers  # registers the handlers, here and in the children
from tests.support.harness import Harness, quick_settings
from tests.support.one_node import one

from cograil.errors import UsageError
from cograil.runners.context import Context
from cograil.settings import Settings

SUPPORT = Path(__file__).parents[1] / "support"
FLOW = """
workflow_id: one
nodes:
  a:
    handler: %s
    params: %s
    timeout_seconds: %s
    retry: {max_attempts: %d, initial_delay_seconds: 0}
"""


def flow(handler: str, params: dict[str, Any], *, timeout: float = 60, attempts: int = 1) -> str:
    return FLOW % (handler, json.dumps(params), timeout, attempts)


@pytest.fixture
def harness_settings() -> Settings:
    return settings_with()


def settings_with(**worker: Any) -> Settings:
    return quick_settings(worker={"grace_seconds": 4.0, "processes": 2, **worker})


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def number_in(file: Path) -> int:
    """The number in this file, once it is there."""
    return int(file.read_text() or 0) if file.exists() else 0


async def failures(harness: Harness, job: str) -> list[dict[str, Any]]:
    return [e["data"]["error"] for e in await harness.events(job) if e["event_type"] == "task_failed"]


# -- at work ----------------------------------------------------------------------------------------------


async def test_a_process_handler_runs_in_a_child_that_is_used_again(harness: Harness) -> None:
    async with harness.running():
        results = [
            (await harness.ended(await harness.submit(flow("child_pid", {"number": n}))))["result"]["a"]
            for n in (1, 2)
        ]
    assert results[0]["pid"] == results[1]["pid"] != os.getpid()
    assert [(result["number"], result["parent"]) for result in results] == [
        (1, os.getpid()),
        (2, os.getpid()),
    ]
    assert results[0]["main"].endswith("child.py")  # a clean interpreter, not a copy of the worker
    assert not is_alive(results[0]["pid"])


async def test_the_context_works_from_inside_a_child(harness: Harness, eventually: Any) -> None:
    async with harness.running():
        job = await harness.submit(flow("child_talk", {}, attempts=2))
        ended = await harness.ended(job)
    result = ended["result"]["a"]
    assert (result["found"], result["key"]) == ({"attempt": 1}, f"{job}/a")
    assert result["pid"] == result["me"]
    assert await harness.rows("select name, attempt from cograil.steps") == [("pid", 1)]
    assert await harness.rows("select current, total, message from cograil.progress") == [(1.0, 2.0, "half")]
    logs = await harness.rows("select jsonb_array_length(lines) from cograil.task_logs")
    assert sum(line_count for (line_count,) in logs) == 2
    assert [failure["code"] for failure in await failures(harness, job)] == ["handler_error"]
    assert "once more" in (await failures(harness, job))[0]["message"]


async def test_a_coroutine_may_run_in_a_child_too(harness: Harness) -> None:
    async with harness.running():
        ended = await harness.ended(await harness.submit(flow("child_async", {})))
        refused = await harness.ended(await harness.submit(flow("child_transaction", {})))
    assert ended["result"]["a"] == {"two": 2}
    assert refused["error"]["code"] == "bad_transaction"


async def test_wrong_params_are_told_as_ever(harness: Harness) -> None:
    async with harness.running():
        ended = await harness.ended(await harness.submit(flow("child_pid", {"number": "many", "more": 1})))
    assert ended["error"]["code"] == "invalid_params"
    assert "more" in ended["error"]["message"]


async def test_no_more_children_run_than_there_are_slots_and_the_others_are_not_held_up(
    harness: Harness, tmp_path: Path, eventually: Any
) -> None:
    files = [tmp_path / str(n) for n in range(3)]
    async with harness.running():
        jobs = [await harness.submit(flow("child_obeys", {"file": str(file)})) for file in files]
        await eventually(lambda: number_in(files[0]) and number_in(files[1]))
        assert (await harness.ended(await harness.submit(one("echo"))))["status"] == "completed"
        assert not files[2].exists()
        for job in jobs[:2]:
            await harness.cancel(job)
        await eventually(lambda: number_in(files[2]))
        await harness.cancel(jobs[2])


# -- stopped ----------------------------------------------------------------------------------------------


async def test_a_child_that_spins_is_dead_a_second_after_its_time_and_its_slot_is_free(
    harness: Harness, tmp_path: Path, eventually: Any
) -> None:
    file = tmp_path / "pid"
    settings = settings_with(processes=1)
    async with harness.orchestrator(), harness.worker(settings=settings):
        await harness.ended(await harness.submit(flow("child_pid", {})))  # it is warm
        job = await harness.submit(flow("child_spin", {"file": str(file)}, timeout=1))
        pid = await eventually(lambda: number_in(file))
        begun = time.monotonic()
        await eventually(lambda: not is_alive(pid), 10)
        seconds = time.monotonic() - begun
        assert (await harness.ended(job))["error"]["code"] == "timeout"
        assert (await harness.ended(await harness.submit(flow("child_pid", {}))))["status"] == "completed"
    assert 0.5 < seconds < 2.0


async def test_a_cancelled_child_is_told_first_and_may_obey(
    harness: Harness, tmp_path: Path, eventually: Any
) -> None:
    file = tmp_path / "obeys"
    async with harness.running():
        job = await harness.submit(flow("child_obeys", {"file": str(file)}))
        pid = await eventually(lambda: number_in(file))
        await harness.cancel(job)
        await eventually(lambda: file.read_text() == "obeyed")
        again = await harness.ended(await harness.submit(flow("child_pid", {})))
    assert again["result"]["a"]["pid"] == pid


async def test_a_cancelled_child_that_does_not_obey_is_killed_after_the_grace(
    harness: Harness, tmp_path: Path, eventually: Any
) -> None:
    file = tmp_path / "pid"
    async with harness.running():
        job = await harness.submit(flow("child_spin", {"file": str(file)}))
        pid = await eventually(lambda: number_in(file))
        await harness.cancel(job)
        await eventually(lambda: not is_alive(pid))


async def test_processes_started_by_a_handler_are_killed_with_its_child(
    harness: Harness, tmp_path: Path, eventually: Any
) -> None:
    file = tmp_path / "pid"
    async with harness.running():
        job = await harness.submit(flow("child_starts_another", {"file": str(file)}, timeout=2))
        pid = await eventually(lambda: number_in(file))
        assert (await harness.ended(job))["error"]["code"] == "timeout"
        await eventually(lambda: not is_alive(pid))


async def test_a_worker_that_stops_gives_back_what_its_children_do(
    harness: Harness, tmp_path: Path, eventually: Any
) -> None:
    file = tmp_path / "pid"
    async with harness.orchestrator():
        async with harness.worker(settings=settings_with(grace_seconds=0)):
            job = await harness.submit(flow("child_spin", {"file": str(file)}))
            pid = await eventually(lambda: number_in(file))
        assert not is_alive(pid)
        await eventually(
            lambda: harness.rows("select 1 from cograil.tasks where state = 'ready' and attempt = 2")
        )
        await harness.cancel(job)


# -- dying ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "exit"])
async def test_a_child_that_dies_fails_its_attempt_and_the_worker_lives(harness: Harness, how: str) -> None:
    async with harness.running():
        job = await harness.submit(flow("child_dies", {"how": how}, attempts=2))
        ended = await harness.ended(job)
    assert ended["result"]["a"] == {"attempt": 2}
    (failure,) = await failures(harness, job)
    assert failure["code"] == "child_died"
    assert ("code 3" if how == "exit" else how) in failure["message"]
    assert await harness.rows("select count(*) from cograil.processes where kind = 'worker'") == [(1,)]


async def test_a_child_that_died_while_idle_is_replaced(harness: Harness, eventually: Any) -> None:
    async with harness.running():
        first = (await harness.ended(await harness.submit(flow("child_pid", {}))))["result"]["a"]["pid"]
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not is_alive(first))
        ended = await harness.ended(await harness.submit(flow("child_pid", {})))
    assert ended["status"] == "completed"
    assert ended["result"]["a"]["pid"] != first


@pytest.mark.parametrize("how", ["close", "nonsense", "flood"])
async def test_a_child_that_disturbs_its_link_fails_its_attempt_and_the_worker_lives(
    harness: Harness, how: str
) -> None:
    async with harness.running():
        ended = await harness.ended(await harness.submit(flow("child_babbles", {"how": how})))
        assert (ended["status"], ended["error"]["code"]) == ("failed", "child_died")
        assert (await harness.ended(await harness.submit(flow("child_pid", {}))))["status"] == "completed"


@pytest.mark.parametrize("handler", ["child_spin", "child_holds"])
async def test_children_die_with_their_worker(
    harness: Harness, tmp_path: Path, eventually: Any, handler: str
) -> None:
    """Even one whose other threads cannot run."""
    file = tmp_path / "pid"
    job = await harness.submit(flow(handler, {"file": str(file)}))
    environment = os.environ | {
        "COGRAIL_DATABASE_URL": harness.db.conninfo,
        "COGRAIL_DATABASE__ALLOW_UNSAFE": "true",
    }
    command = [sys.executable, "-P", "-m", "cograil", "worker", "--app", "child_handlers"]
    worker = subprocess.Popen(command, env=environment, cwd=SUPPORT)
    try:
        pid = await eventually(lambda: number_in(file), 30)
        assert is_alive(pid)
    finally:
        worker.kill()
        await asyncio.to_thread(worker.wait, 10)
    await eventually(lambda: not is_alive(pid))
    await harness.cancel(job)


# -- memory and wear --------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{"mib": 2000}, {"mib": 0, "small": True}])
async def test_a_child_over_its_memory_fails_the_attempt_and_the_worker_lives(
    harness: Harness, params: dict[str, Any]
) -> None:
    settings = settings_with(child_memory_mb=300)
    async with harness.orchestrator(), harness.worker(settings=settings):
        job = await harness.submit(flow("child_eats", params))
        ended = await harness.ended(job, 60)
        assert ended["error"]["code"] == "out_of_memory"
        small = await harness.ended(await harness.submit(flow("child_eats", {"mib": 10})))
    assert small["result"]["a"] == {"length": 10 * 1024 * 1024}


async def test_without_a_limit_memory_is_not_limited(harness: Harness) -> None:
    async with harness.running():
        ended = await harness.ended(await harness.submit(flow("child_eats", {"mib": 600})))
    assert ended["status"] == "completed"


async def test_a_child_is_replaced_after_its_number_of_tasks(harness: Harness) -> None:
    settings = settings_with(processes=1, child_tasks=2)
    async with harness.orchestrator(), harness.worker(settings=settings):
        pids = [
            (await harness.ended(await harness.submit(flow("child_pid", {}))))["result"]["a"]["pid"]
            for _ in range(5)
        ]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2, 1]


async def test_a_child_that_has_grown_is_replaced(harness: Harness) -> None:
    settings = settings_with(processes=1, child_memory_mb=600)
    async with harness.orchestrator(), harness.worker(settings=settings):
        pids = [
            (await harness.ended(await harness.submit(flow("child_leaks", {"mib": mib}))))["result"]["a"][
                "pid"
            ]
            for mib in (10, 350, 10)
        ]
    assert pids[0] == pids[1] != pids[2]


# -- not possible -----------------------------------------------------------------------------------------


def test_a_child_must_be_able_to_import_its_handler(harness: Harness) -> None:
    def local(ctx: Context) -> None:
        """Nobody can import this."""

    with pytest.raises(UsageError, match="at the top level of a module"):
        harness.registry.register(local, process=True)


async def test_a_handler_that_a_child_does_not_find_fails_and_says_so(harness: Harness) -> None:
    harness.registry.register(child_handlers.child_pid, "another_name", process=True)
    async with harness.running():
        ended = await harness.ended(await harness.submit(flow("another_name", {})))
    assert ended["error"]["code"] == "handler_missing"
