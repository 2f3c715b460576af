"""/documents/capture and /v1/captures: ingest captures, and show them to their owners.

Every error is `{"error", "message"}`. A malformed request is 400; 422 is for a well-formed one that cannot be accepted.
Each outcome of a post is in the audit log: an accepted one in its own transaction, an error in a separate one
(`error_responses`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response
from starlette.types import ASGIApp

from cograil.apps.captures import audit, queries
from cograil.apps.captures.error_responses import ERROR, MALFORMED, AuditedApp, render_error
from cograil.apps.captures.ingest import IngestRequest, IngestResult, ingest, publish_workflow
from cograil.apps.captures.keyed_lock import KeyedLock, persist
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.request import NewCapture
from cograil.apps.captures.schemas import AuditTrail, CaptureView, IngestedCapture
from cograil.apps.captures.settings import CaptureSettings
from cograil.canonical_json import canonical
from cograil.errors import NotFound
from cograil.http.server.dispatcher import ApiContext, Call, Dispatcher, reply
from cograil.http.server.openapi import JSON, ApiDescription, ApiInfo
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import Router
from cograil.model.ids import is_id
from cograil.store.database import Transaction

POSTED = "/documents/capture"
PREFIX = "/v1/captures"
MAX_SEQ = 2**62
HIDDEN = frozenset({"id", "tenant_id", "user_id", "aes_gcm_nonce_b64", "aes_gcm_tag_b64", "dek_wrapped_b64"})

POSTING: dict[str, Any] = {
    "body": NewCapture,
    "response_model": IngestedCapture,
    "is_type_optional": True,
    "responses": {
        202: "the capture is accepted",
        200: "the capture exists; its current state",
        409: "the id was used with another payload",
        422: "the clock of the device differs too much from the server's",
    },
}

captures = Router("captures", "")


class CaptureNotFound(NotFound):
    """No capture of this caller has this id."""

    code = "capture_not_found"

    def __init__(self) -> None:
        super().__init__("you have no capture with this id")


class NotSealed(NotFound):
    """The capture has no proof yet."""

    code = "capture_not_sealed"

    def __init__(self, state: str) -> None:
        super().__init__(f"the capture has no proof: its state is {state}")


@dataclass(slots=True)
class CaptureContext(ApiContext):
    """The API context with the definition ids of the workflow by tenant."""

    definitions: dict[str, int] = field(default_factory=dict, kw_only=True)
    locks: KeyedLock = field(default_factory=KeyedLock, kw_only=True)  # concurrent posts of one id wait here


@captures.post(POSTED, "submitter", **POSTING)
@captures.post(PREFIX, "submitter", **POSTING)
async def post_capture(call: Call[CaptureContext]) -> Response:
    """Ingest a capture whose object was uploaded; a repeated post returns its current state."""
    result = await _ingest(call)
    body = {name: value for name, value in asdict(result).items() if name != "is_new"}
    return reply(body, 202 if result.is_new else 200, {"Location": f"{PREFIX}/{result.capture_id}"})


async def _ingest(call: Call[CaptureContext]) -> IngestResult:
    context, tenant, capture = call.context, call.caller.tenant, call.body
    if tenant not in context.definitions:
        await context.single_flight.run((PREFIX, tenant), partial(_publish, call))

    async def decide() -> IngestResult:
        async with call.transaction("capture") as tx:
            return await ingest(
                tx, context.engine_context, context.definitions[tenant], capture, _ingest_request(call)
            )

    return await context.locks.take((tenant, capture.fields.capture_id), decide)


async def _publish(call: Call[CaptureContext]) -> None:
    """Publish the workflow once per tenant, before any capture is locked."""
    tenant = call.caller.tenant

    async def publish() -> int:
        async with call.transaction("publish") as tx:
            return await publish_workflow(tx, tenant)

    call.context.definitions[tenant] = await persist(publish)


def _ingest_request(call: Call[CaptureContext]) -> IngestRequest:
    settings, caller = call.context.settings.section(CaptureSettings), call.caller
    entry = call.entry("submit", capture_id=call.body.fields.capture_id)
    return IngestRequest(
        caller.tenant,
        caller.user_id,
        call.address,
        settings.rate_per_minute,
        bool(settings.tsa_url),
        entry,
    )


@captures.get(f"{PREFIX}/{{id}}", "viewer", response_model=CaptureView)
async def show_capture(call: Call[CaptureContext]) -> Response:
    """Show a capture of the caller."""
    async with call.transaction("show_capture") as tx:
        return reply(view_of(await _own(call, tx)))


@captures.get(f"{PREFIX}/{{id}}/proof", "viewer")
async def show_proof(call: Call[CaptureContext]) -> Response:
    """Show the proof of a sealed capture, byte for byte as it was signed."""
    async with call.transaction("show_capture") as tx:
        own = await _own(call, tx)
        proof = await queries.find_proof(tx, own)
    if proof is None:
        raise NotSealed(own.state)
    return Response(proof.encode(), media_type="application/json")


class TrailPage(Query):
    """The page of the audit trail."""

    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = 0
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


@captures.get(f"{PREFIX}/{{id}}/audit", "viewer", query=TrailPage, response_model=AuditTrail)
async def show_audit(call: Call[CaptureContext]) -> Response:
    """Show the audit trail of a capture, and whether it is intact.

    Request the next page with `after=next_after`.
    """
    page_query: TrailPage = call.query
    async with call.transaction("show_capture") as tx:
        own = await _own(call, tx)
        page = await audit.list_page(tx, own.id, page_query.after, page_query.limit)
    trail = {"capture_id": own.capture_id, "chain": own.id} | asdict(page)
    return Response(canonical(trail), media_type="application/json")


async def _own(call: Call[CaptureContext], tx: Transaction) -> Capture:
    await queries.act_for_user(tx, call.caller.user_id)
    id = call.path["id"].lower()
    capture = await queries.find_capture(tx, call.caller.tenant, id) if is_id(id) else None
    if capture is None or capture.user_id != call.caller.user_id:
        raise CaptureNotFound
    return capture


def view_of(capture: Capture) -> dict[str, Any]:
    """A capture as its owner sees it."""
    visible = {name: value for name, value in asdict(capture).items() if name not in HIDDEN}
    return {"capture_event_id": capture.id} | visible


DESCRIBED = ApiDescription(
    ApiInfo("cograil captures", ("Error", ERROR), JSON, probes=(), statuses_sent_as_400=MALFORMED),
    (captures,),
)


def captures_app(instance: ApiContext) -> ASGIApp:
    """The ASGI application of captures."""
    context = CaptureContext(
        **{context_field.name: getattr(instance, context_field.name) for context_field in fields(instance)}
    )
    dispatcher = Dispatcher(context, [captures], render_error)
    return AuditedApp(
        dispatcher,
        instance,
        lambda scope: (
            scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in (POSTED, PREFIX)
        ),
    )


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The applications of this app by path prefix."""
    app = captures_app(instance)
    return {POSTED: app, PREFIX: app}


def described() -> ApiDescription:
    """The description of these routes, for the API reference."""
    return DESCRIBED
