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
from cograil.apps.companies.queries import Of, Run, Standing
from cograil.apps.companies.run_log import Journal
from cograil.apps.companies.run_outcome import Ended, Verdict, failed_as, judge, lost_at
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
class Asking:
    """Who asks for which company, and why."""

    of: Of
    trigger: Trigger
    correlation_id: str
    siret: str | None = None
    request_id: str | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class House:
    """What moving a company needs beside the transaction."""

    engine_context: EngineContext
    settings: CompanySettings

    @property
    def fresh_seconds(self) -> float:
        return self.settings.fresh_days * DAY_SECONDS

    def policy(self, *, is_forced: bool = False) -> Policy:
        """What is fresh is served; what is forced is as if nothing were."""
        fresh = 0.0 if is_forced else self.fresh_seconds
        return idempotency.cache(fresh, SERVED_SECONDS, self.settings.lock_seconds)


def cache_key(of: Of) -> Key:
    """Where the cache has a company of a tenant."""
    return Key(of.tenant, SCOPE, of.siren)


@cache
def the_workflow() -> Workflow:
    """The pipeline, read once."""
    return read_workflow(WORKFLOW, app=APP)


# -- asking ------------------------------------------------------------------------------------------------


async def ask(tx: Transaction, house: House, asking: Asking) -> str | None:
    """Begin a run unless one is under way or what is known is fresh; the job that is under way, if any.

    Told as CompanyEnrichmentRequested, whatever comes of it. Of any number that ask at once, one begins.
    """
    seen = None if asking.trigger == REFRESH else await queries.peek(tx, asking.of)
    job_id = await _ask(tx, house, asking) if seen is None else seen.job_id
    await events.tell_requested(
        tx,
        asking.of,
        request_id=asking.request_id,
        siret=asking.siret,
        trigger=asking.trigger,
        correlation_id=asking.correlation_id,
        job_id=job_id,
    )
    return job_id


async def _ask(tx: Transaction, house: House, asking: Asking) -> str | None:
    await idempotency.lock(tx, cache_key(asking.of))
    standing = await queries.lock_company(tx, asking.of)
    was_left = standing.is_left
    if was_left:
        await _settle(tx, house, asking.of, standing)
        standing = await queries.lock_company(tx, asking.of)
    is_forced = asking.trigger == REFRESH or _wants_better(standing, was_left=was_left)
    turn = await _take_turn(tx, house, asking.of, is_forced=is_forced)
    return standing.job_id if turn is None else await _begin(tx, house, asking, turn)


def _wants_better(standing: Standing, *, was_left: bool) -> bool:
    """Whether what is known is not enough, though the cache may call it fresh.

    A run that was lost has left something out, unless its verdict is a success after all.
    """
    return standing.status == FAILED or standing.is_expired or (was_left and standing.status == PARTIAL)


async def _take_turn(tx: Transaction, house: House, of: Of, *, is_forced: bool) -> int | None:
    """The turn to ask the sources, if it is ours."""
    policy = house.policy(is_forced=is_forced)
    match await idempotency.decide(tx, cache_key(of), idempotency.fingerprint(of.siren), policy):
        case New(fence) | Stale(_, fence):
            return fence
    return None


async def _begin(tx: Transaction, house: House, asking: Asking, turn: int) -> str:
    """Submit the job; it has the turn, and is what everybody else joins."""
    of = asking.of
    published = await publish(tx, the_workflow(), WORKFLOW, of.tenant)
    bucket = f"{of.siren}:{asking.trigger}:{tx.now:%Y-%m-%d}"
    submission = Submission(
        WORKFLOW_ID,
        {"siren": of.siren, "siret": asking.siret, "request_id": asking.request_id},
        definition_id=published.definition_id,
        correlation_id=asking.correlation_id,
        submitted_by=asking.by or None,
        labels={"company_siren": of.siren, "company_enrichment": bucket},
        app=APP,
    )
    (job_id,) = await submit(tx, house.engine_context, [submission], of.tenant)
    await idempotency.give(tx, cache_key(of), turn, job_id)
    run = Run(job_id, asking.request_id, asking.trigger, 1, asking.correlation_id)
    await queries.begin_run(tx, of, run, turn)
    return job_id


async def refresh(tx: Transaction, house: House, asking: Asking) -> str | None:
    """Begin a run though what is known is fresh, or join the one under way. Raises RefreshTooSoon."""
    await idempotency.lock(tx, cache_key(asking.of))
    standing = await queries.lock_company(tx, asking.of)
    since, wait = standing.seconds_since_refresh, house.settings.cooldown_seconds
    is_under_way = standing.job_id is not None and not standing.is_left
    if not is_under_way and since is not None and since < wait:
        raise RefreshTooSoon(wait - since)
    return await ask(tx, house, asking)


# -- ending ------------------------------------------------------------------------------------------------


async def conclude(
    tx: Transaction, house: House, of: Of, run: Run, turn: int | None, *, is_abnormal: bool = False
) -> Verdict | None:
    """Write the verdict on what the sources came to, and tell it; None when the run was over before."""
    _, ended = await queries.load_sources(tx, of, run.job_id)
    known = await queries.load_company(tx, of)
    verdict = judge(_in_order(ended), core_identity_present=known.has_core_identity)
    if turn is not None:
        await _settle_turn(tx, of, turn, verdict)
    is_ours = await queries.end_run(
        tx, of.tenant, run.job_id, verdict, house.fresh_seconds, is_abnormal=is_abnormal
    )
    if not is_ours:
        return None
    await events.tell_completed(tx, of, run, verdict)
    return verdict


async def _settle_turn(tx: Transaction, of: Of, turn: int, verdict: Verdict) -> None:
    """A failure is no answer: whoever asks next has the next turn."""
    if verdict.status == FAILED:
        await idempotency.give_back(tx, cache_key(of), turn)
    else:
        await idempotency.answer(tx, cache_key(of), turn, {"siren": of.siren}, verdict.status)


def _in_order(ended: list[Ended]) -> list[Ended]:
    return sorted(ended, key=lambda one: SOURCES.index(one.source))


async def put_together(tx: Transaction, of: Of, job_id: str) -> None:
    """Keep what follows from what the sources said; of what was known only masked fields are lost."""
    said, _ = await queries.load_sources(tx, of, job_id)
    known = await queries.load_company(tx, of)
    if said or known.fields:
        await queries.save_company(tx, of, merge(known, said))
    if hidden := masked_fields(said):
        await queries.mask_stored(tx, of, hidden)


async def note_failure(tx: Transaction, of: Of, job_id: str, correlation_id: str, ended: Ended) -> bool:
    """Note and tell that a source failed, once for each run; whether that was new."""
    is_new = await queries.note_source(tx, of, job_id, ended)
    if is_new:
        await events.tell_fetched(tx, of, job_id, correlation_id, ended)
    return is_new


# -- what was left -----------------------------------------------------------------------------------------


async def settle(tx: Transaction, house: House, of: Of) -> bool:
    """End a run that was left; one that never began is begun again, a few times. False: there was none."""
    await idempotency.lock(tx, cache_key(of))
    standing = await queries.lock_company(tx, of)
    if standing.is_left:
        await _settle(tx, house, of, standing)
    return standing.is_left


async def page_of(tx: Transaction, house: House, of: Of) -> View | None:
    """All that a page shows of a company. What is RUNNING without its lock is ended; nothing begins."""
    page = await company_page(tx, of, house.settings.fresh_days)
    if page is not None and page["is_left"]:
        await settle(tx, house, of)
        page = await company_page(tx, of, house.settings.fresh_days)
    return page if page is None else page | {"failures": await _failures_of(tx, of, page)}


async def _failures_of(tx: Transaction, of: Of, page: View) -> list[View]:
    """The sources that failed in the last run, and why in words, as far as its job still says so."""
    runs = [run for run in page["history"] if run["finished_at"] is not None]
    if page["enrichment_running"] or not runs or not runs[0]["error"]:
        return []
    nodes: dict[str, View] = {}
    if runs[0]["has_job"]:
        found = await list_nodes(tx, runs[0]["job_id"], the_workflow(), tenant=of.tenant)
        nodes = {one["node_id"]: one for one in found}
    failures = []
    for line in runs[0]["error"].split("|"):
        source, http, code = (*line.split(":"), "", "")[:3]
        error = nodes.get(NODES.get(source, ""), {}).get("error") or {}
        status = int(http) if http.isdecimal() else None
        facts = {"source_api": source, "http_status": status, "error_code": code}
        failures.append(facts | {"message": error.get("message"), "job_id": runs[0]["job_id"]})
    return failures


async def _settle(tx: Transaction, house: House, of: Of, standing: Standing) -> None:
    run = await _close(tx, house, of, standing)
    if run is None or standing.status == RUNNING or run.attempt >= MAX_RESTARTS:
        return
    asking = Asking(of, cast("Trigger", run.trigger), run.correlation_id, run.siret, run.request_id)
    turn = await _take_turn(tx, house, of, is_forced=True)
    if turn is not None:
        await _begin(tx, house, asking, turn)


async def _close(tx: Transaction, house: House, of: Of, standing: Standing) -> Run | None:
    """The run is over: with a verdict on what there is of it, or as if it had never been."""
    job_id = standing.job_id
    assert job_id is not None
    found = await queries.find_run(tx, of.tenant, job_id)
    if found is None or standing.status != RUNNING:
        if standing.turn is not None:
            await idempotency.give_back(tx, cache_key(of), standing.turn)
        abandoned = await queries.abandon_run(tx, of.tenant, job_id)
        if abandoned is not None:
            _journal(of, abandoned).write("run never began", REQUESTED_EVENT, trigger=abandoned.trigger)
        return abandoned
    run, _ = found
    if standing.fence is not None:
        await leases.release(tx, lock_name(of.siren), standing.fence, tenant=of.tenant)
    await _note_the_missing(tx, of, run)
    await put_together(tx, of, job_id)
    verdict = await conclude(tx, house, of, run, standing.turn, is_abnormal=True)
    if verdict is not None:
        journal, status, error = _journal(of, run), verdict.status, verdict.error
        journal.write("run was left", COMPLETED_EVENT, enrichment_status=status, enrichment_error=error)
    if not standing.is_job_over:
        with contextlib.suppress(AlreadyTerminal, JobNotFound):
            await cancel(tx, house.engine_context, job_id, by="companies", reason="its lock expired")
    return run


async def _note_the_missing(tx: Transaction, of: Of, run: Run) -> None:
    """Sources that failed and of which nobody was told yet; and that at which the run stopped.

    That one counts as failed: nobody knows whether it was asked. Those after it were not, and what the worker
    that began the run could not ask was never to be.
    """
    _, ended = await queries.load_sources(tx, of, run.job_id)
    nodes = {
        one["node_id"]: one for one in await list_nodes(tx, run.job_id, the_workflow(), tenant=of.tenant)
    }
    began = nodes["begin"]["output"]
    to_ask = began["sources"] if began else SOURCES
    noted = {one.source for one in ended}
    for source in (one for one in SOURCES if one in to_ask and one not in noted):
        node = nodes[NODES[source]]
        has_failed = node["status"] == "failed"
        told = failed_as(source, node["error"]) if has_failed else lost_at(source)
        await note_failure(tx, of, run.job_id, run.correlation_id, told)
        _journal(of, run).write("source given up", FETCHED_EVENT, told)
        if not has_failed:
            return


def _journal(of: Of, run: Run) -> Journal:
    return Journal(*of, run.correlation_id, run.request_id, run.job_id)
