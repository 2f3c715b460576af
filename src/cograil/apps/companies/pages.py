"""Companies: who was asked for, what is known of each and from where, and its runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.app_registry import AppPages, NavigationEntry
from cograil.apps.companies import routes
from cograil.apps.companies.company_search import find_companies, is_asked_by
from cograil.apps.companies.enrichment import House, page_of
from cograil.apps.companies.identifiers import IS_SIREN, as_written
from cograil.apps.companies.merge import MATRIX
from cograil.apps.companies.queries import Of
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
    """Which companies."""

    q: Annotated[str, Field(max_length=300)] = ""
    cursor: Annotated[str, Field(max_length=1024)] = ""


@companies.get("/companies", "viewer", query=CompanyFilters, media_type=HTML)
async def list_companies(request: PageRequest) -> Response:
    """Companies, those that were asked for last first."""
    return await _listed(request, request.query)


async def _listed(
    request: PageRequest, asked: CompanyFilters, wrong: Refusal | None = None, given: str = ""
) -> Response:
    tenant, text = request.caller.tenant, asked.q.strip()
    owner = routes.only_of(as_call(request))
    bound = (tenant, "pages of companies", text, owner)
    before = request.context.cursors.read(asked.cursor, *bound) if asked.cursor else None
    async with request.transaction("companies.show") as tx:
        found = await find_companies(tx, tenant, text=text, owner=owner, before=before, limit=PAGE)
    return page(
        request,
        "companies.html",
        status=200 if wrong is None else wrong.status,
        companies=found.companies,
        asked=asked,
        older=older_of(request, found.stopped_at, asked.model_dump(), bound),
        is_first=before is None,
        wrong=wrong,
        given=given,
        colours=COLOURS,
    )


@companies.post("/companies", "submitter", media_type=HTML)
async def ask_for_company(request: PageRequest) -> Response:
    """Ask for the company of the form, as the API does."""
    form = await sent_form(request)
    given = form.get("number", "").strip()
    call = as_call(request)
    routes.begin_under(new_id())
    try:
        call.body = routes.NewRequest.of_bytes(orjson.dumps(as_written(given)), MAX_FORM)
        answer = orjson.loads(bytes((await routes.create_company_request(call)).body))
    except Refusal as refusal:
        if refusal.status not in (400, 422):
            raise
        return await _listed(request, CompanyFilters(), refusal, given)
    siren = answer["request"]["company_siren"]
    doubts = "".join(f"; {one['reason']}" for one in answer["warnings"])
    return gone_to(request, f"{PLACE}/{siren}", f"{siren} was asked for{doubts}")


@companies.get("/companies/{siren}", "viewer", media_type=HTML)
async def show_company(request: PageRequest) -> Response:
    """One company: its card, who said what, its documents and its runs."""
    settings, siren = request.context.settings.section(CompanySettings), request.path["siren"]
    of, owner = Of(request.caller.tenant, siren), routes.only_of(as_call(request))
    house = House(request.context.engine_context, settings)
    async with request.transaction("companies.show") as tx:
        shown = await page_of(tx, house, of) if IS_SIREN(siren) else None
        if shown is None or (owner is not None and not await is_asked_by(tx, of, owner)):
            raise NotFound("nobody has asked for this company")
        wait = _wait_seconds(shown["refresh_asked_at"], tx.now, settings.cooldown_seconds)
    return page(
        request,
        "company.html",
        shown=shown,
        card=shown["company"],
        words=_words(shown["company"]),
        failures=[failure_in_words(one) for one in shown["failures"]],
        fields=_fields(shown["company"]),
        wait=wait,
        question=REFRESH,
        colours=COLOURS,
        has_documents=request.caller.may("submitter"),
    )


def _words(card: View | None) -> dict[str, str]:
    """What the card says in words: codes, and the address in one line."""
    if card is None:
        return {}
    told = {name: field_in_words(name, card[name]) for name in CODED if card.get(name)}
    return told | {"address": address_line(card["address"])}


def _wait_seconds(refreshed_at: datetime | None, now: datetime, cooldown_seconds: float) -> float:
    """For how long a refresh is refused."""
    if refreshed_at is None:
        return 0.0
    return max(0.0, cooldown_seconds - (now - refreshed_at).total_seconds())


def _fields(card: View | None) -> list[dict[str, Any]]:
    """Each field that is known: what it says, who said so, and until when that counts as fresh."""
    if card is None:
        return []
    places = {"line1": "address_line1", "line2": "address_line2"}
    flat = card | {places.get(name, name): value for name, value in card["address"].items()}
    flat |= {"rcs_city": card["registry"]["city"], "registry_name": card["registry"]["name"]}
    return [
        {
            "name": name.replace("_", " "),
            "value": flat.get(name),
            "source": one["source_api"],
            "retrieved_at": datetime.fromisoformat(one["retrieved_at"]),
            "fresh_until": datetime.fromisoformat(one["fresh_until"]),
            "is_fresh": one["is_fresh"],
        }
        for name, one in sorted(card["fields"].items(), key=lambda found: ORDER.index(found[0]))
    ]


async def _refresh(call: Call) -> Response:
    routes.begin_under(new_id())
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
