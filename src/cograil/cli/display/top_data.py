"""How all of it is doing, in one look: what `cograil top` shows. Reads what is small or bounded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cograil.cli.instance_client import Client
from cograil.store import job_queries, monitoring_queries
from cograil.store.database import Transaction
from cograil.store.gateway_queries import count_shown_jobs
from cograil.store.job_queries import View
from cograil.verbs.explain import explain

MINUTES = 30
WAITING = 12
FAILURES = 10
FAILURE_HOURS = 24
PROCESS_NAMES = ("name", "state", "is_live", "queues", "info", "started_at", "pulsed_at")


async def look(client: Client, tenant: str) -> View:
    """One frame: everything at one moment, for people and for programs."""
    async with client.db.transaction("show", tenant=tenant) as tx:
        counts = await count_shown_jobs(tx, tenant)
        processes = await job_queries.list_processes(tx)
        news_seconds, unknown = await monitoring_queries.health_work(tx, tenant)
        since = tx.now - timedelta(hours=FAILURE_HOURS)
        failures = await monitoring_queries.failure_metrics(tx, tenant, since, None, FAILURES)
        return {
            "at": tx.now,
            "tenant": tenant,
            "jobs": dict(counts.by_status),
            "truncated": counts.truncated,
            "throughput": await _throughput(tx, tenant),
            "queues": await monitoring_queries.queue_status(tx, tenant),
            "workers": _of_kind(processes, "worker"),
            "orchestrators": _of_kind(processes, "orchestrator"),
            "oldest_news_seconds": news_seconds,
            "missing_handlers": unknown,
            "waiting": await _waiting(client, tx, tenant),
            "failing": failures["failures"],
        }


async def _throughput(tx: Transaction, tenant: str) -> View:
    """Minute by minute, the last one still running; and the rate of the last whole five."""
    minute = timedelta(minutes=1)
    first = tx.now.replace(second=0, microsecond=0) - (MINUTES - 1) * minute
    buckets = await monitoring_queries.throughput_metrics(tx, tenant, first, minute, None)
    ended = [one["jobs_completed"] + one["jobs_failed"] + one["jobs_cancelled"] for one in buckets]
    return {
        "minutes": [
            {"start": one["bucket_start"], "submitted": one["jobs_submitted"], "ended": ended[place]}
            for place, one in enumerate(buckets)
        ],
        "ended_per_minute": sum(ended[-6:-1]) / 5,
    }


def _of_kind(processes: list[View], kind: str) -> list[View]:
    return [{name: one[name] for name in PROCESS_NAMES} for one in processes if one["kind"] == kind]


async def _waiting(client: Client, tx: Transaction, tenant: str) -> list[View]:
    """The jobs that are open for the longest time, each with the first thing it waits for."""
    found = []
    for job in await monitoring_queries.oldest_jobs(tx, tenant, WAITING):
        explained = await explain(tx, client.engine_context.definitions, job["job_id"], tenant)
        why = explained.blockers[0] if explained.blockers else None
        found.append(job | {"why": None if why is None else {"kind": why.kind, "message": why.message}})
    return found


def busy(process: Mapping[str, Any]) -> str:
    """How much of a worker is taken, as it said with its last heartbeat."""
    info = process["info"] or {}
    return f"{info['running']}/{info['concurrency']}" if "running" in info else ""
