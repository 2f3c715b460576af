"""The companies pages: requested companies, and the data, sources and runs of each."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.app_registry import AppPages, NavigationEntry
from cograil.apps.companies import routes
from cograil.apps.companies.company_search import find_companies, is_asked_by
from cograil.apps.companies.enrichment import EnrichmentContext, page_of
from cograil.apps.companies.identifiers import IS_SIREN, as_written
from cograil.apps.companies.merge import MATRIX
from cograil.apps.companies.queries import CompanyKey
from cograil.apps.companies.register_codes import address_line, failure_in_words, field_in_words
from cograil.apps.companies.serializers import View
from cograil.apps.companies.settings import CompanySettings
from cograil.errors import NotFound
from cograil.http.server.dispatcher import Call
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.model.ids import new_id
from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
from cograil.ui.pages.action_forms import Action, add_actions, empty_body
from cograil.ui.pages.monitoring_pages import older_of
from cograil.ui.rendering import gone_to, page

companies = pages("companies")
PLACE = "/ui/companies"
ENTRY = NavigationEntry(
    "companies", PLACE, "Companies", "M4 21V4h9v17M13 9h7v12M3 21h18M8 8h1M8 12h1M8 16h1M16 13h1M16 17h1"
)
PAGE = 50
ORDER = list(MATRIX)  # of fields
CODED = ("headcount_range", "active_status")
MAX_FORM = 64 * 1024
COLOURS = {"SUCCESS": "completed", "PARTIAL": "waiting", "FAILED": "failed", "RUNNING": "running"}
COLOURS |= {"STALE": "held", "ABANDONED": "cancelled"}
REFRESH = "Ask the registers anew? What is known stays until they have answered."


class CompanyFilters(Query):
    """The filters of the list."""

    q: Annotated[str, Field(max_length=300)] = ""
    cursor: Annotated[str, Field(max_length=1024)] = ""


@companies.get("/companies", "viewer", query=CompanyFilters, media_type=HTML)
async def list_companies(request: PageRequest) -> Response:
    """List companies, the latest requested first."""
    return await _listed(request, request.query)


async def _listed(
    request: PageRequest, filters: CompanyFilters, refusal: Refusal | None = None, number: str = ""
) -> Response:
    tenant, text = request.caller.tenant, filters.q.strip()
    owner = routes.owner_filter(as_call(request))
    bound = (tenant, "pages of companies", text, owner)
    before = request.context.cursors.read(filters.cursor, *bound) if filters.cursor else None
    async with request.transaction("companies.show") as tx:
        results = await find_companies(tx, tenant, text=text, owner=owner, before=before, limit=PAGE)
    return page(
        request,
        "companies.html",
        status=200 if refusal is None else refusal.status,
        companies=results.companies,
        filters=filters,
        older=older_of(request, results.stopped_at, filters.model_dump(), bound),
        is_first=before is None,
        wrong=refusal,
        number=number,
        colours=COLOURS,
    )


@companies.post("/companies", "submitter", media_type=HTML)
async def ask_for_company(request: PageRequest) -> Response:
    """Request the company of the form, like the API."""
    form = await sent_form(request)
    number = form.get("number", "").strip()
    call = as_call(request)
    routes.set_correlation(new_id())
    try:
        call.body = routes.NewCompanyRequest.of_bytes(orjson.dumps(as_written(number)), MAX_FORM)
        answer = orjson.loads(bytes((await routes.create_company_request(call)).body))
    except Refusal as refusal:
        if refusal.status not in (400, 422):
            raise
        return await _listed(request, CompanyFilters(), refusal, number)
    siren = answer["request"]["company_siren"]
    doubts = "".join(f"; {warning['reason']}" for warning in answer["warnings"])
    return gone_to(request, f"{PLACE}/{siren}", f"{siren} was requested{doubts}")


@companies.get("/companies/{siren}", "viewer", media_type=HTML)
async def show_company(request: PageRequest) -> Response:
    """Show a company: its card, sources, documents and runs."""
    settings, siren = request.context.settings.section(CompanySettings), request.path["siren"]
    company_key, owner = CompanyKey(request.caller.tenant, siren), routes.owner_filter(as_call(request))
    context = EnrichmentContext(request.context.engine_context, settings)
    async with request.transaction("companies.show") as tx:
        details = await page_of(tx, context, company_key) if IS_SIREN(siren) else None
        if details is None or (owner is not None and not await is_asked_by(tx, company_key, owner)):
            raise NotFound(f"company {siren[:20]} was never requested")
        wait = _wait_seconds(details["refresh_asked_at"], tx.now, settings.cooldown_seconds)
    return page(
        request,
        "company.html",
        details=details,
        card=details["company"],
        words=_words(details["company"]),
        failures=[failure_in_words(failure) for failure in details["failures"]],
        fields=_fields(details["company"]),
        wait=wait,
        question=REFRESH,
        colours=COLOURS,
        has_documents=request.caller.may("submitter"),
    )


def _words(card: View | None) -> dict[str, str]:
    """Readable texts of the card: decoded values, and the address in one line."""
    if card is None:
        return {}
    texts = {name: field_in_words(name, card[name]) for name in CODED if card.get(name)}
    return texts | {"address": address_line(card["address"])}


def _wait_seconds(refreshed_at: datetime | None, now: datetime, cooldown_seconds: float) -> float:
    """The seconds until a refresh is allowed."""
    if refreshed_at is None:
        return 0.0
    return max(0.0, cooldown_seconds - (now - refreshed_at).total_seconds())


def _fields(card: View | None) -> list[dict[str, Any]]:
    """The known fields with value, source, time and expiry."""
    if card is None:
        return []
    places = {"line1": "address_line1", "line2": "address_line2"}
    flat = card | {places.get(name, name): value for name, value in card["address"].items()}
    flat |= {"rcs_city": card["registry"]["city"], "registry_name": card["registry"]["name"]}
    return [
        {
            "name": name.replace("_", " "),
            "value": flat.get(name),
            "source": origin["source_api"],
            "retrieved_at": datetime.fromisoformat(origin["retrieved_at"]),
            "fresh_until": datetime.fromisoformat(origin["fresh_until"]),
            "is_fresh": origin["is_fresh"],
        }
        for name, origin in sorted(card["fields"].items(), key=lambda item: ORDER.index(item[0]))
    ]


async def _refresh(call: Call) -> Response:
    routes.set_correlation(new_id())
    return await routes.refresh_company(call)


add_actions(
    companies,
    Action(
        "/companies/requests/{id}/refresh",
        "operator",
        _refresh,
        empty_body,
        REFRESH,
        "the registers are asked",
    ),
)


def app_pages() -> AppPages:
    """The pages of this app."""
    return AppPages(ENTRY, companies)
