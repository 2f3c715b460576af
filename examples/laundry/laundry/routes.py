"""/v1/laundry: bring a load, list loads."""

from __future__ import annotations

from cograil.plugins import (
    API_STYLE,
    ApiContext,
    ApiDescription,
    ASGIApp,
    Body,
    Call,
    Dispatcher,
    Response,
    Router,
    problem_response,
    reply,
)
from laundry.loads import bring_load, list_loads
from laundry.settings import LaundrySettings

loads = Router("laundry", "/v1")


class NewLoad(Body):
    """Body of POST /v1/laundry."""

    soap: str | None = None


@loads.post("/laundry", "submitter", body=NewLoad, responses={202: "the load will be washed"})
async def create_load(call: Call) -> Response:
    """Bring a load."""
    soap = call.body.soap or call.context.settings.section(LaundrySettings).soap
    async with call.transaction("laundry.bring") as tx:
        load = await bring_load(tx, call.context.engine_context, soap, call.caller.tenant)
        await call.audit(tx, "bring laundry", load.job_id)
    return reply(load._asdict(), 202)


@loads.get("/laundry", "viewer")
async def show_loads(call: Call) -> Response:
    """List the newest loads."""
    async with call.transaction("laundry.show") as tx:
        return reply({"loads": [load._asdict() for load in await list_loads(tx, call.caller.tenant)]})


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The routes of this app, by the prefix of their paths."""
    return {"/v1/laundry": Dispatcher(instance, [loads], problem_response)}


def described() -> ApiDescription:
    """These routes, for the reference."""
    return ApiDescription(API_STYLE, (loads,))
