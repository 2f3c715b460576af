"""How a company gets from asked-for to known: who begins a run, who joins one, and how each ends.

Everything here is done in the transaction of a caller. Locks are taken in one order: the key of the cache,
the lease, the row of the company, jobs.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import cache
from typing import cast

from cograil.apps.companies import events, queries
from cograil.apps.companies.constants import (
    COMPLETED_EVENT,
    FAILED,
    FETCHED_EVENT,
    PARTIAL,
    REFRESH,
    REQUESTED_EVENT,
    RUNNING,
    SOURCES,
    Trigger,
    lock_name,
)
from cograil.apps.companies.merge import masked_fields, merge
from cograil.apps.companies.queries import CompanyKey, EnrichmentState, Run
from cograil.apps.companies.run_log import RunLog
from cograil.apps.companies.run_outcome import RunVerdict, SourceOutcome, failed_as, judge, lost_at
from cograil.apps.companies.serializers import View, company_page
from cograil.apps.companies.settings import CompanySettings
from cograil.apps.companies.workflow import APP, NODES, WORKFLOW, WORKFLOW_ID
from cograil.definitions import read_workflow
from cograil.errors import AlreadyTerminal, Conflict, JobNotFound
from cograil.model.workflow import Workflow
from cograil.store.database import Transaction
from cograil.store.job_queries import list_nodes
from cograil.verbs import idempotency, leases
from cograil.verbs.advance import EngineContext
from cograil.verbs.cancel import cancel
from cograil.verbs.idempotency import Key, New, Policy, Stale
from cograil.verbs.publish import publish
from cograil.verbs.submit import Submission, submit

SCOPE = "companies"
DAY_SECONDS = 86_400.0
SERVED_SECONDS = 3_650 * DAY_SECONDS  # what is stale is shown for as long as it is all there is
MAX_RESTARTS = 3  # of a run that never began


class RefreshTooSoon(Conflict):
    """This company was refreshed a short while ago."""

    code = "refresh_too_soon"

    def __init__(self, wait_seconds: float) -> None:
        wait = math.ceil(wait_seconds)
        super().__init__(f"this company was refreshed a short while ago; come again in {wait} s")
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a run: the company, its trigger, and the caller."""

    company_key: CompanyKey
    trigger: Trigger
    correlation_id: str
    siret: str | None = None
    request_id: str | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class EnrichmentContext:
    """The engine context and settings that enrichment needs beside a transaction."""

    engine_context: EngineContext
    settings: CompanySettings

    @property
    def fresh_seconds(self) -> float:
        return self.settings.fresh_days * DAY_SECONDS

    def policy(self, *, is_forced: bool = False) -> Policy:
        """The cache policy: fresh data is served; a forced run treats all data as expired."""
        fresh = 0.0 if is_forced else self.fresh_seconds
        return idempotency.cache(fresh, SERVED_SECONDS, self.settings.lock_seconds)


def cache_key(company_key: CompanyKey) -> Key:
    """The idempotency key of a company, which serves as its cache entry."""
    return Key(company_key.tenant, SCOPE, company_key.siren)


@cache
def the_workflow() -> Workflow:
    """The pipeline, read once."""
    return read_workflow(WORKFLOW, app=APP)


# -- asking ------------------------------------------------------------------------------------------------


async def ask(tx: Transaction, context: EnrichmentContext, run_request: RunRequest) -> str | None:
    """Begin a run unless one is in progress or the stored data is fresh; return the running job, if any.

    Publishes CompanyEnrichmentRequested in every case. Of concurrent calls one begins the run.
    """
    current_run = None if run_request.trigger == REFRESH else await queries.peek(tx, run_request.company_key)
    job_id = await _ask(tx, context, run_request) if current_run is None else current_run.job_id
    await events.tell_requested(
        tx,
        run_request.company_key,
        request_id=run_request.request_id,
        siret=run_request.siret,
        trigger=run_request.trigger,
        correlation_id=run_request.correlation_id,
        job_id=job_id,
    )
    return job_id


async def _ask(tx: Transaction, context: EnrichmentContext, run_request: RunRequest) -> str | None:
    await idempotency.lock(tx, cache_key(run_request.company_key))
    standing = await queries.lock_company(tx, run_request.company_key)
    was_left = standing.is_left
    if was_left:
        await _settle(tx, context, run_request.company_key, standing)
        standing = await queries.lock_company(tx, run_request.company_key)
    is_forced = run_request.trigger == REFRESH or _wants_better(standing, was_left=was_left)
    turn = await _take_turn(tx, context, run_request.company_key, is_forced=is_forced)
    return standing.job_id if turn is None else await _begin(tx, context, run_request, turn)


def _wants_better(standing: EnrichmentState, *, was_left: bool) -> bool:
    """Whether the stored data must be refreshed even if the cache calls it fresh.

    A lost run left something out, unless it is a success after all.
    """
    return standing.status == FAILED or standing.is_expired or (was_left and standing.status == PARTIAL)


async def _take_turn(
    tx: Transaction, context: EnrichmentContext, company_key: CompanyKey, *, is_forced: bool
) -> int | None:
    """The fence of the right to query the sources; None while another run has it."""
    policy = context.policy(is_forced=is_forced)
    match await idempotency.decide(
        tx, cache_key(company_key), idempotency.fingerprint(company_key.siren), policy
    ):
        case New(fence) | Stale(_, fence):
            return fence
    return None


async def _begin(tx: Transaction, context: EnrichmentContext, run_request: RunRequest, turn: int) -> str:
    """Submit the job of a run; concurrent requests join it."""
    company_key = run_request.company_key
    published = await publish(tx, the_workflow(), WORKFLOW, company_key.tenant)
    bucket = f"{company_key.siren}:{run_request.trigger}:{tx.now:%Y-%m-%d}"
    submission = Submission(
        WORKFLOW_ID,
        {"siren": company_key.siren, "siret": run_request.siret, "request_id": run_request.request_id},
        definition_id=published.definition_id,
        correlation_id=run_request.correlation_id,
        submitted_by=run_request.by or None,
        labels={"company_siren": company_key.siren, "company_enrichment": bucket},
        app=APP,
    )
    (job_id,) = await submit(tx, context.engine_context, [submission], company_key.tenant)
    await idempotency.give(tx, cache_key(company_key), turn, job_id)
    run = Run(job_id, run_request.request_id, run_request.trigger, 1, run_request.correlation_id)
    await queries.begin_run(tx, company_key, run, turn)
    return job_id


async def refresh(tx: Transaction, context: EnrichmentContext, run_request: RunRequest) -> str | None:
    """Begin a run even if the stored data is fresh, or join the one in progress. Raises RefreshTooSoon."""
    await idempotency.lock(tx, cache_key(run_request.company_key))
    standing = await queries.lock_company(tx, run_request.company_key)
    since, wait = standing.seconds_since_refresh, context.settings.cooldown_seconds
    is_under_way = standing.job_id is not None and not standing.is_left
    if not is_under_way and since is not None and since < wait:
        raise RefreshTooSoon(wait - since)
    return await ask(tx, context, run_request)


# -- ending ------------------------------------------------------------------------------------------------


async def conclude(
    tx: Transaction,
    context: EnrichmentContext,
    company_key: CompanyKey,
    run: Run,
    turn: int | None,
    *,
    is_abnormal: bool = False,
) -> RunVerdict | None:
    """Write the verdict on a run and publish it; None when the run had ended before."""
    _, ended = await queries.load_sources(tx, company_key, run.job_id)
    company = await queries.load_company(tx, company_key)
    verdict = judge(_in_order(ended), core_identity_present=company.has_core_identity)
    if turn is not None:
        await _settle_turn(tx, company_key, turn, verdict)
    is_ours = await queries.end_run(
        tx, company_key.tenant, run.job_id, verdict, context.fresh_seconds, is_abnormal=is_abnormal
    )
    if not is_ours:
        return None
    await events.tell_completed(tx, company_key, run, verdict)
    return verdict


async def _settle_turn(tx: Transaction, company_key: CompanyKey, turn: int, verdict: RunVerdict) -> None:
    """Cache a result; after a failure, release the key so that the next request begins a run."""
    if verdict.status == FAILED:
        await idempotency.give_back(tx, cache_key(company_key), turn)
    else:
        await idempotency.answer(
            tx, cache_key(company_key), turn, {"siren": company_key.siren}, verdict.status
        )


def _in_order(ended: list[SourceOutcome]) -> list[SourceOutcome]:
    return sorted(ended, key=lambda outcome: SOURCES.index(outcome.source))


async def merge_sources(tx: Transaction, company_key: CompanyKey, job_id: str) -> None:
    """Merge the data of the sources into the stored company; only masked fields are removed from it."""
    data, _ = await queries.load_sources(tx, company_key, job_id)
    company = await queries.load_company(tx, company_key)
    if data or company.fields:
        await queries.save_company(tx, company_key, merge(company, data))
    if masked := masked_fields(data):
        await queries.mask_stored(tx, company_key, masked)


async def note_failure(
    tx: Transaction, company_key: CompanyKey, job_id: str, correlation_id: str, ended: SourceOutcome
) -> bool:
    """Record and publish that a source failed, once per run; False if it was recorded before."""
    is_new = await queries.note_source(tx, company_key, job_id, ended)
    if is_new:
        await events.tell_fetched(tx, company_key, job_id, correlation_id, ended)
    return is_new


# -- what was left -----------------------------------------------------------------------------------------


async def settle(tx: Transaction, context: EnrichmentContext, company_key: CompanyKey) -> bool:
    """End an abandoned run; one that never started is begun again, a few times. False without such a run."""
    await idempotency.lock(tx, cache_key(company_key))
    standing = await queries.lock_company(tx, company_key)
    if standing.is_left:
        await _settle(tx, context, company_key, standing)
    return standing.is_left


async def page_of(tx: Transaction, context: EnrichmentContext, company_key: CompanyKey) -> View | None:
    """The data of a company's page. An abandoned run is ended; no run begins."""
    page = await company_page(tx, company_key, context.settings.fresh_days)
    if page is not None and page["is_left"]:
        await settle(tx, context, company_key)
        page = await company_page(tx, company_key, context.settings.fresh_days)
    return page if page is None else page | {"failures": await _failures_of(tx, company_key, page)}


async def _failures_of(tx: Transaction, company_key: CompanyKey, page: View) -> list[View]:
    """The sources that failed in the last run, with the errors of its job while that is stored."""
    runs = [run for run in page["history"] if run["finished_at"] is not None]
    if page["enrichment_running"] or not runs or not runs[0]["error"]:
        return []
    nodes: dict[str, View] = {}
    if runs[0]["has_job"]:
        node_list = await list_nodes(tx, runs[0]["job_id"], the_workflow(), tenant=company_key.tenant)
        nodes = {node["node_id"]: node for node in node_list}
    failures = []
    for line in runs[0]["error"].split("|"):
        source, http, code = (*line.split(":"), "", "")[:3]
        error = nodes.get(NODES.get(source, ""), {}).get("error") or {}
        status = int(http) if http.isdecimal() else None
        failure = {"source_api": source, "http_status": status, "error_code": code}
        failures.append(failure | {"message": error.get("message"), "job_id": runs[0]["job_id"]})
    return failures


async def _settle(
    tx: Transaction, context: EnrichmentContext, company_key: CompanyKey, standing: EnrichmentState
) -> None:
    run = await _close(tx, context, company_key, standing)
    if run is None or standing.status == RUNNING or run.attempt >= MAX_RESTARTS:
        return
    run_request = RunRequest(
        company_key, cast("Trigger", run.trigger), run.correlation_id, run.siret, run.request_id
    )
    turn = await _take_turn(tx, context, company_key, is_forced=True)
    if turn is not None:
        await _begin(tx, context, run_request, turn)


async def _close(
    tx: Transaction, context: EnrichmentContext, company_key: CompanyKey, standing: EnrichmentState
) -> Run | None:
    """End a run: with a verdict on what it has fetched, or abandoned if it never started."""
    job_id = standing.job_id
    assert job_id is not None
    known_run = await queries.find_run(tx, company_key.tenant, job_id)
    if known_run is None or standing.status != RUNNING:
        if standing.turn is not None:
            await idempotency.give_back(tx, cache_key(company_key), standing.turn)
        abandoned = await queries.abandon_run(tx, company_key.tenant, job_id)
        if abandoned is not None:
            _journal(company_key, abandoned).write(
                "run never began", REQUESTED_EVENT, trigger=abandoned.trigger
            )
        return abandoned
    run, _ = known_run
    if standing.fence is not None:
        await leases.release(tx, lock_name(company_key.siren), standing.fence, tenant=company_key.tenant)
    await _note_the_missing(tx, company_key, run)
    await merge_sources(tx, company_key, job_id)
    verdict = await conclude(tx, context, company_key, run, standing.turn, is_abnormal=True)
    if verdict is not None:
        journal, status, error = _journal(company_key, run), verdict.status, verdict.error
        journal.write("run was left", COMPLETED_EVENT, enrichment_status=status, enrichment_error=error)
    if not standing.is_job_over:
        with contextlib.suppress(AlreadyTerminal, JobNotFound):
            await cancel(tx, context.engine_context, job_id, by="companies", reason="its lock expired")
    return run


async def _note_the_missing(tx: Transaction, company_key: CompanyKey, run: Run) -> None:
    """Record failed sources that were not recorded yet, and the source at which the run stopped.

    That source counts as failed, since it may have been queried. Later sources were not queried, nor those for which
    the worker that began the run had no credentials.
    """
    _, ended = await queries.load_sources(tx, company_key, run.job_id)
    nodes = {
        item["node_id"]: item
        for item in await list_nodes(tx, run.job_id, the_workflow(), tenant=company_key.tenant)
    }
    begin_output = nodes["begin"]["output"]
    to_ask = begin_output["sources"] if begin_output else SOURCES
    noted_sources = {item.source for item in ended}
    for source in (item for item in SOURCES if item in to_ask and item not in noted_sources):
        node = nodes[NODES[source]]
        has_failed = node["status"] == "failed"
        outcome = failed_as(source, node["error"]) if has_failed else lost_at(source)
        await note_failure(tx, company_key, run.job_id, run.correlation_id, outcome)
        _journal(company_key, run).write("source given up", FETCHED_EVENT, outcome)
        if not has_failed:
            return


def _journal(company_key: CompanyKey, run: Run) -> RunLog:
    return RunLog(*company_key, run.correlation_id, run.request_id, run.job_id)
