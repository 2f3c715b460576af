"""/documents/capture and /v1/captures: captures, to those who sent them.

Every refusal is `{"error", "message"}`. What is malformed is 400, whatever is wrong with it; 422 is for what
is well formed and cannot be taken. Each outcome of a post is in the audit log: what was taken with the
transaction that took it, a refusal in one of its own (`refusals`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response
from starlette.types import ASGIApp

from cograil.apps.captures import audit, queries
from cograil.apps.captures.error_responses import ERROR, MALFORMED, Audited, answer
from cograil.apps.captures.ingest import Asked, Ingested, ingest, publish_workflow
from cograil.apps.captures.keyed_lock import Turns, persist
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.request import NewCapture
from cograil.apps.captures.schemas import ShownCapture, TakenCapture, Trail
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
    "response_model": TakenCapture,
    "is_type_optional": True,
    "responses": {
        202: "it is taken",
        200: "it was there, and stands so",
        409: "the id was used with another payload",
        422: "the clock of the device is too far from ours",
    },
}

captures = Router("captures", "")


class CaptureNotFound(NotFound):
    """No capture of this caller has this id."""

    code = "capture_not_found"

    def __init__(self) -> None:
        super().__init__("there is no such capture of yours")


class NotSealed(NotFound):
    """The capture is there, its proof is not."""

    code = "capture_not_sealed"

    def __init__(self, state: str) -> None:
        super().__init__(f"there is no proof: the capture is {state}")


@dataclass(slots=True)
class House(ApiContext):
    """What is behind this door: that of the API, and by which definition a tenant's captures are sealed."""

    definitions: dict[str, int] = field(default_factory=dict, kw_only=True)
    turns: Turns = field(default_factory=Turns, kw_only=True)  # of those who post one id


@captures.post(POSTED, "submitter", **POSTING)
@captures.post(PREFIX, "submitter", **POSTING)
async def post_capture(call: Call[House]) -> Response:
    """Take a capture whose object was uploaded; the same again is answered with how it stands."""
    made = await _ingest(call)
    told = {name: value for name, value in asdict(made).items() if name != "is_new"}
    return reply(told, 202 if made.is_new else 200, {"Location": f"{PREFIX}/{made.capture_id}"})


async def _ingest(call: Call[House]) -> Ingested:
    house, tenant, capture = call.context, call.caller.tenant, call.body
    if tenant not in house.definitions:
        await house.single_flight.run((PREFIX, tenant), partial(_publish, call))

    async def decide() -> Ingested:
        async with call.transaction("capture") as tx:
            return await ingest(tx, house.engine_context, house.definitions[tenant], capture, _asked(call))

    return await house.turns.take((tenant, capture.fields.capture_id), decide)


async def _publish(call: Call[House]) -> None:
    """The first of a tenant does it for all; whoever waits for an id meanwhile would keep others waiting."""
    tenant = call.caller.tenant

    async def publish() -> int:
        async with call.transaction("publish") as tx:
            return await publish_workflow(tx, tenant)

    call.context.definitions[tenant] = await persist(publish)


def _asked(call: Call[House]) -> Asked:
    settings, caller = call.context.settings.section(CaptureSettings), call.caller
    entry = call.entry("submit", capture_id=call.body.fields.capture_id)
    return Asked(
        caller.tenant,
        caller.user_id,
        call.address,
        settings.rate_per_minute,
        bool(settings.tsa_url),
        entry,
    )


@captures.get(f"{PREFIX}/{{id}}", "viewer", response_model=ShownCapture)
async def show_capture(call: Call[House]) -> Response:
    """Show how a capture of the caller's own stands."""
    async with call.transaction("show_capture") as tx:
        return reply(view_of(await _own(call, tx)))


@captures.get(f"{PREFIX}/{{id}}/proof", "viewer")
async def show_proof(call: Call[House]) -> Response:
    """Show the proof of a capture that was sealed, byte for byte as it was signed."""
    async with call.transaction("show_capture") as tx:
        own = await _own(call, tx)
        proof = await queries.find_proof(tx, own)
    if proof is None:
        raise NotSealed(own.state)
    return Response(proof.encode(), media_type="application/json")


class TrailPage(Query):
    """Which entries."""

    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = 0
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


@captures.get(f"{PREFIX}/{{id}}/audit", "viewer", query=TrailPage, response_model=Trail)
async def show_audit(call: Call[House]) -> Response:
    """Show what was asked about it and what became of it, and whether that is still as it was written.

    What comes after a page is that of `after=next_after`.
    """
    asked: TrailPage = call.query
    async with call.transaction("show_capture") as tx:
        own = await _own(call, tx)
        page = await audit.list_page(tx, own.id, asked.after, asked.limit)
    trail = {"capture_id": own.capture_id, "chain": own.id} | asdict(page)
    return Response(canonical(trail), media_type="application/json")


async def _own(call: Call[House], tx: Transaction) -> Capture:
    await queries.act_for_user(tx, call.caller.user_id)
    id = call.path["id"].lower()
    found = await queries.find_capture(tx, call.caller.tenant, id) if is_id(id) else None
    if found is None or found.user_id != call.caller.user_id:
        raise CaptureNotFound
    return found


def view_of(capture: Capture) -> dict[str, Any]:
    """A capture as its owner sees it."""
    shown = {name: value for name, value in asdict(capture).items() if name not in HIDDEN}
    return {"capture_event_id": capture.id} | shown


DESCRIBED = ApiDescription(
    ApiInfo("cograil captures", ("Error", ERROR), JSON, probes=(), statuses_sent_as_400=MALFORMED),
    (captures,),
)


def capture_door(instance: ApiContext) -> ASGIApp:
    """The application that serves captures, to the callers of this instance."""
    house = House(**{one.name: getattr(instance, one.name) for one in fields(instance)})
    door = Dispatcher(house, [captures], answer)
    return Audited(
        door,
        instance,
        lambda scope: (
            scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in (POSTED, PREFIX)
        ),
    )


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The routes of this app, by the prefix of their paths."""
    door = capture_door(instance)
    return {POSTED: door, PREFIX: door}


def described() -> ApiDescription:
    """These routes, for the reference."""
    return DESCRIBED
