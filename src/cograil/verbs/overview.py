"""The overview of an instance that `cograil top` shows. Every query reads a bounded number of rows."""

from __future__ import annotations

from datetime import timedelta

from cograil.store import job_queries, monitoring_queries
from cograil.store.database import Transaction
from cograil.store.gateway_queries import count_shown_jobs
from cograil.store.job_queries import View
from cograil.verbs.definition_cache import DefinitionCache
from cograil.verbs.explain import explain

MINUTES = 30
WAITING = 12
FAILURES = 10
FAILURE_HOURS = 24
PROCESS_FIELDS = ("name", "state", "is_live", "queues", "info", "started_at", "pulsed_at")


async def load_overview(tx: Transaction, definitions: DefinitionCache, tenant: str) -> View:
    """Load jobs, throughput, queues, processes, waiting jobs with reasons, and failures."""
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
        "waiting": await _waiting(tx, definitions, tenant),
        "failing": failures["failures"],
    }


async def _throughput(tx: Transaction, tenant: str) -> View:
    """Return the jobs per minute, the last minute incomplete, and the rate of the last five whole minutes."""
    minute = timedelta(minutes=1)
    first = tx.now.replace(second=0, microsecond=0) - (MINUTES - 1) * minute
    buckets = await monitoring_queries.throughput_metrics(tx, tenant, first, minute, None)
    ended = [
        bucket["jobs_completed"] + bucket["jobs_failed"] + bucket["jobs_cancelled"] for bucket in buckets
    ]
    return {
        "minutes": [
            {"start": bucket["bucket_start"], "submitted": bucket["jobs_submitted"], "ended": count}
            for bucket, count in zip(buckets, ended, strict=True)
        ],
        "ended_per_minute": sum(ended[-6:-1]) / 5,
    }


def _of_kind(processes: list[View], kind: str) -> list[View]:
    return [
        {name: process[name] for name in PROCESS_FIELDS} for process in processes if process["kind"] == kind
    ]


async def _waiting(tx: Transaction, definitions: DefinitionCache, tenant: str) -> list[View]:
    """Return the oldest open jobs, each with its first blocker."""
    waiting = []
    for job in await monitoring_queries.oldest_jobs(tx, tenant, WAITING):
        explanation = await explain(tx, definitions, job["job_id"], tenant)
        blocker = explanation.blockers[0] if explanation.blockers else None
        why = None if blocker is None else {"kind": blocker.kind, "message": blocker.message}
        waiting.append(job | {"why": why})
    return waiting
