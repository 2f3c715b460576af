"""/health: everything that can be asked about, in tiers. What a tier needs, the tier before has looked at.

A check is healthy, degraded (it works, and somebody should look) or unhealthy. The whole is as bad as its
worst required check; what is not required degrades it at most: 200, 206, 503. When a required check of a tier
is unhealthy, the tiers after it are not asked: they would only wait for the same thing. So a database that is
away is told within two seconds, also when the caller's key cannot be looked up: it is remembered.
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
DATABASE_SECONDS = 1.0  # longer, and it does not answer
DATABASE_TIER = 2
STARTED = time.monotonic()
SLOW_SECONDS = 0.5  # for one question to the database
OLD_NEWS_LEASES = 2  # news that wait longer are those of an engine that stands still
LITTLE_SPACE, NO_SPACE = 0.1, 256 * 1024 * 1024  # of the disk, and bytes


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found."""

    state: State
    message: str = ""
    facts: dict[str, Json] = field(default_factory=dict)


Look = Callable[[Call], Coroutine[Any, Any, CheckResult]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at."""

    name: str
    category: str
    tier: int
    look: Look
    is_required: bool = True
    seconds: float | None = None  # CHECK_SECONDS unless said


CHECKS: list[Check] = []


def check(
    name: str, category: str, tier: int, *, is_required: bool = True, seconds: float | None = None
) -> Callable[[Look], Look]:
    """Declare a check."""

    def declare(look: Look) -> Look:
        CHECKS.append(Check(name, category, tier, look, is_required, seconds))
        return look

    return declare


@health.get(
    "/health",
    "viewer",
    allows_stale_auth=True,
    responses={200: "healthy", 206: "degraded", 503: "unhealthy"},
    response_model=monitoring_schemas.Health,
    error_models=(503,),
)
async def show_health(call: Call) -> Response:
    """Look at everything, in tiers."""
    begun = time.monotonic()
    found: dict[str, tuple[Check, CheckResult, float]] = {}
    async with asyncio.timeout(BUDGET_SECONDS):
        for tier in sorted({one.tier for one in CHECKS}):
            checks = [one for one in CHECKS if one.tier == tier]
            is_lost = any(_counts_as(one, finding) == "unhealthy" for one, finding, _ in found.values())
            looks = [_skipped() if is_lost else _looked(call, one) for one in checks]
            results = await asyncio.gather(*looks)
            found |= {one.name: (one, *result) for one, result in zip(checks, results, strict=True)}
    state = _worst(_counts_as(one, finding) for one, finding, _ in found.values())
    return reply(
        {
            "status": state,
            "duration_ms": _millis(time.monotonic() - begun),
            "summary": _summary([(one, finding) for one, finding, _ in found.values()]),
            "checks": {name: _shown(*one) for name, one in found.items()},
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
    """Look at one thing."""
    one = next((one for one in CHECKS if one.name == call.path["check"]), None)
    if one is None:
        raise NotFound(f"there is no such check; there are {', '.join(one.name for one in CHECKS)}")
    finding, seconds = await (_looked if one.tier <= DATABASE_TIER else _looked_beyond)(call, one)
    return reply({"check": one.name} | _shown(one, finding, seconds), STATUS[finding.state])


async def _looked(call: Call, one: Check) -> tuple[CheckResult, float]:
    """What it found, whatever goes wrong, and how long that took."""
    begun, most = time.monotonic(), one.seconds or CHECK_SECONDS
    try:
        finding = await run_with_timeout(most, one.look(call))
    except TimeoutError:
        finding = CheckResult("unhealthy", f"no answer within {most:g} s")
    except Exception as error:  # what is wrong may name hosts and users: that is for the log
        log.warning("a check failed", check=one.name, error=repr(error))
        finding = CheckResult("unhealthy", "it cannot be looked at; the log says why")
    return finding, time.monotonic() - begun


async def _looked_beyond(call: Call, one: Check) -> tuple[CheckResult, float]:
    """The same for what stands on the database: while that does not answer, nothing more is asked of it."""
    database = next(one for one in CHECKS if one.name == "database")
    finding, seconds = await _looked(call, database)
    if finding.state == "unhealthy":
        return CheckResult("unhealthy", "the database does not answer"), seconds
    return await _looked(call, one)


async def _skipped() -> tuple[CheckResult, float]:
    return CheckResult("skipped", "something before it is unhealthy"), 0.0


def _counts_as(one: Check, finding: CheckResult) -> State:
    return "degraded" if finding.state == "unhealthy" and not one.is_required else finding.state


def _worst(states: Iterable[State]) -> State:
    found = set(states)
    worst: Sequence[State] = ("unhealthy", "degraded")
    return next((state for state in worst if state in found), "healthy")


def _summary(found: Sequence[tuple[Check, CheckResult]]) -> dict[str, Json]:
    """For each category its state, and how many checks are in which."""
    summary: dict[str, Json] = {}
    for category in dict.fromkeys(one.category for one, _ in found):
        mine = [(one, finding) for one, finding in found if one.category == category]
        counts = Counter(finding.state for _, finding in mine)
        summary[category] = {"status": _worst(_counts_as(*pair) for pair in mine), **counts}
    return summary


def _shown(one: Check, finding: CheckResult, seconds: float) -> dict[str, Json]:
    return {
        "status": finding.state,
        "message": finding.message,
        "category": one.category,
        "tier": one.tier,
        "is_required": one.is_required,
        "duration_ms": _millis(seconds),
        "details": finding.facts,
    }


def _millis(seconds: float) -> float:
    return round(1000 * seconds, 1)


# -- first: this process ----------------------------------------------------------------------------------


@check("process", "process", 1)
async def look_at_process(call: Call) -> CheckResult:
    """The loop answers, so it runs; how far behind is it?"""
    begun = time.monotonic()
    await asyncio.sleep(0)
    lag = time.monotonic() - begun
    facts = {"pid": os.getpid(), "uptime_seconds": round(begun - STARTED, 1), "lag_ms": _millis(lag)}
    return CheckResult("degraded" if lag > 1 else "healthy", "busy" if lag > 1 else "", facts)


@check("config", "process", 1)
async def look_at_config(call: Call) -> CheckResult:
    """Whether a setting is on that is meant for tests."""
    settings = call.context.settings
    if settings.database.allow_unsafe:
        return CheckResult("degraded", "the database may forget what it acknowledged: ALLOW_UNSAFE is on")
    if settings.queues.strict and not settings.queues.names:
        return CheckResult("unhealthy", "queues must be named and none is")
    return CheckResult("healthy")


# -- then: what we stand on -------------------------------------------------------------------------------


@check("database", "database", DATABASE_TIER, seconds=DATABASE_SECONDS)
async def look_at_database(call: Call) -> CheckResult:
    """Whether it answers, and how soon."""
    begun = time.monotonic()
    async with call.transaction("probe") as tx:
        version = tx.connection.info.server_version
    seconds = time.monotonic() - begun
    facts = {"version": f"{version // 10000}.{version % 10000}", "answer_ms": _millis(seconds)}
    return CheckResult("degraded" if seconds > SLOW_SECONDS else "healthy", facts=facts)


@check("disk", "database", 2, is_required=False)
async def look_at_disk(call: Call) -> CheckResult:
    """Whether an embedded database has room."""
    settings = call.context.settings
    if settings.database.url or not settings.data_dir.is_dir():
        return CheckResult("healthy", "the database is not kept here")
    disk = await asyncio.to_thread(shutil.disk_usage, settings.data_dir)
    facts = {"free_bytes": disk.free, "total_bytes": disk.total}
    if disk.free < NO_SPACE:
        return CheckResult("unhealthy", "the disk of the database is full", facts)
    is_low = disk.free < LITTLE_SPACE * disk.total
    return CheckResult(
        "degraded" if is_low else "healthy", "the disk is nearly full" if is_low else "", facts
    )


@check("schema", "database", 3)
async def look_at_schema(call: Call) -> CheckResult:
    """Whether the tables are those of this program."""
    async with call.context.db.single("probe") as tx:
        found = await status(tx.connection)
    facts = {"current": found.current, "known": found.known}
    if found.problems or found.pending:
        return CheckResult("unhealthy", f"has {found.current}, needs {found.known}", facts)
    return CheckResult("healthy", facts=facts)


# -- then: who works on it --------------------------------------------------------------------------------


async def _alive(call: Call, kind: str) -> CheckResult:
    async with call.transaction("probe") as tx:
        found = [one for one in await job_queries.list_processes(tx) if one["kind"] == kind]
    live = [one for one in found if one["is_live"]]
    facts = {"live": len(live), "silent": len(found) - len(live)}
    if not live:
        return CheckResult("unhealthy", f"there is no {kind}", facts)
    return CheckResult("healthy", facts=facts)


@check("orchestrators", "engine", 4)
async def look_at_orchestrators(call: Call) -> CheckResult:
    """Whether somebody advances jobs."""
    return await _alive(call, "orchestrator")


@check("workers", "workers", 4, is_required=False)
async def look_at_workers(call: Call) -> CheckResult:
    """Whether somebody runs tasks; without, jobs wait and nothing is lost."""
    return await _alive(call, "worker")


@check("handlers", "workers", 4, is_required=False)
async def look_at_handlers(call: Call) -> CheckResult:
    """Whether every task that waits has a worker that could run it."""
    async with call.transaction("probe") as tx:
        _, missing = await health_work(tx, call.caller.tenant)
    if missing:
        return CheckResult("degraded", "tasks wait for handlers that nobody has", {"missing": missing})
    return CheckResult("healthy")


@check("news", "engine", 4)
async def look_at_news(call: Call) -> CheckResult:
    """Whether what happened to jobs is soon looked at."""
    async with call.transaction("probe") as tx:
        seconds, _ = await health_work(tx, call.caller.tenant)
    facts = {"oldest_seconds": None if seconds is None else round(seconds, 3)}
    if seconds is not None and seconds > OLD_NEWS_LEASES * call.context.settings.lease.seconds:
        return CheckResult("degraded", "news wait for long: orchestrators do not keep up", facts)
    return CheckResult("healthy", facts=facts)
