"""Search for companies: the latest requested ones, or by number or name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cograil.apps.companies.identifiers import SIREN_DIGITS, SIRET_DIGITS
from cograil.apps.companies.queries import CompanyKey
from cograil.apps.companies.serializers import PACKAGE, View
from cograil.store.database import Transaction
from cograil.store.job_queries import LAST_ID
from cograil.store.statements import statement

LIST_COMPANIES = statement("list_companies", package=PACKAGE)
LATEST_COMPANIES = statement("latest_companies", package=PACKAGE)
IS_ASKED_BY = statement("is_asked_by", package=PACKAGE)
REQUESTS_LOOKED_THROUGH = 2_000
NAMES = ("siren", "legal_name", "city", "enrichment_status", "enrichment_last_run_at", "updated_at")


class CompanyPage(NamedTuple):
    """A page of companies, and the request id at which the next page begins, if there is one."""

    companies: list[View]
    stopped_at: str | None


async def find_companies(
    tx: Transaction,
    tenant: str,
    *,
    text: str = "",
    owner: str | None = None,
    before: str | None = None,
    limit: int = 100,
) -> CompanyPage:
    """Companies by the start of a SIREN or SIRET or by part of a name, the latest requested first.

    With an owner, only those they requested. A page may be short: it scans a bounded number of requests.
    """
    digits = "".join(text.split())
    if digits.isascii() and digits.isdecimal() and len(digits) <= SIRET_DIGITS:
        return CompanyPage(await _of_number(tx, tenant, digits[:SIREN_DIGITS], owner, limit), None)
    rows = await tx.fetch(
        LATEST_COMPANIES,
        tenant=tenant,
        text=text.strip() or None,
        owner=owner,
        before=before or LAST_ID,
        window=REQUESTS_LOOKED_THROUGH,
        limit=limit,
    )
    views = [(_view(row), request_id) for *row, request_id in rows]
    found_views = [(view, request_id) for view, request_id in views if view["siren"] is not None]
    stopped_at = next(request_id for view, request_id in views if view["siren"] is None)
    last = found_views[-1][1] if len(found_views) == limit else stopped_at
    return CompanyPage([view for view, _ in found_views], last)


async def _of_number(tx: Transaction, tenant: str, digits: str, owner: str | None, limit: int) -> list[View]:
    first, last = digits.ljust(SIREN_DIGITS, "0"), digits.ljust(SIREN_DIGITS, "9")
    rows = await tx.fetch(LIST_COMPANIES, tenant=tenant, first=first, last=last, owner=owner, limit=limit)
    return [_view(row) for row in rows]


def _view(row: Sequence[Any]) -> View:
    return dict(zip(NAMES, row, strict=True))


async def is_asked_by(tx: Transaction, company_key: CompanyKey, owner: str) -> bool:
    """Whether this user, or key, has requested this company."""
    ((is_asked,),) = await tx.fetch(IS_ASKED_BY, **company_key._asdict(), owner=owner)
    return bool(is_asked)
