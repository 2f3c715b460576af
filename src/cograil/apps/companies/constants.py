"""The names of the public contract: states, sources, codes, triggers, events."""

from __future__ import annotations

from typing import Literal

PENDING, RUNNING, SUCCESS, PARTIAL, FAILED, STALE = (
    "PENDING",
    "RUNNING",
    "SUCCESS",
    "PARTIAL",
    "FAILED",
    "STALE",
)

RECHERCHE, INPI, RCS = "API_RECHERCHE_ENTREPRISES", "INPI_RNE", "API_ENTREPRISE_RCS"
SOURCES = (RECHERCHE, INPI, RCS)  # in the order in which they are asked
REQUIRED = frozenset({RECHERCHE})
DOC_TYPES = {RECHERCHE: "ENTERPRISE_SEARCH", INPI: "RNE_FORMALITY", RCS: "RCS_EXTRACT"}

MASKED = "[NON-DIFFUSIBLE]"  # stands for a name or a place that the company does not want to be shown
PRIVATE = ("legal_name", "trade_name", "brand_name", "address_line1", "address_line2", "postal_code")

# What is wrong with a request.
MISSING = "MISSING_COMPANY_IDENTIFIER"
BAD_SIREN = "INVALID_SIREN_FORMAT"
BAD_SIRET = "INVALID_SIRET_FORMAT"
MISMATCH = "SIREN_SIRET_MISMATCH"

# What is wrong with a source.
AUTH_ERROR, FORBIDDEN, NOT_FOUND = "AUTH_ERROR", "FORBIDDEN", "NOT_FOUND"
RATE_LIMIT, TIMEOUT, UPSTREAM_5XX = "RATE_LIMIT", "TIMEOUT", "UPSTREAM_5XX"
SOURCE_UNAVAILABLE, INTERNAL_ERROR = "SOURCE_UNAVAILABLE", "INTERNAL_ERROR"
SOURCE_CODES = frozenset(
    {
        *(AUTH_ERROR, FORBIDDEN, NOT_FOUND, RATE_LIMIT),
        *(TIMEOUT, UPSTREAM_5XX, SOURCE_UNAVAILABLE, INTERNAL_ERROR),
    }
)

Trigger = Literal["REQUEST_CREATED", "REQUEST_OPENED", "MANUAL_REFRESH"]
CREATED: Trigger = "REQUEST_CREATED"
OPENED: Trigger = "REQUEST_OPENED"
REFRESH: Trigger = "MANUAL_REFRESH"

PRODUCER = "M3"
REQUESTED_EVENT = "CompanyEnrichmentRequested"
STARTED_EVENT = "CompanyEnrichmentStarted"
FETCHED_EVENT = "CompanyEnrichmentSourceFetched"
COMPLETED_EVENT = "CompanyEnrichmentCompleted"
TYPE_PREFIX = "companies."  # of the types of events, as subscribers name them


def lock_name(siren: str) -> str:
    """The lease of a run."""
    return f"company_enrichment:{siren}"
