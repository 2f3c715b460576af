"""What /v1/requests takes and answers, for its description."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Json, Moment
from cograil.http.server.request_parsing import Body

ENVELOPE = {
    "type": "object",
    "required": ["error", "code", "message", "details", "correlation_id", "request_id", "timestamp"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "message": {"type": "string"},
        "details": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "reason": {"type": "string"}},
            },
        },
        "correlation_id": {"type": "string"},
        "request_id": {"type": ["string", "null"]},
        "timestamp": {"type": "string", "format": "date-time"},
    },
}


class AskedCompany(Body):
    """Which company, by one of its numbers or by both, and what its caller wants to remember with it."""

    siren: Annotated[str, Field(pattern="^[0-9]{9}$")] | None = None
    siret: Annotated[str, Field(pattern="^[0-9]{14}$")] | None = None
    metadata: dict[str, Json] | None = None


class CompanyRequest(TypedDict):
    """A request as it stands."""

    id: str
    created_at: Moment
    siren: str
    siret: str | None
    company_siren: str
    enrichment_status: str
    enrichment_last_run_at: Moment | None
    enrichment_error: str | None
    metadata: dict[str, Json] | None


class Doubt(TypedDict):
    """What looks like a typing error."""

    code: str
    field: str
    reason: str


class ShownCompany(TypedDict):
    """A request, what is known of its company, and whether more is being asked for."""

    request: CompanyRequest
    company: dict[str, Json] | None
    enrichment_running: bool
    warnings: NotRequired[list[Doubt]]


class WholeCompany(ShownCompany):
    """The same with where it comes from."""

    documents: list[dict[str, Json]]
    source_retrievals: list[dict[str, Json]]
