"""/v1/requests: ask for a company, look at it, refresh it.

Every refusal has the seven fields of the contract. Who asks for a company that was asked for before is told
what is known; who comes first waits a short while for the sources, and then comes again.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cograil import clock, strict_json
from cograil.apps.companies import enrichment, serializers
from cograil.apps.companies.constants import CREATED, MISMATCH, OPENED, REFRESH, REQUESTED_EVENT
from cograil.apps.companies.enrichment import Asking, House
from cograil.apps.companies.enrichment_request import Request, make_request
from cograil.apps.companies.identifiers import Identifiers, Wrong, doubts, read_identifiers
from cograil.apps.companies.run_log import Journal
from cograil.apps.companies.schemas import ENVELOPE, AskedCompany, ShownCompany, WholeCompany
from cograil.apps.companies.serializers import Shown, View
from cograil.apps.companies.settings import CompanySettings
from cograil.errors import NotFound, Problem
from cograil.http.routes.job_action_routes import actor
from cograil.http.server.dispatcher import ApiContext, Call, Dispatcher, reply
from cograil.http.server.headers import request_headers
from cograil.http.server.idempotent_requests import idempotency_key, request_key, run_idempotent
from cograil.http.server.openapi import JSON, ApiDescription, ApiInfo, operation_id_from_function
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Body
from cograil.http.server.routing import Router
from cograil.model.ids import is_id, new_id
from cograil.model.roles import NOBODY
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.verbs import idempotency

PREFIX = "/v1/requests"
FIELDS = ("siren", "siret", "metadata")
METADATA_BYTES = 16 * 1024
IS_CORRELATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}").fullmatch

requests = Router("companies", "/v1")
correlation: ContextVar[str] = ContextVar("correlation")  # of the request that is being served
asked_for: ContextVar[str | None] = ContextVar("asked_for", default=None)  # that of the path, once found


class CompanyRequestNotFound(NotFound):
    """No request has this id."""

    code = "company_request_not_found"

    def __init__(self) -> None:
        super().__init__("there is no such request")


class NewRequest(Body):
    """What is posted: which company, and what its caller wants to remember with it."""

    given: Identifiers
    metadata: dict[str, Json] | None = None

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        said = strict_json.read(raw, max_bytes=max_bytes)
        if not isinstance(said, dict):
            raise Refusal(400, "validation_error", "the body must be an object")
        wrong = [
            Wrong("UNKNOWN_FIELD", name[:64], "there is no such field") for name in said.keys() - {*FIELDS}
        ]
        metadata = said.get("metadata")
        if metadata is not None and not _is_metadata(metadata):
            wrong.append(
                Wrong("INVALID_METADATA", "metadata", f"an object of at most {METADATA_BYTES:,} bytes")
            )
        given = read_identifiers(said.get("siren"), said.get("siret"))
        if isinstance(given, list):
            raise _refused(given + wrong)
        if wrong:
            raise _refused(wrong)
        return cast("Self", cls.model_construct(given=given, metadata=metadata))


def _is_metadata(value: Json) -> bool:
    return isinstance(value, dict) and len(orjson.dumps(value)) <= METADATA_BYTES


def _refused(wrong: list[Wrong]) -> Refusal:
    """400, but 422 for two numbers that are well-formed and do not go together."""
    first = wrong[0]
    status = 422 if first.code == MISMATCH else 400
    problems = tuple(Problem(one.code, one.reason, f"/{one.field}") for one in wrong)
    return Refusal(status, first.code, first.reason, f"/{first.field}", problems=problems)


# -- the routes --------------------------------------------------------------------------------------------


@requests.post(
    "/requests",
    "submitter",
    body=NewRequest,
    request_model=AskedCompany,
    response_model=ShownCompany,
    is_type_optional=True,
    responses={
        201: "it is known, or the run has ended",
        202: "come again",
        409: "the idempotency key was used for something else, or is being used",
        422: "the numbers are of two companies",
    },
    headers=("Idempotency-Key",),
)
async def create_company_request(call: Call) -> Response:
    """Ask for a company. 201: it is known, or the run has ended; 202: come again."""
    until = asyncio.get_running_loop().time() + _settings(call).sync_seconds
    body: NewRequest = call.body
    key = idempotency_key(call)
    if key is None:
        async with call.transaction("companies.submit") as tx:
            made = await _create(call, body, tx)
            shown = await _shown(call, tx, made) if made["job_id"] is None else None
    else:
        asked = idempotency.fingerprint({"given": _facts(body.given), "metadata": body.metadata})
        made, _ = await run_idempotent(
            call, request_key(call, key), asked, partial(_create, call, body), "companies.submit"
        )
        shown = None
    shown = shown or await _waited_for(call, made, until)
    view = _view(shown) | {"warnings": doubts(body.given)}
    told = {"Location": f"{PREFIX}/{made['request_id']}"}
    return reply(view, 202 if shown.is_running else 201, told)


@requests.get("/requests/{id}", "viewer", response_model=WholeCompany)
async def show_company_request(call: Call) -> Response:
    """Show a request, its company, and where that comes from. What is stale or missing is asked for anew."""
    settings = _settings(call)
    async with call.transaction("companies.show") as tx:
        shown = await _find(call, tx)
        if not shown.is_to_run(settings.cooldown_seconds):
            return reply(_whole_view(call, shown))
    async with call.transaction("companies.submit") as tx:
        asking = _asking(call, shown, OPENED)
        _note(asking, await enrichment.ask(tx, _house(call), asking))
        await call.audit(tx, "open company", shown.of.siren)
        shown = await _find(call, tx)
        return reply(_whole_view(call, shown))


@requests.post(
    "/requests/{id}:refresh-company",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=ShownCompany,
    is_type_optional=True,
    responses={202: "the sources are asked", 409: "they were asked a short while ago"},
)
async def refresh_company(call: Call) -> Response:
    """Ask the sources anew, though what is known may be fresh."""
    async with call.transaction("companies.submit") as tx:
        shown = await _find(call, tx)
        asking = _asking(call, shown, REFRESH)
        _note(asking, await enrichment.refresh(tx, _house(call), asking))
        await call.audit(tx, "refresh company", shown.of.siren)
        shown = await _find(call, tx)
    return reply(_view(shown), 202)


# -- their parts -------------------------------------------------------------------------------------------


async def _create(call: Call, body: NewRequest, tx: Transaction) -> dict[str, Json]:
    asked = Request(
        call.caller.tenant, body.given, correlation.get(), actor(call), _owner(call), body.metadata
    )
    made = await make_request(tx, _house(call), asked)
    await call.audit(tx, "request company", made.request_id, siren=body.given.siren)
    journal = Journal(asked.tenant, body.given.siren, asked.correlation_id, made.request_id, made.job_id)
    journal.write("company requested", REQUESTED_EVENT, trigger=CREATED)
    return {"request_id": made.request_id, "job_id": made.job_id}


async def _waited_for(call: Call, made: dict[str, Json], until: float) -> Shown:
    """The request once the run has ended, or when nobody waits any longer."""
    tenant = call.caller.tenant
    left = until - asyncio.get_running_loop().time()
    if made["job_id"] is not None and left > 0:
        await call.context.job_end_listener.wait(made["job_id"], tenant, left)
    async with call.transaction("companies.show") as tx:
        return await _shown(call, tx, made)


async def _shown(call: Call, tx: Transaction, made: dict[str, Json]) -> Shown:
    fresh_days = _settings(call).fresh_days
    shown = await serializers.find_request(tx, call.caller.tenant, made["request_id"], fresh_days)
    if shown is None:
        raise CompanyRequestNotFound
    return shown


async def _find(call: Call, tx: Transaction) -> Shown:
    """The request of the path. Raises CompanyRequestNotFound, also for one that is not the caller's."""
    id = call.path["id"]
    found = None
    if is_id(id):
        found = await serializers.find_request(tx, call.caller.tenant, id, _settings(call).fresh_days)
    if found is None or only_of(call) not in (None, found.owner):
        raise CompanyRequestNotFound
    asked_for.set(id)
    return found


def _owner(call: Call) -> str:
    """Whose requests those of this caller are: of the user of the key, else of the key."""
    caller = call.caller
    return caller.key_id if caller.user_id == NOBODY else caller.user_id


def only_of(call: Call) -> str | None:
    """Whose requests this caller sees; None: those of all of the tenant."""
    return _owner(call) if call.caller.role == "submitter" else None


def _asking(call: Call, shown: Shown, trigger: Any) -> Asking:
    id = str(shown.request["id"])
    return Asking(shown.of, trigger, correlation.get(), shown.siret, id, actor(call))


def _note(asking: Asking, job_id: str | None) -> None:
    journal = Journal(*asking.of, asking.correlation_id, asking.request_id, job_id)
    journal.write("company requested", REQUESTED_EVENT, trigger=asking.trigger)


def _view(shown: Shown) -> View:
    view: View = {"request": shown.request, "company": shown.company}
    return view | {"enrichment_running": shown.is_running}


def _whole_view(call: Call, shown: Shown) -> View:
    """With documents and sources; a viewer is told neither of documents nor of what others noted."""
    view = _view(shown) | {"documents": [], "source_retrievals": orjson.Fragment(shown.source_retrievals)}
    if call.caller.role == "viewer":
        return view | {"request": {**shown.request, "metadata": None}}
    return view | {"documents": orjson.Fragment(shown.documents)}


def _facts(given: Identifiers) -> Json:
    return {"siren": given.siren, "siret": given.siret}


def _settings(call: Call) -> Any:
    return call.context.settings.section(CompanySettings)


def _house(call: Call) -> House:
    return House(call.context.engine_context, _settings(call))


# -- refusals ----------------------------------------------------------------------------------------------

ERRORS = {
    400: ("validation_error", "VALIDATION_ERROR"),
    401: ("unauthorized", "AUTH_ERROR"),
    403: ("forbidden", "FORBIDDEN"),
    404: ("not_found", "NOT_FOUND"),
    409: ("conflict", "CONFLICT"),
    422: ("business_rule_failed", "BUSINESS_RULE_FAILED"),
    429: ("rate_limited", "RATE_LIMIT"),
    503: ("unavailable", "INTERNAL_ERROR"),
}
UNREADABLE = frozenset({413, 415})


def answer(refusal: Refusal, request_id: str) -> Response:
    """A refusal with the seven fields. What cannot be read is 400, whatever is wrong with it."""
    status = 400 if refusal.status in UNREADABLE else refusal.status
    if status == 422 and refusal.code != MISMATCH:
        status = 400
    other = ("internal_error", "INTERNAL_ERROR") if status >= 500 else ("bad_request", refusal.code.upper())
    error, code = ERRORS.get(status, other)
    own = refusal.code if refusal.code.isupper() else code
    body = {
        "error": error,
        "code": "REFRESH_COOLDOWN" if refusal.code == "refresh_too_soon" else own,
        "message": refusal.detail,
        "details": [{"field": one.pointer.lstrip("/"), "reason": one.message} for one in _problems(refusal)],
        "correlation_id": correlation.get(request_id),
        "request_id": asked_for.get(None),
        "timestamp": clock.now().isoformat().replace("+00:00", "Z"),
    }
    return Response(orjson.dumps(body), status, media_type="application/json", headers={**refusal.headers})


def _problems(refusal: Refusal) -> tuple[Problem, ...]:
    if refusal.problems or not refusal.pointer:
        return refusal.problems
    return (Problem(refusal.code, refusal.detail, refusal.pointer),)


DESCRIBED = ApiDescription(
    ApiInfo(
        "cograil companies",
        ("Refusal", ENVELOPE),
        JSON,
        probes=(),
        operation_id=operation_id_from_function,
        statuses_sent_as_400=UNREADABLE | {422},
    ),
    (requests,),
)


def begin_under(correlation_id: str) -> str:
    """What is served from here on is served under this correlation id."""
    correlation.set(correlation_id)
    asked_for.set(None)
    return correlation_id


def company_door(instance: ApiContext) -> ASGIApp:
    """The application that serves /v1/requests; every answer says under which correlation id."""
    door = Dispatcher(replace(instance), [requests], answer)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await door(scope, receive, send)
            return
        given = request_headers(scope).get("x-correlation-id", "")
        said = begin_under(given if IS_CORRELATION(given) else new_id())

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-correlation-id", said.encode())]
            await send(message)

        await door(scope, receive, send_with_id)

    return serve


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The routes of this app, by the prefix of their paths."""
    return {PREFIX: company_door(instance)}


def described() -> ApiDescription:
    """These routes, for the reference."""
    return DESCRIBED
