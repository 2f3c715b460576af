"""Companies as a list: those that were asked for last, or by number or name."""

from __future__ import annotations

from typing import NamedTuple

from cograil.apps.companies.identifiers import SIREN_DIGITS, SIRET_DIGITS
from cograil.apps.companies.queries import Of
from cograil.apps.companies.serializers import PACKAGE, View
from cograil.store.database import Row, Transaction
from cograil.store.job_queries import LAST_ID
from cograil.store.statements import statement

LIST_COMPANIES = statement("list_companies", package=PACKAGE)
LATEST_COMPANIES = statement("latest_companies", package=PACKAGE)
IS_ASKED_BY = statement("is_asked_by", package=PACKAGE)
REQUESTS_LOOKED_THROUGH = 2_000
NAMES = ("siren", "legal_name", "city", "enrichment_status", "enrichment_last_run_at", "updated_at")


class Listed(NamedTuple):
    """Some companies, and the request after which to look further, if there is more."""

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
) -> Listed:
    """Companies by how a SIREN or SIRET begins, else by a piece of a name, the last ones asked for first.

    With an owner, those that he asked for. A page may be short: it looks through so many requests.
    """
    digits = "".join(text.split())
    if digits.isascii() and digits.isdecimal() and len(digits) <= SIRET_DIGITS:
        return Listed(await _of_number(tx, tenant, digits[:SIREN_DIGITS], owner, limit), None)
    rows = await tx.fetch(
        LATEST_COMPANIES,
        tenant=tenant,
        text=text.strip() or None,
        owner=owner,
        before=before or LAST_ID,
        window=REQUESTS_LOOKED_THROUGH,
        limit=limit,
    )
    found = [row for row in rows if row[0] is not None]
    stopped_at = next(row[6] for row in rows if row[0] is None)
    return Listed([_view(row) for row in found], found[-1][6] if len(found) == limit else stopped_at)


async def _of_number(tx: Transaction, tenant: str, digits: str, owner: str | None, limit: int) -> list[View]:
    first, last = digits.ljust(SIREN_DIGITS, "0"), digits.ljust(SIREN_DIGITS, "9")
    rows = await tx.fetch(LIST_COMPANIES, tenant=tenant, first=first, last=last, owner=owner, limit=limit)
    return [_view(row) for row in rows]


def _view(row: Row) -> View:
    return dict(zip(NAMES, row, strict=False))


async def is_asked_by(tx: Transaction, of: Of, owner: str) -> bool:
    """Whether this user, or key, has asked for this company."""
    ((is_asked,),) = await tx.fetch(IS_ASKED_BY, **of._asdict(), owner=owner)
    return bool(is_asked)
