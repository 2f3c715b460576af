"""The nodes of the workflow: begin, fetch (one for each source), merge, evaluate.

Each ends with one transaction in which its rows, its event and its result commit together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from cograil import clock, logs, metrics
from cograil.apps.companies import events, queries
from cograil.apps.companies.constants import (
    COMPLETED_EVENT,
    FETCHED_EVENT,
    RATE_LIMIT,
    STARTED_EVENT,
    SUCCESS,
    lock_name,
)
from cograil.apps.companies.enrichment import EnrichmentContext, conclude, merge_sources, note_failure
from cograil.apps.companies.queries import CompanyKey, Run
from cograil.apps.companies.run_log import RunLog, attempt_log_fields
from cograil.apps.companies.run_outcome import SourceOutcome, failed_as
from cograil.apps.companies.source_http import SourceFailure
from cograil.apps.companies.sources import CompanyQuery, CompanySource, SourceAnswer
from cograil.apps.companies.workflow import BEGIN, EVALUATE, FETCH, MERGE, REPORT
from cograil.canonical_json import fingerprint
from cograil.model.workflow import Json
from cograil.runners.context import Context, Fail, Retry
from cograil.runners.handler_registry import Registry
from cograil.store.database import Database, Transaction
from cograil.store.handler_transactions import HandlerSession
from cograil.verbs import buckets, leases

BUCKET = "companies:recherche"  # one for all tenants: the register counts us, not them
AT_ONCE = 1.0  # more would be saved up while nobody asks, and then be too many in one second
PACE = 6 / 7  # of what is allowed: what leaves here evenly does not arrive so
MAX_WAIT_SECONDS = 15.0  # for a token of it


@dataclass(frozen=True, slots=True)
class Tools:
    """What the handlers need. `sources` are those that can be asked."""

    db: Database
    context: EnrichmentContext
    sources: dict[str, CompanySource]
    clock: Callable[[], float] = time.monotonic


def register(registry: Registry, tools: Tools) -> None:
    """Let the workers of this registry run the nodes."""

    async def begin(ctx: Context, siren: str, request_id: str | None = None) -> dict[str, Json]:
        """Take the lock of the company."""
        return await _begin(tools, ctx, _journal(ctx, siren, request_id))

    async def fetch(
        ctx: Context,
        source: str,
        siren: str,
        fence: int,
        ended: list[dict[str, Any]],
        siret: str | None = None,
        request_id: str | None = None,
    ) -> dict[str, Json]:
        """Ask one source."""
        journal = _journal(ctx, siren, request_id)
        await _note_failures(tools, ctx, journal, fence, ended)
        return await _fetch(tools, ctx, journal, source, CompanyQuery(siren, siret), fence)

    async def merge(
        ctx: Context, siren: str, fence: int, ended: list[dict[str, Any]], request_id: str | None = None
    ) -> dict[str, Json]:
        """Put together what the sources said."""
        return await _merge(tools, ctx, _journal(ctx, siren, request_id), fence, ended)

    async def evaluate(
        ctx: Context, siren: str, fence: int, turn: int, request_id: str | None = None
    ) -> dict[str, Json]:
        """Write the verdict."""
        return await _evaluate(tools, ctx, _journal(ctx, siren, request_id), fence, turn)

    async def report(ctx: Context, siren: str, error: str, request_id: str | None = None) -> None:
        """Fail the job of a run in which no source answered; its verdict is written."""
        raise Fail(f"no register answered for company {siren}: {error}", code="no_source_answered")

    logs.app_log_fields["companies"] = attempt_log_fields
    nodes = (begin, BEGIN), (fetch, FETCH), (merge, MERGE), (evaluate, EVALUATE), (report, REPORT)
    for handler, name in nodes:
        registry.register(handler, name)


def bucket_of(db: Database, per_second: float) -> Callable[[], Any]:
    """A function that waits for a token of the bucket shared by all workers. Raises SourceFailure.

    Of the waiters of this process only the first polls the bucket; otherwise each token would wake all of them.
    """
    first = asyncio.Lock()

    async def take() -> None:
        async with first:
            while True:
                async with db.single("companies.token") as tx:
                    wait = await buckets.take(tx, BUCKET, AT_ONCE, per_second * PACE)
                if not wait:
                    return
                await asyncio.sleep(wait)

    async def token() -> None:
        try:
            await asyncio.wait_for(take(), MAX_WAIT_SECONDS)
        except TimeoutError:
            raise SourceFailure(RATE_LIMIT, "too many requests of our own are waiting") from None

    return token


# -- the nodes ---------------------------------------------------------------------------------------------


async def _begin(tools: Tools, ctx: Context, journal: RunLog) -> dict[str, Json]:
    company_key = CompanyKey(ctx.tenant_id, journal.company_siren)
    async with _result_transaction(ctx) as tx:
        seconds = tools.context.settings.lock_seconds
        lease = await leases.acquire(
            tx, lock_name(company_key.siren), ctx.job_id, seconds, tenant=company_key.tenant
        )
        if isinstance(lease, leases.Taken):
            raise Retry(f"company {company_key.siren} is locked by {lease.holder}", code="lock_taken")
        started = await queries.start_run(tx, company_key.tenant, ctx.job_id, lease.fence)
        if started is None:
            raise Fail(f"company {company_key.siren} has another run", code="superseded")
        attempt, turn = started
        run = Run(ctx.job_id, journal.request_id, "", attempt, journal.correlation_id)
        await events.tell_started(tx, company_key, run)
    journal.write("run started", STARTED_EVENT, attempt=attempt)
    return {"fence": lease.fence, "turn": turn, "attempt": attempt, "sources": list(tools.sources)}


async def _fetch(
    tools: Tools, ctx: Context, journal: RunLog, source: str, query: CompanyQuery, fence: int
) -> dict[str, Json]:
    company_key = CompanyKey(ctx.tenant_id, query.siren)
    await _heartbeat(tools, company_key, fence)
    began = tools.clock()

    def ended(http_status: int | None, code: str | None = None, message: str | None = None) -> SourceOutcome:
        return SourceOutcome(source, http_status, code, message, round((tools.clock() - began) * 1000))

    try:
        answer = await _source(tools, source).fetch(query)
    except SourceFailure as failure:
        outcome = ended(failure.http_status, failure.code, str(failure))
        journal.write("source failed", FETCHED_EVENT, outcome, attempt=ctx.attempt)
        ctx.log.warning("source failed", **journal.fields(FETCHED_EVENT, outcome))  # for `cograil logs`
        metrics.company_sources.labels(source, failure.code).inc()
        raise _raised(failure, outcome) from failure
    metrics.company_sources.labels(source, SUCCESS).inc()
    outcome = ended(answer.reply.status)
    checksum = await asyncio.to_thread(fingerprint, answer.reply.body)  # of a large one it takes a while
    async with _result_transaction(ctx) as tx:
        await _require_lock(tx, company_key, fence)
        if await queries.note_source(tx, company_key, ctx.job_id, outcome, answer.fields, answer.extras):
            await events.tell_fetched(tx, company_key, ctx.job_id, journal.correlation_id, outcome)
        await _keep(tx, tools, company_key, source, answer, checksum)
    journal.write("source fetched", FETCHED_EVENT, outcome, attempt=ctx.attempt)
    return {"http_status": outcome.http_status, "duration_ms": outcome.duration_ms}


async def _merge(
    tools: Tools, ctx: Context, journal: RunLog, fence: int, ended: list[dict[str, Any]]
) -> dict[str, Json]:
    company_key = CompanyKey(ctx.tenant_id, journal.company_siren)
    async with _result_transaction(ctx) as tx:
        await _require_lock(tx, company_key, fence)
        new_failures = [
            failure
            for failure in _failures(ended)
            if await note_failure(tx, company_key, ctx.job_id, journal.correlation_id, failure)
        ]
        await merge_sources(tx, company_key, ctx.job_id)
    for failure in new_failures:
        journal.write("source given up", FETCHED_EVENT, failure)
    return {}


async def _evaluate(tools: Tools, ctx: Context, journal: RunLog, fence: int, turn: int) -> dict[str, Json]:
    company_key = CompanyKey(ctx.tenant_id, journal.company_siren)
    run = Run(ctx.job_id, journal.request_id, "", 1, journal.correlation_id)
    async with _result_transaction(ctx) as tx:
        verdict = await conclude(tx, tools.context, company_key, run, turn)
        if verdict is None or not await leases.release(
            tx, lock_name(company_key.siren), fence, tenant=company_key.tenant
        ):
            raise Fail(f"company {company_key.siren} has another run", code="lock_lost")
    journal.write(
        "run completed", COMPLETED_EVENT, enrichment_status=verdict.status, enrichment_error=verdict.error
    )
    output: dict[str, Json] = {"enrichment_status": verdict.status, "enrichment_error": verdict.error}
    return output | {"is_unreachable": verdict.is_unreachable}


# -- their parts -------------------------------------------------------------------------------------------


@asynccontextmanager
async def _result_transaction(ctx: Context) -> AsyncIterator[Transaction]:
    """A transaction that commits with the result of this attempt."""
    async with ctx.transaction() as joint:
        yield HandlerSession(joint.connection, "companies", clock.now())


def _journal(ctx: Context, siren: str, request_id: str | None) -> RunLog:
    return RunLog(ctx.tenant_id, siren, ctx.correlation_id or ctx.job_id, request_id, ctx.job_id)


def _source(tools: Tools, name: str) -> CompanySource:
    """The source of this name. Raises Retry on a worker without its credentials: another may have them."""
    if name not in tools.sources:
        raise Retry(f"this worker has no credentials for {name}", code="not_configured")
    return tools.sources[name]


def _raised(failure: SourceFailure, ended: SourceOutcome) -> Exception:
    """The exception that reports this failure to the engine."""
    details = {
        "error_code": failure.code,
        "source_api": ended.source,
        "http_status": ended.http_status,
        "message": str(failure),
        "retryable": failure.is_retryable,
        "duration_ms": ended.duration_ms,
    }
    if failure.is_retryable:
        return Retry(str(failure), code=failure.code, details=details, after_seconds=failure.after_seconds)
    return Fail(str(failure), code=failure.code, details=details)


async def _heartbeat(tools: Tools, company_key: CompanyKey, fence: int) -> None:
    """Extend the lock. Raises Fail when it is lost: another run may have it."""
    seconds = tools.context.settings.lock_seconds
    async with tools.db.single("companies.heartbeat") as tx:
        is_held = await leases.heartbeat(
            tx, lock_name(company_key.siren), fence, seconds, tenant=company_key.tenant
        )
    if not is_held:
        raise Fail(f"the lock of company {company_key.siren} is lost", code="lock_lost")


async def _require_lock(tx: Transaction, company_key: CompanyKey, fence: int) -> None:
    if not await leases.check(tx, lock_name(company_key.siren), fence, tenant=company_key.tenant):
        raise Fail(f"the lock of company {company_key.siren} is lost", code="lock_lost")


def _failures(ended: list[dict[str, Any]]) -> list[SourceOutcome]:
    return [failed_as(item["source"], item["error"]) for item in ended if item["status"] == "failed"]


async def _note_failures(
    tools: Tools, ctx: Context, journal: RunLog, fence: int, ended: list[dict[str, Any]]
) -> None:
    """Record and publish the failure of the previous source, unless that was done."""
    company_key = CompanyKey(ctx.tenant_id, journal.company_siren)
    for failure in _failures(ended)[-1:]:
        async with tools.db.transaction("companies.note") as tx:
            await _require_lock(tx, company_key, fence)  # the next run may have noted something else
            is_new = await note_failure(tx, company_key, ctx.job_id, journal.correlation_id, failure)
        if is_new:
            journal.write("source given up", FETCHED_EVENT, failure)


async def _keep(
    tx: Transaction, tools: Tools, company_key: CompanyKey, source: str, answer: SourceAnswer, checksum: str
) -> None:
    settings = tools.context.settings
    payload = orjson.dumps(answer.reply.body) if answer.reply.size <= settings.payload_bytes else None
    await queries.keep_document(
        tx, company_key, source, payload, answer.reply.size, checksum, settings.documents_kept
    )
