"""The API views of a request and its company."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from cograil import clock
from cograil.apps.companies.constants import FAILED, MASKED, PENDING, PRIVATE
from cograil.apps.companies.merge import Company, freshness
from cograil.apps.companies.queries import CompanyKey
from cograil.model.workflow import Json
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

PACKAGE = "cograil.apps.companies"
SHOW_REQUEST = statement("show_request", package=PACKAGE)
SHOW_COMPANY = statement("show_company", package=PACKAGE)
LIST_DOCUMENTS = statement("list_documents", package=PACKAGE)
LIST_RETRIEVALS = statement("list_retrievals", package=PACKAGE)
LIST_RUNS = statement("list_runs", package=PACKAGE)

View = dict[str, Json]


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request with the state of its company."""

    company_key: CompanyKey
    siret: str | None
    owner: str
    correlation_id: str
    status: str
    job_id: str | None
    is_expired: bool
    is_left: bool
    has_snapshot: bool
    seconds_since_run: float | None
    request: View
    company: View | None
    source_retrievals: bytes  # as JSON
    documents: bytes

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self.job_id is not None

    def is_to_run(self, cooldown_seconds: float) -> bool:
        """Whether showing it begins a run: the data is stale or missing, and no run failed just now."""
        if self.is_left:
            return True
        if self.is_running:
            return False
        if self.status == FAILED and (self.seconds_since_run or 0.0) < cooldown_seconds:
            return False
        return self.is_expired or not self.has_snapshot or self.status == PENDING


async def find_request(tx: Transaction, tenant: str, id: str, fresh_days: float) -> RequestView | None:
    """A request of this tenant."""
    rows = await tx.fetch(SHOW_REQUEST, tenant=tenant, id=id)
    return _shown(tenant, rows[0], fresh_days) if rows else None


def _shown(tenant: str, row: Row, fresh_days: float) -> RequestView:
    id, created_at, siren, siret, metadata, correlation, owner, *state_and_data = row
    status, ran_at, error, job_id, fresh_until, is_expired, is_left, since, *data = state_and_data
    company, extras, sources, documents = data
    request = {
        "id": id,
        "created_at": created_at,
        "siren": siren,
        "siret": siret,
        "company_siren": siren,
        "enrichment_status": status,
        "enrichment_last_run_at": ran_at,
        "enrichment_error": error,
        "metadata": None if metadata is None else orjson.loads(metadata),
    }
    card = company_view(company, extras, fresh_days)
    has_snapshot = fresh_until is not None
    company_key = CompanyKey(tenant, siren)
    stands = (status, job_id, is_expired, is_left, has_snapshot, since)
    lists = (sources.encode(), documents.encode())
    return RequestView(company_key, siret, owner, correlation, *stands, request, card, *lists)


def company_view(text: str | bytes | None, extras: str | bytes | None, fresh_days: float) -> View | None:
    """The card of a company; None while nothing is known."""
    if text is None:
        return None
    row: dict[str, Any] = _masked(orjson.loads(text))
    known = Company(row, row["provenance"], row["data_masked"])
    flat = ("siren", "legal_name", "trade_name", "brand_name", "legal_form", "creation_date", "active_status")
    more = ("naf_code", "naf_label", "headcount_range", "data_masked", "updated_at")
    card: View = {name: row[name] for name in (*flat, *more)}
    card["address"] = {
        "line1": row["address_line1"],
        "line2": row["address_line2"],
        "postal_code": row["postal_code"],
        "city": row["city"],
        "country_code": row["country_code"],
    }
    card["registry"] = {"city": row["rcs_city"], "name": row["registry_name"]}
    card["fields"] = freshness(known, fresh_days, clock.now())
    return card | (orjson.loads(extras) if extras else {})


def _masked(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a company; without name and street if it opted out of publication, even if stored."""
    if not row["data_masked"]:
        return row
    provenance = {name: origin for name, origin in row["provenance"].items() if name not in PRIVATE}
    return row | dict.fromkeys(PRIVATE) | {"legal_name": MASKED, "provenance": provenance}


async def documents(tx: Transaction, company_key: CompanyKey) -> list[View]:
    """Its documents, newest first."""
    names = ("id", "doc_type", "source_api", "retrieved_at", "size_bytes", "checksum", "is_kept")
    return [
        dict(zip(names, row, strict=True)) for row in await tx.fetch(LIST_DOCUMENTS, **company_key._asdict())
    ]


async def retrievals(tx: Transaction, company_key: CompanyKey) -> list[View]:
    """The last outcome of each source."""
    names = "source_api last_retrieved_at last_status last_http_status last_error duration_ms last_success_at"
    rows = await tx.fetch(LIST_RETRIEVALS, **company_key._asdict())
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


async def runs(tx: Transaction, company_key: CompanyKey, limit: int = 50) -> list[View]:
    """Its runs, newest first."""
    names = "job_id trigger attempt created_at started_at finished_at status error is_abnormal"
    counts = "sources_success_count sources_failed_count has_job"
    rows = await tx.fetch(LIST_RUNS, **company_key._asdict(), limit=limit)
    return [dict(zip(f"{names} {counts}".split(), row, strict=True)) for row in rows]


async def company_page(tx: Transaction, company_key: CompanyKey, fresh_days: float = 30) -> View | None:
    """The data of a company's page: card, state, sources, documents, history; None for an unknown company.

    `latest_request_id` is the request that the refresh button uses.
    """
    rows = await tx.fetch(SHOW_COMPANY, **company_key._asdict())
    if not rows:
        return None
    (
        status,
        ran_at,
        error,
        job_id,
        fresh_until,
        is_expired,
        company,
        extras,
        core,
        required,
        optional,
        last,
        refreshed_at,
        is_left,
    ) = rows[0]
    return {
        "siren": company_key.siren,
        "enrichment_status": status,
        "enrichment_last_run_at": ran_at,
        "enrichment_error": error,
        "enrichment_running": job_id is not None,
        "job_id": job_id,
        "fresh_until": fresh_until,
        "is_expired": is_expired,
        "core_identity_present": core,
        "required_sources_failed_count": required,
        "optional_sources_failed_count": optional,
        "company": company_view(company, extras, fresh_days),
        "source_retrievals": await retrievals(tx, company_key),
        "documents": await documents(tx, company_key),
        "history": await runs(tx, company_key),
        "latest_request_id": last,
        "refresh_asked_at": refreshed_at,
        "is_left": is_left,
    }
