"""Reports and claims whose answers were lost: each counts once, and none is given up."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import structlog.testing
from tests.support.harness import Harness, ManualWorker
from tests.support.one_node import one, warnings

from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.orchestrator import orchestrator_loop
from cograil.runners import python_runner as runner
from cograil.runners.context import Context
from cograil.store import task_queries
from cograil.verbs import tasks


async def test_a_claim_whose_answer_was_lost_is_given_back_by_the_heartbeat(harness: Harness) -> None:
    """The worker does not know the task; without the heartbeat its lease would keep it for ever."""
    async with harness.orchestrator(), harness.worker() as worker:
        assert worker.identity is not None
        job = await harness.submit(one("nobody_has_it"))
        lost = await ManualWorker(harness.db, worker.identity.worker_id, "x").claim_one()
        worker.registry.register(_nothing, "nobody_has_it")
        ended = await harness.ended(job, 10)
    assert (ended["status"], lost.attempt) == ("completed", 1)
    assert (await harness.nodes(job))["a"]["attempt"] == 2
    assert "task_failed" not in await harness.event_types(job), "that it was given back does not count"


async def test_a_report_sent_twice_counts_once(harness: Harness) -> None:
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    assert await manual_worker.report(item, {"n": 1})
    assert await manual_worker.report_again(item, {"n": 1})
    await harness.advance()
    assert await manual_worker.report_again(item, {"n": 1})
    await harness.advance()
    assert (await harness.event_types(job, "a")).count("node_completed") == 1
    assert await warnings(harness, job) == []


async def test_when_to_come_again_is_kept_with_the_report(harness: Harness) -> None:
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    assert await manual_worker.report(
        await manual_worker.claim_one(), Failed("busy", "busy", after_seconds=1.25)
    )
    await harness.advance()
    (retried,) = [event for event in await harness.events(job) if event["event_type"] == "node_retry"]
    assert retried["data"]["delay_seconds"] == 1.25


async def test_a_failure_sent_twice_counts_once(harness: Harness) -> None:
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    assert await manual_worker.report(item, Failed("oops", "oops"))
    await harness.advance()
    assert await manual_worker.report_again(item, Failed("oops", "oops"))
    await harness.advance()
    assert (await harness.nodes(job))["a"]["attempt"] == 2
    assert await warnings(harness, job) == []


async def test_a_report_repeated_after_the_attempt_was_lost_is_late(harness: Harness) -> None:
    """The report never arrived; the loss must not be taken for it."""
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    await harness.expire_worker(manual_worker)
    await harness.advance()
    assert not await manual_worker.report_again(item, {"n": 1})
    await harness.advance()
    assert await warnings(harness, job) == ["late_result"]


async def test_a_report_that_fails_is_sent_again_until_it_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first commit happens and its answer is lost; the second try must find it recorded."""
    real, calls = tasks.report, 0

    async def lossy(*args: Any) -> set[int]:
        nonlocal calls
        calls += 1
        counted = await real(*args)
        if calls == 1:
            raise psycopg.OperationalError("the connection was lost")
        return counted

    monkeypatch.setattr(tasks, "report", lossy)
    async with harness.running():
        job = await harness.submit(one())
        assert (await harness.ended(job))["status"] == "completed"
    assert await warnings(harness, job) == []
    assert (await harness.event_types(job, "a")).count("node_completed") == 1


@pytest.mark.parametrize(
    "error", [psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege]
)
async def test_a_report_is_retried_after_any_database_error(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, error: type[psycopg.Error]
) -> None:
    """After a failover the old primary may say that it only reads; the result is still in our hands."""
    real, calls = tasks.report, 0

    async def refused_once(*args: Any) -> set[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error("not here, not now")
        return await real(*args)

    monkeypatch.setattr(tasks, "report", refused_once)
    async with harness.running():
        job = await harness.submit(one())
        assert (await harness.ended(job))["status"] == "completed"
    assert (await harness.nodes(job))["a"]["attempt"] == 1


async def test_a_result_that_the_database_cannot_hold_fails_alone(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked should hold; should a check be wrong, the others must not wait for an hour."""

    def unchecked(value: Any, limits: Any) -> Completed:
        return Completed(b'{"x": ' if value.get("bad") else b"{}")

    monkeypatch.setattr(runner, "_completed", unchecked)
    bad = await harness.submit(one("result"), {"bad": True})
    harness.registry.register(_result, "result")
    good = await harness.submit_many(one("result"), [{}] * 5)
    await harness.rows("update cograil.tasks set params = json_build_object('bad', job_id = %(id)s)", id=bad)
    async with harness.running():
        assert [(await harness.ended(job))["status"] for job in good] == ["completed"] * 5
        ended = await harness.ended(bad)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_result")


@pytest.mark.parametrize("where", ["report_tasks", "save_progress"])
async def test_a_report_that_raises_what_nobody_expects_fails_alone_or_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A bug in what is sent must not take the others of its batch, and nothing is kept in silence."""
    bad = await harness.submit(one("told_badly"))
    good = await harness.submit_many(one("told_badly"), [{}] * 5)
    harness.registry.register(_telling, "told_badly")
    _break(monkeypatch, where, bad)
    with structlog.testing.capture_logs() as logs:
        async with harness.running():
            assert [(await harness.ended(job))["status"] for job in good] == ["completed"] * 5
            ended = await harness.ended(bad)
    messages = {line["event"] for line in logs if line["log_level"] == "error"}
    if where == "save_progress":
        assert (ended["status"], messages) == ("completed", {"progress not written"})
        return
    assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_result")
    assert messages == {"result cannot be recorded"}


async def test_an_attempt_of_which_nothing_can_be_said_is_ended_by_its_time_limit(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is it tried without end, nor are the others kept."""
    monkeypatch.setattr(orchestrator_loop, "DEADLINE_GRACE_SECONDS", 0.0)
    bad = await harness.submit(one("told_badly", timeout=1, attempts=1))
    good = await harness.submit(one("told_badly"))
    harness.registry.register(_telling, "told_badly")
    broken = _break(monkeypatch, "report_tasks", bad, is_always=True)
    with structlog.testing.capture_logs() as logs:
        async with harness.running():
            assert (await harness.ended(good))["status"] == "completed"
            ended = await harness.ended(bad)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timeout")
    assert len(broken) <= 3, "in a batch, by itself, and that it cannot be"
    assert "attempt cannot be reported, its time limit will end it" in [line["event"] for line in logs]


def _break(monkeypatch: pytest.MonkeyPatch, where: str, job: str, *, is_always: bool = False) -> list[str]:
    """Let this raise what is of this job: its result, or all that is said of it; each time is noted."""
    broken: list[str] = []

    def breaking(name: str, real: Any) -> Any:
        async def raising(tx: Any, worker: int, *rest: Any) -> Any:
            for report in rest[-1]:
                if name == "save_progress" or _is_of(job, report, is_always=is_always):
                    broken.append(name)
                    raise ValueError("nobody expects this")
            return await real(tx, worker, *rest)

        return raising

    for name in ("report_tasks", "end_jobs") if where == "report_tasks" else (where,):
        monkeypatch.setattr(task_queries, name, breaking(name, getattr(task_queries, name)))
    if where == "save_progress":
        monkeypatch.setattr(tasks, "save_progress", task_queries.save_progress)
    return broken


def _is_of(job: str, report: tuple[WorkItem, Any], *, is_always: bool) -> bool:
    """Whether this is a result of that job, or anything said of it; of a last task its output."""
    item, outcome = report
    return item.job_id == job and (is_always or isinstance(outcome, Completed | bytes))


async def _telling(ctx: Context) -> dict[str, Any]:
    ctx.progress(1, 2)
    return {}


async def _result(bad: bool) -> dict[str, Any]:
    return {"bad": bad}


async def _nothing() -> dict[str, Any]:
    return {}
