"""/health: in tiers, with a word for each check, and as bad as the worst that is required."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.support.api_client import ApiClient

from cograil.http.routes import health_routes
from cograil.http.routes.health_routes import CHECKS, CheckResult
from cograil.http.server.dispatcher import Call

NAMES = ["process", "config", "database", "disk", "schema", "orchestrators", "workers", "handlers", "news"]


def states(body: Any) -> dict[str, str]:
    return {name: check["status"] for name, check in body["checks"].items()}


@pytest.fixture(autouse=True)
def durable(api: ApiClient, request: pytest.FixtureRequest) -> None:
    """The harness's database may forget, which is worth a word and not the topic here."""
    database = api.context.settings.database.model_copy(update={"allow_unsafe": False})
    api.context.settings = api.context.settings.model_copy(update={"database": database})


def instead(monkeypatch: pytest.MonkeyPatch, name: str, **facts: Any) -> None:
    """This check is another one."""
    checks = [replace(check, **facts) if check.name == name else check for check in CHECKS]
    monkeypatch.setattr(health_routes, "CHECKS", checks)


async def test_health_is_ok_when_all_checks_pass(api: ApiClient) -> None:
    async with api.harness.running():
        answer = await api.get("/health")
    assert (answer.status, answer.body["status"]) == (200, "healthy")
    assert states(answer.body) == dict.fromkeys(NAMES, "healthy")
    assert answer.body["summary"]["database"] == {"status": "healthy", "healthy": 3}
    assert answer.body["duration_ms"] > 0


async def test_without_workers_it_is_degraded(api: ApiClient) -> None:
    async with api.harness.orchestrator():
        answer = await api.get("/health")
    assert (answer.status, answer.body["status"]) == (206, "degraded")
    assert answer.body["checks"]["workers"]["status"] == "unhealthy"
    assert answer.body["summary"]["workers"]["status"] == "degraded"


async def test_without_an_orchestrator_it_is_unhealthy(api: ApiClient) -> None:
    async with api.harness.worker():
        answer = await api.get("/health")
    assert (answer.status, answer.body["status"]) == (503, "unhealthy")
    assert answer.body["checks"]["orchestrators"]["message"] == "no orchestrator is alive"


async def test_a_task_that_nobody_can_run_is_told(api: ApiClient) -> None:
    await api.post("/api/v1/workflows", {"source": "workflow_id: w\nnodes: {a: {handler: unheard_of}}"})
    await api.submit("w")
    async with api.harness.running():
        answer = await api.get("/health/handlers")
        assert (answer.status, answer.body["details"]) == (206, {"missing": ["unheard_of"]})
        assert (await api.get("/health")).status == 206


async def test_news_that_nobody_looks_at_are_told(api: ApiClient) -> None:
    await api.post("/api/v1/workflows", {"source": "workflow_id: w\nnodes: {a: {handler: echo}}"})
    await api.submit("w")
    worker = await api.harness.manual_worker()
    await worker.report(await worker.claim_one(), {})
    assert (await api.get("/health/news")).status == 200
    await api.harness.rows("update cograil.inbox set at = now() - interval '1 hour'")
    answer = await api.get("/health/news")
    assert (answer.status, answer.body["details"]["oldest_seconds"] >= 3600) == (206, True)
    await api.harness.advance()


async def test_settings_for_tests_are_told(api: ApiClient) -> None:
    settings = api.context.settings
    database = settings.database.model_copy(update={"allow_unsafe": True})
    api.context.settings = settings.model_copy(update={"database": database})
    assert (await api.get("/health/config")).status == 206


async def test_after_a_tier_that_failed_nothing_more_is_asked(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(call: Call) -> CheckResult:
        raise OSError("postgresql://user:secret@host")

    instead(monkeypatch, "database", run=fail)
    answer = await api.get("/health")
    assert answer.status == 503
    assert b"secret" not in answer.raw
    check_states = states(answer.body)
    assert (check_states["process"], check_states["database"], check_states["disk"]) == (
        "healthy",
        "unhealthy",
        "healthy",
    )
    assert {check_states[name] for name in NAMES[4:]} == {"skipped"}


async def test_a_check_that_hangs_is_unhealthy_in_time(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(call: Call) -> CheckResult:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(health_routes, "CHECK_SECONDS", 0.05)
    instead(monkeypatch, "workers", run=hang)
    answer = await api.get("/health/workers")
    assert (answer.status, answer.body["message"]) == (503, "no answer within 0.05 s")


async def test_the_checks_of_a_tier_run_side_by_side(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    met = asyncio.Barrier(2)

    async def meet(call: Call) -> CheckResult:
        await met.wait()
        return CheckResult("healthy")

    checks = [replace(check, run=meet) if check.name in ("process", "config") else check for check in CHECKS]
    monkeypatch.setattr(health_routes, "CHECKS", checks)
    monkeypatch.setattr(health_routes, "CHECK_SECONDS", 5)
    async with api.harness.running():
        assert (await api.get("/health")).status == 200


async def test_an_unknown_check_is_not_found(api: ApiClient) -> None:
    answer = await api.get("/health/nonsense")
    assert (answer.status, answer.code) == (404, "not_found")
