"""/v1/requests: request a company, show it, refresh it.

Every error has the seven fields of the contract. A request for a known company returns its stored data; the first
request waits briefly for the sources and then returns 202.
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
from cograil.apps.companies.enrichment import EnrichmentContext, RunRequest
from cograil.apps.companies.enrichment_request import EnrichmentRequest, make_request
from cograil.apps.companies.identifiers import Identifiers, Wrong, doubts, read_identifiers
from cograil.apps.companies.run_log import RunLog
from cograil.apps.companies.schemas import ENVELOPE, AskedCompany, ShownCompany, WholeCompany
from cograil.apps.companies.serializers import RequestView, View
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
correlation: ContextVar[str] = ContextVar("correlation")  # of the current request
path_request_id: ContextVar[str | None] = ContextVar("path_request_id", default=None)  # once found


class CompanyRequestNotFound(NotFound):
    """No request has this id."""

    code = "company_request_not_found"

    def __init__(self) -> None:
        super().__init__("this request does not exist")


class NewCompanyRequest(Body):
    """The body of POST /v1/requests."""

    identifiers: Identifiers
    metadata: dict[str, Json] | None = None

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        fields = strict_json.read(raw, max_bytes=max_bytes)
        if not isinstance(fields, dict):
            raise Refusal(400, "validation_error", "the body must be an object")
        errors = [Wrong("UNKNOWN_FIELD", name[:64], "unknown field") for name in fields.keys() - {*FIELDS}]
        metadata = fields.get("metadata")
        if metadata is not None and not _is_metadata(metadata):
            errors.append(
                Wrong("INVALID_METADATA", "metadata", f"an object of at most {METADATA_BYTES:,} bytes")
            )
        identifiers = read_identifiers(fields.get("siren"), fields.get("siret"))
        if isinstance(identifiers, list):
            raise _refused(identifiers + errors)
        if errors:
            raise _refused(errors)
        return cast("Self", cls.model_construct(identifiers=identifiers, metadata=metadata))


def _is_metadata(value: Json) -> bool:
    return isinstance(value, dict) and len(orjson.dumps(value)) <= METADATA_BYTES


def _refused(errors: list[Wrong]) -> Refusal:
    """400, but 422 for two numbers that are well-formed and do not go together."""
    first = errors[0]
    status = 422 if first.code == MISMATCH else 400
    problems = tuple(Problem(error.code, error.reason, f"/{error.field}") for error in errors)
    return Refusal(status, first.code, first.reason, f"/{first.field}", problems=problems)


# -- the routes --------------------------------------------------------------------------------------------


@requests.post(
    "/requests",
    "submitter",
    body=NewCompanyRequest,
    request_model=AskedCompany,
    response_model=ShownCompany,
    is_type_optional=True,
    responses={
        201: "the company is known, or the run has ended",
        202: "the run is in progress; repeat the request later",
        409: "the idempotency key was used for something else, or is being used",
        422: "the numbers are of two companies",
    },
    headers=("Idempotency-Key",),
)
async def create_company_request(call: Call) -> Response:
    """Request a company. 201: it is known, or the run has ended; 202: repeat the request later."""
    until = asyncio.get_running_loop().time() + _settings(call).sync_seconds
    body: NewCompanyRequest = call.body
    key = idempotency_key(call)
    if key is None:
        async with call.transaction("companies.submit") as tx:
            ids = await _create(call, body, tx)
            shown = await _shown(call, tx, ids) if ids["job_id"] is None else None
    else:
        fingerprint = idempotency.fingerprint(
            {"given": _numbers(body.identifiers), "metadata": body.metadata}
        )
        ids, _ = await run_idempotent(
            call, request_key(call, key), fingerprint, partial(_create, call, body), "companies.submit"
        )
        shown = None
    shown = shown or await _waited_for(call, ids, until)
    view = _view(shown) | {"warnings": doubts(body.identifiers)}
    headers = {"Location": f"{PREFIX}/{ids['request_id']}"}
    return reply(view, 202 if shown.is_running else 201, headers)


@requests.get("/requests/{id}", "viewer", response_model=WholeCompany)
async def show_company_request(call: Call) -> Response:
    """Show a request, its company and its sources. Stale or missing data starts a run."""
    settings = _settings(call)
    async with call.transaction("companies.show") as tx:
        shown = await _find(call, tx)
        if not shown.is_to_run(settings.cooldown_seconds):
            return reply(_whole_view(call, shown))
    async with call.transaction("companies.submit") as tx:
        run_request = _asking(call, shown, OPENED)
        _note(run_request, await enrichment.ask(tx, _house(call), run_request))
        await call.audit(tx, "open company", shown.company_key.siren)
        shown = await _find(call, tx)
        return reply(_whole_view(call, shown))


@requests.post(
    "/requests/{id}:refresh-company",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=ShownCompany,
    is_type_optional=True,
    responses={202: "the sources are queried", 409: "they were queried a short while ago"},
)
async def refresh_company(call: Call) -> Response:
    """Query the sources again, even if the stored data is fresh."""
    async with call.transaction("companies.submit") as tx:
        shown = await _find(call, tx)
        run_request = _asking(call, shown, REFRESH)
        _note(run_request, await enrichment.refresh(tx, _house(call), run_request))
        await call.audit(tx, "refresh company", shown.company_key.siren)
        shown = await _find(call, tx)
    return reply(_view(shown), 202)


# -- their parts -------------------------------------------------------------------------------------------


async def _create(call: Call, body: NewCompanyRequest, tx: Transaction) -> dict[str, Json]:
    request = EnrichmentRequest(
        call.caller.tenant, body.identifiers, correlation.get(), actor(call), _owner(call), body.metadata
    )
    created = await make_request(tx, _house(call), request)
    await call.audit(tx, "request company", created.request_id, siren=body.identifiers.siren)
    journal = RunLog(
        request.tenant, body.identifiers.siren, request.correlation_id, created.request_id, created.job_id
    )
    journal.write("company requested", REQUESTED_EVENT, trigger=CREATED)
    return {"request_id": created.request_id, "job_id": created.job_id}


async def _waited_for(call: Call, ids: dict[str, Json], until: float) -> RequestView:
    """The request once the run has ended, or after the waiting time."""
    tenant = call.caller.tenant
    remaining = until - asyncio.get_running_loop().time()
    if ids["job_id"] is not None and remaining > 0:
        await call.context.job_end_listener.wait(ids["job_id"], tenant, remaining)
    async with call.transaction("companies.show") as tx:
        return await _shown(call, tx, ids)


async def _shown(call: Call, tx: Transaction, ids: dict[str, Json]) -> RequestView:
    fresh_days = _settings(call).fresh_days
    shown = await serializers.find_request(tx, call.caller.tenant, ids["request_id"], fresh_days)
    if shown is None:
        raise CompanyRequestNotFound
    return shown


async def _find(call: Call, tx: Transaction) -> RequestView:
    """The request of the path. Raises CompanyRequestNotFound, also for a request of another owner."""
    id = call.path["id"]
    request_view = None
    if is_id(id):
        request_view = await serializers.find_request(tx, call.caller.tenant, id, _settings(call).fresh_days)
    if request_view is None or owner_filter(call) not in (None, request_view.owner):
        raise CompanyRequestNotFound
    path_request_id.set(id)
    return request_view


def _owner(call: Call) -> str:
    """The owner of this caller's requests: the user of the key, else the key."""
    caller = call.caller
    return caller.key_id if caller.user_id == NOBODY else caller.user_id


def owner_filter(call: Call) -> str | None:
    """The owner whose requests this caller may see; None for all of the tenant."""
    return _owner(call) if call.caller.role == "submitter" else None


def _asking(call: Call, shown: RequestView, trigger: Any) -> RunRequest:
    id = str(shown.request["id"])
    return RunRequest(shown.company_key, trigger, correlation.get(), shown.siret, id, actor(call))


def _note(run_request: RunRequest, job_id: str | None) -> None:
    journal = RunLog(*run_request.company_key, run_request.correlation_id, run_request.request_id, job_id)
    journal.write("company requested", REQUESTED_EVENT, trigger=run_request.trigger)


def _view(shown: RequestView) -> View:
    view: View = {"request": shown.request, "company": shown.company}
    return view | {"enrichment_running": shown.is_running}


def _whole_view(call: Call, shown: RequestView) -> View:
    """The view with documents and sources; a viewer gets neither documents nor metadata."""
    view = _view(shown) | {"documents": [], "source_retrievals": orjson.Fragment(shown.source_retrievals)}
    if call.caller.role == "viewer":
        return view | {"request": {**shown.request, "metadata": None}}
    return view | {"documents": orjson.Fragment(shown.documents)}


def _numbers(identifiers: Identifiers) -> Json:
    return {"siren": identifiers.siren, "siret": identifiers.siret}


def _settings(call: Call) -> Any:
    return call.context.settings.section(CompanySettings)


def _house(call: Call) -> EnrichmentContext:
    return EnrichmentContext(call.context.engine_context, _settings(call))


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


def render_error(refusal: Refusal, request_id: str) -> Response:
    """The error response with the seven fields; an unreadable body is always 400."""
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
        "details": [
            {"field": problem.pointer.lstrip("/"), "reason": problem.message}
            for problem in _problems(refusal)
        ],
        "correlation_id": correlation.get(request_id),
        "request_id": path_request_id.get(None),
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


def set_correlation(correlation_id: str) -> str:
    """Set the correlation id of the current request."""
    correlation.set(correlation_id)
    path_request_id.set(None)
    return correlation_id


def company_app(instance: ApiContext) -> ASGIApp:
    """The ASGI application of /v1/requests; every response has its correlation id."""
    dispatcher = Dispatcher(replace(instance), [requests], render_error)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await dispatcher(scope, receive, send)
            return
        sent_id = request_headers(scope).get("x-correlation-id", "")
        correlation_id = set_correlation(sent_id if IS_CORRELATION(sent_id) else new_id())

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-correlation-id", correlation_id.encode())]
            await send(message)

        await dispatcher(scope, receive, send_with_id)

    return serve


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The routes of this app, by the prefix of their paths."""
    return {PREFIX: company_app(instance)}


def described() -> ApiDescription:
    """These routes, for the reference."""
    return DESCRIBED
