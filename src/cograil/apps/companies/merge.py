"""What is known of a company, put together from what each source said last.

For each field the sources have an order; the first that says something counts, and nothing said never
replaces something known. A field that one source masks stays masked, whatever the others say of it.
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
class Said:
    """What one source said last."""

    fields: Mapping[str, Json]
    at: datetime


@dataclass(frozen=True, slots=True)
class Company:
    """What is known; `provenance` says for each field which source said so, and when."""

    fields: Mapping[str, Json]
    provenance: Mapping[str, Mapping[str, str]]
    is_masked: bool = False

    @property
    def has_core_identity(self) -> bool:
        """A name and a piece of an address; the SIREN is always there."""
        return bool(self.fields.get("legal_name")) and any(self.fields.get(one) for one in PLACE)


NOTHING = Company({}, {})


def merge(known: Company, said: Mapping[str, Said]) -> Company:
    """What is known now."""
    hidden = masked_fields(said)
    fields: dict[str, Any] = {}
    provenance: dict[str, Mapping[str, str]] = {}
    for field, order in MATRIX.items():
        if field in hidden:
            continue
        source = next(
            (one for one in order if one in said and not _is_empty(said[one].fields.get(field))), None
        )
        if source is not None:
            fields[field] = said[source].fields[field]
            provenance[field] = {"source_api": source, "retrieved_at": said[source].at.isoformat()}
        elif not _is_empty(known.fields.get(field)):
            fields[field] = known.fields[field]
            if field in known.provenance:
                provenance[field] = known.provenance[field]
    is_masked = not hidden.isdisjoint(PRIVATE)
    return Company(_with_stand_ins(fields) if hidden else fields, provenance, is_masked)


def masked_fields(said: Mapping[str, Said]) -> frozenset[str]:
    """The fields that at least one source masks: no source may fill them in."""
    hidden: set[str] = set()
    for one in said.values():
        hidden |= set(PRIVATE) if one.fields.get("data_masked") else set()
        hidden |= set(one.fields.get("masked_fields") or ())
    return frozenset(hidden)


def _with_stand_ins(fields: dict[str, Any]) -> dict[str, Any]:
    """A company that keeps its name to itself is known all the same: that is no failure."""
    if _is_empty(fields.get("legal_name")):
        fields["legal_name"] = MASKED
    if all(_is_empty(fields.get(one)) for one in PLACE):
        fields["city"] = MASKED
    return fields


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def freshness(company: Company, fresh_days: float, now: datetime) -> dict[str, dict[str, Any]]:
    """Of each field: who said so, when, and until when that counts as fresh. It triggers nothing."""
    shown = {}
    for field, origin in company.provenance.items():
        at = datetime.fromisoformat(origin["retrieved_at"])
        until = at + timedelta(days=TTL_DAYS.get(field, fresh_days))
        shown[field] = {**origin, "fresh_until": until.isoformat(), "is_fresh": until > now}
    return shown
