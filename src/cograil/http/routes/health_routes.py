"""/health: all health checks, in tiers. A tier depends only on earlier tiers.

A check is healthy, degraded (it works but needs attention) or unhealthy. The overall state is that of the worst
required check; an optional one degrades it at most: 200, 206, 503. When a required check of a tier is unhealthy,
later tiers are skipped: they would only wait for the same dependency. So an unavailable database is reported
within two seconds, also when the key of the caller cannot be looked up: keys are cached.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog
from starlette.responses import Response

from cograil.api_schemas import monitoring_schemas
from cograil.errors import NotFound
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.routing import Router
from cograil.http.server.timeouts import run_with_timeout
from cograil.model.workflow import Json
from cograil.store import job_queries
from cograil.store.migrate import status
from cograil.store.monitoring_queries import health_work

log = structlog.get_logger("health")
health = Router("health", prefix="")

State = Literal["healthy", "degraded", "unhealthy", "skipped"]
STATUS = {"healthy": 200, "degraded": 206, "unhealthy": 503}
BUDGET_SECONDS = 60.0
CHECK_SECONDS = 10.0
DATABASE_SECONDS = 1.0  # after this, the database counts as unavailable
DATABASE_TIER = 2
STARTED = time.monotonic()
SLOW_SECONDS = 0.5  # for one query
OLD_NEWS_LEASES = 2  # inputs that wait longer mean that the engine is stuck
LITTLE_SPACE, NO_SPACE = 0.1, 256 * 1024 * 1024  # a fraction of the disk, and bytes


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check."""

    state: State
    message: str = ""
    details: dict[str, Json] = field(default_factory=dict)


CheckFunction = Callable[[Call], Coroutine[Any, Any, CheckResult]]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One health check."""

    name: str
    category: str
    tier: int
    run: CheckFunction
    is_required: bool = True
    seconds: float | None = None  # None means CHECK_SECONDS


CHECKS: list[HealthCheck] = []


def check(
    name: str, category: str, tier: int, *, is_required: bool = True, seconds: float | None = None
) -> Callable[[CheckFunction], CheckFunction]:
    """Declare a check."""

    def declare(run: CheckFunction) -> CheckFunction:
        CHECKS.append(HealthCheck(name, category, tier, run, is_required, seconds))
        return run

    return declare


@health.get(
    "/health",
    "viewer",
    allows_stale_auth=True,
    responses={200: "healthy", 206: "degraded", 503: "unhealthy"},
    response_model=monitoring_schemas.HealthReport,
    error_models=(503,),
)
async def show_health(call: Call) -> Response:
    """Run all health checks, in tiers."""
    started_at = time.monotonic()
    outcomes: dict[str, tuple[HealthCheck, CheckResult, float]] = {}
    async with asyncio.timeout(BUDGET_SECONDS):
        for tier in sorted({check.tier for check in CHECKS}):
            checks = [check for check in CHECKS if check.tier == tier]
            is_lost = any(
                _effective_state(check, result) == "unhealthy" for check, result, _ in outcomes.values()
            )
            pending = [_skipped() if is_lost else _run_check(call, check) for check in checks]
            tier_results = await asyncio.gather(*pending)
            outcomes |= {
                check.name: (check, *result) for check, result in zip(checks, tier_results, strict=True)
            }
    state = _worst(_effective_state(check, result) for check, result, _ in outcomes.values())
    return reply(
        {
            "status": state,
            "duration_ms": _millis(time.monotonic() - started_at),
            "summary": _summary([(check, result) for check, result, _ in outcomes.values()]),
            "checks": {name: _view(*result) for name, result in outcomes.items()},
        },
        STATUS[state],
    )


@health.get(
    "/health/{check}",
    "viewer",
    allows_stale_auth=True,
    responses={200: "healthy", 206: "degraded", 503: "unhealthy"},
    response_model=monitoring_schemas.NamedCheck,
    error_models=(503,),
)
async def show_check(call: Call) -> Response:
    """Run one health check."""
    check = next((check for check in CHECKS if check.name == call.path["check"]), None)
    if check is None:
        raise NotFound(f"unknown check; the checks are {', '.join(check.name for check in CHECKS)}")
    result, seconds = await (_run_check if check.tier <= DATABASE_TIER else _run_dependent_check)(call, check)
    return reply({"check": check.name} | _view(check, result, seconds), STATUS[result.state])


async def _run_check(call: Call, check: HealthCheck) -> tuple[CheckResult, float]:
    """Return the result of a check and its duration. An error is a result too."""
    started_at, timeout = time.monotonic(), check.seconds or CHECK_SECONDS
    try:
        result = await run_with_timeout(timeout, check.run(call))
    except TimeoutError:
        result = CheckResult("unhealthy", f"no answer within {timeout:g} s")
    except Exception as error:  # the error may name hosts and users: only the log gets it
        log.warning("a check failed", check=check.name, error=repr(error))
        result = CheckResult("unhealthy", "the check failed; the log has the error")
    return result, time.monotonic() - started_at


async def _run_dependent_check(call: Call, check: HealthCheck) -> tuple[CheckResult, float]:
    """Do the same for a check that depends on the database: if that is unhealthy, the check does not run."""
    database = next(check for check in CHECKS if check.name == "database")
    result, seconds = await _run_check(call, database)
    if result.state == "unhealthy":
        return CheckResult("unhealthy", "the database does not answer"), seconds
    return await _run_check(call, check)


async def _skipped() -> tuple[CheckResult, float]:
    return CheckResult("skipped", "a check that this one depends on is unhealthy"), 0.0


def _effective_state(check: HealthCheck, result: CheckResult) -> State:
    return "degraded" if result.state == "unhealthy" and not check.is_required else result.state


def _worst(states: Iterable[State]) -> State:
    present = set(states)
    worst: Sequence[State] = ("unhealthy", "degraded")
    return next((state for state in worst if state in present), "healthy")


def _summary(results: Sequence[tuple[HealthCheck, CheckResult]]) -> dict[str, Json]:
    """Return the state of each category, and its number of checks in each state."""
    summary: dict[str, Json] = {}
    for category in dict.fromkeys(check.category for check, _ in results):
        in_category = [(check, result) for check, result in results if check.category == category]
        counts = Counter(result.state for _, result in in_category)
        summary[category] = {"status": _worst(_effective_state(*pair) for pair in in_category), **counts}
    return summary


def _view(check: HealthCheck, result: CheckResult, seconds: float) -> dict[str, Json]:
    return {
        "status": result.state,
        "message": result.message,
        "category": check.category,
        "tier": check.tier,
        "is_required": check.is_required,
        "duration_ms": _millis(seconds),
        "details": result.details,
    }


def _millis(seconds: float) -> float:
    return round(1000 * seconds, 1)


# -- this process -----------------------------------------------------------------------------------------


@check("process", "process", 1)
async def check_process(call: Call) -> CheckResult:
    """Check the lag of the event loop."""
    started_at = time.monotonic()
    await asyncio.sleep(0)
    lag = time.monotonic() - started_at
    details = {"pid": os.getpid(), "uptime_seconds": round(started_at - STARTED, 1), "lag_ms": _millis(lag)}
    return CheckResult("degraded" if lag > 1 else "healthy", "busy" if lag > 1 else "", details)


@check("config", "process", 1)
async def check_config(call: Call) -> CheckResult:
    """Check for settings that are only for tests."""
    settings = call.context.settings
    if settings.database.allow_unsafe:
        return CheckResult("degraded", "the database may lose acknowledged writes: ALLOW_UNSAFE is on")
    if settings.queues.strict and not settings.queues.names:
        return CheckResult("unhealthy", "queues.strict is on, but queues.names is empty")
    return CheckResult("healthy")


# -- the database -----------------------------------------------------------------------------------------


@check("database", "database", DATABASE_TIER, seconds=DATABASE_SECONDS)
async def check_database(call: Call) -> CheckResult:
    """Check that the database answers in time."""
    started_at = time.monotonic()
    async with call.transaction("probe") as tx:
        version = tx.connection.info.server_version
    seconds = time.monotonic() - started_at
    details = {"version": f"{version // 10000}.{version % 10000}", "answer_ms": _millis(seconds)}
    return CheckResult("degraded" if seconds > SLOW_SECONDS else "healthy", details=details)


@check("disk", "database", 2, is_required=False)
async def check_disk(call: Call) -> CheckResult:
    """Check the free disk space of an embedded database."""
    settings = call.context.settings
    if settings.database.url or not settings.data_dir.is_dir():
        return CheckResult("healthy", "the database is not on this machine")
    disk = await asyncio.to_thread(shutil.disk_usage, settings.data_dir)
    details = {"free_bytes": disk.free, "total_bytes": disk.total}
    if disk.free < NO_SPACE:
        return CheckResult("unhealthy", "the disk of the database is full", details)
    is_low = disk.free < LITTLE_SPACE * disk.total
    return CheckResult(
        "degraded" if is_low else "healthy", "the disk is nearly full" if is_low else "", details
    )


@check("schema", "database", 3)
async def check_schema(call: Call) -> CheckResult:
    """Check that the schema has the version that this release needs."""
    async with call.context.db.single("probe") as tx:
        schema = await status(tx.connection)
    details = {"current": schema.current, "known": schema.known}
    if schema.problems or schema.pending:
        return CheckResult(
            "unhealthy",
            f"the schema has version {schema.current}, this release needs {schema.known}",
            details,
        )
    return CheckResult("healthy", details=details)


# -- the engine -------------------------------------------------------------------------------------------


async def _check_processes(call: Call, kind: str) -> CheckResult:
    async with call.transaction("probe") as tx:
        processes = [process for process in await job_queries.list_processes(tx) if process["kind"] == kind]
    live = [process for process in processes if process["is_live"]]
    details = {"live": len(live), "silent": len(processes) - len(live)}
    if not live:
        return CheckResult("unhealthy", f"no {kind} is alive", details)
    return CheckResult("healthy", details=details)


@check("orchestrators", "engine", 4)
async def check_orchestrators(call: Call) -> CheckResult:
    """Check that an orchestrator is alive."""
    return await _check_processes(call, "orchestrator")


@check("workers", "workers", 4, is_required=False)
async def check_workers(call: Call) -> CheckResult:
    """Check that a worker is alive; without one, jobs wait and nothing is lost."""
    return await _check_processes(call, "worker")


@check("handlers", "workers", 4, is_required=False)
async def check_handlers(call: Call) -> CheckResult:
    """Check that every queued task has a worker with its handler."""
    async with call.transaction("probe") as tx:
        _, missing = await health_work(tx, call.caller.tenant)
    if missing:
        return CheckResult("degraded", "tasks wait for handlers that no worker has", {"missing": missing})
    return CheckResult("healthy")


@check("news", "engine", 4)
async def check_news(call: Call) -> CheckResult:
    """Check that inputs of jobs are processed soon."""
    async with call.transaction("probe") as tx:
        seconds, _ = await health_work(tx, call.caller.tenant)
    details = {"oldest_seconds": None if seconds is None else round(seconds, 3)}
    if seconds is not None and seconds > OLD_NEWS_LEASES * call.context.settings.lease.seconds:
        return CheckResult(
            "degraded", "inputs of jobs wait too long: the orchestrators do not keep up", details
        )
    return CheckResult("healthy", details=details)
