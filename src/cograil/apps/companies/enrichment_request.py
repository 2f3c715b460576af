"""Requests for a company, from the API, the pages or the CLI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cograil.apps.companies import queries
from cograil.apps.companies.constants import CREATED
from cograil.apps.companies.enrichment import EnrichmentContext, RunRequest, ask
from cograil.apps.companies.identifiers import Identifiers
from cograil.apps.companies.queries import CompanyKey
from cograil.model.ids import new_id
from cograil.model.workflow import Json
from cograil.store.database import Transaction


@dataclass(frozen=True, slots=True)
class EnrichmentRequest:
    """A request for a company; `by` sent it and `user` owns it."""

    tenant: str
    identifiers: Identifiers
    correlation_id: str
    by: str = ""
    user: str = ""
    metadata: Json = None


class CreatedRequest(NamedTuple):
    """A stored request, and the running job of its company, if any."""

    request_id: str
    job_id: str | None


async def make_request(
    tx: Transaction, context: EnrichmentContext, request: EnrichmentRequest
) -> CreatedRequest:
    """Store the request; a run begins unless one is in progress or the stored data is fresh."""
    identifiers, id, company_key = (
        request.identifiers,
        new_id(),
        CompanyKey(request.tenant, request.identifiers.siren),
    )
    run_request = RunRequest(company_key, CREATED, request.correlation_id, identifiers.siret, id, request.by)
    job_id = await ask(tx, context, run_request)
    await queries.add_request(
        tx,
        company_key.tenant,
        id,
        identifiers,
        metadata=request.metadata,
        correlation_id=request.correlation_id,
        by=request.by,
        user=request.user,
    )
    return CreatedRequest(id, job_id)
