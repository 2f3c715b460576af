"""A request for a company, whichever way it comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cograil.apps.companies import queries
from cograil.apps.companies.constants import CREATED
from cograil.apps.companies.enrichment import Asking, House, ask
from cograil.apps.companies.identifiers import Identifiers
from cograil.apps.companies.queries import Of
from cograil.model.ids import new_id
from cograil.model.workflow import Json
from cograil.store.database import Transaction


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for which company; `user` is whose the request is."""

    tenant: str
    given: Identifiers
    correlation_id: str
    by: str = ""
    user: str = ""
    metadata: Json = None


class Made(NamedTuple):
    """A request, and the job that is under way for its company, if any."""

    request_id: str
    job_id: str | None


async def make_request(tx: Transaction, house: House, request: Request) -> Made:
    """Keep the request; a run begins unless one is under way or what is known is fresh."""
    given, id, of = request.given, new_id(), Of(request.tenant, request.given.siren)
    asking = Asking(of, CREATED, request.correlation_id, given.siret, id, request.by)
    job_id = await ask(tx, house, asking)
    await queries.add_request(
        tx,
        of.tenant,
        id,
        given,
        metadata=request.metadata,
        correlation_id=request.correlation_id,
        by=request.by,
        user=request.user,
    )
    return Made(id, job_id)
