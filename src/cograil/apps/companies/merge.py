"""Merge the latest data of each source into one company.

Each field has an order of sources; the first with a value counts, and a missing value never replaces a stored one.
A field that one source masks stays masked, whatever the other sources have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cograil.apps.companies.constants import INPI, MASKED, PRIVATE, RCS, RECHERCHE
from cograil.model.workflow import Json

USUAL = (RECHERCHE, INPI, RCS)
INPI_FIRST = (INPI, RECHERCHE, RCS)
RCS_FIRST = (RCS, RECHERCHE, INPI)
RECHERCHE_ONLY = (RECHERCHE,)

MATRIX: Mapping[str, tuple[str, ...]] = {
    "siren": USUAL,
    "legal_name": USUAL,
    "trade_name": USUAL,
    "brand_name": USUAL,
    "legal_form": INPI_FIRST,
    "creation_date": INPI_FIRST,
    "active_status": USUAL,
    "address_line1": USUAL,
    "address_line2": USUAL,
    "postal_code": USUAL,
    "city": USUAL,
    "country_code": INPI_FIRST,
    "naf_code": USUAL,
    "naf_label": RECHERCHE_ONLY,
    "headcount_range": RECHERCHE_ONLY,
    "rcs_city": RCS_FIRST,
    "registry_name": RCS_FIRST,
}
PLACE = ("address_line1", "postal_code", "city")
TTL_DAYS = {"active_status": 7, "siren": 365}


@dataclass(frozen=True, slots=True)
class SourceData:
    """The latest data of a source."""

    fields: Mapping[str, Json]
    at: datetime


@dataclass(frozen=True, slots=True)
class Company:
    """A company; `provenance` has the source and time of each field."""

    fields: Mapping[str, Json]
    provenance: Mapping[str, Mapping[str, str]]
    is_masked: bool = False

    @property
    def has_core_identity(self) -> bool:
        """Whether it has a name and a part of an address; the SIREN is always there."""
        return bool(self.fields.get("legal_name")) and any(self.fields.get(field) for field in PLACE)


NOTHING = Company({}, {})


def merge(previous: Company, data: Mapping[str, SourceData]) -> Company:
    """Merge the data of the sources into the previous company."""
    hidden = masked_fields(data)
    fields: dict[str, Any] = {}
    provenance: dict[str, Mapping[str, str]] = {}
    for field, order in MATRIX.items():
        if field in hidden:
            continue
        source = next(
            (
                candidate
                for candidate in order
                if candidate in data and not _is_empty(data[candidate].fields.get(field))
            ),
            None,
        )
        if source is not None:
            fields[field] = data[source].fields[field]
            provenance[field] = {"source_api": source, "retrieved_at": data[source].at.isoformat()}
        elif not _is_empty(previous.fields.get(field)):
            fields[field] = previous.fields[field]
            if field in previous.provenance:
                provenance[field] = previous.provenance[field]
    is_masked = not hidden.isdisjoint(PRIVATE)
    return Company(_with_stand_ins(fields) if hidden else fields, provenance, is_masked)


def masked_fields(data: Mapping[str, SourceData]) -> frozenset[str]:
    """The fields that at least one source masks; no other source may fill them."""
    hidden: set[str] = set()
    for source_data in data.values():
        hidden |= set(PRIVATE) if source_data.fields.get("data_masked") else set()
        hidden |= set(source_data.fields.get("masked_fields") or ())
    return frozenset(hidden)


def _with_stand_ins(fields: dict[str, Any]) -> dict[str, Any]:
    """Placeholders for the core identity of a masked company, which is not a failure."""
    if _is_empty(fields.get("legal_name")):
        fields["legal_name"] = MASKED
    if all(_is_empty(fields.get(field)) for field in PLACE):
        fields["city"] = MASKED
    return fields


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def freshness(company: Company, fresh_days: float, now: datetime) -> dict[str, dict[str, Any]]:
    """The source, time and expiry of each field, for display only."""
    ages = {}
    for field, origin in company.provenance.items():
        at = datetime.fromisoformat(origin["retrieved_at"])
        until = at + timedelta(days=TTL_DAYS.get(field, fresh_days))
        ages[field] = {**origin, "fresh_until": until.isoformat(), "is_fresh": until > now}
    return ages
